"""The fleets of a store: their documents, and a row for each host."""

from __future__ import annotations

import hashlib
import json
import secrets
import zlib
from collections import Counter

from sqlalchemy import (
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    select,
)

from pyxfer._baseline.store_schema import EscapedText, Number, Row, now_text, seconds_of
from pyxfer._document.codec import decode, to_sealed_json
from pyxfer._document.fleets import Fleet, FleetHost, HostPoint, KeptFleet, hosts_once
from pyxfer.errors import DocumentError, StoreError, UsageError

TABLES_3 = MetaData()

FLEETS = Table(
    "pyxfer_fleets",
    TABLES_3,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("stored_at", Text, nullable=False),
    Column("judged_at", EscapedText, nullable=False),
    Column("judged_s", Double, nullable=False),
    Column("hosts", Integer, nullable=False),
    Column("slow", Integer, nullable=False),
    Column("suspect", Integer, nullable=False),
    Column("not_judged", Integer, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Column("document", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

FLEET_HOSTS = Table(
    "pyxfer_fleet_hosts",
    TABLES_3,
    Column("fleet", Number, ForeignKey(FLEETS.c.seq), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("host", EscapedText, nullable=False),
    Column("state", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("cell", EscapedText),
    Column("loss", Double),
    Column("reason", EscapedText),
    Column("figures", EscapedText, nullable=False),
    Index("pyxfer_fleet_hosts_of_host", "host", "fleet"),
)
_NUL = "\x00"
"""PostgreSQL cannot store it."""


def upgrade_to_3(connection: Connection) -> None:
    """Create the tables of fleets."""
    TABLES_3.create_all(connection, checkfirst=False)


def new_fleet(fleet: Fleet) -> tuple[Row, list[Row]]:
    """The row of a fleet and those of its hosts."""
    if not isinstance(fleet, Fleet):
        raise UsageError(f"expected a fleet, such as pyxfer fleet judge saves, and got a {type(fleet).__name__}")
    data = to_sealed_json(fleet)
    once = hosts_once(fleet)
    counts = Counter(host.verdict for host in once)
    row = {
        "id": f"f-{secrets.token_hex(6)}",
        "stored_at": now_text(),
        "judged_at": fleet.judged_at,
        "judged_s": seconds_of(fleet.judged_at),
        "hosts": len(once),
        "slow": counts["slow"],
        "suspect": counts["suspect"],
        "not_judged": counts["not judged"],
        "sha256": hashlib.sha256(data).hexdigest(),
        "document": zlib.compress(data),
    }
    return row, [{"place": place, **_host_row(fleet, host)} for place, host in enumerate(fleet.hosts)]


def _host_row(fleet: Fleet, host: FleetHost) -> Row:
    worst = host.worst
    cells = () if host.cohort is None else fleet.cohorts[host.cohort].cells
    figures = {
        cell.name: (value, cell.usual.value)
        for cell, value in zip(cells, host.values, strict=True)
        if value is not None
    }
    return {
        "host": without_nul(host.host),
        "state": host.state,
        "verdict": host.verdict,
        "cell": None if worst is None else without_nul(worst.cell),
        "loss": None if worst is None else worst.stated,
        "reason": None if host.reason is None else without_nul(host.reason),
        "figures": json.dumps(figures),
    }


def without_nul(text: str) -> str:
    return text.replace(_NUL, "\ufffd")


def add_fleet(connection: Connection, row: Row, hosts: list[Row]) -> str:
    """Store a fleet, unless it is already stored, and return its id."""
    known = connection.execute(select(FLEETS.c.id).where(FLEETS.c.sha256 == row["sha256"]).limit(1)).scalar()
    if known is not None:
        return str(known)
    key = connection.execute(FLEETS.insert().values(row)).inserted_primary_key
    seq = int(key[0]) if key else 0
    if hosts:
        connection.execute(FLEET_HOSTS.insert(), [{"fleet": seq, **host} for host in hosts])
    return str(row["id"])


def find_fleets(connection: Connection, limit: int) -> list[KeptFleet]:
    """The newest fleets, the oldest of them first."""
    columns = (FLEETS.c.id, FLEETS.c.judged_at, FLEETS.c.hosts, FLEETS.c.slow, FLEETS.c.suspect, FLEETS.c.not_judged)
    rows = connection.execute(select(*columns).order_by(FLEETS.c.judged_s.desc(), FLEETS.c.seq.desc()).limit(limit))
    return [KeptFleet(*row) for row in rows][::-1]


def find_fleet(connection: Connection, fleet_id: str) -> Fleet | None:
    """The document of a stored fleet; None if there is none.

    Raises:
        StoreError: it has changed since it was stored.

    """
    row = connection.execute(select(FLEETS.c.sha256, FLEETS.c.document).where(FLEETS.c.id == fleet_id)).first()
    if row is None:
        return None
    try:
        data = zlib.decompress(row.document)
    except zlib.error:
        data = b""
    if hashlib.sha256(data).hexdigest() != row.sha256:
        raise StoreError(f"the fleet {fleet_id} in the store is damaged: it has changed since it was stored")
    try:
        return decode(Fleet, data, f"the fleet {fleet_id} in the store")
    except DocumentError as error:
        raise StoreError(str(error)) from error


def find_host(connection: Connection, host: str, limit: int) -> list[HostPoint]:
    """A host in the newest fleets that have it, the oldest of them first; of several documents the judged one."""
    wanted = (FLEET_HOSTS.c.host == without_nul(host)) & (FLEET_HOSTS.c.state != "duplicate")
    of_host = [FLEET_HOSTS.c[name] for name in ("state", "verdict", "cell", "loss", "reason", "figures")]
    query = select(FLEETS.c.id, FLEETS.c.judged_at, *of_host).join(FLEET_HOSTS, FLEET_HOSTS.c.fleet == FLEETS.c.seq)
    newest = query.where(wanted).order_by(FLEETS.c.judged_s.desc(), FLEETS.c.seq.desc()).limit(limit)
    points = [
        HostPoint(
            fleet=row.id,
            judged_at=row.judged_at,
            state=row.state,
            verdict=row.verdict,
            cell=row.cell,
            loss=row.loss,
            reason=row.reason,
            figures={name: (value, usual) for name, (value, usual) in json.loads(row.figures).items()},
        )
        for row in connection.execute(newest)
    ]
    return points[::-1]
