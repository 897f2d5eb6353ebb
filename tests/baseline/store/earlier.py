"""Stores of earlier versions of pyxfer, written by plain SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from baseline.store.making import make_baseline
from sqlalchemy import Connection, create_engine, text

from pyxfer._baseline.cells import fingerprint_of, identity
from pyxfer._baseline.store_database import APPLICATION_ID, STEPS, VERSIONS
from pyxfer._baseline.store_schema import digest_of, packed_run
from pyxfer._document.codec import to_bare_json
from pyxfer._document.runs import Run


@contextmanager
def database(url: str) -> Iterator[Connection]:
    """A transaction without pyxfer."""
    engine = create_engine(url if "://" in url else f"sqlite:///{url}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def make_version(url: str, version: int) -> None:
    """A store of that version, with a baseline of three runs."""
    with database(url) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        VERSIONS.create(connection)
        _step(connection, 1)
        _insert(connection, "pyxfer_baselines", _baseline_row())
        for place, run in enumerate(make_baseline().runs):
            sha256, document = packed_run(run)
            _insert(connection, "pyxfer_runs", {**_run_row(place, run), "sha256": sha256})
            _insert(connection, "pyxfer_documents", {"run": place + 1, "document": document})
            _insert(connection, "pyxfer_baseline_runs", {"baseline": 1, "place": place, "run": place + 1})
        for number in range(2, version + 1):
            _step(connection, number)


def _step(connection: Connection, number: int) -> None:
    STEPS[number - 1](connection)
    connection.execute(text("INSERT INTO pyxfer_schema VALUES (:n, 'then')"), {"n": number})


def _insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)


def _run_row(place: int, run: Run) -> dict[str, Any]:
    stored = {"stored_at": f"2026-01-0{place + 1}T09:00:00+00:00", "stored_s": 1767258000.0 + 86400 * place}
    taken = {"taken_at": run.environment.taken_at, "taken_s": 1767256200.0 + 86400 * place}
    device = {"gpu": run.device.uuid.value, "device": run.device.name, "runtime": run.runtime}
    of_machine = {"host": "node-7", **device, "identity": identity(fingerprint_of(run))}
    return {"id": f"r-{place:012}", **stored, **taken, **of_machine, "labels": '{"n": "\\u0000"}'}


def _baseline_row() -> dict[str, Any]:
    baseline = make_baseline()
    of_machine = {"identity": identity(baseline.fingerprint), "host": "node-7"}
    of_name = {"name": baseline.name, "made_at": baseline.made_at, "stored_at": baseline.made_at, "labels": "{}"}
    fingerprint = to_bare_json(baseline.fingerprint).decode()
    of_content = {"fingerprint": fingerprint, "sha256": digest_of(baseline)}
    return {"id": "b-000000000000", **of_name, **of_machine, **of_content}
