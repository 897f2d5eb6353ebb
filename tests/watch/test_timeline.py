"""The timeline of a watch, and what a step is bound by."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from chart_parts import titles_of, values_of
from watch.windows import LOADER, MACHINE, Flat, Script, activity_of, analysed, make_window, steps_at
from watch_samples import make_stalled, make_watched

from pyxfer._document.watches import Lane, Timeline, Verdict, Watched
from pyxfer._report.kinds import chart_of, report_of
from pyxfer._trace.records import CopyWay, Kind
from pyxfer._watch.analysis import MAX_SPANS, analyse
from pyxfer.units import format_percent, format_seconds


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
    script = Script()
    script.kernel(100, 400)
    script.copy(CopyWay.D2D, 300, 500)
    line = timeline_of(analysed(make_window(script, 1000)))
    assert (line.begin_s, line.end_s) == pytest.approx((0.0, 1e-3))
    assert not line.steps
    assert spans_of(line) == {"kernels": ((1e-4, 4e-4),), "other copies": ((3e-4, 5e-4),)}


def test_many_short_kernels_become_a_bounded_number_of_spans() -> None:
    script = Script()
    for number in range(5000):
        script.kernel(2 * number, 2 * number + 1)
    script.kernel(14_000, 15_000)
    line = timeline_of(analysed(make_window(script, 20_000)))
    assert line.merged_s == pytest.approx(20e-3 / MAX_SPANS, rel=0.01)
    assert len(spans_of(line)["kernels"]) == 2
    assert spans_of(line)["kernels"][-1] == pytest.approx((14e-3, 15e-3))


def test_no_lane_has_more_spans_than_are_drawn() -> None:
    script = Script()
    for number in range(2 * MAX_SPANS):
        script.kernel(100 * number, 100 * number + 1)
    line = timeline_of(analysed(make_window(script, 200 * MAX_SPANS)))
    assert len(spans_of(line)["kernels"]) <= MAX_SPANS


def test_steps_of_two_threads_are_not_mixed() -> None:
    script = Script()
    script.kernel(10, 20)
    steps = steps_at((0, 0, 100), (100, 100, 200)) + steps_at((0, 50, 150), thread=LOADER)
    line = timeline_of(analysed(make_window(script, 300, steps)))
    assert [step.number for step in line.steps] == [1, 2]


def test_spans_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="in order"):
        Lane("h2d", 3.0, ((0.0, 2.0), (1.0, 3.0)))


@pytest.mark.parametrize("busy_s", [-1.0, 2.1])
def test_a_lane_is_busy_for_no_longer_than_its_spans(busy_s: float) -> None:
    with pytest.raises(ValueError, match="busy_s"):
        Lane("h2d", busy_s, ((0.0, 2.0),))


@pytest.mark.parametrize(("merged_s", "refused"), [(0.0, True), (0.5, False)])
def test_a_lane_without_left_out_gaps_is_busy_for_as_long_as_its_spans(merged_s: float, refused: bool) -> None:
    lane = Lane("h2d", 1.0, ((0.0, 2.0),))
    with pytest.raises(ValueError, match="busy_s") if refused else contextlib.nullcontext():
        Timeline(0.0, 4.0, merged_s, (), (lane,))


def dense(seed: int, spans: int = 4000) -> tuple[Script, float]:
    """Thousands of short kernels and copies, some of which overlap, and the length of the window."""
    script, random = Script(), np.random.default_rng(seed)
    for begin in np.sort(random.uniform(0, 20 * spans, spans)):
        script.kernel(begin, begin + random.uniform(0.2, 4), stream=int(random.integers(3)))
        script.copy(CopyWay.H2D, begin + 5, begin + 5 + random.uniform(0.2, 30))
    return script, 20.0 * spans + 40


def exact_ns(script: Script, kind: Kind) -> int:
    """The union of all spans of a kind, on a raster of nanoseconds."""
    rows = script.capture().of(kind)
    busy = np.zeros(int(rows["end_ns"].max() - rows["start_ns"].min()), np.bool_)
    for begin, end in zip(
        rows["start_ns"] - rows["start_ns"].min(), rows["end_ns"] - rows["start_ns"].min(), strict=True
    ):
        busy[begin:end] = True
    return int(busy.sum())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_busy_time_of_a_lane_is_that_of_its_records_however_few_spans_are_drawn(seed: int) -> None:
    script, length = dense(seed)
    watched = analysed(make_window(script, length))
    line, kinds = timeline_of(watched), {"kernels": Kind.KERNEL, "h2d": Kind.COPY}
    values = list(values_of(chart_of(watched, "timeline")))
    table = next(grid for grid in report_of(watched).grids(watched) if grid.name.startswith("Timeline")).readable()[1]
    assert {lane.what for lane in line.lanes} == set(kinds)
    for lane, row in zip(line.lanes, table, strict=True):
        busy_s = exact_ns(script, kinds[lane.what]) / 1e9
        assert lane.busy_s == pytest.approx(busy_s, rel=1e-12)
        assert len(lane.spans) <= MAX_SPANS
        assert lane.drawn_s > 1.5 * busy_s
        share = format_percent(busy_s / (length * 1e-6))
        assert {value["share"] for value in values if value.get("lane") == lane.what} == {share}
        assert tuple(cell.text for cell in row[:3]) == (lane.what, format_seconds(busy_s), share)


def test_the_busy_time_of_steps_is_that_of_their_parts() -> None:
    watched = make_stalled()
    line = timeline_of(watched)
    drawn = [step.parts for step in watched.steps.each if step.number in {span.number for span in line.steps}]
    kernels_s = {lane.what: lane.busy_s for lane in line.lanes}["kernels"]
    assert kernels_s == pytest.approx(sum(parts.kernels_s or 0.0 for parts in drawn))


# --- the chart -------------------------------------------------------------------------------------------------------


def test_the_chart_has_every_span_and_the_share_of_each_lane() -> None:
    watched = make_watched()
    line, spec = timeline_of(watched), chart_of(watched, "timeline")
    drawn = [(value["lane"], value["begin"]) for value in spec["data"]["values"]]
    assert drawn == [(lane.what, begin * 1e3) for lane in line.lanes for begin, _ in lane.spans]
    assert "kernels 36.9 %, h2d 27.7 %" in titles_of(spec)[0]


def verdict_of(input_us: float, h2d: float = 0, d2h: float = 0, kernels: float = 0, host: float = 0) -> Verdict:
    script, time = Script(), input_us
    if h2d:
        script.copy(CopyWay.H2D, time, time + h2d)
    time += h2d
    script.kernel(time, time + kernels)
    time += kernels
    if d2h:
        script.copy(CopyWay.D2H, time, time + d2h)
    time += d2h + host
    return analysed(make_window(script, time, steps_at((0, input_us, time)))).verdict


@pytest.mark.parametrize(
    ("input_us", "degree", "bound_by"),
    [(21, "", "input"), (20, "moderately", "input"), (6, "moderately", "input"), (5, "", "device")],
)
def test_the_thresholds_are_those_of_tensorflows_profiler(input_us: float, degree: str, bound_by: str) -> None:
    verdict = verdict_of(input_us, kernels=100 - input_us)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)


def test_a_step_is_bound_by_the_link_if_its_copies_take_longer_than_its_input() -> None:
    verdict = verdict_of(10, h2d=25, kernels=65)
    assert verdict.bound_by == "link"
    assert verdict.share.value == pytest.approx(0.35)
    assert verdict.text == (
        "The step is bound by its input. The device waits for input for 35.0 % of the step, most of it while it "
        "crosses the link."
    )


@pytest.mark.parametrize(
    ("input_us", "h2d", "bound_by"), [(20, 20, "input"), (19, 20, "link"), (11, 20, "link"), (21, 20, "input")]
)
def test_the_longer_of_making_and_sending_the_input_is_named(input_us: float, h2d: float, bound_by: str) -> None:
    assert verdict_of(input_us, h2d=h2d, kernels=100 - input_us - h2d).bound_by == bound_by


@pytest.mark.parametrize(
    ("input_us", "d2h", "host", "bound_by", "degree"),
    [
        (7.8, 0, 85, "host", ""),
        (30, 0, 29, "input", ""),
        (30, 0, 31, "host", ""),
        (6, 0, 19, "input", "moderately"),  # the host counts from 20 % on
        (6, 7, 0, "output", "moderately"),
        (7, 6, 0, "input", "moderately"),
        (0, 30, 40, "host", ""),
    ],
)
def test_the_largest_cause_is_named(input_us: float, d2h: float, host: float, bound_by: str, degree: str) -> None:
    verdict = verdict_of(input_us, d2h=d2h, host=host, kernels=100 - input_us - d2h - host)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)


@pytest.mark.parametrize(("input_us", "named"), [(4, False), (8, True)])
def test_a_step_bound_by_the_host_says_how_long_it_awaits_input(input_us: float, named: bool) -> None:
    text = verdict_of(input_us, host=80, kernels=20 - input_us).text
    assert ("another 8 %" in text, "not the cause" in text) == (named, not named)


def test_the_evidence_has_the_figures_of_the_parts() -> None:
    assert verdict_of(30, h2d=20, kernels=50).evidence == (
        "input 30.0 us of 100 us (30.0 %): the device does nothing while the host is between steps",
        "h2d 20.0 us of 100 us (20.0 %): copies to the device are under way and no kernel runs",
    )


@pytest.mark.parametrize(
    ("d2h", "degree", "bound_by"),
    [(21, "", "output"), (20, "moderately", "output"), (6, "moderately", "output"), (5, "", "device")],
)
def test_a_step_is_bound_by_its_output_while_no_kernel_runs(d2h: float, degree: str, bound_by: str) -> None:
    verdict = verdict_of(0, d2h=d2h, kernels=100 - d2h)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)


def test_a_step_with_an_idle_device_is_bound_by_the_host() -> None:
    verdict = verdict_of(2, kernels=68, host=30)
    assert verdict.bound_by == "host"
    assert verdict.text.endswith("for 30.0 % of the step, and its input is not the cause.")


def test_an_idle_device_without_steps_says_nothing_of_the_input() -> None:
    script = Script()
    script.kernel(0, 70)
    verdict = analysed(make_window(script, 100)).verdict
    assert verdict.bound_by == "host"
    assert "input" not in verdict.text


def test_a_step_with_a_busy_device_is_bound_by_the_device() -> None:
    verdict = verdict_of(2, kernels=98)
    assert verdict.text == "The step is bound by the device. The device computes for 98.0 % of the step."


def test_without_steps_the_input_can_only_be_its_copies() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 60)
    verdict = analysed(make_window(script, 100)).verdict
    assert verdict.bound_by == "link"
    assert verdict.text.startswith("The program is bound by its input. The device does nothing but receive input")


def test_without_records_the_verdict_is_unknown() -> None:
    verdict = analysed(make_window(None, 100, steps_at((0, 60, 100)))).verdict
    assert verdict.bound_by == "unknown"
    assert verdict.text.startswith("What the device did was not recorded, so")
    assert "whether the device was busy in that time is not known" in verdict.evidence[0]


def test_in_host_memory_the_verdict_is_unknown() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 40)
    watched = analyse(make_window(script, 100), Flat(50.0), replace(MACHINE, runtime="host"))
    assert watched.verdict.bound_by == "unknown"
    assert watched.verdict.text.startswith("No GPU was watched, so")
    assert watched.advice == ()
    assert watched.activity.value is not None


def test_without_records_and_steps_there_is_no_evidence() -> None:
    assert analysed(make_window(None, 100)).verdict.evidence == ()


def test_a_window_without_length_has_no_verdict() -> None:
    verdict = analysed(make_window(Script(), 0)).verdict
    assert (verdict.bound_by, verdict.share.reason) == ("unknown", "the window has no length")


def test_a_part_without_time_is_not_in_the_evidence() -> None:
    assert [line.split()[0] for line in verdict_of(30, kernels=70).evidence] == ["input"]
    assert [line.split()[0] for line in verdict_of(0, kernels=70, host=30).evidence] == ["host"]
