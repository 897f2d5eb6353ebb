"""Runs and baselines for stores, made of the sample run, and the contents of a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from samples import make_device, make_environment, make_measurement, make_run
from sqlalchemy import Connection, create_engine, text

from pyxfer._baseline.fingerprints import fingerprint_of
from pyxfer._baseline.store import open_store
from pyxfer._document.baselines import Baseline
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Run, Share


def run_at(day: int = 1, host: str = "node-7", gpu: str | None = None, slower: float = 1.0, **overrides: Any) -> Run:
    """A run of that day of January 2026, with one measurement."""
    environment = make_environment(host=host, taken_at=f"2026-01-{day:02}T08:30:00+00:00")
    device = make_device() if gpu is None else make_device(uuid=Fact(gpu))
    copy = make_measurement(slower=slower, ceiling_share=Fact(Share(1.0, 1.0, 1.0)))
    given = {"environment": environment, "device": device, "measurements": (copy,)}
    return make_run(**{**given, **overrides})


def make_baseline(
    name: str = "default", host: str = "node-7", labels: dict[str, str] | None = None, runs: tuple[Run, ...] = ()
) -> Baseline:
    """A baseline of three processes."""
    made_of = runs or tuple(run_at(day, host) for day in (1, 2, 3))
    return Baseline(name, fingerprint_of(made_of[0]), "2026-01-04T00:00:00+00:00", labels or {}, made_of)


# --- what is in a store, without pyxfer ------------------------------------------------------------------------------


@contextmanager
def database(url: str) -> Iterator[Connection]:
    """A transaction without pyxfer."""
    engine = create_engine(url if "://" in url else f"sqlite:///{url}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with database(url) as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def keys(url: str) -> list[str]:
    """The label `key` of every run and the name of every baseline, after a check that all are complete."""
    return [*_keys_of_runs(url), *_names_of_baselines(url)]


def _keys_of_runs(url: str) -> list[str]:
    incomplete = "SELECT r.id FROM pyxfer_runs r LEFT JOIN pyxfer_measured m ON m.run = r.seq WHERE m.run IS NULL"
    assert rows(url, incomplete) == []
    stored = rows(url, "SELECT id, labels FROM pyxfer_runs ORDER BY seq")
    with open_store(url, create=False) as store:
        for run_id, _ in stored:
            store.run(run_id)
    labels = [json.loads(text) for _, text in stored]
    return [of_run["key"] for of_run in labels if of_run]  # the runs of baselines have no labels


def _names_of_baselines(url: str) -> list[str]:
    links = "SELECT b.name, COUNT(l.run) FROM pyxfer_baselines b LEFT JOIN pyxfer_baseline_runs l ON l.baseline = b.seq"
    found = rows(url, f"{links} GROUP BY b.seq, b.name")
    assert {count for _, count in found} <= {3}
    return [name for name, _ in found]
