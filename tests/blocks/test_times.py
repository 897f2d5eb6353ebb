"""Times of moves between the cells that were measured: exact where the law is, and honest where it changes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import block_laws
import msgspec
import pytest
from blocks_samples import make_row, make_run_with
from offload_samples import (
    CLIFF_BYTES,
    COUNTS,
    LAWS,
    SIZES,
    Law,
    affine,
    batch,
    default_plans,
    grid,
    kernel,
    make_moves,
    make_run_of,
    steep,
)
from plan_agreement import drawn
from samples import KIB, MIB, make_run

from pyxfer._blocks.choice import cells_of as cells_by_place
from pyxfer._blocks.choice import thresholds_of
from pyxfer._blocks.plans import BlockPlan
from pyxfer._blocks.times import FARTHEST, Cell, Estimate, HostTimes, MoveTimes, fastest_of
from pyxfer._ceiling.derived import derived_row
from pyxfer._document.blocks import BlockMethod
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Run


def cells_of(law: Law, sizes: Sequence[int] = SIZES, counts: Sequence[int] = COUNTS, spread: float = 0.0) -> list[Cell]:
    times = [(size, count, law(size, count)) for size in sizes for count in counts if size * count <= 256 * MIB]
    return [Cell(size, count, spread_by(time_s, spread)) for size, count, time_s in times]


def spread_by(time_s: float, spread: float = 0.0) -> Estimate:
    return Estimate(time_s, time_s * (1 - spread), time_s * (1 + spread))


def host_times(run: Run) -> HostTimes:
    tables = thresholds_of(run).tables
    place = ("h2d", "pinned", "random")
    return HostTimes(next((each for each in tables if (each.direction, each.memory, each.order) == place), None))


def known(estimate: Estimate | None) -> Estimate:
    assert estimate is not None
    return estimate


def test_the_time_at_a_cell_is_the_measured_one() -> None:
    times = MoveTimes(cells_of(batch, spread=0.01))
    found = known(times.at(16 * KIB, 256))
    expected = batch(16 * KIB, 256)
    assert found == Estimate(expected, expected * 0.99, expected * 1.01)


@pytest.mark.parametrize(("block_bytes", "count"), [(3000, 64), (4 * KIB, 100), (100_000, 777), (513, 3)])
def test_between_cells_a_law_without_a_change_is_met_exactly(block_bytes: int, count: int) -> None:
    found = known(MoveTimes(cells_of(affine)).at(block_bytes, count))
    assert found.seconds == pytest.approx(affine(block_bytes, count))
    assert found.low_s == pytest.approx(found.high_s)


def test_the_interval_between_cells_is_between_theirs() -> None:
    found = known(MoveTimes(cells_of(affine, spread=0.03)).at(10_000, 50))
    assert found.low_s == pytest.approx(found.seconds * 0.97)
    assert found.high_s == pytest.approx(found.seconds * 1.03)


def test_where_the_law_bends_the_interval_has_the_bend_and_the_chord() -> None:
    def bent(block_bytes: int, count: int) -> float:
        return max(20e-6, count * block_bytes / 50e9)

    times = MoveTimes(cells_of(bent))
    for count in range(64, 1024, 16):
        found = known(times.at(4 * KIB, count))
        assert found.low_s * (1 - 1e-9) <= bent(4 * KIB, count) <= found.high_s * (1 + 1e-9)


def test_a_cliff_between_two_sizes_is_within_the_interval() -> None:
    times = MoveTimes(cells_of(batch))
    for size in range(16 * KIB + 512, 32 * KIB, 512):
        found = known(times.at(size, 1024))
        assert found.low_s <= batch(size, 1024) <= found.high_s
    beside = known(times.at(CLIFF_BYTES, 1024))
    assert beside.high_s > 1.5 * beside.low_s


@pytest.mark.parametrize("size", [CLIFF_BYTES + 16, 26 * KIB])
def test_between_a_size_and_a_larger_one_that_takes_less_time_it_takes_as_long_as_the_larger(size: int) -> None:
    times = MoveTimes(cells_of(batch, sizes=(16 * KIB, CLIFF_BYTES, 28 * KIB)))
    found = known(times.at(size, 1024))
    assert times.seconds(size, 1024) == found.seconds == batch(28 * KIB, 1024)
    assert found.low_s <= batch(size, 1024)
    assert found.high_s >= batch(CLIFF_BYTES, 1024)


def test_a_rate_that_falls_with_the_count_is_within_the_interval() -> None:
    cells = [Cell(24 * KIB, count, spread_by(count * each_s)) for count, each_s in FALLING]
    found = known(MoveTimes(cells).at(24 * KIB, 20_000))
    assert found.low_s <= 20_000 * FALLING[0][1] < 20_000 * FALLING[1][1] <= found.high_s


# Of a batch call on an H100: 25.8 GB/s with 10,000 blocks of 24 KiB, and 6.7 with 50,000.
FALLING = ((10_000, 24 * KIB / 25.8e9), (50_000, 24 * KIB / 6.7e9))


def test_more_than_the_largest_move_is_several_of_it() -> None:
    times = MoveTimes(cells_of(affine))
    found = known(times.at(MIB, 2560))
    assert found.times_measured == 10
    assert found.seconds == pytest.approx(10 * affine(MIB, 256))
    assert found.low_s <= affine(MIB, 2560) <= found.high_s


def test_larger_blocks_than_measured_are_several_of_the_largest() -> None:
    times = MoveTimes(cells_of(affine))
    found = known(times.at(6 * MIB, 10))
    assert found.seconds == pytest.approx(affine(4 * MIB, 15), rel=0.01)


@pytest.mark.parametrize(
    ("block_bytes", "count"),
    [
        (256, 64),  # smaller than any
        (MIB, 256 * FARTHEST + 1),  # far more bytes than any
        (5 * FARTHEST * MIB, 1),
        (3000, COUNTS[-1] * FARTHEST + 1),
    ],
)
def test_far_from_what_was_measured_there_is_no_time(block_bytes: int, count: int) -> None:
    times = MoveTimes(cells_of(affine))
    assert times.at(block_bytes, count) is None


def test_small_moves_say_nothing_about_more_of_them() -> None:
    times = MoveTimes(cells_of(affine, counts=(4, 16)))
    assert times.at(4 * KIB, 17) is None
    assert times.at(4 * KIB, 3) is None
    assert times.at(4 * MIB, 20) is not None  # 64 MiB are as fast as the link


@pytest.mark.parametrize("block_bytes", [512, 3000, 64 * KIB, 700_000, 4 * MIB, 5 * MIB])
def test_the_range_has_all_counts_with_a_time(block_bytes: int) -> None:
    times = MoveTimes(cells_of(affine))
    found = times.range_of(block_bytes)
    assert found is not None
    for count in (found.least, found.most):
        assert times.at(block_bytes, count) is not None
    assert times.at(block_bytes, found.most * 1.01) is None


@pytest.mark.parametrize(
    ("block_bytes", "count", "same"),
    [
        (16 * KIB, 256, (16 * KIB, 256)),  # a cell
        (700, 20, (700, 20)),  # between the two smallest sizes
        (3000, 64, (3000, 64)),
        (3 * MIB, 10, (3 * MIB, 10)),  # between the two largest ones
        (6 * MIB, 10, (4 * MIB, 15)),  # larger
        (16, 100, (512, 100)),  # smaller
    ],
)
def test_the_seconds_of_a_choice_are_those_of_the_law(block_bytes: int, count: int, same: tuple[int, int]) -> None:
    assert MoveTimes(cells_of(affine)).seconds(block_bytes, count) == pytest.approx(affine(*same))


def test_larger_blocks_are_known_if_one_of_a_mebibyte_was_measured() -> None:
    sizes = [512 << place for place in range(12)]
    assert MoveTimes(cells_of(affine, sizes)).at(2 * MIB, 4) is not None
    assert MoveTimes(cells_of(affine, sizes[:-1])).at(MIB, 4) is None


@pytest.mark.parametrize(
    ("seconds", "high_s"),
    [((1.0, 2.0, 2.6, 3.0), 2.4), ((1.0, 1.9, 2.6, 2.7), 2.35), ((1.0, 2.0, 2.6), 2.5)],
    ids=["the piece after", "the piece before", "no piece after"],
)
def test_a_bend_reaches_to_the_nearer_line_of_the_neighbouring_pieces(seconds: Sequence[float], high_s: float) -> None:
    times = MoveTimes(Cell(MIB, count, spread_by(each_s)) for count, each_s in enumerate(seconds, start=1))
    assert known(times.at(MIB, 2.5)).high_s == pytest.approx(high_s)


def test_no_line_beyond_what_was_measured_reaches_below_zero() -> None:
    times = MoveTimes([Cell(MIB, 32, spread_by(3.0)), Cell(MIB, 64, spread_by(1.0))])
    found = known(times.at(MIB, 200))
    assert (found.seconds, found.low_s) == (200 / 64, 0.0)


def test_the_comparison_of_laws_meets_the_law_of_a_run_by_the_line_alone() -> None:
    (cells,) = cells_by_place(make_run_with(make_moves(grid("h2d", ("kernel",)), {"kernel": affine}))).values()
    for part in block_laws.errors(cells, block_laws.line):
        assert max(part) < 1e-9
    assert max(block_laws.errors(cells, block_laws.on_logarithms)[0]) > 0.1
    assert max(block_laws.halves(cells)) < 0.01


# --- of a run --------------------------------------------------------------------------------------------------------


def test_the_fastest_method_is_taken() -> None:
    times = host_times(make_run_of(LAWS, sizes=(16 * KIB, 64 * KIB)))
    small, large = times.fastest(16 * KIB, 1000), times.fastest(64 * KIB, 1000)
    assert small is not None
    assert large is not None
    assert (small.method, large.method) == ("kernel", "batch")


def test_a_host_has_the_counts_of_all_its_methods_and_the_highest_rate() -> None:
    few, many = (make_moves(grid("h2d", (method,), sizes=(MIB,)), {method: affine}) for method in ("kernel", "batch"))
    times = host_times(make_run_with([*few[1:3], *many[2:4]]))
    assert times.methods["kernel"].range_of(MIB) == (4, 16)
    assert times.range_of(MIB) == (4, 64 * FARTHEST)
    assert times.range_of(512) is None
    assert times.most_gbps == pytest.approx(64 * MIB / affine(MIB, 64) / 1e9)
    assert HostTimes(None).most_gbps == 0.0


def test_a_kernel_moves_only_multiples_of_16_bytes() -> None:
    run = make_run_of({"kernel": kernel, "batch": batch}, sizes=(16 * KIB, 64 * KIB))
    found = host_times(run).fastest(16 * KIB + 8, 1000)
    assert found is not None
    assert found.method == "batch"


def test_rows_of_other_memory_order_or_direction_and_wrong_ones_are_left_out() -> None:
    plan = BlockPlan("h2d", "pinned", "batch", "random", 4 * KIB, 16)
    others = [
        dataclasses.replace(plan, method="loop", memory="pageable"),
        dataclasses.replace(plan, method="loop", order="ordered"),
        dataclasses.replace(plan, method="loop", direction="d2h"),
        dataclasses.replace(plan, method="loop", direction="both"),
    ]
    rows = [row for each in [plan, *others] for row in make_row(each)]
    rows += make_row(dataclasses.replace(plan, method="kernel"), verified=Fact(False))
    run = make_run_with(rows)
    found = host_times(run)
    assert set(found.methods) == {"batch"}
    time = found.fastest(4 * KIB, 16)
    (row,) = (each for each in run.measurements if each.mode == "batch")
    assert time is not None
    assert row.summary is not None
    assert time.time[:3] == (row.summary.median_s, row.summary.low_s, row.summary.high_s)


def test_cells_of_too_few_trials_for_an_interval_are_told() -> None:
    plan = BlockPlan("h2d", "pinned", "batch", "random", 4 * KIB, 16)
    (row,) = make_row(plan)
    once = derived_row(msgspec.structs.replace(row, trials=row.trials[:1]), make_run().link, ())
    rows = [once, *make_row(dataclasses.replace(plan, count=64)), *make_row(dataclasses.replace(plan, count=256))]
    times = host_times(make_run_with(rows)).methods["batch"]
    assert [known(times.at(4 * KIB, count)).trials for count in (16, 20, 64, 100)] == [1, 1, 6, 6]


# --- the fastest method ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "loop_s", "batch_s", "kernel_s", "expected"),
    [
        (1, 1.00, 0.97, 2.0, "loop"),
        (1, 1.00, 0.90, 2.0, "batch"),
        (2, 1.00, 1.04, 2.0, "batch"),
        (2, 1.00, 1.10, 2.0, "loop"),
        (2, 1.00, 1.04, 0.9, "kernel"),
        (1, 1.01, 1.04, 1.0, "kernel"),
    ],
)
def test_a_loop_and_a_batch_call_within_the_noise_are_told_apart_by_the_number_of_copies(
    copies: int, loop_s: float, batch_s: float, kernel_s: float, expected: str
) -> None:
    assert fastest_of({"batch": batch_s, "loop": loop_s, "kernel": kernel_s}, copies) == expected


def test_without_one_of_the_two_the_other_is_chosen() -> None:
    assert [fastest_of({"batch": 1.0}, 1), fastest_of({"loop": 1.0}, 9), fastest_of({}, 1)] == ["batch", "loop", None]


# --- agreement -------------------------------------------------------------------------------------------------------


HOSTS: Mapping[str, Mapping[BlockMethod, Law]] = {
    "like an H200": LAWS,
    "without kernels": {name: law for name, law in LAWS.items() if name in ("loop", "batch")},
    "with a steep cliff": {"batch": steep, "kernel": kernel},
}
NOISE = 0.02


@functools.cache
def times_of(host: str, cells: str) -> HostTimes:
    laws = HOSTS[host]
    plans = default_plans(laws) if cells == "default" else grid("h2d", laws)
    return host_times(make_run_with(make_moves(plans, laws, NOISE)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cells", ["default", "all"])
@pytest.mark.parametrize("host", HOSTS)
def test_of_60_shapes_drawn_by_a_seed_90_percent_are_within_10_percent(host: str, cells: str, seed: int) -> None:
    within = 0
    for size, count in drawn(seed, 60, 1024 * MIB):
        found = times_of(host, cells).fastest(size, count)
        assert found is not None
        within += abs(found.time.seconds / HOSTS[host][found.method](size, count) - 1) <= 0.1
    assert within >= 54


# GB/s of an H200 in random places of pools of 2 GiB, by block and count: the batch call and a kernel, host to device.
MEASURED = {
    (4 * KIB, 256): (2.2, 32.0),
    (4 * KIB, 32_768): (3.9, 49.0),
    (16 * KIB, 256): (7.2, 45.0),
    (16 * KIB, 32_768): (13.0, 51.0),
    (28 * KIB, 256): (28.0, 47.0),
    (28 * KIB, 32_768): (41.9, 51.0),
    (64 * KIB, 256): (38.0, 49.0),
    (64 * KIB, 32_768): (52.8, 51.0),
    (MIB, 256): (53.9, 51.0),
}


def without(left_out: tuple[int, int], method: int) -> MoveTimes:
    """The times of these figures but for those of one size."""
    seconds = {shape: shape[0] * shape[1] / rates[method] / 1e9 for shape, rates in MEASURED.items()}
    return MoveTimes(Cell(*shape, spread_by(each)) for shape, each in seconds.items() if shape[0] != left_out[0])


LEFT_OUT = [shape for shape in MEASURED if 4 * KIB < shape[0] < (64 * KIB if shape[1] > 256 else MIB)]


@pytest.mark.parametrize("shape", LEFT_OUT)
def test_a_size_that_was_left_out_of_measured_figures_is_met_or_within_its_interval(shape: tuple[int, int]) -> None:
    for method, rate in enumerate(MEASURED[shape]):
        found = without(shape, method).at(*shape)
        expected_s = shape[0] * shape[1] / rate / 1e9
        assert found is not None
        near = abs(found.seconds / expected_s - 1) <= 0.1
        assert near if method == 1 else near or found.low_s <= expected_s <= found.high_s
