"""From the rows of a run of blocks to thresholds and choices."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from blocks_samples import make_blocks_run, make_row, make_run_with, make_without_kernels, seconds_of

from pyxfer._blocks.choice import (
    RULES,
    Choices,
    Knee,
    Place,
    cells_of,
    costs_of,
    is_slower,
    knees_of,
    thresholds_json,
    thresholds_of,
)
from pyxfer._blocks.plans import BlockPlan
from pyxfer._document.blocks import BlockDirection, BlockMethod
from pyxfer._document.machines import Fact
from pyxfer._document.runs import BlockOrder, Measurement, Run

H2D = Place("h2d", "pinned", "random")
KIB = 1 << 10
QUEUED: tuple[BlockMethod, ...] = ("loop", "batch", "kernel")
NEVER: tuple[BlockMethod, ...] = ("strided",)


def plan(method: BlockMethod, nbytes: int = 16 * KIB, count: int = 256, **fields: Any) -> BlockPlan:
    given = {"direction": "h2d", "memory": "pinned", "order": "random", **fields}
    return BlockPlan(method=method, block_bytes=nbytes, count=count, **given)


def run_of(*rows: Measurement) -> Run:
    return make_run_with(list(rows))


def test_the_fastest_method_is_the_best_of_its_cell() -> None:
    run = run_of(*make_row(plan("kernel"), 40.0), *make_row(plan("batch"), 10.0), *make_row(plan("loop"), 5.0))
    (cell,) = cells_of(run)[H2D]
    assert (cell.block_bytes, cell.count, cell.best.mode, cell.equal) == (16 * KIB, 256, "kernel", ("kernel",))
    assert cell.times("batch") == pytest.approx(4.0)
    assert cell.times("packed") is None


def test_methods_that_are_faster_in_some_rounds_are_equal() -> None:
    run = run_of(*make_row(plan("kernel"), 40.0), *make_row(plan("batch"), 39.95), *make_row(plan("loop"), 5.0))
    assert cells_of(run)[H2D][0].equal == ("kernel", "batch")


def test_with_too_few_trials_for_an_interval_a_method_that_takes_twice_as_long_is_slower() -> None:
    rows = [*make_row(plan("kernel"), 40.0), *make_row(plan("batch"), 30.0), *make_row(plan("loop"), 15.0)]
    few = [msgspec.structs.replace(row, trials=row.trials[:2]) for row in rows]
    assert cells_of(run_of(*few))[H2D][0].equal == ("kernel", "batch")


def test_a_method_that_moved_wrong_bytes_does_not_win() -> None:
    run = run_of(*make_row(plan("kernel"), 40.0, verified=Fact(value=False)), *make_row(plan("batch"), 10.0))
    assert cells_of(run)[H2D][0].equal == ("batch",)


def test_both_ways_are_judged_together() -> None:
    run = run_of(*make_row(plan("kernel", direction="both")))
    for rows in (run.measurements, run.measurements[::-1]):
        (cell,) = cells_of(run_of(*rows))[Place("both", "pinned", "random")]
        assert cell.best.side == "sum"


def test_a_method_that_shares_no_round_with_the_fastest_is_not_known_to_be_slower() -> None:
    (fast,), (slow,) = make_row(plan("kernel"), 40.0), make_row(plan("batch"), 10.0)
    assert is_slower(slow, fast)
    assert not is_slower(fast, slow)
    assert not is_slower(slow, slow)
    moved = tuple(msgspec.structs.replace(trial, round=trial.round + 1000) for trial in slow.trials)
    assert not is_slower(msgspec.structs.replace(slow, trials=moved), fast)


def test_thresholds_have_every_cell_and_its_seconds() -> None:
    run = make_blocks_run()
    found = thresholds_of(run)
    assert {(table.direction, table.memory, table.order) for table in found.tables} == set(cells_of(run))
    assert sum(len(table.cells) for table in found.tables) == sum(map(len, cells_of(run).values()))
    cell = next(cell for cell in found.tables[0].cells if (cell.block_bytes, cell.count) == (16 * KIB, 256))
    assert cell.method == "kernel"
    assert cell.seconds["batch"] == pytest.approx(seconds_of(plan("batch"))[0])
    assert cell.call_seconds["batch"] == pytest.approx(seconds_of(plan("batch"))[1])
    (row,) = [each for each in run if each.mode == "batch" and _at(each) == ("h2d", "random", 16 * KIB, 256)]
    assert row.summary is not None
    assert (row.summary.low_s, row.summary.high_s) == (cell.low_seconds["batch"], cell.high_seconds["batch"])
    assert cell.trials["batch"] == row.summary.n
    (again,) = [each for each in json.loads(thresholds_json(run))["tables"] if each["order"] == "runs"][:1]
    assert again["cells"][0].keys() == {
        *("block_bytes", "count", "method", "equal", "trials"),
        *("seconds", "low_seconds", "high_seconds", "call_seconds"),
    }


def _at(row: Measurement) -> tuple[object, ...]:
    return row.direction, row.variant, row.block_bytes, row.batch


# --- between cells ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def choices() -> Choices:
    return Choices(thresholds_of(make_blocks_run()))


def test_a_measured_cell_has_its_own_seconds(choices: Choices) -> None:
    for method in ("kernel", "batch", "loop"):
        expected, _ = seconds_of(plan(method))
        assert choices.seconds(method, "h2d", "pinned", 16 * KIB, 256) == pytest.approx(expected)


def test_choices_lose_little_in_cells_that_were_not_measured(choices: Choices) -> None:
    random = np.random.default_rng(3)
    errors, same, drawn = [], 0, 0
    while drawn < 300:
        nbytes, count = int(2 ** random.uniform(9, 22)) // 16 * 16, int(2 ** random.uniform(0, 16.6))
        if nbytes * count > 512 << 20:
            continue
        drawn += 1
        direction: BlockDirection = "d2h" if drawn % 2 else "h2d"
        seconds = {method: seconds_of(plan(method, nbytes, count, direction=direction))[0] for method in QUEUED}
        chosen = choices.method_for(direction, "pinned", nbytes, count, possible=QUEUED)
        assert chosen is not None
        same += chosen == min(seconds, key=seconds.__getitem__)
        assert seconds[chosen] <= 1.05 * min(seconds.values())
        predicted = choices.seconds(chosen, direction, "pinned", nbytes, count) or 0.0
        errors.append(abs(predicted / seconds[chosen] - 1))
    assert same >= 0.9 * drawn
    assert np.quantile(errors, 0.9) < 0.1


@pytest.mark.parametrize(("nbytes", "count"), [(12 * KIB, 100), (48 * KIB, 700), (3 * KIB, 30_000)])
def test_between_cells_seconds_are_near_those_of_the_host(choices: Choices, nbytes: int, count: int) -> None:
    for method in ("kernel", "batch"):
        expected, _ = seconds_of(plan(method, nbytes, count))
        assert choices.seconds(method, "h2d", "pinned", nbytes, count) == pytest.approx(expected, rel=0.15)


def test_above_what_was_measured_time_grows_with_the_bytes(choices: Choices) -> None:
    def seconds(nbytes: int, count: int) -> float:
        return choices.seconds("kernel", "h2d", "pinned", nbytes, count) or 0.0

    assert seconds(64 * KIB, 40_960) == pytest.approx(40 * seconds(64 * KIB, 1024))
    assert seconds(16 << 20, 16) == pytest.approx(4 * seconds(4 << 20, 16))
    assert seconds(16, 1) == seconds(512, 1)


def test_the_choice_is_the_fastest_of_the_possible_ones(choices: Choices) -> None:
    assert choices.method_for("h2d", "pinned", 16 * KIB, 10_000) == "kernel"
    assert choices.method_for("h2d", "pinned", 16 * KIB, 10_000, possible=("loop", "batch")) == "batch"
    assert choices.method_for("h2d", "pinned", 100 * KIB, 1000) == "batch"
    assert choices.method_for("h2d", "pageable", 100 * KIB, 1000) == "packed"
    assert choices.method_for("h2d", "pinned", 100 * KIB, 1000, possible=NEVER) is None


def test_an_order_that_was_not_measured_is_random() -> None:
    choices = Choices(thresholds_of(run_of(*make_row(plan("kernel")), *make_row(plan("batch")))))
    assert choices.method_for("h2d", "pinned", 16 * KIB, 256, order="runs") == "kernel"
    assert choices.method_for("d2h", "pinned", 16 * KIB, 256) is None


class Asked(Choices):
    """Notes the sizes and numbers whose seconds the choice compares."""

    def __init__(self) -> None:
        super().__init__(thresholds_of(make_blocks_run()))
        self.asked: dict[BlockMethod, tuple[int, int]] = {}

    def seconds(self, method: BlockMethod, *arguments: Any) -> float | None:
        _, _, block_bytes, count, _ = arguments
        self.asked[method] = block_bytes, count
        return 1.0


@pytest.mark.parametrize(
    ("count", "order", "runs", "merged"),
    [
        (31, "runs", None, (1001 * 31 // 2, 2)),
        (32, "runs", None, (1001 * 32 // 2, 2)),
        (33, "runs", None, (1001 * 33 // 3, 3)),
        (33, "runs", 5, (1001 * 33 // 5, 5)),
        (33, "random", 4, (1001 * 33 // 4, 4)),
        (33, "random", None, (1001, 33)),
        (33, "ordered", None, (1001, 33)),
    ],
)
def test_methods_that_merge_neighbours_are_compared_as_fewer_larger_copies(
    count: int, order: BlockOrder, runs: int | None, merged: tuple[int, int]
) -> None:
    choices = Asked()
    choices.method_for("h2d", "pinned", 1001, count, order=order, runs=runs, possible=QUEUED)
    assert choices.asked == {"loop": merged, "batch": merged, "kernel": (1001, count)}


# --- knees and rules -------------------------------------------------------------------------------------------------


def at_knee(direction: BlockDirection = "h2d") -> Run:
    rows: list[Measurement] = []
    for nbytes, kernel, batch in ((16, 45, 10), (64, 50, 30), (256, 51, 51), (1024, 51, 54)):
        for method, gbps in (("kernel", kernel), ("batch", batch)):
            rows += make_row(plan(method, nbytes * KIB, direction=direction), float(gbps))  # type: ignore[arg-type]
    return run_of(*rows)


def test_the_knee_is_the_size_from_which_copies_are_as_fast() -> None:
    assert knees_of(cells_of(at_knee())[H2D]) == {256: Knee(256 * KIB, 1024 * KIB)}


def test_the_knee_needs_two_sizes() -> None:
    two = [row for row in at_knee().measurements if row.block_bytes in (64 * KIB, 256 * KIB)]
    assert knees_of(cells_of(run_of(*two))[H2D]) == {256: Knee(256 * KIB, 256 * KIB)}
    one = [row for row in two if row.block_bytes == 256 * KIB]
    assert not knees_of(cells_of(run_of(*one))[H2D])


@pytest.mark.parametrize(
    ("rule", "direction", "nbytes", "count", "method"),
    [
        ("vLLM", "h2d", 28 * KIB - 1, 16, "kernel"),
        ("vLLM", "h2d", 28 * KIB, 16, "batch"),
        ("vLLM", "h2d", 28 * KIB - 1, 15, "batch"),
        ("vLLM", "d2h", 28 * KIB - 1, 16, "batch"),
        ("vLLM", "both", 28 * KIB - 1, 16, "kernel"),
        ("64 KiB", "d2h", 64 * KIB - 1, 1, "kernel"),
        ("64 KiB", "d2h", 64 * KIB, 1, "batch"),
    ],
)
def test_rules_choose_by_their_constants(
    rule: str, direction: BlockDirection, nbytes: int, count: int, method: BlockMethod
) -> None:
    (found,) = [each for each in RULES if each.name == rule]
    assert found.method(direction, nbytes, count) == method


def test_without_a_kernel_there_is_no_knee() -> None:
    assert not knees_of(cells_of(make_without_kernels())[H2D])


def test_rules_cost_what_their_method_takes_longer() -> None:
    costs = {cost.rule.name: cost for cost in costs_of("h2d", cells_of(at_knee())[H2D])}
    assert costs["vLLM"].worst == pytest.approx(50 / 30)
    assert costs["vLLM"].at.block_bytes == 64 * KIB
    assert costs["64 KiB"].worst == pytest.approx(50 / 30)
    assert costs["kernel only"].worst == pytest.approx(54 / 51)
    assert costs["batch only"].worst == pytest.approx(4.5)
    assert costs["kernel only"].typical == pytest.approx(1.0)


def test_the_rule_of_vllm_takes_a_batch_to_the_host() -> None:
    costs = {
        cost.rule.name: cost for cost in costs_of("d2h", cells_of(at_knee("d2h"))[Place("d2h", "pinned", "random")])
    }
    assert costs["vLLM"].worst == pytest.approx(4.5)


def test_a_rule_without_its_method_has_no_cost() -> None:
    assert not costs_of("h2d", cells_of(make_without_kernels())[H2D])
