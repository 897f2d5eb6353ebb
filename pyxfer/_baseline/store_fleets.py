"""The fleets of a store: their documents, and a row for each host."""

from __future__ import annotations

import json
from collections import Counter

from sqlalchemy import Connection, select

from pyxfer._baseline.store_tables import (
    FLEET_HOSTS,
    FLEETS,
    Row,
    add_once,
    decode_stored,
    new_id,
    now_text,
    pack,
    seconds_of,
    unpack,
    without_nul,
)
from pyxfer._document.codec import to_sealed_json
from pyxfer._document.fleets import Fleet, FleetHost, HostPoint, KeptFleet, hosts_once
from pyxfer.errors import UsageError


def new_fleet(fleet: Fleet) -> tuple[Row, list[Row]]:
    """The row of a fleet and those of its hosts."""
    if not isinstance(fleet, Fleet):
        raise UsageError(f"expected a fleet, such as pyxfer fleet judge saves, and got a {type(fleet).__name__}")
    once = hosts_once(fleet)
    counts = Counter(host.verdict for host in once)
    row = {
        "id": new_id("f"),
        "stored_at": now_text(),
        "judged_at": fleet.judged_at,
        "judged_s": seconds_of(fleet.judged_at),
        "hosts": len(once),
        "slow": counts["slow"],
        "suspect": counts["suspect"],
        "not_judged": counts["not judged"],
        **pack(to_sealed_json(fleet)),
    }
    return row, [{"place": place, **_host_row(fleet, host)} for place, host in enumerate(fleet.hosts)]


def _host_row(fleet: Fleet, host: FleetHost) -> Row:
    worst = host.worst
    cells = () if host.cohort is None else fleet.cohorts[host.cohort].cells
    figures = {
        cell.cell.text: (value, cell.usual.value)
        for cell, value in zip(cells, host.values, strict=True)
        if value is not None
    }
    return {
        "host": without_nul(host.host),
        "state": host.state,
        "verdict": host.verdict,
        "cell": None if worst is None else without_nul(worst.cell.text),
        "loss": None if worst is None else worst.stated,
        "reason": None if host.reason is None else without_nul(host.reason),
        "figures": json.dumps(figures),
    }


def add_fleet(connection: Connection, row: Row, hosts: list[Row]) -> str:
    """Store a fleet, unless it is already stored, and return its id."""
    fleet_id, seq = add_once(connection, FLEETS, row, "sha256")
    if seq is not None and hosts:
        connection.execute(FLEET_HOSTS.insert(), [{"fleet": seq, **host} for host in hosts])
    return fleet_id


def find_fleets(connection: Connection, limit: int) -> list[KeptFleet]:
    """The newest fleets, the oldest of them first."""
    columns = (FLEETS.c.id, FLEETS.c.judged_at, FLEETS.c.hosts, FLEETS.c.slow, FLEETS.c.suspect, FLEETS.c.not_judged)
    rows = connection.execute(select(*columns).order_by(FLEETS.c.judged_s.desc(), FLEETS.c.seq.desc()).limit(limit))
    return [KeptFleet(*row) for row in rows][::-1]


def find_fleet(connection: Connection, fleet_id: str) -> Fleet | None:
    """The document of a stored fleet; None if there is none."""
    row = connection.execute(select(FLEETS.c.sha256, FLEETS.c.document).where(FLEETS.c.id == fleet_id)).first()
    if row is None:
        return None
    what = f"the fleet {fleet_id} in the store"
    return decode_stored(Fleet, unpack(what, row.sha256, row.document), what)


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
