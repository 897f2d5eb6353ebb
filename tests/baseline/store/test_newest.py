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
    """Which of these runs are found again, by their place."""
    ids = [store.add_run(each) for each in runs]
    return {ids.index(each.id) for each in store.newest_raw_runs(HOST)}


def test_of_each_gpu_the_last_that_was_stored_counts(store: Store) -> None:
    assert newest(store, run(), run("GPU-2"), run(taken_at="2026-11-21T11:00:00+00:00")) == {1, 2}


def test_a_clock_that_went_back_changes_nothing(store: Store) -> None:
    assert newest(store, run(), run(taken_at="2020-01-01T00:00:00+00:00")) == {1}


def test_runs_of_other_hosts_and_without_a_gpu_are_left_out(store: Store) -> None:
    assert newest(store, run(host="node"), run(None)) == set()


@pytest.mark.parametrize("rows", [(), (copy("h2d", None),), (copy("h2d", 55.0, route="torch.to"),)])
def test_a_run_without_raw_copies_is_passed_over(store: Store, rows: tuple[object, ...]) -> None:
    assert newest(store, run(), run(measurements=rows)) == {0}


def test_a_run_is_found_as_it_was_stored(store: Store) -> None:
    store.add_run(run())
    assert [each.run for each in store.newest_raw_runs(HOST)] == [run()]
