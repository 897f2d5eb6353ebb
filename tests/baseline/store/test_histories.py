"""The history of cells over time."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from baseline.store.making import make_baseline, run_at
from msgspec.structs import replace
from samples import KIB, MIB, PAGEABLE, make_device, make_environment, make_measurement, make_missing

from pyxfer import UsageError
from pyxfer._baseline import store as stores
from pyxfer._baseline.store import Store
from pyxfer._baseline.store_tables import parse_since
from pyxfer._document.machines import Fact, unknown


def days_of(store: Store, since: str | None = None) -> list[int]:
    (group,) = store.history(since=since).groups
    return [int(point.taken_at[8:10]) for point in group.points]


def test_a_history_has_every_run_in_order_of_time(store: Store) -> None:
    for day in (3, 1, 2):
        store.add_run(run_at(day, slower=1 + day / 100))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert [point.taken_at[:10] for point in group.points] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert group.median_gbps == group.points[1].gbps
    assert [round(point.change, 4) for point in group.points] == [1.0099, 1.0, 0.9903]
    assert (group.host, group.cell_text, group.remarks) == ("node-7", "h2d:pinned:16MiB", ())


def test_hosts_and_cells_are_separate_groups(store: Store) -> None:
    both = (make_measurement(), make_measurement(4 * KIB), make_measurement(route=PAGEABLE, memory="pageable"))
    store.add_run(run_at(1, host="b", measurements=both))
    store.add_run(run_at(1, host="a", measurements=both))
    found = [(group.host, group.cell_text) for group in store.history("h2d:pinned").groups]
    assert found == [(host, f"h2d:pinned:{size}") for host in "ab" for size in ("4KiB", "16MiB")]
    assert [group.host for group in store.history("h2d:pageable", host="a").groups] == ["a"]


def test_the_default_cell_is_pinned_memory_at_the_largest_size_of_the_newest_run(store: Store) -> None:
    sizes = (make_measurement(4 * KIB), make_measurement(), make_measurement(16 * MIB, "d2h"))
    store.add_run(run_at(1, measurements=sizes))
    assert [group.cell_text for group in store.history().groups] == ["d2h:pinned:16MiB", "h2d:pinned:16MiB"]


def test_without_pinned_memory_the_default_cell_is_the_first(store: Store) -> None:
    store.add_run(run_at(1, measurements=(make_measurement(route=PAGEABLE, memory="pageable", mode="memcpy"),)))
    assert [group.cell_text for group in store.history().groups] == ["h2d:pageable:16MiB"]


def test_the_workers_of_frameworks_are_separate_groups(store: Store) -> None:
    beside = tuple(make_measurement(worker=name) for name in ("torch", "jax"))
    store.add_run(run_at(1, measurements=(*beside, make_measurement())))
    assert [group.worker for group in store.history().groups] == [None, "jax", "torch"]


def test_measurements_without_a_time_or_with_wrong_contents_are_left_out(store: Store) -> None:
    store.add_run(run_at(1, measurements=(make_missing(), make_measurement(verified=Fact(False)))))
    assert store.history("h2d:pinned").groups == ()


def test_two_machines_of_one_name_are_separate_groups_with_a_remark(store: Store) -> None:
    for gpu in ("GPU-one", "GPU-two"):
        store.add_run(run_at(1, gpu=gpu))
    found = store.history()
    assert [group.gpu.value for group in found.groups] == ["GPU-one", "GPU-two"]
    assert [remark.code for remark in found.remarks] == ["same-name"]


def test_host_memory_is_a_separate_group(store: Store) -> None:
    store.add_run(run_at(1))
    memory = make_device(runtime="host", name="host memory", uuid=unknown("not a GPU"))
    store.add_run(run_at(1, device=memory, runtime="host"))
    assert [(group.runtime, group.device) for group in store.history().groups] == [
        ("host", "host memory"),
        ("cuda", "NVIDIA H200"),
    ]


def test_since_leaves_out_older_points(store: Store) -> None:
    for day in (1, 2, 3):
        store.add_run(run_at(day))
    assert days_of(store, since="2026-01-02") == [2, 3]
    assert store.history(since="1min").groups == ()


@pytest.mark.parametrize(
    ("text", "ago_s"), [("30d", 30 * 86400), ("12h", 43200), ("90min", 5400), ("2w", 1209600), (" 1 y ", 31536000)]
)
def test_since_may_be_a_duration(text: str, ago_s: int) -> None:
    assert parse_since(text, now_s=1e9) == 1e9 - ago_s


@pytest.mark.parametrize(
    "text", ["2026-01-31", "2026-01-31T00:00:00", "2026-01-31T00:00:00Z", "2026-01-31T01:00:00+01:00"]
)
def test_since_may_be_a_date(text: str) -> None:
    assert parse_since(text) == datetime(2026, 1, 31, tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize("text", ["", "soon", "30", "30 days", "-3d", "9999999d", "2026-13-01", "1e9", "0000-01-01"])
def test_an_invalid_since_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write 30d, 12h or a date"):
        parse_since(text)


def test_after_the_clock_went_back_points_are_in_the_order_of_storing(store: Store) -> None:
    later = make_environment(taken_at="2999-01-01T00:00:00+00:00")
    for environment in (run_at(2).environment, later, run_at(1).environment):
        store.add_run(run_at(environment=environment))
    (group,) = store.history().groups
    assert [point.taken_at[:10] for point in group.points] == ["2026-01-02", "2999-01-01", "2026-01-01"]
    assert [remark.code for remark in group.remarks] == ["clock"]


def test_storing_an_old_run_later_does_not_mean_that_the_clock_went_back(store: Store) -> None:
    store.add_run(run_at(5))
    store.add_baseline(make_baseline())
    assert days_of(store) == [1, 2, 3, 5]
    assert store.history().groups[0].remarks == ()


def test_of_more_points_than_the_limit_the_newest_are_shown_with_a_remark(store: Store) -> None:
    for day in (1, 2, 3, 4):
        store.add_run(run_at(day))
    found = store.history("h2d:pinned:16MiB", limit=3)
    assert [point.taken_at[8:10] for point in found.groups[0].points] == ["02", "03", "04"]
    assert [remark.code for remark in found.remarks] == ["limit"]


def test_an_empty_history_has_a_remark(store: Store) -> None:
    assert "no run yet" in store.history().remarks[0].text
    store.add_run(run_at())
    found = store.history("d2h:pinned", host="node-8")
    assert found.groups == ()
    assert [remark.code for remark in found.remarks] == ["nothing"]
    assert "(the cell 'd2h:pinned', the host 'node-8')" in found.remarks[0].text


def test_more_than_200_cells_are_refused(store: Store) -> None:
    store.add_run(run_at(measurements=tuple(replace(make_measurement(), nbytes=n) for n in range(1, 202))))
    with pytest.raises(UsageError, match="matches 201 cells"):
        store.history("h2d")


def test_runs_without_measurements_are_not_the_newest(store: Store) -> None:
    store.add_run(run_at(measurements=()))
    assert "the store has 1 run, without measurements" in store.history().remarks[0].text
    store.add_run(run_at(day=2))
    for day in range(3, 25):
        store.add_run(run_at(day=day, measurements=()))
    assert len(store.history().groups) == 1


def test_a_slow_time_that_has_ended_is_two_changes(store: Store) -> None:
    for day in range(1, 29):
        store.add_run(run_at(day, slower=(1.06 if 12 <= day < 19 else 1.0) + day % 3 / 1000))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert [change.taken_at[8:10] for change in group.changes] == ["12", "19"]
    assert [round(change.share, 2) for change in group.changes] == [-0.06, 0.06]


def test_a_history_without_a_change_has_the_loss_that_would_have_been_found(store: Store) -> None:
    for day in range(1, 29):
        store.add_run(run_at(day, slower=1 + day % 3 / 1000))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert (group.changes, group.drift) == ((), None)
    assert group.limit.value is not None
    assert 0.001 < group.limit.value.loss < 0.01
    assert group.limit.value.runs >= 5


def test_runs_that_follow_their_neighbours_have_a_remark(store: Store) -> None:
    slow = [1, 2, 3, 3, 4, 4, 3, 2, 1, 1, 2, 3, 4, 4, 4, 3, 3, 2, 1, 1, 1, 2, 3, 4, 4, 3, 2, 1]
    for day, level in enumerate(slow, start=1):
        store.add_run(run_at(day, slower=1 + level / 200))
    (group,) = store.history("h2d:pinned:16MiB").groups
    assert [remark.code for remark in group.remarks] == ["correlated"]


# --- many rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (stores._Query(None, None, None, None, 100), "pyxfer_measured_cell"),
        (stores._Query(None, None, "node-7", None, 100), "pyxfer_measured_host"),
        (stores._Query(None, None, None, 1e9, 100), "pyxfer_measured_cell"),
    ],
    ids=["a cell", "a host's cell", "since"],
)
def test_a_history_reads_an_index_and_not_every_row(tmp_path: Path, query: stores._Query, index: str) -> None:
    with stores.open_store(tmp_path / "store.db") as store:
        store.add_run(run_at())
        store.add_baseline(make_baseline())
        with store._database.reading() as connection:
            text = str(stores._points(1, query, 10).compile(connection, compile_kwargs={"literal_binds": True}))
            plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
    assert any(f"USING INDEX {index}" in step for step in plan)
    assert not any(step.startswith("SCAN pyxfer_") for step in plan)
