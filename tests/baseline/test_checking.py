"""Checks against a baseline: repeats, confirmations, and baselines that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest
from baseline_samples import all_slow, make_copy, make_processes, on_host, slow_pinned, timed
from samples import make_device, make_missing, make_run

from pyxfer._baseline.check import added_to, check, make_baseline
from pyxfer._document.baselines import Baseline
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Run
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.units import format_percent

MADE_AT = "2025-11-21T08:30:00+00:00"


def baseline(runs: Sequence[Run] | None = None) -> Baseline:
    return make_baseline("default", {}, runs or make_processes(), MADE_AT)


def measuring(*factors: float, between: float = 0.001, run: Run | None = None) -> Callable[[], Run]:
    """Returns one run for each factor, slower by that factor; a further call fails."""
    processes: Iterator[Run] = iter(
        make_processes(1, seed, run=run, slower=all_slow(factor), between=between)[0]
        for seed, factor in enumerate(factors, start=10)
    )
    return lambda: next(processes)


@pytest.mark.parametrize(
    ("kept", "factors", "retries", "verdict", "runs", "confirmed"),
    [
        # An unchanged host is measured once, and a slow cell again before it is confirmed.
        (3, [1.0], 2, "SAME", 1, False),
        (3, [1.1] * 3, 2, "SLOW", 3, True),
        # A large loss is confirmed before the last look.
        (3, [1.1] * 8, 19, "SLOW", 8, True),
        # A check does not end while a slow cell is not confirmed, or with a loss that is only just certain.
        (10, [*[1.08, 1.02] * 3, *[1.08] * 14], 19, "SLOW", 16, True),
        (10, [1.041] * 20, 19, "SLOW", 20, True),
        # One bad process confirms nothing, nor do slow ones that are not most of all.
        (3, [1.5, 1.0, 1.0], 2, "AMBIGUOUS", 3, False),
        (10, [1.06, 1.02] * 4 + [1.06] * 4, 11, "SLOW", 12, False),
        (10, [1.06, 1.02] * 3 + [1.06] * 6, 11, "SLOW", 12, True),
        (10, [1.06, 1.02] * 3 + [1.06] * 4, 9, "SLOW", 10, True),
    ],
)
def test_a_check_measures_again_until_its_verdict_is_certain_and_confirms_what_most_processes_show(
    kept: int, factors: list[float], retries: int, verdict: str, runs: int, confirmed: bool
) -> None:
    found = check(baseline(make_processes(kept)), measuring(*factors), retries=retries)
    assert ({row.verdict for row in found.comparison.cells}, len(found.runs)) == ({verdict}, runs)
    assert len(found.confirmed) == (len(found.comparison.cells) if confirmed else 0)


def test_a_bad_process_of_the_baseline_does_not_hide_a_loss() -> None:
    bad = make_processes(1, 7, slower=all_slow(1.25))
    found = check(baseline((*make_processes(4), *bad)), measuring(1.07, 1.07, 1.07), retries=2)
    assert len(found.confirmed) == len(found.comparison.cells)
    (remark,) = [remark for remark in found.comparison.remarks if remark.code == "left-out"]
    assert "Process 5 of baseline 'default'" in remark.text


@pytest.mark.parametrize(("processes", "verdict"), [(3, "AMBIGUOUS"), (8, "SLOW")])
def test_the_speed_of_an_odd_process_of_the_baseline_is_a_loss_if_enough_processes_have_it(
    processes: int, verdict: str
) -> None:
    odd = make_processes(1, 7, slower=all_slow(1.1))
    found = check(baseline((*make_processes(4), *odd)), measuring(*[1.1] * processes), retries=processes - 1)
    assert {row.verdict for row in found.comparison.cells} == {verdict}
    assert bool(found.confirmed) is (verdict == "SLOW")


@pytest.mark.parametrize(
    ("between", "seed", "count"),
    [(0.004, 0, 1), (0.006, 0, 2), (0.006, 1, 4), (0.009, 1, 8), (0.012, 0, 16), (0.012, 4, 20)],
)
def test_the_number_of_processes_doubles_from_look_to_look(between: float, seed: int, count: int) -> None:
    runs = iter(make_processes(20, seed + 100, between=between))
    found = check(baseline(make_processes(5, seed, between=between)), lambda: next(runs))
    assert len(found.runs) == count


def test_a_check_says_the_smallest_loss_that_it_could_have_found() -> None:
    found = check(baseline(), measuring(1.0))
    (remark,) = [remark for remark in found.comparison.remarks if remark.code == "least-loss"]
    losses = [row.least_loss or 0.0 for row in found.comparison.cells]
    assert 0.03 < min(losses) < max(losses)
    least, most = (pick(found.comparison.cells, key=lambda row: row.least_loss or 0.0) for pick in (min, max))
    assert f"{format_percent(min(losses))} " in remark.text
    assert f"({least.text}), and one of {format_percent(max(losses))} in {most.text}." in remark.text


def test_runs_join_a_baseline_of_the_same_machine_only() -> None:
    kept = baseline()
    grown = added_to(kept, {"day": "2"}, make_processes(2, 8), MADE_AT)
    assert (len(grown.runs), grown.labels, grown.fingerprint) == (5, {"day": "2"}, kept.fingerprint)
    assert added_to(grown, {"by": "me"}, make_processes(1, 9), MADE_AT).labels == {"day": "2", "by": "me"}
    other = make_processes(1, 8, run=make_run(device=make_device(uuid=Fact("GPU-other"))))
    with pytest.raises(UsageError, match="of another machine or device"):
        added_to(kept, {}, other, MADE_AT)
    with pytest.raises(UsageError, match="holds the same run more than once"):
        added_to(kept, {}, kept.runs[:1], MADE_AT)


def test_only_slow_cells_are_confirmed() -> None:
    slow = iter(make_processes(3, 5, slower=slow_pinned(1.2)))
    found = check(baseline(), lambda: next(slow), retries=2)
    assert {row.cell.memory for row in found.confirmed} == {"pinned"}


def test_a_missing_cell_is_measured_again_and_listed() -> None:
    runs = iter(make_processes(3, 9))

    def fewer() -> Run:
        run = next(runs)
        return msgspec.structs.replace(run, measurements=run.measurements[1:])

    found = check(baseline(), fewer, retries=2)
    assert len(found.runs) == 3
    assert "now did not measure it" in next(row.why for row in found.comparison.cells if row.ratio.value is None)


def test_cells_that_the_baseline_does_not_have_are_left_out() -> None:
    run = make_processes(1, 9)[0]
    extra = timed(make_copy("h2d", "pinned", "batch", 2**20), [1e-4] * 8)
    more = msgspec.structs.replace(run, measurements=(*run.measurements, extra))
    found = check(baseline(), lambda: more)
    assert "batch" not in {row.cell.mode for row in found.comparison.cells}


def test_an_interrupted_check_confirms_nothing() -> None:
    half = make_processes(1, 9, run=make_run(ended="interrupted"), slower=all_slow(1.5))[0]
    found = check(baseline(), lambda: half)
    assert (found.interrupted, found.confirmed) == (True, ())
    assert "unconfirmed" in [remark.code for remark in found.comparison.remarks]


def test_an_interrupted_repeat_is_not_used() -> None:
    runs = iter([*make_processes(1, 9, slower=all_slow(1.5)), make_run(ended="interrupted", measurements=())])
    found = check(baseline(), lambda: next(runs))
    assert (len(found.runs), found.interrupted, found.confirmed) == (1, True, ())


def test_an_interrupted_check_confirms_what_two_processes_have_measured() -> None:
    slow = make_processes(2, 9, slower=all_slow(1.5))
    runs = iter([*slow, make_run(ended="interrupted", measurements=())])
    found = check(baseline(), lambda: next(runs))
    assert (found.runs, found.interrupted) == (slow, True)
    assert len(found.confirmed) == len(found.comparison.cells)


def test_a_cell_without_a_time_in_the_baseline_does_not_prolong_a_check() -> None:
    missing = make_missing(nbytes=4096)
    runs = [msgspec.structs.replace(run, measurements=(*run.measurements, missing)) for run in make_processes()]
    found = check(baseline(runs), measuring(1.0))
    assert len(found.runs) == 1
    assert "no time of it" in next(row.why for row in found.comparison.cells if row.ratio.value is None)


def test_an_interrupt_before_the_first_measurement_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        check(baseline(), lambda: make_run(ended="interrupted", measurements=()))


# --- refused baselines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "words"), [(1, "of one process"), (2, "of 2 processes")])
def test_a_baseline_of_too_few_processes_is_refused(count: int, words: str) -> None:
    few = msgspec.structs.replace(baseline(), runs=make_processes(count))
    with pytest.raises(UsageError, match=f"{words}, too few to estimate"):
        check(few, measuring())


OTHER = make_run(device=make_device(uuid=Fact("GPU-other")))
PARTS = [
    msgspec.structs.replace(run, measurements=run.measurements[place : place + 1])
    for place, run in enumerate(make_processes(3))
]


@pytest.mark.parametrize(
    ("runs", "error", "words"),
    [
        (make_processes(2), UsageError, "give 3 or more"),
        ((*make_processes(2), *make_processes(1, run=OTHER)), UsageError, "several machines"),
        (PARTS, MeasurementError, "No cell was measured in every process"),
    ],
    ids=["few", "machines", "cells"],
)
def test_runs_that_are_no_baseline_are_refused(runs: Sequence[Run], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        baseline(runs)


@pytest.mark.parametrize(
    ("other", "name"),
    [(OTHER, "GPU-other"), (on_host(make_run()), "host memory")],
)
def test_another_machine_is_refused(other: Run, name: str) -> None:
    with pytest.raises(UsageError, match=rf"of another machine or device than the measured one \(node-7, {name}\)"):
        check(baseline(), measuring(1.0, run=other))
