"""Two sides, cell by cell: what is said of them, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import msgspec
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
from samples import MARKUP, MIB, make_device, make_link, make_missing, make_run

from pyxfer._baseline.compare import compare_samples, slow_limit
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Comparison
from pyxfer._document.runs import Fact, Rate, Run
from pyxfer._document.wording import change_text, overall_text
from pyxfer.errors import UsageError

OTHER_WAY = {"SLOW": "FAST", "FAST": "SLOW", "SAME": "SAME", "AMBIGUOUS": "AMBIGUOUS"}


def compared(factor: float, tolerance: float = 0.03) -> Comparison:
    return compare_samples(make_sample("A"), make_sample("B", seed=2, slower=all_slow(factor)), tolerance)


def refusal(a: Sample, b: Sample) -> str:
    with pytest.raises(UsageError) as caught:
        compare_samples(a, b)
    return str(caught.value)


def scaled(run: Run, factor: float) -> Run:
    """The run with every second so many times as long."""
    rows = [timed(row, [trial.elapsed_s * factor for trial in row.trials]) for row in run.measurements]
    return msgspec.structs.replace(run, measurements=tuple(rows))


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_equal_sides_are_the_same_in_every_cell() -> None:
    assert set(verdicts(compared(1.0)).values()) == {"SAME"}


def test_a_loss_beyond_the_tolerance_is_slow() -> None:
    assert set(verdicts(compared(1.06)).values()) == {"SLOW"}


def test_a_gain_beyond_the_tolerance_is_fast() -> None:
    assert set(verdicts(compared(1 / 1.06)).values()) == {"FAST"}


def test_a_loss_at_the_tolerance_is_ambiguous() -> None:
    assert set(verdicts(compared(1 / 0.97)).values()) == {"AMBIGUOUS"}


@pytest.mark.parametrize("tolerance", [0, 1, -0.1, "3%", None])
def test_a_tolerance_is_a_share(tolerance: Any) -> None:
    with pytest.raises(UsageError, match="is no share above 0 and below 1"):
        compared(1.0, tolerance)


def test_a_run_on_both_sides_is_told() -> None:
    a = make_sample("A")
    assert "same-run" in [each.code for each in compare_samples(a, Sample("B", a.runs[:1])).remarks]
    assert "same-run" not in [each.code for each in compared(1.0).remarks]


def test_rates_are_of_the_times_that_are_compared_whatever_a_file_says_beside_them() -> None:
    a = make_sample("A")
    rows = [msgspec.structs.replace(row, rate=Fact(Rate(1e3, None, None))) for row in a.first.measurements]
    made_up = msgspec.structs.replace(a.first, measurements=tuple(rows))
    found = compare_samples(make_sample("B", seed=2), Sample("made up", (made_up,)))
    assert all((row.b_gbps.value or 0) < 100 for row in found.cells)


def test_all_cells_together_may_be_beyond_what_none_is_for_certain() -> None:
    found = compared(1.0)
    lost = msgspec.structs.replace(
        found, verdict="AMBIGUOUS", overall=Fact(1.066), overall_low=Fact(1.034), overall_high=Fact(1.1)
    )
    assert "together they have lost more than the tolerance" in overall_text(lost)
    assert "together" not in overall_text(msgspec.structs.replace(lost, overall_low=Fact(1.02)))


def test_one_run_against_one_in_host_memory_is_far_less_sure() -> None:
    a, b = (Sample(name, (on_host(make_processes(1, seed)[0]),)) for name, seed in (("A", 1), ("B", 2)))
    assert set(verdicts(compare_samples(a, b)).values()) == {"AMBIGUOUS"}


def test_what_may_be_looked_at_often_is_slow_as_surely_as_at_once_and_the_same_only_more_surely() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.06))
    once, often = (compare_samples(a, b, looks=looks) for looks in (1, 3))
    assert verdicts(once) == verdicts(often)
    assert {"SLOW", "SAME"} <= set(verdicts(once).values())
    for first, second in zip(once.cells, often.cells, strict=True):
        if first.verdict == "SLOW":
            assert second == first
        else:
            assert second.low.value is not None
            assert first.low.value is not None
            assert second.low.value < first.low.value


@settings(deadline=None)
@given(factor=st.floats(0.9, 1.2), seed=st.integers(2, 50), looks=st.integers(2, 9))
def test_a_second_look_makes_nothing_slow_and_nothing_less_slow(factor: float, seed: int, looks: int) -> None:
    a, b = make_sample("A"), make_sample("B", seed=seed, slower=all_slow(factor))
    once, often = (verdicts(compare_samples(a, b, looks=looks)) for looks in (1, looks))
    for cell, verdict in often.items():
        assert verdict in (once[cell], "AMBIGUOUS")
        assert (verdict == "SLOW") is (once[cell] == "SLOW")


def test_the_tolerance_decides() -> None:
    assert set(verdicts(compared(1.06, tolerance=0.10)).values()) == {"SAME"}


def test_only_what_is_slow_is_called_slow() -> None:
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.2)))
    assert row_of(found).verdict == "SLOW"
    assert row_of(found, memory="pageable").verdict == "SAME"


def test_a_ratio_comes_with_its_interval_and_both_rates() -> None:
    row = row_of(compared(1.25))
    assert row.ratio.value == pytest.approx(1.25, rel=0.005)
    assert (row.low.value or 0) < (row.ratio.value or 0) < (row.high.value or 0)
    assert (row.a_gbps.value or 0) / (row.b_gbps.value or 1) == pytest.approx(1.25, rel=0.005)
    assert (row.a_processes, row.b_processes) == (3, 3)


def test_the_whole_is_the_geometric_mean_with_its_error() -> None:
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.21)))
    assert found.overall.value == pytest.approx(1.1, rel=0.005)
    assert (found.overall_low.value or 0) < 1.1 < (found.overall_high.value or 0)


@settings(max_examples=20)
@given(st.floats(0.8, 1.25), st.integers(0, 50))
def test_a_verdict_one_way_is_its_opposite_the_other_way(factor: float, seed: int) -> None:
    a, b = make_sample("A", seed=seed), make_sample("B", seed=seed + 100, slower=all_slow(factor))
    there, back = verdicts(compare_samples(a, b)), verdicts(compare_samples(b, a))
    assert {cell: OTHER_WAY[verdict] for cell, verdict in there.items()} == back


@settings(max_examples=20)
@given(st.floats(0.9, 1.1), st.sampled_from([1e-3, 1e3, 7.0]))
def test_the_unit_of_time_changes_no_verdict(factor: float, unit: float) -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=all_slow(factor))
    scaled_a, scaled_b = (Sample(one.name, tuple(scaled(run, unit) for run in one.runs)) for one in (a, b))
    assert verdicts(compare_samples(a, b)) == verdicts(compare_samples(scaled_a, scaled_b))


def test_processes_that_lie_far_apart_make_no_certain_verdict() -> None:
    found = compare_samples(
        make_sample("A", between=0.05), make_sample("B", seed=2, between=0.05, slower=all_slow(1.05))
    )
    assert set(verdicts(found).values()) == {"AMBIGUOUS"}
    assert "processes lie about" in row_of(found).why


def test_noisy_trials_make_no_certain_verdict_however_alike_their_medians_are() -> None:
    quiet = make_sample("A", between=0.0, within=0.2)
    assert "SAME" not in verdicts(compare_samples(quiet, quiet)).values()


def test_a_single_process_borrows_the_spread_of_the_other_side() -> None:
    row = row_of(compare_samples(make_sample("A"), make_sample("B", 1, seed=2)))
    assert row.verdict == "SAME"
    assert "B is one process; the spread is A's" in row.why


def test_one_process_on_each_side_is_told_and_given_an_allowance() -> None:
    found = compare_samples(make_sample("A", 1), make_sample("B", 1, seed=2, slower=all_slow(1.04)))
    assert row_of(found).verdict == "AMBIGUOUS"
    assert "one-process" in [remark.code for remark in found.remarks]
    assert "are taken to lie about 0.5 % apart" in row_of(found).why


def test_one_process_on_each_side_still_finds_half_of_a_link_gone() -> None:
    found = compare_samples(make_sample("A", 1), make_sample("B", 1, seed=2, slower=all_slow(2.0)))
    assert set(verdicts(found).values()) == {"SLOW"}


def test_clocks_that_go_back_change_nothing() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2)
    early = msgspec.structs.replace(b.first.environment, taken_at="1970-01-01T00:00:00+00:00")
    back = Sample("B", tuple(msgspec.structs.replace(run, environment=early) for run in b.runs))
    assert compare_samples(a, back) == compare_samples(a, b)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(UsageError, match="tolerance"):
        compare_samples(make_sample("A"), make_sample("B"), tolerance)


def test_the_tolerance_is_of_bandwidth() -> None:
    assert change_text(slow_limit(0.05)) == "5 % slower"
    assert change_text(-slow_limit(0.05)) == "5.3 % faster"


@settings(max_examples=60)
@given(
    st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=4),
    st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=4),
)
def test_no_times_that_a_file_may_hold_break_it(a: list[float], b: list[float]) -> None:
    first, second = make_copy("h2d", "pinned", "async", MIB), make_copy("d2h", "pageable", "memcpy", MIB)
    usual = timed(second, [1e-4] * 8)
    sides = [
        Sample(name, tuple(make_run(measurements=(timed(first, [seconds] * 8), usual)) for seconds in side))
        for name, side in (("A", a), ("B", b))
    ]
    found = compare_samples(sides[0], sides[1])
    assert all(row.low.value is None or row.low.value <= (row.high.value or 0.0) for row in found.cells)


def test_a_time_that_no_copy_takes_is_none() -> None:
    odd = make_run(measurements=(timed(make_copy("h2d", "pinned", "async", MIB), [1e-200] * 8),))
    assert "its time is one that no copy takes" in refusal(make_sample("A"), Sample("B", (odd,)))


# --- cells that are not on both sides --------------------------------------------------------------------------------


def test_a_cell_of_one_side_is_told_with_the_reason() -> None:
    a = make_sample("old")
    fewer = Sample("new", make_processes(3, 2, sizes=SIZES[:2]))
    row = row_of(compare_samples(a, fewer), nbytes=SIZES[2])
    assert row.ratio.value is None
    assert row.why == "not compared: new has not measured it"


def test_a_cell_without_a_time_is_told_with_its_own_reason() -> None:
    run = make_run(measurements=())
    missing = make_missing("out of page-locked memory", nbytes=16 * MIB)
    known = timed(make_copy("h2d", "pinned", "async", MIB), [1e-4] * 8)
    lacking = Sample("new", (msgspec.structs.replace(run, measurements=(known, missing)),))
    row = row_of(compare_samples(make_sample("old"), lacking))
    assert "new has no time of it (out of page-locked memory)" in row.why


def test_contents_that_differ_are_no_measurement() -> None:
    wrong = timed(make_copy("h2d", "pinned", "async", MIB, verified=Fact(False)), [1e-4] * 8)
    right = timed(make_copy("d2h", "pinned", "async", MIB), [1e-4] * 8)
    bad = Sample("B", (make_run(measurements=(wrong, right)),))
    assert "contents differ" in row_of(compare_samples(make_sample("A"), bad), nbytes=MIB).why


def test_a_cell_that_a_run_has_twice_counts_once() -> None:
    twice = make_run(measurements=tuple(timed(make_copy("h2d", "pinned", "async", MIB), [s] * 8) for s in (1e-4, 4e-4)))
    row = row_of(compare_samples(Sample("A", (twice,)), Sample("B", (twice,))), nbytes=MIB)
    assert (row.a_processes, row.ratio.value) == (1, 1.0)
    assert row.a_gbps.value == pytest.approx(MIB / 2e-4 / 1e9)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_nothing_in_common_is_refused_with_what_each_side_has() -> None:
    text = refusal(
        Sample("A", make_processes(3, directions=("h2d",), sizes=SIZES[:1])),
        Sample("B", make_processes(3, directions=("d2h",), sizes=SIZES[:1])),
    )
    assert "no cell in common" in text
    assert "h2d:pinned:async:1MiB" in text
    assert "d2h:pinned:async:1MiB" in text


def test_host_memory_against_a_link_is_refused() -> None:
    host = Sample("B", tuple(on_host(run) for run in make_processes()))
    assert "B was measured in host memory, without a GPU, and A over the link" in refusal(make_sample("A"), host)


def test_host_memory_against_host_memory_says_that_it_is_no_link() -> None:
    host = tuple(on_host(run) for run in make_processes())
    found = compare_samples(Sample("A", host), Sample("B", host))
    assert "host-memory" in [remark.code for remark in found.remarks]


def test_different_devices_are_refused() -> None:
    other = make_run(device=make_device(name="NVIDIA A100", uuid=Fact("GPU-a100")))
    assert "B of a A100: different devices" in refusal(make_sample("A"), make_sample("B", run=other))


def test_another_gpu_of_the_same_model_is_compared_and_told() -> None:
    other = make_run(device=make_device(name="H200", uuid=Fact("GPU-other")))
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, run=other))
    assert "other-gpu" in [remark.code for remark in found.remarks]


def test_different_kinds_of_link_are_refused() -> None:
    other = make_run(device=make_device(uuid=Fact("GPU-other")), link=make_link(kind="c2c"))
    assert "different links" in refusal(make_sample("A"), make_sample("B", run=other))


def test_a_run_that_has_failed_is_refused_with_its_failure() -> None:
    failed = make_run(ended="failed", failure="the device is gone")
    assert "the device is gone" in refusal(make_sample("A"), make_sample("B", run=failed))


def test_a_run_that_was_interrupted_is_used_and_told() -> None:
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, run=make_run(ended="interrupted")))
    assert "interrupted" in [remark.code for remark in found.remarks]


def test_a_side_without_runs_is_refused() -> None:
    assert "B holds no run" in refusal(make_sample("A"), Sample("B", ()))


def test_runs_of_two_hosts_are_no_side() -> None:
    runs = (*make_processes(1), *make_processes(1, run=make_run(environment=named_host("node-8"))))
    assert "several machines" in refusal(Sample("A", runs), make_sample("B"))


def test_two_hosts_of_one_name_are_told_apart() -> None:
    other = make_run(device=make_device(uuid=Fact("GPU-other")))
    assert "several machines" in refusal(
        Sample("A", (*make_processes(1), *make_processes(1, run=other))), make_sample("B")
    )


def test_a_name_is_text_wherever_it_stands() -> None:
    assert MARKUP in refusal(make_sample("A"), Sample(MARKUP, ()))
