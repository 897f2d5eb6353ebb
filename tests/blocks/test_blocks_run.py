"""`pyxfer blocks` without a GPU: its plan, the check of contents, budgets, and what is missing."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks_samples import make_blocks_run
from command_line import interrupt_when
from msgspec.structs import replace

import pyxfer
from pyxfer._blocks import beside, calibration, session, trials
from pyxfer._blocks.choice import thresholds_of
from pyxfer._blocks.mover import BlockMover, Pool
from pyxfer._blocks.plans import BlockPlan, Request, make_request
from pyxfer._blocks.trials import BlockResources, Moves, draw_places, needed_blocks
from pyxfer._ceiling.derived import derive_run
from pyxfer._ceiling.plans import limits_of
from pyxfer._cli.failures import why_invalid
from pyxfer._document import codec
from pyxfer._document.blocks import METHODS
from pyxfer._document.machines import Fact
from pyxfer._document.runs import LEFT_OUT, ORDERS, BlockOrder, Measurement, Run, Work
from pyxfer._measure import sampler
from pyxfer._report.blocks import WORKS, beside_grid
from pyxfer._upload.settings import tuning_key
from pyxfer.errors import DocumentError, MeasurementError, UsageError
from pyxfer.native import choose
from pyxfer.native._host import testing

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pools, because the host runtime carries kernels out slowly, and rounds until each row has a trial.

    On a busy machine no precision is reached, and a run would last for its whole budget.
    """
    monkeypatch.setattr(session, "HOST_POOL_BYTES", 8 * MIB)
    monkeypatch.setattr(sampler, "MIN_ROUNDS", 0)
    monkeypatch.setattr(sampler.Series, "is_precise", lambda series, _: not series.lacks(1))


def run_blocks(**options: Any) -> Run:
    given = {"size": "4KiB", "count": "16", "budget": 20, "precision": 1.0, "seed": 1, **options}
    return pyxfer.blocks("host", **given)


def rows_of(run: Run) -> list[Measurement]:
    return [row for row in run if row.block_bytes is not None]


# --- the plan --------------------------------------------------------------------------------------------------------


def request_of(**options: Any) -> Request:
    given: dict[str, Any] = {"direction": ("h2d", "d2h", "both"), "memory": ("pinned", "pageable"), "method": METHODS}
    given |= {"order": ORDERS, "size": None, "count": None, **options}
    return make_request("host", **given, limits=limits_of(0.05, 1.0, 1))


def plans(**options: Any) -> tuple[BlockPlan, ...]:
    return request_of(**options).plans(128 * MIB)


def test_the_default_plan_has_every_cell_of_its_table() -> None:
    found = plans()
    table = {(plan.block_bytes, plan.count) for plan in found if plan.order == "random" and plan.direction == "h2d"}
    assert {(512, 100_000), (4 * KIB, 16_384), (64 * KIB, 1024), (4 * MIB, 16)} <= table
    for size, count in table:
        here = {plan for plan in found if (plan.block_bytes, plan.count, plan.order) == (size, count, "random")}
        for direction in ("h2d", "d2h"):
            methods = {plan.method for plan in here if (plan.direction, plan.memory) == (direction, "pinned")}
            assert {"batch", "kernel"} <= methods
    assert all(plan.nbytes <= 128 * MIB for plan in found)
    assert {plan.order for plan in found} == set(ORDERS)
    assert any(plan.direction == "both" for plan in found)
    assert len(found) == len({plan.key for plan in found})


@pytest.mark.parametrize(
    ("fields", "has_kernel", "most"),
    [
        ({}, True, {"loop": 256, "batch": 1024, "kernel": 100_000}),
        ({}, False, {"loop": 4096, "batch": 100_000, "kernel": 100_000}),
        ({"count": "100000", "size": "512"}, True, {"loop": 100_000, "batch": 100_000, "kernel": 100_000}),
    ],
)
def test_many_copies_are_timed_where_no_kernel_is_faster(
    fields: dict[str, str], has_kernel: bool, most: dict[str, int]
) -> None:
    request = request_of(**fields)
    needed = [plan for plan in plans(**fields) if request.is_needed(plan, has_kernel=has_kernel)]
    assert {method: max(plan.count for plan in needed if plan.method == method) for method in most} == most


def test_cells_from_which_the_others_can_be_told_come_first() -> None:
    first = plans()[:40]
    assert {plan.order for plan in first} == {"random"}
    assert {plan.direction for plan in first} >= {"h2d", "d2h"}


def test_given_sizes_and_counts_are_measured_in_all_combinations() -> None:
    found = plans(size="4KiB,3000", count="7,9", memory="pinned", direction="h2d", method="loop", order="random")
    cells = {(plan.block_bytes, plan.count) for plan in found}
    assert cells == {(size, count) for size in (3000, 4 * KIB) for count in (7, 9)}
    assert len(found) == len(cells)


def test_strided_needs_order_and_pageable_memory_is_packed_or_looped() -> None:
    found = plans(size="4KiB", count="64")
    assert {plan.order for plan in found if plan.method == "strided"} == {"ordered"}
    assert {plan.method for plan in found if plan.memory == "pageable"} == {"loop", "packed"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "strided", "order": "random"}, "strided cannot move blocks"),
        ({"memory": "pageable", "method": "kernel"}, "kernel cannot move blocks"),
        ({"memory": "registered"}, "memory"),
        ({"method": "teleport"}, "method"),
        ({"size": "1GiB"}, "size 1 GiB is too large: give at most 64 MiB."),
        ({"count": "16KiB"}, "count '16KiB' is not a list of at most 200 whole numbers above zero: write numbers"),
        ({"count": "2000000"}, "count 2,000,000 is too large: give at most 1,000,000 blocks."),
        ({"size": "1MiB", "count": "1000"}, "A trial moves at most 1 MiB on this host"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        run_blocks(**options)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 15, 16, 64])
def test_places_name_no_block_twice_and_none_outside(order: BlockOrder, count: int) -> None:
    blocks = 2 * needed_blocks(order, count)
    for seed in range(20):
        for indices in draw_places(order, blocks, count, np.random.default_rng(seed)):
            assert (indices.dtype.name, indices.size) == ("int64", count)
            named = indices.tolist()
            assert len(set(named)) == count
            assert 0 <= min(named) <= max(named) < blocks
            steps = set(np.diff(indices).tolist())
            if order == "ordered":
                assert steps <= {2}
            if order == "runs" and count > 1:
                assert 1 in steps


# --- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_has_a_row_for_each_method_with_checked_contents() -> None:
    run = run_blocks(direction="h2d,d2h", order="ordered,runs,random")
    assert (run.kind, run.ended, run.runtime) == ("blocks", "complete", "host")
    assert run.blocks is not None
    rows = rows_of(run)
    assert {row.mode for row in rows} == set(METHODS)
    assert {row.variant for row in rows} == set(ORDERS)
    assert all(row.gbps and row.verified.value for row in rows), [row for row in rows if not row.gbps]
    assert {(row.block_bytes, row.batch, row.nbytes) for row in rows} == {(4 * KIB, 16, 64 * KIB)}
    assert all(row.dispatch_s and row.elapsed_s and row.dispatch_s <= row.elapsed_s for row in rows)
    assert all(row.of_ceiling and row.first_s.value for row in rows)
    assert codec.decode(Run, codec.encode(run)) == run == derive_run(run)


def test_both_ways_have_their_sides_and_the_sum() -> None:
    run = run_blocks(direction="both", memory="pinned", order="random")
    rows = {(row.mode, row.side): row for row in rows_of(run)}
    assert rows.keys() == {(mode, side) for mode in ("loop", "batch", "kernel") for side in ("h2d", "d2h", "sum")}
    assert all(row.gbps and row.verified.value for row in rows.values())
    assert codec.decode(Run, codec.encode(run)) == run
    assert run.ceiling("both").side == "sum"


def test_large_cells_are_checked_too() -> None:
    run = run_blocks(size="32KiB", count="32", memory="pinned", order="random", method="loop", direction="h2d,d2h")
    assert [row.verified.value for row in rows_of(run)] == [True, True]


def test_sizes_that_are_no_words_of_a_kernel_have_a_reason() -> None:
    run = run_blocks(size="1000", direction="h2d", order="random", memory="pinned")
    by_method = {row.mode: row for row in rows_of(run)}
    assert by_method["loop"].gbps
    assert "multiples of 16" in str(by_method["kernel"].rate.reason)


class Faulty(BlockMover):
    """Does what `fault` says after each move."""

    fault = ""

    def move(
        self,
        method: Any,
        source: Pool,
        destination: Pool,
        source_indices: Any,
        destination_indices: Any,
        block_bytes: int,
        stream: int | None,
        *,
        wait: bool = False,
    ) -> None:
        indices = (source_indices, destination_indices)
        if self.fault == "nothing":
            return
        if self.fault == "failing":
            raise MeasurementError("an error of its own")
        if self.fault == "swapped":
            indices = (source_indices[::-1].copy(), destination_indices)
        super().move(method, source, destination, *indices, block_bytes, stream, wait=wait)
        self.wait(stream)
        last = int(destination_indices[-1])
        places = {
            "a wrong byte": last * block_bytes + block_bytes // 2,
            "a byte behind": (last + 1) * block_bytes if last + 1 < destination.blocks else last * block_bytes - 1,
            "a byte before": last * block_bytes - 1 if last else (last + 1) * block_bytes,
        }
        if self.fault in places:
            byte = ctypes.c_uint8.from_address(destination.address + places[self.fault])
            byte.value ^= 1


@pytest.fixture(scope="module")
def resources() -> Iterator[BlockResources]:
    engine = choose("host").engine
    found = BlockResources(engine, 0, 30.0)
    found.make_pools(["pinned"], MIB)
    found.use(Faulty(engine, 0))
    yield found
    assert not found.close()


@pytest.mark.parametrize("direction", ["h2d", "d2h", "both"])
@pytest.mark.parametrize("fault", ["", "nothing", "swapped", "a wrong byte", "a byte behind", "a byte before"])
@pytest.mark.parametrize("window_bytes", [8 * MIB, 16 * KIB])
def test_a_mover_that_writes_what_it_should_not_is_found(
    direction: Any, fault: str, window_bytes: int, monkeypatch: pytest.MonkeyPatch, resources: BlockResources
) -> None:
    monkeypatch.setattr(Faulty, "fault", fault)
    monkeypatch.setattr(trials, "WINDOW_BYTES", window_bytes)
    moves = Moves(BlockPlan(direction, "pinned", "loop", "random", 4 * KIB, 15), resources, None, seed=1)
    is_right, first_s = moves.verify()
    assert is_right == (fault == "")
    assert first_s > 0


@pytest.mark.parametrize(
    ("direction", "block_bytes", "count", "calls", "elapsed_s"),
    [
        ("h2d", 4 * KIB, 16, trials.WAKING_CALLS + trials.TIMED_CALLS, 3.0),
        ("h2d", 1 * KIB, 128, trials.WAKING_CALLS + 1, 5.0),
        ("h2d", 32 * KIB, 24, 1, 9.0),
        ("both", 4 * KIB, 16, 1, 9.0),
    ],
)
def test_a_trial_of_few_blocks_is_the_median_of_calls_after_others(
    direction: Any,
    block_bytes: int,
    count: int,
    calls: int,
    elapsed_s: float,
    monkeypatch: pytest.MonkeyPatch,
    resources: BlockResources,
) -> None:
    moves = Moves(BlockPlan(direction, "pinned", "loop", "random", block_bytes, count), resources, None, seed=1)
    monkeypatch.setattr(trials, "FEW_BYTES", 512 * KIB)
    left = [9.0, 9.0, 5.0, 1.0, 2.0, 4.0, 3.0]
    monkeypatch.setattr(moves, "_timed", lambda *_: {"h2d": (time_s := left.pop(0), time_s / 10)})
    trial = moves.trial(1)["h2d"]
    assert (trial.round, trial.elapsed_s, trial.dispatch_s) == (1, elapsed_s, elapsed_s / 10)
    assert len(left) == 7 - calls


def test_the_pool_in_ordinary_memory_is_smaller_and_limits_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MAX_PAGEABLE_BYTES", MIB)
    found = BlockResources(choose("host").engine, 0, 30.0)
    try:
        found.make_pools(["pinned", "pageable"], 4 * MIB)
        blocks = {
            memory: {pool.blocks for way in trials.ways_of(plan, found) for pool in (way.source, way.destination)}
            for memory in ("pinned", "pageable")
            for plan in [BlockPlan("d2h", memory, "loop", "random", 4 * KIB, 8)]
        }
        assert blocks == {"pinned": {1024}, "pageable": {256}}
    finally:
        assert not found.close()


def test_wrong_contents_have_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BlockMover", Faulty)
    monkeypatch.setattr(Faulty, "fault", "swapped")
    run = run_blocks(direction="h2d", memory="pinned", method="loop", order="random")
    (row,) = rows_of(run)
    assert (row.verified.value, row.gbps) == (False, None)
    assert why_invalid(run) == "Data arrived wrong, so the results are invalid."


def test_a_device_without_kernels_and_batch_calls_has_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(BlockMover):
        has_batch = False
        no_kernel = "the driver has no compiler"

        def methods(self, *_: Any) -> Any:
            return ("loop", "strided")

    monkeypatch.setattr(session, "BlockMover", Old)
    run = run_blocks(direction="h2d", memory="pinned", order="random")
    rows = {row.mode: row for row in rows_of(run)}
    assert rows["loop"].gbps
    assert "CUDA 12.8" in str(rows["batch"].rate.reason)
    assert rows["kernel"].rate.reason == "the driver has no compiler"
    assert not why_invalid(run)


def test_a_method_that_fails_leaves_the_others_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(BlockMover):
        def move(self, method: Any, *arguments: Any, **more: Any) -> None:
            if method == "batch":
                raise MeasurementError("cuMemcpyBatchAsync: an error of its own")
            super().move(method, *arguments, **more)

    monkeypatch.setattr(session, "BlockMover", Failing)
    rows = {row.mode: row for row in rows_of(run_blocks(direction="h2d", memory="pinned", order="random"))}
    assert rows["loop"].gbps
    assert "cuMemcpyBatchAsync" in str(rows["batch"].rate.reason)


def test_a_short_budget_leaves_cells_out_and_says_so() -> None:
    begun_s = time.perf_counter()
    run = run_blocks(size=None, count=None, budget=0.2)
    assert time.perf_counter() - begun_s < 30
    rows = rows_of(run)
    assert any(row.gbps for row in rows)
    assert any(row.rate.reason == LEFT_OUT for row in rows)
    assert any(remark.code == "late" for remark in run.remarks)


def test_an_edited_row_is_derived_anew() -> None:
    run = run_blocks(direction="h2d", memory="pinned", order="random", method="loop")
    rows = tuple(replace(row, memory="pageable", mode="kernel", bracket="gated") for row in run.measurements[1:])
    edited = replace(run, kind="ceiling", measurements=(run.measurements[0], *rows))
    again = derive_run(edited)
    assert (again.kind, again.measurements) == ("blocks", run.measurements)


def test_ctrl_c_returns_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    small = ("--size", "4KiB", "--count", "16", "--memory", "pinned", "--budget", "60s", "--precision", "0.01%")
    result = interrupt_when("measuring", "blocks", "--device", "host", *small, "--export-json", str(path))
    assert result.returncode == 130, result.stderr
    assert "Interrupted" in result.stdout
    run = codec.load(path)
    assert run.ended == "interrupted"
    assert any(row.gbps for row in rows_of(run))


def test_an_interrupted_run_leaves_the_thresholds_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.json"
    path.write_text("earlier", encoding="utf-8")
    small = ("--size", "4KiB", "--count", "16", "--memory", "pinned", "--budget", "60s", "--precision", "0.01%")
    result = interrupt_when("measuring", "blocks", "--device", "host", *small, "--export-thresholds", str(path))
    assert result.returncode == 130, result.stderr
    assert path.read_text(encoding="utf-8") == "earlier"
    assert f"'{path}' was left as it is" in result.stderr


def test_the_command_writes_thresholds(tmp_path: Path, command: Any) -> None:
    path = tmp_path / "thresholds.json"
    words = ("--size", "4KiB", "--count", "16", "--direction", "h2d", "--memory", "pinned", "--order", "random")
    result = command("blocks", "--device", "host", *words, "--budget", "5s", "--export-thresholds", str(path))
    assert result.returncode == 0, result.stderr
    (table,) = json.loads(path.read_text(encoding="utf-8"))["tables"]
    assert (table["direction"], table["memory"], table["order"]) == ("h2d", "pinned", "random")
    (cell,) = table["cells"]
    assert set(cell["seconds"]) == {"loop", "batch", "kernel", "packed"}


# --- work beside blocks ----------------------------------------------------------------------------------------------


@pytest.fixture
def _small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORK_BYTES": 4 * KIB, "THREADS": 256, "COMPUTE_ROUNDS": 1, "COUNT": 2}.items():
        monkeypatch.setattr(beside, name, value)


@pytest.mark.usefixtures("_small_work")
def test_work_is_timed_alone_and_beside_each_method(resources: BlockResources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "fault", "")
    plans = beside.plans_beside(lambda plan: plan.direction == "h2d", MIB)
    assert [plan.method for plan in plans] == ["kernel", "batch"]
    found = beside.measure_beside(resources, plans, 1).value
    assert found is not None
    cases = [(each.work, each.method) for each in found]
    assert cases == [("copy", "kernel"), ("copy", "batch"), ("compute", "kernel"), ("compute", "batch")]
    assert [each.multiprocessors > 0 for each in found] == [True, False, True, False]
    assert {len(times) for each in found for times in (each.alone_s, each.beside_s)} == {beside.ROUNDS}
    assert found[0].alone_s != found[2].alone_s


@pytest.mark.usefixtures("_small_work")
def test_without_kernels_no_work_is_timed(resources: BlockResources) -> None:
    plans = beside.plans_beside(lambda plan: plan.method == "batch", MIB)
    testing.fail("cuModuleLoadData", 1, 209)
    found = beside.measure_beside(resources, plans, 1)
    assert found.value is None
    assert "not available" in str(found.reason)


@pytest.mark.usefixtures("_small_work")
def test_a_method_that_fails_beside_work_ends_the_measurement(
    resources: BlockResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "fault", "failing")
    plans = beside.plans_beside(lambda plan: plan.method == "batch", MIB)
    assert beside.measure_beside(resources, plans, 1).reason == "an error of its own"


def test_without_a_gpu_no_multiprocessor_is_taken() -> None:
    run = run_blocks(direction="h2d", memory="pinned", order="random", method="loop")
    assert run.blocks is not None
    assert "multiprocessor" in str(run.blocks.beside.reason)


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_calibration_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_POOL_BYTES", 2 * MIB)
    monkeypatch.setattr(calibration, "_TRIAL_BYTES", 64 * KIB)
    environ = {"PYXFER_CACHE": str(tmp_path)}
    engine = choose("host").engine
    mover = BlockMover(engine, 0)
    made = calibration.choices_for(engine, 0, mover, environ)
    assert made.thresholds.made_by == "calibration"
    assert made.method_for("h2d", "pinned", 4 * KIB, 1) in METHODS
    assert made.method_for("d2h", "pinned", 4 * KIB, 1) in METHODS
    assert (tmp_path / "blocks.json").exists()
    monkeypatch.setattr(calibration, "calibrate", None)  # it is not called again
    assert calibration.choices_for(engine, 0, mover, environ).thresholds == made.thresholds
    mover.wait()  # the calibration has not closed it
    mover.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 99}', '{"schema_version": 1, "kept": 3}'])
def test_a_file_that_is_none_keeps_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "blocks.json").write_text(content, encoding="utf-8")
    environ = {"PYXFER_CACHE": str(tmp_path)}
    engine = choose("host").engine
    key = tuning_key(engine, 0)
    assert calibration.find_kept(key, environ) is None
    run = run_blocks(direction="h2d,d2h", memory="pinned", order="random", method="loop")
    calibration.keep(key, thresholds_of(run), environ)
    kept = calibration.find_kept(key, environ)
    assert kept is not None
    assert kept.made_by == "run"
    assert calibration.find_kept(replace(key, driver="another"), environ) is None


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    engine = choose("host").engine
    key = tuning_key(engine, 0)
    run = run_blocks(direction="h2d", memory="pinned", order="random", method="loop")
    (tmp_path / "file").write_text("", encoding="utf-8")
    for environ in ({"PYXFER_CACHE": "off"}, {"PYXFER_CACHE": str(tmp_path / "file")}):
        calibration.keep(key, thresholds_of(run), environ)
        assert calibration.find_kept(key, environ) is None


# --- stored and compared ---------------------------------------------------------------------------------------------


def test_runs_are_compared_cell_by_cell() -> None:
    run = make_blocks_run()
    found = pyxfer.compare(run, run)
    assert len(found.cells) == len({row.cell for row in found.cells}) == len(run)
    texts = {row.cell.text for row in found.cells}
    assert len(texts) == len(run)
    assert "blocks.kernel:h2d:pinned:16KiBx64" in texts


def test_a_store_has_the_history_of_a_cell(tmp_path: Path) -> None:
    with pyxfer.open_store(tmp_path / "xfer.db") as store:
        store.add_run(make_blocks_run())
        (group,) = store.history(cell="blocks.kernel:h2d:pinned:16KiBx64").groups
    assert group.cell.text == "blocks.kernel:h2d:pinned:16KiBx64"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"alone_s": (1e-5,)}, "has not as many times alone as beside blocks"),
        ({"alone_s": (), "beside_s": ()}, "has not as many times alone as beside blocks"),
    ],
)
def test_a_document_with_times_that_do_not_fit_is_refused(change: dict[str, Any], text: str) -> None:
    run = make_blocks_run()
    assert run.blocks is not None
    found = run.blocks.beside.value or ()
    pools = replace(run.blocks, beside=Fact((replace(found[0], **change), *found[1:])))
    with pytest.raises(DocumentError, match=text):
        codec.decode(Run, codec.encode(replace(run, blocks=pools)))


def with_works(*works: Work) -> Run:
    run = make_blocks_run()
    assert run.blocks is not None
    found = tuple(each for each in run.blocks.beside.value or () if each.work in works)
    return replace(run, blocks=replace(run.blocks, beside=Fact(found)))


def test_a_document_without_the_name_of_the_work_has_copies() -> None:
    content = json.loads(codec.encode(with_works("copy")))
    works = [each.pop("work") for each in content["blocks"]["beside"]["value"]]
    assert set(works) == {"copy"}
    read = codec.decode(Run, codec.seal(json.dumps(content).encode()))
    assert read.blocks is not None
    assert [each.work for each in read.blocks.beside.value or ()] == works


def test_the_page_has_a_column_for_each_work() -> None:
    headings: dict[tuple[Work, ...], list[str]] = {}
    cases: tuple[tuple[Work, ...], ...] = (("copy",), ("copy", "compute"))
    for works in ((), *cases):
        grid = beside_grid(with_works(*works))
        if grid is not None:
            names, rows = grid.readable()
            headings[works] = names[2:]
            assert [row[1].text for row in rows] == ["kernel", "batch call"] * 2
    assert headings == {works: [WORKS[work] for work in works] for works in cases}


def test_a_row_of_blocks_that_the_run_was_not_asked_for_is_refused() -> None:
    run = make_blocks_run()
    rows = (*run.measurements[:-1], replace(run.measurements[-1], batch=3))
    with pytest.raises(DocumentError, match="is of blocks that the run was not asked for"):
        codec.decode(Run, codec.encode(replace(run, measurements=rows)))


def test_without_memory_for_a_calibration_nothing_is_chosen_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_POOL_BYTES", 1 << 62)
    engine = choose("host").engine
    mover = BlockMover(engine, 0)
    made = calibration.choices_for(engine, 0, mover, {"PYXFER_CACHE": str(tmp_path)})
    assert made.method_for("h2d", "pinned", 4 * KIB, 1) is None
    assert not list(tmp_path.iterdir())
    mover.close()
