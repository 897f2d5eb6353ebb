"""The timeline of a watch: steps of median length, in a bounded number of spans."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
from chart_parts import titles_of, values_of
from watch.windows import LOADER, Script, activity_of, analysed, make_window, steps_at
from watch_samples import make_stalled, make_unseen, make_watched

from pyxfer._document.watches import Lane, Timeline, Watched
from pyxfer._report.kinds import chart_of, charts_of, report_of
from pyxfer._trace.records import CopyWay, Kind
from pyxfer._watch.analysis import MOST_SPANS
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
    assert line.merged_s == pytest.approx(20e-3 / MOST_SPANS, rel=0.01)
    assert len(spans_of(line)["kernels"]) == 2
    assert spans_of(line)["kernels"][-1] == pytest.approx((14e-3, 15e-3))


def test_no_lane_has_more_spans_than_are_drawn() -> None:
    script = Script()
    for number in range(2 * MOST_SPANS):
        script.kernel(100 * number, 100 * number + 1)
    line = timeline_of(analysed(make_window(script, 200 * MOST_SPANS)))
    assert len(spans_of(line)["kernels"]) <= MOST_SPANS


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
        assert len(lane.spans) <= MOST_SPANS
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


def test_a_document_of_an_earlier_version_has_no_timeline() -> None:
    watched = make_watched()
    older = msgspec.structs.replace(
        watched, activity=type(watched.activity)(msgspec.structs.replace(activity_of(watched), timeline=None))
    )
    assert "timeline" not in charts_of(older)
    assert "timeline" not in charts_of(make_unseen())
