"""Plots as Vega-Lite specifications: bandwidth by size, bars, waterfalls, heat maps and others; and their theme."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyxfer import units
from pyxfer._document import printing

Spec = dict[str, Any]
Values = list[dict[str, Any]]
Make = Callable[[int], Spec]
"""Makes a chart for a width of its plots."""

WIDE, NARROW = 640, 250
"""Widths of a plot in CSS pixels: on a page of at least 800 pixels, and on a telephone."""
VEGA_LITE = f"{printing.VEGA_LITE}.4"
MAX_BARS = 40
# Each has a contrast of 4.5 or more on white; readers who confuse hues have dashes, shapes and words as well.
COLOURS = ("#0b5fa5", "#b3470a", "#00705a", "#8a2f74", "#6b5300", "#4b5563", "#0e7490", "#7f1d1d")
INK, FAINT, GRID = "#1f2328", "#59636e", "#d8dee4"
# From the least to the most. They differ in lightness, and INK has a contrast of 4.5 or more on each.
BLUES = ("#eef5fb", "#d3e4f3", "#b0d0ea", "#88b8de", "#62a0d0")
ORANGES = ("#fdf3ea", "#f9dfc8", "#f4c59e", "#ecaa74", "#e08e4f")

_DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 3], [3, 1])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
_VERDICTS = {"SAME": COLOURS[5], "FAST": COLOURS[0], "AMBIGUOUS": COLOURS[4], "SLOW": COLOURS[1]}
_ROLES = {
    "explained": COLOURS[1],
    "usual": COLOURS[1],
    "pyxfer": COLOURS[2],
    "other": COLOURS[0],
    "raw": COLOURS[5],
    "one direction": COLOURS[0],
    "both at once": COLOURS[2],
    "by a kernel": COLOURS[4],
    "chosen ring": COLOURS[2],
    "other ring": COLOURS[0],
    "plain copy": COLOURS[1],
    "together": COLOURS[0],
    "sum of separate runs": COLOURS[5],
}
_LANES = {"kernels": COLOURS[0], "h2d": COLOURS[1], "d2h": COLOURS[2], "other copies": COLOURS[3]}
_PEAK_RULE: Spec = {"type": "rule", "strokeDash": [5, 4], "color": INK, "strokeWidth": 1.3, "aria": False}
_WORDS: Spec = {"type": "text", "align": "left", "color": INK, "fontSize": 11}
_SYMBOL: Spec = {"symbolOpacity": 1, "symbolStrokeWidth": 0, "symbolFillColor": INK}
_SQUARE: Spec = {"symbolType": "square", "symbolStrokeWidth": 1, "symbolStrokeColor": FAINT}
_BAR_STEP, _BAR_HEIGHT = 20, 14
_PLOT_HEIGHT = 230
_CELL_HEIGHT, _NARROWEST_CELL, _WIDEST_CELL = 26, 28, 72
# Letters of a title in one pixel.
_TITLE_LETTERS = 0.145
_MARGIN = 100
# A figure and its unit stay on one line.
_FIGURE = re.compile(r"(?<=\d) (?=%|[KMGT]i?B|GB/s|MB/s|[num]?s\b)")
_SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~g') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '.3~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '.3~g') + ' KiB' : datum.value + ' B'"
)


def themed(plot: Spec, background: str = "transparent") -> Spec:
    """The chart of a plot, with the colours and fonts of all charts, and without characters that SVG does not allow."""
    axis = {
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": GRID,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "titleFontWeight": "normal",
        "labelOverlap": True,
    }
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{printing.VEGA_LITE}.json",
        **_drawable(plot),
        "background": background,
        "padding": 4,
        "config": {
            "font": "sans-serif",
            "view": {"stroke": None},
            "axis": axis,
            "title": {
                "color": INK,
                "anchor": "start",
                "frame": "group",
                "fontSize": 13,
                "lineHeight": 17,
                "offset": 8,
            },
            "legend": {"labelColor": INK, "titleColor": INK},
            "concat": {"spacing": 30},
        },
    }


# Those that XML does not allow end the process that draws them; the others turn the direction of text.
_UNDRAWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def _drawable(part: Any) -> Any:
    if isinstance(part, str):
        return _UNDRAWABLE.sub(" ", part)
    if isinstance(part, dict):
        return {name: _drawable(value) for name, value in part.items()}
    return [_drawable(value) for value in part] if isinstance(part, (list, tuple)) else part


def stacked(plots: Sequence[Spec]) -> Spec:
    if len(plots) == 1:
        return plots[0]
    independent = dict.fromkeys(("color", "strokeDash", "shape"), "independent")
    return {"vconcat": list(plots), "resolve": {"scale": independent}}


def rate_plot(
    values: Values,
    title: str,
    width: int,
    colours: Mapping[str, str],
    *,
    peak: float | None = None,
    fits: Values | None = None,
) -> Spec:
    """Bandwidth by size on a logarithmic axis; a series is told apart by colour, dash and shape.

    `fits`: points of the fitted curves; the one with a `knee` is the size that reaches half of the fitted bandwidth.
    """
    sizes = sorted({value["nbytes"] for value in values})
    # An interval that goes far beyond all figures is cut off at the edge.
    most = max([value["gbps"] for value in values] + ([peak] if peak else [])) * 1.08
    values = [{**value, "high": min(value["high"], most)} for value in values]
    x = _size_axis(sizes, width)
    y = {**_quantity("gbps", "GB/s"), "scale": {"domain": [0, most], "nice": False}}
    names = [name for name in colours if any(value["series"] == name for value in values)]
    places = {name: place for place, name in enumerate(colours)}
    legend = _legend(width)
    colour = _named("series", names, [colours[name] for name in names], legend)
    dash = _named("series", names, [_DASHES[places[name]] for name in names], legend)
    shape = _named("series", names, [_SHAPES[places[name]] for name in names], legend)
    layers: list[Spec] = [
        {
            "mark": _mark("area", opacity=0.15),
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
        },
        {"mark": _mark("line", strokeWidth=2), "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
        {
            "mark": {"type": "point", "size": 42, "filled": True, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, **_tooltip("series", "text")},
        },
    ]
    curves = [point for point in fits or () if "knee" not in point]
    knees = [point for point in fits or () if "knee" in point]
    if curves:
        encoding = {"x": x, "y": y, "color": colour}
        layers.append({"data": {"values": curves}, "mark": _mark("line", strokeWidth=0.8), "encoding": encoding})
    if knees:
        encoding = {"x": x, "y": y, "color": colour, **_tooltip("series", "knee")}
        knee = {"type": "point", "shape": "circle", "size": 150, "strokeWidth": 1.6, "opacity": 1}
        layers.append({"data": {"values": knees}, "mark": knee, "encoding": encoding})
    plot: Spec = {"data": {"values": values}, "layer": layers}
    if peak:
        plot = {"layer": [plot, *_peak_layers(peak, most, x)], "resolve": {"scale": {"y": "independent"}}}
    return {**plot, "width": width, "height": _PLOT_HEIGHT, "title": _title(title, width)}


def _size_axis(sizes: Sequence[int], width: int) -> Spec:
    """Logarithmic, with labels at measured sizes; a single size is in the middle."""
    ends = [sizes[0] / 1.15, sizes[-1] * 1.15] if len(sizes) > 1 else [sizes[0] / 2, sizes[0] * 2]
    step = -(-len(sizes) // (4 if width < WIDE else 9))
    return {
        **_quantity("nbytes", "size of a transfer"),
        "scale": {"type": "log", "base": 2, "domain": ends, "nice": False},
        "axis": {"values": sizes[::step], "labelExpr": _SIZE_LABEL, "grid": False},
    }


def _peak_layers(peak: float, most: float, x: Spec) -> list[Spec]:
    first = x["axis"]["values"][0]
    data = {"values": [{"share": 1.0, "nbytes": first, "text": f"peak of the link, {units.format_gbps(peak)}"}]}
    share = {
        **_quantity("share", "share of the peak"),
        "scale": {"domain": [0, most / peak], "nice": False},
        "axis": {"orient": "right", "format": ".0%", "grid": False, "tickCount": 5},
    }
    return [
        {"data": data, "mark": _PEAK_RULE, "encoding": {"y": share}},
        {"data": data, "mark": {**_WORDS, "dx": 4, "dy": 9}, "encoding": {"x": x, "y": share, "text": _text("text")}},
    ]


def bar(
    name: str, value: float, text: str, figure: str, *, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    """A row of `bar_plot` or `rate_plot`; without an interval, its ends are the value itself."""
    ends = {"low": value if low is None else low, "high": value if high is None else high}
    return {"series": name, "gbps": value, **ends, "text": text, "figure": figure}


def bar_plot(bars: Values, title: str, width: int, unit: str, *, line: tuple[float, str] | None = None) -> Spec:
    """Bars of `gbps` with their `figure`, a small line for the interval, and a dashed line with its words.

    An interval that goes far beyond all figures is cut off at the edge.
    """
    narrow = width < WIDE
    most = max([bar["gbps"] for bar in bars] + ([line[0]] if line else [])) or 1.0
    edge = most * (1.6 if narrow else 1.25)
    bars = _distinct([{**bar, "high": min(bar["high"], 1.04 * most)} for bar in bars], "series")
    x = {**_quantity("gbps", unit), "scale": {"domain": [0, edge], "nice": False}, "axis": {"grid": False}}
    y = _category("series", [bar["series"] for bar in bars], 110 if narrow else 230)
    roles = [role for role in _ROLES if any(bar.get("role") == role for bar in bars)]
    shades = [_ROLES[role] for role in roles]
    colour = _named("role", roles, shades, _legend(width) if len(roles) > 1 else None)
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": _BAR_HEIGHT, "color": COLOURS[0]},
            "encoding": {"x": {**x, "stack": None}, "y": y, **({"color": colour} if roles else {}), **_tooltip("text")},
        },
        {
            "mark": _mark("rule", color=INK, strokeWidth=1.4),
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
        },
        {"mark": {**_WORDS, "align": "right"}, "encoding": {"x": {"value": width}, "y": y, "text": _text("figure")}},
    ]
    if line is not None:
        data = {"values": [{"gbps": line[0], "text": line[1]}]}
        words = {**_WORDS, "align": "right", "dx": -4, "dy": -8}
        layers.append({"data": data, "mark": _PEAK_RULE, "encoding": {"x": x}})
        layers.append({"data": data, "mark": words, "encoding": {"x": x, "y": {"value": 0}, "text": _text("text")}})
    return _rows(bars, layers, width, {**_title(title, width), "offset": 18 if line else 8})


def waterfall_plot(parts: Sequence[tuple[str, float]], title: str, width: int) -> Spec:
    """Each part begins where the part before it ends; `parts` are names and seconds."""
    whole = sum(seconds for _, seconds in parts) or 1.0
    values, end_s = [], 0.0
    for name, seconds in parts:
        begin_s, end_s = end_s, end_s + seconds
        text = f"{units.format_seconds(seconds)}, {units.format_percent(seconds / whole)}"
        values.append({"part": name, "begin": begin_s * 1e3, "end": end_s * 1e3, "text": text})
    narrow = width < WIDE
    scale = {"domain": [0, whole * 1e3 * (1.7 if narrow else 1.25)], "nice": False}
    x = {**_quantity("begin", "ms"), "scale": scale, "axis": {"grid": False}}
    y = _category("part", [name for name, _ in parts], 130 if narrow else 240)
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": _BAR_HEIGHT, "color": COLOURS[0]},
            "encoding": {"x": x, "x2": {"field": "end"}, "y": y, **_tooltip("part", "text")},
        },
        {"mark": {**_WORDS, "dx": 5}, "encoding": {"x": {**x, "field": "end"}, "y": y, "text": _text("text")}},
    ]
    return _rows(values, layers, width, _title(title, width))


def change_plot(values: Values, tolerance: float, title: str, width: int) -> Spec:
    """A row for each cell. An interval that goes far beyond all changes is cut off at the edge."""
    edge = max([tolerance * 100, *(abs(value["change"]) for value in values)]) * 2
    cut = [{**value, "low": max(value["low"], -edge), "high": min(value["high"], edge)} for value in values]
    values = _distinct(cut, "cell")
    x = {**_quantity("change", "change of bandwidth, %"), "scale": {"domain": [-edge, edge], "nice": False}}
    y = _category("cell", [value["cell"] for value in values], 120 if width < WIDE else 260)
    verdicts = [word for word in _VERDICTS if any(value["verdict"] == word for value in values)]
    shapes = [_SHAPES[list(_VERDICTS).index(word)] for word in verdicts]
    colour = _named("verdict", verdicts, [_VERDICTS[word] for word in verdicts], _legend(width))
    shape = _named("verdict", verdicts, shapes, _legend(width))
    band = {"values": [{"from": -tolerance * 100, "to": tolerance * 100}]}
    layers: list[Spec] = [
        {
            "data": band,
            "mark": _mark("rect", color=COLOURS[5], opacity=0.16),
            "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}},
        },
        {"data": {"values": [{"change": 0}]}, "mark": _mark("rule", color=INK), "encoding": {"x": x}},
        {
            "mark": _mark("rule", strokeWidth=2),
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, **_tooltip("text")},
        },
    ]
    return _rows(values, layers, width, _title(title, width))


def share_plot(values: Values, title: str, width: int) -> Spec:
    """The share of trials that took at most `ms`, a step at each trial."""
    names = list(dict.fromkeys(value["series"] for value in values))
    x = {**_quantity("ms", "time of a trial, ms"), "scale": {"zero": False, "nice": True}}
    y = {**_quantity("share", "share of the trials"), "axis": {"format": ".0%", "tickCount": 5}}
    colour = _named("series", names, COLOURS[: len(names)], _legend(width))
    dash = _named("series", names, _DASHES[: len(names)], _legend(width))
    layers: list[Spec] = [
        {
            "mark": _mark("line", interpolate="step-after", strokeWidth=2),
            "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash},
        },
        {"mark": _mark("point", size=14, filled=True), "encoding": {"x": x, "y": y, "color": colour}},
    ]
    return _plot(values, layers, width, _title(title, width))


def step_plot(values: Values, title: str, width: int) -> Spec:
    """The `ms` of each `part` of every `step`, one above the other in their `order`."""
    numbers = [value["step"] for value in values]
    names = list(dict.fromkeys(value["part"] for value in sorted(values, key=lambda value: int(value["order"]))))
    thickness = max(0.5, min(18.0, 0.8 * width / len(set(numbers))))
    x = {
        **_quantity("step", "step"),
        "scale": {"domain": [min(numbers) - 0.5, max(numbers) + 0.5], "nice": False},
        "axis": {"tickMinStep": 1, "grid": False},
    }
    encoding = {
        "x": x,
        "y": _quantity("ms", "ms"),
        "color": _named("part", names, COLOURS[: len(names)], _legend(width)),
        "order": {"field": "order", "type": "quantitative"},
    }
    bars = _mark("bar", size=thickness)
    whole = {"width": width, "height": _PLOT_HEIGHT, "title": _title(title, width)}
    return {"data": {"values": values}, "mark": bars, "encoding": encoding, **whole}


def history_plot(values: Values, changes: Values, title: str, width: int) -> Spec:
    """The `gbps` of each `run` with its interval, and between `changes` the median as a line."""
    lowest, highest = min(value["gbps"] for value in values), max(value["gbps"] for value in values)
    room = max(highest - lowest, 0.02 * highest) * 0.3
    low, high = max(0.0, lowest - room), highest + room
    values = [{**value, "low": max(value["low"], low), "high": min(value["high"], high)} for value in values]
    edges = [0.5, *(change["run"] for change in changes), len(values) + 0.5]
    rates = [*(change["before"] for change in changes), *(change["after"] for change in changes[-1:])]
    stretches = (
        []
        if not changes
        else [
            {"run": begin, "end": end, "gbps": rate}
            for begin, end, rate in zip(edges[:-1], edges[1:], rates, strict=True)
        ]
    )
    x = {
        **_quantity("run", "run, the oldest first"),
        "scale": {"domain": [0.5, len(values) + 0.5], "nice": False},
        "axis": {"tickMinStep": 1, "grid": False},
    }
    y = {**_quantity("gbps", "GB/s"), "scale": {"domain": [low, high], "zero": False, "nice": False}}
    marker = {"type": "point", "filled": True, "size": 30, "opacity": 1, "color": COLOURS[0]}
    layers: list[Spec] = [
        {
            "mark": _mark("rule", color=COLOURS[0], opacity=0.5),
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {"mark": marker, "encoding": {"x": x, "y": y, **_tooltip("text")}},
    ]
    if changes:
        line = _mark("rule", color=COLOURS[1], strokeWidth=2)
        layers.append(
            {"data": {"values": stretches}, "mark": line, "encoding": {"x": x, "x2": {"field": "end"}, "y": y}}
        )
        layers.append(
            {
                "data": {"values": changes},
                "mark": {**_PEAK_RULE, "aria": True},
                "encoding": {"x": x, **_tooltip("text")},
            }
        )
    return _plot(values, layers, width, _title(title, width))


def heat_plot(
    values: Values,
    axes: tuple[tuple[str, Sequence[str]], tuple[str, Sequence[str]]],
    shades: Mapping[str, str],
    title: str,
    notes: Sequence[str],
    width: int,
) -> Spec:
    """Cells of `row` and `column` with their `figure`, in the colour of their `shade`.

    `axes`: what the rows and the columns are, with their names in order; `notes`: lines below the title, such as why
    cells have no figure.
    """
    (_, rows), (_, columns) = axes
    cell = max(_NARROWEST_CELL, min(_WIDEST_CELL, width // len(columns)))
    x = _band("column", axes[1], {"orient": "top", "labelAngle": 0})
    y = _band("row", axes[0], {})
    used = [name for name in shades if any(value["shade"] == name for value in values)]
    colour = _named("shade", used, [shades[name] for name in used], {**_legend(width), **_SQUARE})
    layers: list[Spec] = [
        {
            "mark": {"type": "rect", "stroke": GRID, "strokeWidth": 1},
            "encoding": {"x": x, "y": y, "color": colour, **_tooltip("text")},
        },
        {"mark": _mark("text", color=INK, fontSize=11), "encoding": {"x": x, "y": y, "text": _text("figure")}},
    ]
    lines = [line for note in notes for line in _wrapped(note, width)]
    return {
        "data": {"values": values},
        "layer": layers,
        "width": cell * len(columns),
        "height": _CELL_HEIGHT * len(rows),
        "title": {**_title(title, width), "subtitle": lines, "subtitleColor": FAINT} if lines else _title(title, width),
    }


def _band(name: str, axis: tuple[str, Sequence[str]], form: Spec) -> Spec:
    title, order = axis
    scale = {"domain": list(order), "paddingInner": 0.06, "paddingOuter": 0}
    bare = {"ticks": False, "domain": False, **form}
    return {"field": name, "type": "nominal", "title": title, "sort": None, "scale": scale, "axis": bare}


def timeline_plot(lanes: Values, steps: Values, ends: tuple[float, float], title: str, width: int) -> Spec:
    """When each `lane` was busy: spans from `begin` to `end` in ms, and below them the `steps` with their `step`.

    A lane's last column is its `share` of the stretch.
    """
    names = [*dict.fromkeys(value["lane"] for value in lanes), *(["step"] if steps else [])]
    room = (ends[1] - ends[0]) * (0.3 if width < WIDE else 0.12)
    x = {
        **_quantity("begin", "ms after the beginning of the window"),
        "scale": {"domain": [ends[0], ends[1] + room], "nice": False},
        "axis": {"grid": False, "tickCount": 4 if width < WIDE else 8},
    }
    y = _category("lane", names, 120)
    known = [name for name in _LANES if name in names]
    colour = _named("lane", known, [_LANES[name] for name in known], None)
    shares = [next(value for value in lanes if value["lane"] == name) for name in names if name in known]
    span = {"x": x, "x2": {"field": "end"}, "y": y}
    layers: list[Spec] = [
        {
            "mark": _mark("bar", height=_BAR_HEIGHT, strokeWidth=0.6),  # without it, a short span is invisible
            "encoding": {**span, "color": colour, "stroke": colour},
        },
        {
            "data": {"values": shares},
            "mark": {**_WORDS, "align": "right"},
            "encoding": {"x": {"value": width}, "y": y, "text": _text("share")},
        },
    ]
    if steps:
        step = {"type": "bar", "height": _BAR_HEIGHT, "color": GRID}
        words = {**_WORDS, "align": "center", "aria": False}
        middle = {"x": {**x, "field": "middle"}, "y": y, "text": _text("step")}
        layers.append({"data": {"values": steps}, "mark": step, "encoding": {**span, **_tooltip("text")}})
        layers.append({"data": {"values": steps}, "mark": words, "encoding": middle})
    return _rows(lanes, layers, width, _title(title, width))


def load_plot(values: Values, title: str, width: int) -> Spec:
    """The `ns` of a load of each `series` by the `load` of the link beside it; its `part` is the median or p99."""
    names = list(dict.fromkeys(value["series"] for value in values))
    parts = list(dict.fromkeys(value["part"] for value in values))
    x = {
        **_quantity("load", "copied beside it, share of the link's rate"),
        "scale": {"domain": [-0.04, 1.04], "nice": False},
        "axis": {"format": ".0%", "values": sorted({value["load"] for value in values}), "grid": False},
    }
    y = {**_quantity("ns", "ns"), "scale": {"zero": True}}
    colour = _named("series", names, COLOURS[: len(names)], _legend(width))
    dash = _named("part", parts, _DASHES[: len(parts)], _legend(width))
    shape = _named("part", parts, _SHAPES[: len(parts)], _legend(width))
    layers: list[Spec] = [
        {"mark": _mark("line", strokeWidth=2), "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
        {
            "mark": _mark("rule", strokeWidth=1.4),
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
        },
        {
            "mark": {"type": "point", "size": 42, "filled": True, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, **_tooltip("text")},
        },
    ]
    return _plot(values, layers, width, _title(title, width))


# --- parts of plots --------------------------------------------------------------------------------------------------


def _plot(values: Values, layers: Sequence[Spec], width: int, title: Spec, height: Any = _PLOT_HEIGHT) -> Spec:
    return {"data": {"values": values}, "layer": list(layers), "width": width, "height": height, "title": title}


def _rows(values: Values, layers: Sequence[Spec], width: int, title: Spec) -> Spec:
    return _plot(values, layers, width, title, {"step": _BAR_STEP})


def _distinct(values: Values, name: str) -> Values:
    """With a number behind a name that an earlier row has, because rows of one name would be drawn as one."""
    counts: dict[str, int] = {}
    named = []
    for value in values:
        counts[value[name]] = count = counts.get(value[name], 0) + 1
        named.append(value if count == 1 else {**value, name: f"{value[name]} ({count})"})
    return named


def _mark(name: str, **properties: Any) -> Spec:
    """A mark that other marks tell the reader of, so that a screen reader does not read it."""
    return {"type": name, "aria": False, **properties}


def _quantity(name: str, title: str) -> Spec:
    return {"field": name, "type": "quantitative", "title": title}


def _category(name: str, order: Sequence[str], longest: int) -> Spec:
    axis = {"labelLimit": longest, "ticks": False, "domain": False}
    return {"field": name, "type": "nominal", "title": None, "sort": list(dict.fromkeys(order)), "axis": axis}


def _named(field: str, names: Sequence[str], values: Sequence[Any], legend: Spec | None) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": list(values)},
        "legend": legend,
    }


def _legend(width: int) -> Spec:
    columns = 1 if width < WIDE else 3
    return {"title": None, "orient": "bottom", "columns": columns, "labelLimit": 280, "symbolSize": 90, **_SYMBOL}


def _text(name: str) -> Spec:
    return {"field": name, "type": "nominal"}


def _tooltip(*names: str) -> Spec:
    tooltip = [{"field": name, "type": "nominal"} for name in names]
    described = " + ': ' + ".join(f"datum['{name}']" for name in names)
    return {
        "tooltip": tooltip,
        "description": {"condition": {"test": "true", "value": {"expr": described}}, "value": ""},
    }


def _title(text: str, width: int) -> Spec:
    return {"text": _wrapped(text, width) or [""]}


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(_FIGURE.sub("\u00a0", text), max(30, int(_TITLE_LETTERS * (width + _MARGIN))))
