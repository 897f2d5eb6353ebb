"""The newest run of each GPU of a host, on either database."""

from __future__ import annotations

import msgspec
import pytest
from doctor.cases import copy, h200

from pyxfer._baseline.store import Store
from pyxfer._document.runs import Fact, Run, unknown

HOST = 'node "7"\n%'


def run(
    uuid: str | None = "GPU-1", host: str = HOST, taken_at: str = "2026-11-21T10:00:00+00:00", **fields: object
) -> Run:
    gpu: Fact[str] = unknown("host memory") if uuid is None else Fact(uuid)
    device = msgspec.structs.replace(h200().device, uuid=gpu)
    rows = {"measurements": (copy("h2d", 55.0),), **fields}
    return h200(device=device, environment={"host": host, "taken_at": taken_at}, **rows)


def newest(store: Store, *runs: Run) -> set[int]:
    """Store these runs; the positions of those that are the newest."""
    ids = [store.add_run(stored) for stored in runs]
    return {ids.index(found.id) for found in store.newest_raw_runs(HOST)}


def test_the_run_stored_last_is_the_newest_of_each_gpu(store: Store) -> None:
    assert newest(store, run(), run("GPU-2"), run(taken_at="2026-11-21T11:00:00+00:00")) == {1, 2}


def test_the_newest_run_does_not_depend_on_the_clock(store: Store) -> None:
    assert newest(store, run(), run(taken_at="2020-01-01T00:00:00+00:00")) == {1}


def test_runs_of_other_hosts_and_without_a_gpu_are_left_out(store: Store) -> None:
    assert newest(store, run(host="node"), run(None)) == set()


@pytest.mark.parametrize("rows", [(), (copy("h2d", None),), (copy("h2d", 55.0, route="torch.to"),)])
def test_runs_without_raw_copies_are_left_out(store: Store, rows: tuple[object, ...]) -> None:
    assert newest(store, run(), run(measurements=rows)) == {0}


def test_the_newest_run_equals_the_stored_run(store: Store) -> None:
    store.add_run(run())
    assert [found.run for found in store.newest_raw_runs(HOST)] == [run()]
