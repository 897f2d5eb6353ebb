"""Comparing two sides: verdicts, remarks, and sides that are refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from baseline_samples import (
    SIZES,
    all_slow,
    make_copy,
    make_processes,
    make_sample,
    named_host,
    on_host,
    row_of,
    slow_pinned,
    timed,
    verdicts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import MIB, known, make_device, make_link, make_missing, make_run

from pyxfer._baseline.compare import certainly_slower, compare_samples
from pyxfer._baseline.judge import ASSUMED, ASSUMED_LOCKED, Plan, estimate, make_pair, slow_limit
from pyxfer._baseline.samples import Sample, collect, standard_error
from pyxfer._document.baselines import AnyRun, Comparison
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Measurement, Rate, Run, Summary
from pyxfer._measure.stats import variance_inflation
from pyxfer._report.comparison import overall_text
from pyxfer.errors import UsageError
from pyxfer.units import format_change

OTHER_WAY = {"SLOW": "FAST", "FAST": "SLOW", "SAME": "SAME", "AMBIGUOUS": "AMBIGUOUS"}


def compared(factor: float, tolerance: float = 0.03) -> Comparison:
    return compare_samples(make_sample("A"), make_sample("B", seed=2, slower=all_slow(factor)), tolerance)


def refusal(a: Sample, b: Sample) -> str:
    with pytest.raises(UsageError) as caught:
        compare_samples(a, b)
    return str(caught.value)


def remark_codes(comparison: Comparison) -> list[str]:
    return [remark.code for remark in comparison.remarks]


def summaries(*rows: Measurement) -> list[Summary]:
    return [row.summary for row in rows if row.summary is not None]


def scaled(run: AnyRun, factor: float) -> Run:
    """The run with all times multiplied by the factor."""
    assert isinstance(run, Run)
    rows = [timed(row, [trial.elapsed_s * factor for trial in row.trials]) for row in run.measurements]
    return msgspec.structs.replace(run, measurements=tuple(rows))


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "tolerance", "verdict"),
    [
        (1.0, 0.03, "SAME"),
        (1.06, 0.03, "SLOW"),
        (1 / 1.06, 0.03, "FAST"),
        (1 / 0.97, 0.03, "AMBIGUOUS"),
        (1.06, 0.10, "SAME"),
    ],
)
def test_the_verdict_depends_on_the_loss_and_the_tolerance(factor: float, tolerance: float, verdict: str) -> None:
    assert set(verdicts(compared(factor, tolerance)).values()) == {verdict}


def test_a_run_on_both_sides_gets_a_remark() -> None:
    a = make_sample("A")
    assert "same-run" in remark_codes(compare_samples(a, Sample("B", a.runs[:1])))
    assert "same-run" not in remark_codes(compared(1.0))


def test_rates_are_computed_from_the_times_and_not_read() -> None:
    run = scaled(make_sample("A").first, 1.0)
    rows = [msgspec.structs.replace(row, rate=Fact(Rate(1e3, None, None))) for row in run.measurements]
    made_up = msgspec.structs.replace(run, measurements=tuple(rows))
    found = compare_samples(make_sample("B", seed=2), Sample("made up", (made_up,)))
    assert all((row.b_gbps.value or 0) < 100 for row in found.cells)


def test_one_process_against_one_in_host_memory_is_ambiguous() -> None:
    a, b = (Sample(name, (on_host(make_processes(1, seed)[0]),)) for name, seed in (("A", 1), ("B", 2)))
    assert set(verdicts(compare_samples(a, b)).values()) == {"AMBIGUOUS"}


def test_a_comparison_is_one_look_at_three_per_cent() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2)
    assert compare_samples(a, b) == compare_samples(a, b, 0.03, Plan(None, is_last=True))
    slower = make_sample("B", seed=2, slower=all_slow(1.042))
    assert compare_samples(a, slower) != compare_samples(a, slower, 0.03, Plan(None, is_last=False))


def test_more_looks_widen_all_intervals_but_those_of_slow_cells() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.06))
    once, often = (compare_samples(a, b, plan=Plan(processes)) for processes in (1, 4))
    assert verdicts(once) == verdicts(often)
    assert {"SLOW", "SAME"} <= set(verdicts(once).values())
    for first, second in zip(once.cells, often.cells, strict=True):
        if first.verdict == "SLOW":
            assert (second.low, second.high) == (first.low, first.high)
        else:
            assert second.low.value is not None
            assert first.low.value is not None
            assert second.low.value < first.low.value


def test_a_cell_has_its_ratio_interval_and_both_rates() -> None:
    row = row_of(compared(1.25))
    assert row.ratio.value == pytest.approx(1.25, rel=0.005)
    assert (row.low.value or 0) < (row.ratio.value or 0) < (row.high.value or 0)
    assert (row.a_gbps.value or 0) / (row.b_gbps.value or 1) == pytest.approx(1.25, rel=0.005)
    assert (row.a_processes, row.b_processes) == (3, 3)
    assert row.why == f"at least {format_change(math.log(row.low.value or 1))}, which is beyond 3 %"


def test_the_overall_ratio_is_the_geometric_mean() -> None:
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.21)))
    assert found.overall.value == pytest.approx(1.1, rel=0.005)
    assert (found.overall_low.value or 0) < 1.1 < (found.overall_high.value or 0)


def test_the_overall_spread_of_one_process_on_each_side_is_the_mean_of_the_assumed_ones() -> None:
    found = compare_samples(make_sample("A", 1), make_sample("B", 1, seed=2))
    half = math.log((found.overall_high.value or 0) / (found.overall.value or 1))
    assert half == pytest.approx(1.95996 * (ASSUMED_LOCKED + ASSUMED) / 2 * math.sqrt(2), rel=1e-4)


def test_without_a_process_that_has_all_cells_the_whole_is_the_mean_of_the_cells() -> None:
    a = make_sample("A", between=0.01, memories=("pinned",), directions=("h2d",), sizes=SIZES[:2])
    one, other = make_processes(2, 2, memories=("pinned",), directions=("h2d",), sizes=SIZES[:2])
    one, other = (
        msgspec.structs.replace(run, measurements=(run.measurements[place],)) for place, run in enumerate((one, other))
    )
    b = Sample("B", (one, other))
    of_a, of_b = collect(a.runs), collect(b.runs)
    cells = [estimate(make_pair(of_a[cell], of_b[cell], ASSUMED_LOCKED), ()) for cell in of_a]
    mean, half = sum(cell.log_ratio for cell in cells) / 2, math.hypot(*(cell.half for cell in cells)) / 2
    found = compare_samples(a, b)
    assert [math.log(fact.value or 1) for fact in (found.overall, found.overall_low, found.overall_high)] == (
        pytest.approx([mean, mean - half, mean + half])
    )


def test_a_wide_spread_makes_cells_ambiguous() -> None:
    found = compare_samples(
        make_sample("A", between=0.05), make_sample("B", seed=2, between=0.05, slower=all_slow(1.05))
    )
    assert set(verdicts(found).values()) == {"AMBIGUOUS"}
    assert "processes differ by about" in row_of(found).why


def test_noisy_trials_make_cells_ambiguous() -> None:
    quiet = make_sample("A", between=0.0, within=0.2)
    assert "SAME" not in verdicts(compare_samples(quiet, quiet)).values()


def test_a_side_of_one_process_has_the_spread_of_the_other() -> None:
    row = row_of(compare_samples(make_sample("A"), make_sample("B", 1, seed=2)))
    assert (row.verdict, row.assumed) == ("SAME", False)


def test_a_cell_of_one_process_on_each_side_has_the_spread_of_its_neighbours() -> None:
    a, b = (
        Sample(name, (full, msgspec.structs.replace(other, measurements=other.measurements[1:])))
        for name, (full, other) in (("A", make_processes(2)), ("B", make_processes(2, 2)))
    )
    row = row_of(compare_samples(a, b), nbytes=MIB)
    assert (row.a_processes, row.b_processes, row.assumed) == (1, 1, False)
    assert "is one process" not in row.why


def test_one_process_on_each_side_is_the_same_only_by_assumption() -> None:
    one, other = (make_sample(name, 1, seed, within=0.0001) for name, seed in (("A", 1), ("B", 2)))
    row = row_of(compare_samples(one, other))
    assert (row.verdict, row.assumed) == ("SAME", True)
    assert "0.5 %, which is assumed" in row.why


def test_a_cell_of_one_side_is_not_certainly_slower() -> None:
    fewer = Sample("B", make_processes(3, 2, sizes=SIZES[:1], slower=all_slow(1.2)))
    found = compare_samples(make_sample("A"), fewer)
    assert {row.cell.nbytes for row in certainly_slower(found, 0.05)} == {SIZES[0]}


def test_the_least_loss_of_a_comparison_is_found_by_two_errors_more_than_half_an_interval() -> None:
    one: dict[str, Any] = {"memories": ("pinned",), "directions": ("h2d",), "sizes": SIZES[:1]}
    (row,) = compare_samples(make_sample("A", **one), make_sample("B", seed=2, **one)).cells
    half = math.log((row.high.value or 0) / (row.ratio.value or 1))
    assert slow_limit(row.least_loss or 0) > slow_limit(0.03) + half * (1 + 1.959 / 1.960)


def test_half_the_bandwidth_of_one_process_against_one_is_slow_and_certain() -> None:
    found = compare_samples(make_sample("A", 1), make_sample("B", 1, seed=2, slower=slow_pinned(2.0)))
    assert {row.verdict for row in found.cells if row.cell.memory == "pinned"} == {"SLOW"}
    assert {row.cell.memory for row in certainly_slower(found, 0.05)} == {"pinned"}
    assert all(row.assumed and not row.confirmed for row in found.cells)
    assert certainly_slower(found, 0.5) == ()


def test_one_odd_process_against_one_is_not_slow() -> None:
    found = compare_samples(make_sample("A", 1), make_sample("B", 1, seed=2, slower=all_slow(1 / 0.7)))
    assert set(verdicts(found).values()) == {"AMBIGUOUS"}
    assert certainly_slower(found, 0.01) == ()


def test_an_ambiguous_cell_makes_the_whole_ambiguous_beside_a_fast_one() -> None:
    fast = make_sample("B", seed=2, slower=slow_pinned(0.8))
    noisy = compare_samples(make_sample("A", within=0.0001), fast)
    assert noisy.verdict == "FAST"
    doubtful = make_sample("B", seed=2, slower=lambda row: 0.8 if row.memory == "pinned" else 1 / 0.97)
    found = compare_samples(make_sample("A"), doubtful)
    assert set(verdicts(found).values()) == {"FAST", "AMBIGUOUS"}
    assert found.verdict == "AMBIGUOUS"


def test_a_spread_is_borrowed_from_the_same_memory_only() -> None:
    quiet, noisy = (
        tuple(
            msgspec.structs.replace(run, measurements=(*run.measurements, *other.measurements))
            for run, other in zip(
                make_processes(3, seed, memories=("pinned",), sizes=SIZES[:2]),
                make_processes(3, seed, memories=("pageable",), between=0.2),
                strict=True,
            )
        )
        for seed in (1, 2)
    )
    found = compare_samples(Sample("A", quiet), Sample("B", noisy))
    assert {row.verdict for row in found.cells if row.cell.memory == "pinned"} == {"SAME"}
    assert {row.verdict for row in found.cells if row.cell.memory == "pageable"} == {"AMBIGUOUS"}


def test_a_process_that_is_left_out_is_named() -> None:
    odd = make_processes(1, 7, slower=slow_pinned(1.25))
    found = compare_samples(make_sample("A"), Sample("B", (*make_processes(2, 2), *odd, *make_processes(2, 3))))
    (remark,) = [remark for remark in found.remarks if remark.code == "left-out"]
    assert remark.text.startswith("Process 3 of B is far from the others and left out in 6 of 12 cells")
    assert {row.verdict for row in found.cells} == {"SAME"}
    assert "left-out" not in remark_codes(compared(1.0))


def test_a_cell_with_wrong_contents_in_one_process_is_not_compared() -> None:
    right, wrong, other = make_processes(3, 2)
    rows = tuple(
        msgspec.structs.replace(row, verified=Fact(row.memory != "pinned")) if row.nbytes == MIB else row
        for row in wrong.measurements
    )
    bad = Sample("B", (right, msgspec.structs.replace(wrong, measurements=rows), other))
    found = compare_samples(make_sample("A"), bad)
    row = row_of(found, nbytes=MIB)
    assert (row.verdict, row.ratio.value, row.b_processes) == ("AMBIGUOUS", None, 0)
    assert "contents differ after the transfer in process 2" in row.why
    assert row_of(found).b_processes == row_of(found, memory="pageable", nbytes=MIB).b_processes == 3


def test_the_tolerance_is_of_bandwidth() -> None:
    assert format_change(slow_limit(0.05)) == "5 % slower"
    assert format_change(1e-9) == "no change"
    assert format_change(-slow_limit(0.05)) == "5.3 % faster"


@pytest.mark.parametrize(("seconds", "moved_bytes"), [(1e-200, MIB), (1e-4, 0)], ids=["no time", "nothing moved"])
def test_an_impossible_time_is_not_used(seconds: float, moved_bytes: int) -> None:
    copy = timed(make_copy("h2d", "pinned", "async", MIB, moved_bytes=moved_bytes), [seconds] * 8)
    side = Sample("B", (make_run(measurements=(copy,)),))
    assert "its time is impossible for a copy" in refusal(make_sample("A"), side)


# --- cells that are not on both sides --------------------------------------------------------------------------------


def test_a_cell_of_one_side_is_listed_with_the_reason() -> None:
    a = make_sample("old")
    fewer = Sample("new", make_processes(3, 2, sizes=SIZES[:2]))
    for sides, counts in (((a, fewer), (3, 0)), ((fewer, a), (0, 3))):
        row = row_of(compare_samples(*sides), nbytes=SIZES[2])
        assert (row.ratio.value, row.a_processes, row.b_processes) == (None, *counts)
        assert (row.a_gbps.value is None, row.b_gbps.value is None) == (counts[0] == 0, counts[1] == 0)
        assert row.why == "not compared: new did not measure it"


def test_a_cell_without_a_time_is_listed_with_its_first_reason() -> None:
    known = timed(make_copy("h2d", "pinned", "async", MIB), [1e-4] * 8)
    reasons = ("out of page-locked memory", "the device is gone")
    lacking = [make_run(measurements=(known, make_missing(why, nbytes=16 * MIB)), duration_s=1.0) for why in reasons]
    lacking[1] = msgspec.structs.replace(lacking[1], duration_s=2.0)
    old, new = make_sample("old"), Sample("new", tuple(lacking))
    for sides, counts in (((old, new), (3, 0)), ((new, old), (0, 3))):
        row = row_of(compare_samples(*sides))
        assert row.why == "not compared: new has no time of it (out of page-locked memory)"
        assert (row.verdict, row.ratio.value, row.low.value, row.high.value) == ("AMBIGUOUS", None, None, None)
        assert (row.a_processes, row.b_processes) == counts
        for rate, count in zip((row.a_gbps, row.b_gbps), counts, strict=True):
            assert rate.reason == (None if count else "out of page-locked memory")


def test_a_time_without_a_rate_is_not_used() -> None:
    doubtful, known = (timed(make_copy("h2d", "pinned", "async", size), [1e-4] * 8) for size in (16 * MIB, MIB))
    rows = (msgspec.structs.replace(doubtful, rate=unknown("faster than the link")), known)
    row = row_of(compare_samples(make_sample("A"), Sample("B", (make_run(measurements=rows),))))
    assert "B has no time of it (faster than the link)" in row.why


def test_a_series_has_the_medians_and_errors_of_its_processes() -> None:
    copy = make_copy("h2d", "pinned", "async", MIB)
    first = timed(copy, [1e-4 * (1 + place / 100) for place in range(15)])
    second = timed(copy, [3e-4 * (1 + place / 50) for place in range(15)])
    runs = [make_run(measurements=rows) for rows in ((first,), (second,), (first, second))]
    (found,) = collect(runs).values()
    medians = [summary.median_s for summary in summaries(first, second)]
    errors = [standard_error([trial.elapsed_s for trial in row.trials]) for row in (first, second)]
    assert found.medians_s == pytest.approx((*medians, math.sqrt(medians[0] * medians[1])))
    assert found.errors == pytest.approx((*errors, math.hypot(*errors) / 2))
    assert (found.processes, found.sittings, found.moved_bytes, found.missing) == ((0, 1, 2), (0, 0, 0), MIB, "")


def test_without_trials_the_error_is_that_of_the_interval() -> None:
    copy = timed(make_copy("h2d", "pinned", "async", MIB), [1e-4 * (1 + place / 100) for place in range(15)])
    rate = known(copy.rate)
    (found,) = collect([make_run(measurements=(msgspec.structs.replace(copy, trials=()),))]).values()
    assert found.errors == (math.log((rate.high_gbps or 0) / (rate.low_gbps or 1)) / 2 / 1.96,)
    bare = msgspec.structs.replace(copy, trials=(), rate=Fact(msgspec.structs.replace(rate, low_gbps=None)))
    (found,) = collect([make_run(measurements=(bare,))]).values()
    assert found.errors == (0.0,)


def test_the_standard_error_is_by_the_quartiles() -> None:
    values = np.random.default_rng(3).permutation(np.linspace(0.95e-3, 1.05e-3, 101))
    expected = 1.2533 * 0.05 / 1.349 * math.sqrt(variance_inflation(values) / 101)
    assert standard_error(values.tolist()) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("times", [(1e-3,), (1e-3, 1e-3, 1e-3), (0.0, 0.0, 1e-3)])
def test_trials_that_show_no_deviation_have_no_error(times: tuple[float, ...]) -> None:
    assert standard_error(times) == 0.0


def test_a_cell_that_a_run_has_twice_counts_once() -> None:
    twice = make_run(measurements=tuple(timed(make_copy("h2d", "pinned", "async", MIB), [s] * 8) for s in (1e-4, 4e-4)))
    row = row_of(compare_samples(Sample("A", (twice,)), Sample("B", (twice,))), nbytes=MIB)
    assert (row.a_processes, row.ratio.value) == (1, 1.0)
    assert row.a_gbps.value == pytest.approx(MIB / 2e-4 / 1e9)


# --- sides that are refused ------------------------------------------------------------------------------------------


def test_sides_without_a_common_cell_are_refused_with_their_cells() -> None:
    text = refusal(
        Sample("A", make_processes(3, directions=("h2d",), sizes=SIZES[:1])),
        Sample("B", make_processes(3, directions=("d2h",), sizes=SIZES[:1])),
    )
    assert "no cell in common" in text
    assert "h2d:pinned:1MiB" in text
    assert "d2h:pinned:1MiB" in text
    assert " more" not in text


@pytest.mark.parametrize("swap", [False, True])
def test_sides_without_a_time_in_common_are_refused_with_the_reason(swap: bool) -> None:
    lacking = Sample("B", (make_run(measurements=(make_missing("the device is gone", nbytes=16 * MIB),)),))
    sides = (lacking, make_sample("A")) if swap else (make_sample("A"), lacking)
    assert refusal(*sides).endswith("have cells in common, but no time in any of them: the device is gone.")


A100 = make_run(device=make_device(name="NVIDIA A100", uuid=Fact("GPU-a100")))
C2C = make_run(device=make_device(uuid=Fact("GPU-other")), link=make_link(kind="c2c"))


@pytest.mark.parametrize(
    ("b", "words"),
    [
        ((), "B has no runs"),
        (make_processes(1) * 2, "B holds the same run more than once"),
        (
            [on_host(run) for run in make_processes()],
            "B was measured in host memory, without a GPU, and A over the link",
        ),
        (make_processes(run=A100), "B of a A100, and different devices"),
        (make_processes(run=C2C), "A has PCI Express and B NVLink-C2C, and different links"),
    ],
    ids=["none", "twice", "host memory", "device", "link"],
)
def test_a_side_that_cannot_be_compared_is_refused(b: Sequence[Run], words: str) -> None:
    assert words in refusal(make_sample("A"), Sample("B", tuple(b)))


def test_host_memory_on_both_sides_gets_a_remark() -> None:
    host = tuple(on_host(run) for run in make_processes())
    found = compare_samples(Sample("A", host), Sample("B", host))
    assert "host-memory" in remark_codes(found)
    assert "host-memory" not in remark_codes(compared(1.0))


def test_another_gpu_of_the_same_model_is_compared_with_a_remark() -> None:
    other = make_run(device=make_device(name="H200", uuid=Fact("GPU-other")))
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, run=other))
    assert "other-gpu" in remark_codes(found)
    unknown_gpu = make_run(device=make_device(uuid=unknown("no NVML")))
    for a, b in ((unknown_gpu, other), (other, unknown_gpu)):
        found = compare_samples(make_sample("A", run=a), make_sample("B", seed=2, run=b))
        assert "other-gpu" not in remark_codes(found)


def test_one_gpu_is_compared_whatever_its_name_and_link_are() -> None:
    renamed = make_run(device=make_device(name="NVIDIA H200 SXM"), link=make_link(kind="unknown"))
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, run=renamed))
    assert set(verdicts(found).values()) == {"SAME"}
    assert "other-gpu" not in remark_codes(found)


def test_devices_without_a_uuid_are_compared_by_their_names() -> None:
    a, b = (make_run(device=make_device(name=name, uuid=unknown("no NVML"))) for name in ("H200", "A100"))
    assert "A is of a H200 and B of a A100" in refusal(make_sample("A", run=a), make_sample("B", run=b))
    found = compare_samples(make_sample("A", run=a), make_sample("B", seed=2, run=a))
    assert "other-gpu" not in remark_codes(found)


def test_a_failed_run_is_refused_with_its_failure() -> None:
    failed = make_run(ended="failed", failure="the device is gone")
    text = refusal(make_sample("A"), make_sample("B", 1, run=failed))
    assert text.startswith("B failed (the device is gone)")
    silent = msgspec.structs.replace(failed, failure=None)
    runs = (*make_processes(1), *make_processes(1, 2, run=silent))
    assert "run 2 of B failed (no reason given)" in refusal(make_sample("A"), Sample("B", runs))


@pytest.mark.parametrize(("count", "which"), [(0, "before its end;"), (1, "before its end (run 2 of 2);")])
def test_an_interrupted_run_is_compared_with_a_remark(count: int, which: str) -> None:
    interrupted = make_processes(1, 2, run=make_run(ended="interrupted"))
    found = compare_samples(make_sample("A"), Sample("B", (*make_processes(count, 3), *interrupted)))
    (remark,) = [remark for remark in found.remarks if remark.code == "interrupted"]
    assert remark.text.startswith(f"B was interrupted {which}")


@pytest.mark.parametrize(
    "other", [make_run(environment=named_host("node-8")), make_run(device=make_device(uuid=Fact("GPU-other")))]
)
def test_a_side_with_runs_of_two_machines_is_refused(other: Run) -> None:
    runs = (*make_processes(1), *make_processes(1, run=other))
    text = refusal(Sample("A", runs), make_sample("B"))
    assert "A has runs of several machines" in text
    assert f"(node-7 {make_device().uuid.value}, {other.environment.host} {other.device.uuid.value})" in text


# --- any sides -------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.floats(0.8, 1.25), st.integers(0, 50))
def test_swapping_the_sides_swaps_the_verdicts(factor: float, seed: int) -> None:
    a, b = make_sample("A", seed=seed), make_sample("B", seed=seed + 100, slower=all_slow(factor))
    there, back = verdicts(compare_samples(a, b)), verdicts(compare_samples(b, a))
    assert {cell: OTHER_WAY[verdict] for cell, verdict in there.items()} == back


@settings(max_examples=20)
@given(st.floats(0.75, 1.33), st.integers(2, 50))
def test_one_process_on_each_side_shows_no_small_difference(factor: float, seed: int) -> None:
    found = compare_samples(make_sample("A", 1), make_sample("B", 1, seed=seed, slower=all_slow(factor)))
    assert set(verdicts(found).values()) <= {"SAME", "AMBIGUOUS"}
    assert all(row.assumed for row in found.cells)
    assert certainly_slower(found, 0.01) == ()
    assert "lost more than the tolerance" not in overall_text(found)
    (remark,) = [remark for remark in found.remarks if remark.code == "one-process"]
    assert "up to 12.0 % is assumed" in remark.text
    assert all("of one process on each side" in row.why for row in found.cells if row.verdict == "AMBIGUOUS")


@settings(max_examples=60)
@given(
    st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=4),
    st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=4),
)
def test_any_times_in_a_file_can_be_compared(a: list[float], b: list[float]) -> None:
    first, second = make_copy("h2d", "pinned", "async", MIB), make_copy("d2h", "pageable", "memcpy", MIB)
    usual = timed(second, [1e-4] * 8)
    sides = [
        Sample(
            name,
            tuple(
                make_run(measurements=(timed(first, [seconds] * 8), usual), duration_s=number)
                for number, seconds in enumerate(side)
            ),
        )
        for name, side in (("A", a), ("B", b))
    ]
    found = compare_samples(sides[0], sides[1])
    assert all(row.low.value is None or row.low.value <= (row.high.value or 0.0) for row in found.cells)
