"""The timeline of a watch: steps of median length, in a bounded number of spans."""

from __future__ import annotations

import msgspec
import pytest
from chart_parts import titles_of
from watch.windows import LOADER, Script, activity_of, analysed, make_window, steps_at
from watch_samples import make_stalled, make_unseen, make_watched

from pyxfer._document.watches import Lane, Timeline, Watched
from pyxfer._report.charts import chart_of, charts_of
from pyxfer._trace.records import CopyWay
from pyxfer._watch.analysis import MOST_SPANS


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
        Lane("h2d", ((0.0, 2.0), (1.0, 3.0)))


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
