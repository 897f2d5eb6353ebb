"""The timeline of a watch, what a step is bound by, and the remarks on records, clocks and missing steps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pages import values_of
from watch.windows import HOST, LOADER, Script, activity_of, analysed, make_window, steps_at
from watch_samples import make_stalled

from pyxfer._document.machines import Remark
from pyxfer._document.watches import Lane, Timeline, Verdict, Watched
from pyxfer._report.kinds import chart_of, report_of
from pyxfer._trace.records import Clock, CopyKind, Kind
from pyxfer._watch.analysis import MAX_SPANS
from pyxfer._watch.step_tracking import Step
from pyxfer.units import format_percent, format_seconds

H2D, D2H, D2D = CopyKind.H2D, CopyKind.D2H, CopyKind.D2D


def timeline_of(watched: Watched) -> Timeline:
    found = activity_of(watched).timeline
    assert isinstance(found, Timeline)
    return found


def spans_of(line: Timeline) -> dict[str, tuple[tuple[float, float], ...]]:
    return {lane.what: lane.spans for lane in line.lanes}


def test_the_timeline_has_the_spans_of_four_steps_of_median_length() -> None:
    line = timeline_of(make_stalled())
    assert len(line.steps) == 4
    assert line.end_s - line.begin_s == pytest.approx(4 * 13e-3)
    spans = spans_of(line)
    assert {name: len(found) for name, found in spans.items()} == {"kernels": 4 * 10, "h2d": 4, "d2h": 4}
    first = line.steps[0]
    assert spans["h2d"][0] == pytest.approx((first.begin_s + 20e-6, first.begin_s + 3620e-6))


def test_a_window_without_steps_is_drawn_whole() -> None:
    line = timeline_of(analysed(make_window(Script().kernel(100, 400).copy(D2D, 300, 500), 1000)))
    assert (line.begin_s, line.end_s) == pytest.approx((0.0, 1e-3))
    assert not line.steps
    assert spans_of(line) == {"kernels": ((1e-4, 4e-4),), "other copies": ((3e-4, 5e-4),)}


def test_steps_of_two_threads_are_not_mixed() -> None:
    script = Script().kernel(10, 20)
    steps = steps_at((0, 0, 100), (100, 100, 200)) + steps_at((0, 50, 150), thread=LOADER)
    line = timeline_of(analysed(make_window(script, 300, steps)))
    assert [step.number for step in line.steps] == [1, 2]


@pytest.mark.parametrize(
    ("busy_s", "spans", "merged_s", "refused"),
    [
        (3.0, ((0.0, 2.0), (1.0, 3.0)), 0.5, "in order"),
        (-1.0, ((0.0, 2.0),), 0.5, "busy_s"),
        (2.1, ((0.0, 2.0),), 0.5, "busy_s"),
        (1.0, ((0.0, 2.0),), 0.0, "busy_s"),
        (1.0, ((0.0, 2.0),), 0.5, None),
    ],
)
def test_a_lane_is_busy_for_at_most_its_spans_and_for_all_of_them_without_left_out_gaps(
    busy_s: float, spans: tuple[tuple[float, float], ...], merged_s: float, refused: str | None
) -> None:
    with pytest.raises(ValueError, match=refused) if refused else contextlib.nullcontext():
        Timeline(0.0, 4.0, merged_s, (), (Lane("h2d", busy_s, spans),))


def dense(spans: int = 4000) -> tuple[Script, float]:
    """Thousands of short kernels and copies, some of which overlap, and the length of the window."""
    script, random = Script(), np.random.default_rng(1)
    for begin in np.sort(random.uniform(0, 20 * spans, spans)):
        script.kernel(begin, begin + random.uniform(0.2, 4), stream=int(random.integers(3)))
        script.copy(H2D, begin + 5, begin + 5 + random.uniform(0.2, 30))
    return script, 20.0 * spans + 40


def exact_ns(script: Script, kind: Kind) -> int:
    """The union of all spans of a kind, on a raster of nanoseconds."""
    rows = script.capture().of(kind)
    first = rows["start_ns"].min()
    busy = np.zeros(int(rows["end_ns"].max() - first), np.bool_)
    for begin, end in zip(rows["start_ns"] - first, rows["end_ns"] - first, strict=True):
        busy[begin:end] = True
    return int(busy.sum())


def test_the_busy_time_of_a_lane_is_that_of_its_records_however_few_spans_are_drawn() -> None:
    script, length = dense()
    watched = analysed(make_window(script, length))
    line, kinds = timeline_of(watched), {"kernels": Kind.KERNEL, "h2d": Kind.COPY}
    values = list(values_of(chart_of(watched, "timeline")))
    table = next(grid for grid in report_of(watched).grids(watched) if grid.name.startswith("Timeline")).readable()[1]
    assert {lane.what for lane in line.lanes} == set(kinds)
    assert line.merged_s == pytest.approx(length * 1e-6 / MAX_SPANS, rel=0.01)
    for lane, row in zip(line.lanes, table, strict=True):
        busy_s = exact_ns(script, kinds[lane.what]) / 1e9
        assert lane.busy_s == pytest.approx(busy_s, rel=1e-12)
        assert len(lane.spans) <= MAX_SPANS
        assert lane.drawn_s > 1.5 * busy_s
        share = format_percent(busy_s / (length * 1e-6))
        assert {value["share"] for value in values if value.get("lane") == lane.what} == {share}
        assert tuple(cell.text for cell in row[:3]) == (lane.what, format_seconds(busy_s), share)


def verdict_of(input_us: float, h2d: float = 0, d2h: float = 0, kernels: float = 0, host: float = 0) -> Verdict:
    script, time = Script(), input_us
    if h2d:
        script.copy(H2D, time, time + h2d)
    time += h2d
    script.kernel(time, time + kernels)
    time += kernels
    if d2h:
        script.copy(D2H, time, time + d2h)
    time += d2h + host
    return analysed(make_window(script, time, steps_at((0, input_us, time)))).verdict


@pytest.mark.parametrize(
    ("input_us", "h2d", "d2h", "host", "bound_by", "degree"),
    [
        # The thresholds of TensorFlow's profiler: 20 % and 5 %.
        (21, 0, 0, 0, "input", ""),
        (20, 0, 0, 0, "input", "moderately"),
        (6, 0, 0, 0, "input", "moderately"),
        (5, 0, 0, 0, "device", ""),
        (0, 0, 21, 0, "output", ""),
        (0, 0, 20, 0, "output", "moderately"),
        (0, 0, 6, 0, "output", "moderately"),
        (0, 0, 5, 0, "device", ""),
        (2, 0, 0, 30, "host", ""),
        # Making the input or sending it, whichever is longer.
        (20, 20, 0, 0, "input", ""),
        (19, 20, 0, 0, "link", ""),
        (10, 25, 0, 0, "link", ""),
        # The largest cause; the host counts from 20 % on.
        (7.8, 0, 0, 85, "host", ""),
        (30, 0, 0, 29, "input", ""),
        (30, 0, 0, 31, "host", ""),
        (6, 0, 0, 19, "input", "moderately"),
        (6, 0, 7, 0, "output", "moderately"),
        (7, 0, 6, 0, "input", "moderately"),
        (0, 0, 30, 40, "host", ""),
    ],
)
def test_a_step_is_bound_by_its_largest_cause(
    input_us: float, h2d: float, d2h: float, host: float, bound_by: str, degree: str
) -> None:
    verdict = verdict_of(input_us, h2d, d2h, kernels=100 - input_us - h2d - d2h - host, host=host)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)
    shares = {"input": input_us + h2d, "link": input_us + h2d, "output": d2h, "host": host}
    assert verdict.share.value == pytest.approx(shares.get(bound_by, 100 - input_us - d2h) / 100)


def test_a_window_without_steps_is_bound_by_the_host_or_by_copies() -> None:
    scripts = (Script().kernel(0, 70), Script().copy(H2D, 0, 60))
    idle, sending = (analysed(make_window(script, 100)).verdict for script in scripts)
    assert (idle.bound_by, sending.bound_by) == ("host", "link")
    assert "input" not in idle.text
    assert sending.text.startswith("The program is bound by its input. The device does nothing but receive input")


def test_without_records_or_length_the_verdict_is_unknown() -> None:
    verdict = analysed(make_window(None, 100, steps_at((0, 60, 100)))).verdict
    assert verdict.bound_by == "unknown"
    assert "whether the device was busy in that time is not known" in verdict.evidence[0]
    assert analysed(make_window(None, 100)).verdict.evidence == ()
    empty = analysed(make_window(Script(), 0)).verdict
    assert (empty.bound_by, empty.share.reason) == ("unknown", "the window has no length")


@pytest.mark.parametrize(("input_us", "named"), [(4, False), (8, True)])
def test_a_step_bound_by_the_host_says_how_long_it_awaits_input(input_us: float, named: bool) -> None:
    text = verdict_of(input_us, host=80, kernels=20 - input_us).text
    assert ("another 8 %" in text, "not the cause" in text) == (named, not named)


def test_in_host_memory_the_verdict_is_unknown() -> None:
    watched = analysed(make_window(Script().copy(H2D, 0, 40), 100), target=HOST)
    assert watched.verdict.bound_by == "unknown"
    assert watched.verdict.text.startswith("No GPU was watched, so")
    assert watched.advice == ()
    assert watched.activity.value is not None


STEP = steps_at((0, 1, 100))


def test_dropped_records_get_a_remark_by_kind() -> None:
    watched = analysed(make_window(Script(), 100, STEP, dropped={"copies": 12, "kernels": 0, "unknown": 3}))
    assert activity_of(watched).dropped == {"copies": 12, "unknown": 3}
    (remark,) = watched.remarks
    assert remark.code == "dropped"
    assert "missing: 12 copies, 3 unknown;" in remark.text


@pytest.mark.parametrize(
    ("seconds", "error_ns", "drift_ns", "codes"),
    [
        *[(100e-6, 20_000, 0, []), (100e-6, 20_001, 0, ["clock-error"])],
        *[(100e-6, 0, 20_000, []), (100e-6, 0, 20_001, ["clock-drift"])],
        *[(60.5, 0, 6_049_000, []), (60.5, 0, 6_051_000, ["clock-drift"])],
    ],
)
def test_clocks_may_be_20_us_apart_and_drift(seconds: float, error_ns: int, drift_ns: int, codes: list[str]) -> None:
    length = seconds * 1e6
    watched = analysed(make_window(Script(), length, steps_at((0, 1, length)), clock=Clock(error_ns, drift_ns)))
    assert watched.window_s == pytest.approx(seconds)
    assert [remark.code for remark in watched.remarks] == codes


BROKEN: list[dict[str, Any]] = [{"failed": "ValueError: no"}, {"failed": "KeyError: 'x'"}, {"closed": False}]


def test_failed_and_unclosed_steps_are_counted_with_the_first_failure_also_if_there_is_no_other_step() -> None:
    step, *others = steps_at(*((place, place + 0.5, place + 1) for place in range(5)))
    broken = [other._replace(**how) for other, how in zip(others, [*BROKEN, BROKEN[2]], strict=True)]
    assert [remark.text for remark in analysed(make_window(Script(), 100, (step, *broken))).remarks] == [
        "2 steps failed, and are not in the figures of steps: ValueError: no",
        "2 steps had not ended with the window, and are not in the figures",
    ]
    for how in BROKEN:
        (remark,) = analysed(make_window(Script(), 100, (STEP[0]._replace(**how),))).remarks
        assert remark.code == ("failed-steps" if "failed" in how else "unclosed-steps")


@pytest.mark.parametrize(("unchanged", "fix"), [(False, "with w.step():"), (True, "with pyxfer.watch() as w:")])
def test_a_window_without_steps_has_a_remark_on_how_to_mark_them(unchanged: bool, fix: str) -> None:
    (remark,) = analysed(make_window(Script(), 100), unchanged=unchanged).remarks
    assert remark.code == "no-steps"
    assert fix in (remark.fix or "")


CUT = Remark("capacity", "the capacity for records was used up after 1.00 s")


def test_a_cut_window_has_one_remark_on_its_capacity_and_one_on_records_that_cupti_has_lost() -> None:
    window = make_window(Script(), 100, STEP, dropped={"copies": 12}, remarks=(CUT,))
    assert analysed(window).remarks == (CUT,)
    lost = make_window(Script(), 100, STEP, dropped={"copies": 12, "unknown": 3}, remarks=(CUT,))
    first, second = analysed(lost).remarks
    assert first == CUT
    assert "missing: 3 unknown;" in second.text


def test_a_cut_window_without_steps_does_not_say_that_none_was_begun() -> None:
    remark = analysed(make_window(Script(), 100, remarks=(CUT,))).remarks[1]
    assert (remark.code, remark.fix) == ("no-steps", None)
    assert "no step was begun" not in remark.text


@pytest.mark.parametrize("steps", [10_000, 10_001])
def test_the_first_ten_thousand_steps_are_listed(steps: int) -> None:
    watched = analysed(make_window(None, steps, steps_at(*((place, place, place + 1) for place in range(steps)))))
    assert (watched.steps.watched, len(watched.steps.each)) == (steps, 10_000)
    assert ("many-steps" in [remark.code for remark in watched.remarks]) == (steps > 10_000)


SENT = 10_000_000
TURN = 5_000
TURNS = 4
SPANS = [(begin, begin + 1000, begin + TURN) for begin in range(0, TURNS * TURN, TURN)]
FAILED = steps_at((TURNS * TURN, TURNS * TURN, (TURNS + 1) * TURN))[0]._replace(failed="ValueError: no")


def loop(*begins: float, nbytes: int = SENT, pageable: bool = True, more: tuple[Step, ...] = ()) -> Watched:
    """Four steps: one millisecond to make the input, one to send it, three to compute. More copies begin then."""
    script = Script()
    for begin in range(0, TURNS * TURN, TURN):
        script.copy(H2D, begin + 1000, begin + 2000, SENT, True, ("cudaMemcpyAsync", begin + 1000, begin + 2000))
        script.kernel(begin + 2000, begin + TURN)
        script.call("cudaStreamSynchronize", begin + 2000, begin + TURN)
    for when in begins:
        script.copy(H2D, when, when + 1000, nbytes, pageable, ("cudaMemcpyAsync", when, when + 1000))
    return analysed(make_window(script, 10 * TURNS * TURN, (*steps_at(*SPANS), *more)))


@pytest.mark.parametrize(
    ("begins", "more"),
    [
        ([(TURNS + 1 + place) * TURN for place in range(20)], ()),
        (range(TURNS * TURN + 10, TURNS * TURN + 30), (FAILED,)),
    ],
    ids=["after the loop", "of a failed step"],
)
def test_copies_of_no_usual_step_are_in_no_prediction(begins: Sequence[float], more: tuple[Step, ...]) -> None:
    assert loop(*begins, nbytes=100 * SENT, more=more).advice == loop().advice


def test_copies_outside_of_steps_are_not_in_figures_per_step() -> None:
    assert "waits" not in {row.code for row in loop(40_000, nbytes=1000 * SENT, pageable=False).advice}
    (row,) = activity_of(loop(60_000)).pageable
    assert (row.count, row.saves_s.value) == (5, pytest.approx(5 * 800e-6))
    assert row.saves_per_step_s == pytest.approx(800e-6)


def test_a_copy_without_a_time_belongs_to_the_step_of_its_call() -> None:
    script = Script().kernel(0, 20_000).copy(H2D, 2000, 3000, nbytes=SENT)
    for begin in (1000, 60_000):
        script.copy(H2D, 0, 0, nbytes=SENT, pageable=True, call=("cudaMemcpyAsync", begin, begin + 10))
    window = make_window(script, 70_000, steps_at((0, 0, 20_000)))
    assert activity_of(analysed(window)).pageable[0].saves_per_step_s == pytest.approx(0)
