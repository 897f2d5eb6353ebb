"""Charts: their figures are the document's, and their titles say what was found."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import msgspec
import pytest
from framework_samples import make_frameworks_run
from pages import beyond_of, full_run, host_run, layers_of, plots_of, titles_of, values_of
from report_samples import DOCUMENTS
from samples import make_measurement, make_run
from watch_samples import make_watched
from xfer_samples import row_of, session

from pyxfer._document import machines
from pyxfer._report.kinds import altair_chart, chart_of, charts_of, report_of
from pyxfer._report.plots import (
    COLOURS,
    NARROW,
    PARTS,
    VEGA_LITE,
    WIDE,
    category,
    change_plot,
    history_plot,
)
from pyxfer.errors import UsageError

NAMES = {
    "ceiling": ["sizes"],
    "ceiling of the host": ["sizes"],
    "frameworks": ["routes"],
    "image batches": ["routes"],
    "orders of work": ["routes", "waterfall"],
    "explain": ["waterfall", "routes"],
    "watch": ["parts", "steps", "timeline", "copies"],
    "watch with slow steps": ["parts", "steps", "timeline", "copies"],
    "watch without records": ["parts", "steps"],
    "comparison": ["cells"],
    "comparison of links": ["cells"],
    "examination": ["sizes"],
    "baseline of links": ["host", "interference", "pairs"],
    "baseline": ["sizes"],
    "history": ["history"],
    "history without changes": ["history"],
    "pytest": ["tests"],
    "nothing measured": [],
    "one point": ["sizes"],
    "hostile": ["sizes"],
    "links": ["host", "interference", "pairs", "latency"],
    "links of one GPU": ["host", "latency"],
    "links of four GPUs": ["host", "interference", "pairs", "numa", "latency"],
    "links of the host": ["host", "interference", "pairs", "latency"],
    "hostile links": ["host", "interference", "pairs", "numa", "latency"],
    "fleet": ["fleet"],
    "fleet of two groups": ["fleet"],
    "host": ["figures"],
    "plan": [],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_kind_of_document_has_its_charts(name: str) -> None:
    assert list(charts_of(DOCUMENTS[name])) == NAMES[name]


def test_the_size_curve_has_every_rate_with_its_interval_and_the_peak() -> None:
    run = full_run()
    spec = chart_of(run, "sizes")
    drawn = {(value["nbytes"], value["gbps"], value["low"]) for value in values_of(spec) if "low" in value}
    alone = [m for m in run.measurements if m.rate.value and m.side in (m.direction, "sum")]
    expected = {(m.nbytes, m.rate.value.gbps, m.rate.value.low_gbps) for m in alone if m.rate.value}
    assert drawn == expected
    peaks = {value["text"] for value in values_of(spec) if value.get("share") == 1.0}
    assert len(peaks) == len(plots_of(spec)) == 3


def test_host_memory_has_no_peak_and_wrong_contents_no_point() -> None:
    run = host_run(full_run())
    spec = chart_of(run, "sizes")
    assert not [value for value in values_of(spec) if "share" in value]
    assert all("host memory" in title for title in titles_of(spec))
    assert report_of(run).badge(run)[0] == "none"
    rows = (make_measurement(nbytes=4096), make_measurement(verified=machines.Fact(False)))
    wrong = make_run(measurements=rows, curves=())
    assert {value["nbytes"] for value in values_of(chart_of(wrong, "sizes")) if "low" in value} == {4096}
    assert report_of(wrong).badge(wrong)[0] == "bad"


def test_an_interval_beyond_the_plot_has_an_arrow_at_its_edge() -> None:
    row = make_measurement()
    rate = msgspec.structs.replace(row.rate.value, high_gbps=1e6)  # type: ignore[type-var]
    wide = msgspec.structs.replace(row, rate=machines.Fact(rate))
    spec = chart_of(make_run(measurements=(wide,), curves=()), "sizes")
    edge = max(value["high"] for value in values_of(spec) if "high" in value)
    assert edge < 2 * (make_run().link.peak_gbps("h2d").value or 0.0)
    assert [(arrow["beyond"], arrow["gbps"]) for arrow in beyond_of(spec)] == [(1e6, edge)]
    assert beyond_of(chart_of(full_run(), "sizes")) == []


def test_the_words_of_the_peak_are_above_the_plot_and_its_axis_is_drawn_once() -> None:
    for plot in plots_of(chart_of(full_run(), "sizes")):
        (words,) = [layer for layer in layers_of(plot) if layer["mark"]["type"] == "text"]
        assert (words["encoding"]["y"], words["mark"]["dy"] < 0) == ({"value": 0}, True)
        axes = [layer["encoding"]["y"].get("axis") or {} for layer in layers_of(plot)]
        assert [axis["orient"] for axis in axes if "orient" in axis] == ["right"]


def test_more_series_than_colours_are_named_in_the_title_and_not_drawn() -> None:
    rows = tuple(make_measurement(memory=f"kind {number}") for number in range(len(COLOURS) + 2))
    spec = chart_of(make_run(measurements=rows, curves=()), "sizes")
    assert len({value["series"] for value in values_of(spec) if "low" in value}) == len(COLOURS)
    assert "2 more series are in the table" in titles_of(spec)[0]
    other = make_measurement(side="d2h", memory="another kind")
    assert len(plots_of(chart_of(make_run(measurements=(*rows, other), curves=()), "sizes"))) == 1


def test_the_bars_of_a_framework_are_its_routes_the_fastest_first() -> None:
    for plot in plots_of(chart_of(make_frameworks_run(), "routes")):
        bars = plot["data"]["values"]
        rates, roles = [bar["gbps"] for bar in bars], {bar["role"] for bar in bars}
        assert rates == sorted(rates, reverse=True)
        (colour,) = [layer["encoding"]["color"] for layer in layers_of(plot) if layer["mark"]["type"] == "bar"]
        assert set(colour["scale"]["domain"]) == roles
        assert (colour["legend"] is None) == (len(roles) == 1)
        for bar in bars:
            rate, _, share = bar["figure"].partition(", ")
            assert len(rate.replace(".", "").lstrip("0")) >= 3
            assert share == "" or share.removesuffix(" %")[-2] == "."
    assert any(value.get("role") == "usual" for value in values_of(chart_of(make_frameworks_run(), "routes")))


def test_a_session_has_a_bar_a_test_and_a_title_that_counts_all() -> None:
    tests = [row_of(f"tests/test_a.py::test_{'long_' * 20}{number}") for number in range(2)]
    found = session(*tests, row_of("tests/test_a.py::test_other", gbps=None))
    spec = chart_of(found, "tests")
    assert len({value["series"] for value in values_of(spec) if "series" in value}) == len(tests)
    (title,) = titles_of(spec)
    assert title.startswith("3 tests")
    assert title.endswith("1 without a share")
    (plot,) = plots_of(spec)
    rules = [layer for layer in layers_of(plot) if layer["encoding"].get("x2") and layer["mark"]["type"] == "rule"]
    edge, line = (rule["mark"] for rule in rules)
    assert edge["strokeWidth"] > line["strokeWidth"]
    assert edge["color"] != line["color"]
    (grid,) = report_of(found).grids(found)
    headings, rows = grid.readable()
    assert [row[headings.index("why")].text != "" for row in rows] == [False, False, True]


def test_the_parts_of_a_waterfall_follow_each_other_and_sum_to_the_whole() -> None:
    run = DOCUMENTS["explain"]
    parts = [value for value in values_of(chart_of(run, "waterfall")) if "begin" in value]
    assert all(a["end"] == b["begin"] for a, b in itertools.pairwise(parts))
    (row,) = [m for m in run.measurements if m.route == run.parameters.explained and m.variant == "warm"]
    assert parts[-1]["end"] == pytest.approx(row.breakdown.value.elapsed_s * 1e3)


def test_the_steps_of_a_watch_have_their_parts() -> None:
    watched = make_watched()
    values = list(values_of(chart_of(watched, "steps")))
    for step in watched.steps.each:
        drawn = sum(value["ms"] for value in values if value["step"] == step.number)
        assert drawn == pytest.approx(1e3 * sum(seconds for _, seconds in step.parts.named()))


def colours_of(spec: dict[str, Any]) -> dict[str, str]:
    """The colour of each part that a chart draws."""
    scales = [layer["encoding"]["color"]["scale"] for layer in layers_of(spec) if "color" in layer["encoding"]]
    return {name: shade for scale in scales for name, shade in zip(scale["domain"], scale["range"], strict=True)}


def test_a_part_of_a_step_has_one_colour_whatever_else_is_drawn() -> None:
    found = [DOCUMENTS[name] for name in ("watch", "watch with slow steps", "watch without records")]
    drawn = [colours_of(chart_of(watched, chart)) for watched in found for chart in ("parts", "steps")]
    assert drawn[0] == drawn[1]
    assert drawn[0]["input being made"] == PARTS["input"]
    assert {drawn[4]["between steps"], drawn[5]["between steps"]} == {PARTS["input"]}
    explained = colours_of(chart_of(DOCUMENTS["explain"], "waterfall"))
    assert explained["the copy, at the ceiling's speed"] == drawn[0]["copies to the device"] == PARTS["h2d"]


def test_copies_without_a_ceiling_are_not_drawn() -> None:
    watched = make_watched()
    activity = watched.activity.value
    assert activity is not None
    large = [row for row in activity.copies if row.least_bytes >= 4096]
    small = msgspec.structs.replace(large[0], least_bytes=0, below_bytes=4096)
    inside = msgspec.structs.replace(large[0], direction="d2d")
    more = msgspec.structs.replace(activity, copies=(*large, small, inside))
    changed = msgspec.structs.replace(watched, activity=machines.Fact(more))
    bars = [value for value in values_of(chart_of(changed, "copies")) if "figure" in value]
    assert len(bars) == len(large)


def test_a_step_that_is_far_longer_than_the_others_has_an_arrow() -> None:
    watched = make_watched(stalls={7: 300_000})
    spec = chart_of(watched, "steps")
    (arrow,) = beyond_of(spec)
    (long,) = [step for step in watched.steps.each if step.number == arrow["step"]]
    assert arrow["beyond"] == pytest.approx(1e3 * sum(seconds for _, seconds in long.parts.named()))
    assert arrow["ms"] < arrow["beyond"] / 2


def test_a_comparison_draws_changes_of_bandwidth_and_the_tolerance() -> None:
    comparison = DOCUMENTS["comparison"]
    spec = chart_of(comparison, "cells")
    values = {value["cell"]: value for value in values_of(spec) if "cell" in value}
    for row in comparison.cells:
        assert values[row.text]["change"] == pytest.approx((1 / row.ratio.value - 1) * 100)
        assert values[row.text]["low"] <= values[row.text]["change"] <= values[row.text]["high"]
    assert {"from": -100 * comparison.tolerance, "to": 100 * comparison.tolerance} in list(values_of(spec))
    assert report_of(comparison).badge(comparison)[0] == "bad"


def change_value(cell: str, change: float, low: float, high: float) -> dict[str, Any]:
    return {"cell": cell, "verdict": "SAME", "change": change, "low": low, "high": high, "text": cell}


def test_one_wide_interval_of_a_comparison_does_not_set_its_axis() -> None:
    values = [change_value("a", -0.5, -1.0, 1.0), change_value("b", 2.0, -100.0, 700_000.0)]
    spec = change_plot(values, 0.03, "title", WIDE)
    (edge,) = {layer["encoding"]["x"]["scale"]["domain"][1] for layer in layers_of(spec) if "x" in layer["encoding"]}
    assert edge == pytest.approx(52)
    arrows = {(value["cell"], value["change"], value["beyond"]) for value in beyond_of(spec)}
    assert arrows == {("b", -50.0, -100.0), ("b", 50.0, 700_000.0)}
    assert all(-50 <= value["low"] <= value["high"] <= 50 for value in values_of(spec) if "low" in value)
    large = [change_value(name, change, change - 5, change + 5) for name, change in (("a", 200.0), ("b", 260.0))]
    assert beyond_of(change_plot(large, 0.03, "title", WIDE)) == []


def history_value(run: int, gbps: float, low: float, high: float) -> dict[str, Any]:
    return {"run": run, "gbps": gbps, "low": low, "high": high, "text": str(run)}


def test_an_outlier_of_a_history_has_an_arrow_and_the_others_their_whole_intervals() -> None:
    values = [history_value(run, 50.0 + run / 10, 48.0, 53.0) for run in range(1, 9)]
    values.append(history_value(9, 1600.0, 1.0, 1700.0))
    spec = history_plot(values, [], "title", WIDE)
    low, high = next(layer["encoding"]["y"]["scale"]["domain"] for layer in layers_of(spec))
    assert 47 < low < 48
    assert 53 < high < 54
    assert [(value["run"], value["beyond"]) for value in beyond_of(spec)] == [(9, 1.0), (9, 1700.0)]
    assert [value["low"] for value in values_of(spec) if "low" in value][:8] == [48.0] * 8


def test_long_names_have_two_lines_by_an_expression_without_names() -> None:
    names = ["GPU 0 h2d, both ways", "GPU 0 h2d, both ways, kernel"]
    assert "labelExpr" not in category("series", names, WIDE)[0]["axis"]
    axis = category("series", names, NARROW)[0]["axis"]
    assert "split(" in axis["labelExpr"]
    assert "GPU" not in axis["labelExpr"]


def test_a_history_draws_every_run_and_its_changes() -> None:
    spec = chart_of(DOCUMENTS["history"], "history")
    values = list(values_of(spec))
    assert [value["gbps"] for value in values if "low" in value] == [
        p.gbps for p in DOCUMENTS["history"].groups[0].points
    ]
    assert [value["run"] for value in values if "before" in value] == [40.5]
    assert [value["gbps"] for value in values if "end" in value] == pytest.approx([55.0, 55.0 * 0.95])
    assert "5 % slower" in titles_of(spec)[0]
    assert report_of(DOCUMENTS["history"]).badge(DOCUMENTS["history"])[0] == "doubtful"
    quiet = chart_of(DOCUMENTS["history without changes"], "history")
    assert "no change in 60 runs" in titles_of(quiet)[0]
    assert not [value for value in values_of(quiet) if "end" in value]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("hostile")])
def test_names_from_outside_are_values_without_control_characters(name: str) -> None:
    for chart in charts_of(DOCUMENTS[name]):
        for width in (WIDE, NARROW):
            text = msgspec.json.encode(chart_of(DOCUMENTS[name], chart, width)).decode()
            assert "\u202e" not in text
            assert "\x1b" not in text


def test_a_chart_that_does_not_exist_is_refused_with_the_names_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="choose one of sizes"):
        chart_of(full_run(), "routes")
    with pytest.raises(UsageError, match="no figures to draw"):
        chart_of(DOCUMENTS["nothing measured"], "sizes")
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(UsageError, match=r"pip install altair"):
        altair_chart(full_run(), "sizes")


@pytest.mark.parametrize(
    "name", ["ceiling", "frameworks", "explain", "watch", "comparison", "history", "fleet", "links"]
)
def test_charts_have_the_width_of_a_page_and_its_type(name: str) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    for chart in charts_of(DOCUMENTS[name]):
        for width, size in ((WIDE, 14), (NARROW, 12)):
            spec = chart_of(DOCUMENTS[name], chart, width)
            config = spec["config"]
            sizes = [config["axis"]["labelFontSize"], config["text"]["fontSize"], config["legend"]["labelFontSize"]]
            assert sizes == [size] * 3
            for plot in plots_of(spec):
                whole = {"config": config, "padding": spec["padding"], **plot}
                svg = vl_convert.vegalite_to_svg(whole, vl_version=VEGA_LITE, allowed_base_urls=[])
                drawn = float(svg.partition(' width="')[2].partition('"')[0])
                assert drawn <= width
                assert drawn > 0.94 * width or chart in ("interference", "pairs", "numa", "fleet")


@pytest.mark.slow
def test_charts_are_altair_charts_that_altair_accepts() -> None:
    pytest.importorskip("altair")
    for name in ("ceiling", "explain", "comparison", "watch", "links of four GPUs"):
        for chart in charts_of(DOCUMENTS[name]):
            assert altair_chart(DOCUMENTS[name], chart).to_dict()["config"]
