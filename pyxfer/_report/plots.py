"""Plots as Vega-Lite specifications: bandwidth by size, bars, waterfalls, heat maps and others; and their theme."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyxfer import units
from pyxfer._document import printing

Spec = dict[str, Any]
Values = list[dict[str, Any]]
Make = Callable[[int], Spec]
"""Makes a chart of a width, with its axes and labels."""

WIDE, NARROW = 928, 358
"""Widths of a chart in CSS pixels: the column of a page, and that of a page on a telephone."""
VEGA_LITE = f"{printing.VEGA_LITE}.4"
MAX_BARS = 40
# Each has a contrast of 4.5 or more on white; readers who confuse hues have dashes, shapes and words as well.
COLOURS = ("#0b5fa5", "#b3470a", "#00705a", "#8a2f74", "#6b5300", "#4b5563", "#0e7490", "#7f1d1d")
INK, FAINT, GRID = "#1f2328", "#59636e", "#d8dee4"
# Around a line that crosses bars.
HALO = "#fefefe"
PARTS = {
    "kernels": COLOURS[0],
    "h2d": COLOURS[1],
    "d2h": COLOURS[2],
    "other copies": COLOURS[3],
    "input": COLOURS[4],
    "idle": COLOURS[5],
    "host": COLOURS[6],
    "staging": COLOURS[7],
}
"""The colour of each part of a step or transfer, in every chart and whatever other parts there are."""
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
    "without load": COLOURS[0],
    "beside copies": COLOURS[1],
}
_PEAK_RULE: Spec = {"type": "rule", "strokeDash": [5, 4], "color": INK, "strokeWidth": 1.3, "aria": False}
_WORDS: Spec = {"type": "text", "align": "left", "color": INK}
_SYMBOL: Spec = {"symbolOpacity": 1, "symbolStrokeWidth": 0, "symbolFillColor": INK}
_SQUARE: Spec = {"symbolType": "square", "symbolStrokeWidth": 1, "symbolStrokeColor": FAINT}
_POINT: Spec = {"type": "point", "size": 60, "filled": True, "opacity": 1}
_BAR_STEP, _BAR_HEIGHT = 25, 17
_BAR: Spec = {"type": "bar", "height": _BAR_HEIGHT}
_WHOLE_NUMBERS: Spec = {"tickMinStep": 1, "grid": False}
_PLOT_HEIGHT = 300
_CELL_HEIGHT, _NARROWEST_CELL, _WIDEST_CELL = 28, 36, 90
# Names of columns with more letters are turned.
_LONGEST_UPRIGHT = 4
_PADDING = 4
# Room for the labels of an axis of numbers, and beside these for its title.
_NUMBERS, _NAME, _RIGHT = 46, 22, 12
_NUMBER_AXIS: Spec = {"minExtent": _NUMBERS, "maxExtent": _NUMBERS}
# The room of names in a chart is at most this share of its width.
_LONGEST_NAME = 0.36
# Rates in MB/s are whole numbers from here on.
_WHOLE_FROM = 1000
# The place of words above a plot.
_ABOVE = -9
# The mean width of a letter in sizes of the type: of a label, and of a bold title.
_LETTER, _BOLD_LETTER = 0.53, 0.6
# An axis ends here, if only outliers are beyond; these get an arrow.
_FAR_SHARE, _FAR_TIMES = 0.5, 4.0
# A figure and its unit stay on one line.
_FIGURE = re.compile(r"(?<=\d) (?=%|[KMGT]i?B|GB/s|MB/s|[num]?s\b)")
_SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~g') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '.3~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '.3~g') + ' KiB' : datum.value + ' B'"
)


def type_size(width: int) -> int:
    return 14 if width >= WIDE else 12


def themed(plot: Spec, width: int, background: str = "transparent") -> Spec:
    size = type_size(width)
    axis: Spec = {"labelColor": INK, "titleColor": INK, "gridColor": GRID, "domainColor": FAINT, "tickColor": FAINT}
    axis |= {"titleFontWeight": "normal", "labelOverlap": True, "labelFontSize": size, "titleFontSize": size}
    title = {"color": INK, "anchor": "start", "frame": "bounds", "fontSize": size + 1, "lineHeight": size + 5}
    title |= {"subtitleFontSize": size, "subtitleLineHeight": size + 4, "offset": 10}
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{printing.VEGA_LITE}.json",
        **_drawable(plot),
        "background": background,
        "padding": _PADDING,
        "config": {
            "font": "sans-serif",
            "view": {"stroke": None},
            "axis": axis,
            "text": {"fontSize": size},
            "title": title,
            "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": size},
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


def parts_of(plot: Spec) -> list[Spec]:
    return list(plot.get("vconcat", [plot]))


def stacked(plots: Sequence[Spec]) -> Spec:
    if len(plots) == 1:
        return plots[0]
    independent = dict.fromkeys(("color", "strokeDash", "shape"), "independent")
    return {"vconcat": list(plots), "resolve": {"scale": independent}}


def stack(makes: Iterable[Make | None]) -> Make | None:
    known = [make for make in makes if make is not None]
    return (lambda width: stacked([make(width) for make in known])) if known else None


def rate_plot(
    values: Values,
    title: str,
    width: int,
    colours: Mapping[str, str],
    *,
    peak: float | None = None,
) -> Spec:
    """Bandwidth by size on a logarithmic axis; a series is told apart by colour, dash and shape."""
    sizes = sorted({value["nbytes"] for value in values})
    most = max([value["gbps"] for value in values] + ([peak] if peak else [])) * 1.08
    values, beyond = _up_to(values, "gbps", most, "series", "nbytes")
    x = _size_axis(sizes, width)
    y = _numbers("gbps", "GB/s", [0, most])
    names = [name for name in colours if any(value["series"] == name for value in values)]
    places = {name: place for place, name in enumerate(colours)}
    legend = _legend(width)
    colour = _named("series", names, [colours[name] for name in names], legend)
    dash = _named("series", names, [_DASHES[places[name]] for name in names], legend)
    shape = _named("series", names, [_SHAPES[places[name]] for name in names], legend)
    at = {"x": x, "y": y, "color": colour}
    layers: list[Spec] = [
        _layer(_mark("area", opacity=0.15), {**at, "y": {**y, "field": "low"}, "y2": {"field": "high"}}),
        _layer(_mark("line", strokeWidth=2), {**at, "strokeDash": dash}),
        _layer(_POINT, {**at, "shape": shape, **_tooltip("series", "text")}),
        *_arrows(beyond, at, "triangle-up"),
    ]
    plot: Spec = {"data": {"values": values}, "layer": layers}
    if peak:
        rule, words = _peak_layers(peak, most)
        plot = {"layer": [{**plot, "layer": [*layers, words]}, rule], "resolve": {"scale": {"y": "independent"}}}
    inner = inner_width(width, _NUMBERS + _NAME, _NUMBERS + _NAME if peak else 0)
    return {**plot, "width": inner, "height": _PLOT_HEIGHT, "title": title_of(title, width, above=bool(peak))}


def _size_axis(sizes: Sequence[int], width: int) -> Spec:
    ends = [sizes[0] / 1.15, sizes[-1] * 1.15] if len(sizes) > 1 else [sizes[0] / 2, sizes[0] * 2]
    step = -(-len(sizes) // (4 if width < WIDE else 10))
    return {
        **_quantity("nbytes", "size of a transfer"),
        "scale": {"type": "log", "base": 2, "domain": ends, "nice": False},
        "axis": {"values": sizes[::step], "labelExpr": _SIZE_LABEL, "grid": False},
    }


def _peak_layers(peak: float, most: float) -> tuple[Spec, Spec]:
    values = [{"share": 1.0, "text": f"dashed: peak of the link, {units.format_gbps(peak)}"}]
    share = _quantity("share", "share of the peak", [0, most / peak])
    share["axis"] = {"orient": "right", "format": ".0%", "grid": False, "tickCount": 5}
    place = {"x": {"value": 0}, "y": {"value": 0}, "text": _text("text")}
    return _layer(_PEAK_RULE, {"y": share}, values), _layer({**_WORDS, "dy": _ABOVE}, place, values)


def bar(
    name: str, value: float, text: str, figure: str, *, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    """A row of `bar_plot` or `rate_plot`; without an interval, its ends are the value itself."""
    ends = {"low": value if low is None else low, "high": value if high is None else high}
    return {"series": name, "gbps": value, **ends, "text": text, "figure": figure}


def bar_figure(gbps: float, share: float | None = None) -> str:
    """The words at the end of a bar, with as many digits as tables have: `51.00, 92.3 %`."""
    rate = f"{gbps:.0f}" if gbps >= _WHOLE_FROM else units.format_gbps(gbps).removesuffix(" GB/s")
    return rate if share is None else f"{rate}, {share * 100:.1f} %"


def bar_plot(bars: Values, title: str, width: int, unit: str, *, line: tuple[float, str] | None = None) -> Spec:
    """Bars of `gbps` with their `figure`, a small line for the interval, and a dashed line with its words."""
    most = max([bar["gbps"] for bar in bars] + ([line[0]] if line else [])) or 1.0
    bars, beyond = _up_to(_distinct(bars, "series"), "gbps", 1.04 * most, "series")
    y, left = category("series", [bar["series"] for bar in bars], width)
    inner = inner_width(width, left)
    edge = 1.06 * most / (1 - _room([bar["figure"] for bar in bars], width) / inner)
    x = {**_quantity("gbps", unit, [0, edge]), "axis": _ticks(width)}
    roles = [role for role in _ROLES if any(bar.get("role") == role for bar in bars)]
    shades = [_ROLES[role] for role in roles]
    colour = {"color": _named("role", roles, shades, _legend(width) if len(roles) > 1 else None)} if roles else {}
    interval = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    layers: list[Spec] = [
        _layer({**_BAR, "color": COLOURS[0]}, {"x": {**x, "stack": None}, "y": y, **colour, **_tooltip("text")}),
        _layer(_mark("rule", color=HALO, strokeWidth=4.5), interval),
        _layer(_mark("rule", color=INK, strokeWidth=1.6), interval),
        *_arrows(beyond, {"x": x, "y": y}, "triangle-right"),
        _layer({**_WORDS, "align": "right"}, {"x": {"value": inner}, "y": y, "text": _text("figure")}),
    ]
    if line is not None:
        values = [{"gbps": line[0], "text": line[1]}]
        side = {"align": "right", "dx": -4} if line[0] > edge / 2 else {"align": "left", "dx": 4}
        layers.append(_layer(_PEAK_RULE, {"x": x}, values))
        words = {"x": x, "y": {"value": 0}, "text": _text("text")}
        layers.append(_layer({**_WORDS, **side, "dy": _ABOVE}, words, values))
    return _rows(bars, layers, inner, title_of(title, width, above=line is not None))


def waterfall_plot(parts: Sequence[tuple[str, float]], colours: Mapping[str, str], title: str, width: int) -> Spec:
    """Each part begins where the part before it ends; `parts` are names and seconds."""
    whole = sum(seconds for _, seconds in parts) or 1.0
    values: Values = []
    end_s = 0.0
    for name, seconds in parts:
        begin_s, end_s = end_s, end_s + seconds
        text = f"{units.format_seconds(seconds)}, {units.format_percent(seconds / whole)}"
        values.append({"part": name, "begin": begin_s * 1e3, "end": end_s * 1e3, "text": text})
    names = [name for name, _ in parts]
    y, left = category("part", names, width)
    inner = inner_width(width, left)
    edge = whole * 1e3 / (1 - _room([value["text"] for value in values], width) / inner)
    x = {**_quantity("begin", "ms", [0, edge]), "axis": _ticks(width)}
    names = list(dict.fromkeys(names))
    colour = _named("part", names, [colours[name] for name in names], None)
    layers: list[Spec] = [
        _layer(_BAR, {"x": x, "x2": {"field": "end"}, "y": y, "color": colour, **_tooltip("part", "text")}),
        _layer({**_WORDS, "dx": 5}, {"x": {**x, "field": "end"}, "y": y, "text": _text("text")}),
    ]
    return _rows(values, layers, inner, title_of(title, width))


def change_plot(values: Values, tolerance: float, title: str, width: int) -> Spec:
    """The `change` of each cell in per cent with its interval; what is far beyond the others has an arrow."""
    values = _distinct(values, "cell")
    far = max(100 * _FAR_SHARE, tolerance * 150, 2 * statistics.median(abs(value["change"]) for value in values))
    widest = max([tolerance * 100, *(abs(value[end]) for value in values for end in ("low", "high"))])
    edge = min(widest * 1.1, far)
    values, beyond = _within(values, "change", -edge, edge)
    y, left = category("cell", [value["cell"] for value in values], width)
    x = _quantity("change", "change of bandwidth, %", [-edge * 1.04, edge * 1.04])
    x["axis"] = {**_ticks(width), "grid": True}
    verdicts = [word for word in _VERDICTS if any(value["verdict"] == word for value in values)]
    shapes = [_SHAPES[list(_VERDICTS).index(word)] for word in verdicts]
    colour = _named("verdict", verdicts, [_VERDICTS[word] for word in verdicts], _legend(width))
    shape = _named("verdict", verdicts, shapes, _legend(width))
    band = [{"from": -tolerance * 100, "to": tolerance * 100}]
    at = {"x": x, "y": y, "color": colour}
    layers: list[Spec] = [
        _layer(
            _mark("rect", color=COLOURS[5], opacity=0.16), {"x": {**x, "field": "from"}, "x2": {"field": "to"}}, band
        ),
        _layer(_mark("rule", color=INK), {"x": x}, [{"change": 0}]),
        _layer(_mark("rule", strokeWidth=2), {**at, "x": {**x, "field": "low"}, "x2": {"field": "high"}}),
        _layer({**_POINT, "size": 80}, {**at, "shape": shape, **_tooltip("text")}),
        *_arrows(beyond, at, "triangle-right", "triangle-left"),
    ]
    return _rows(values, layers, inner_width(width, left), title_of(title, width))


def step_plot(values: Values, colours: Mapping[str, str], title: str, width: int) -> Spec:
    """The `ms` of each `part` of every `step`, one above the other in their `order`; `colours`: those of the parts."""
    numbers = [value["step"] for value in values]
    names = [name for name in colours if any(value["part"] == name for value in values)]
    inner = inner_width(width, _NUMBERS + _NAME)
    thickness = max(0.5, min(24.0, 0.8 * inner / len(set(numbers))))
    whole: dict[int, float] = {}
    for value in values:
        whole[value["step"]] = whole.get(value["step"], 0.0) + value["ms"]
    edge = min(max(whole.values()), _FAR_TIMES * statistics.median(whole.values()))
    beyond = [{"step": step, "ms": edge, "beyond": ms} for step, ms in whole.items() if ms > edge]
    x = {**_quantity("step", "step", [min(numbers) - 0.5, max(numbers) + 0.5]), "axis": _WHOLE_NUMBERS}
    y = _numbers("ms", "ms", [0, edge * 1.05])
    colour = _named("part", names, [colours[name] for name in names], _legend(width))
    order = {"field": "order", "type": "quantitative"}
    layers: list[Spec] = [
        _layer(_mark("bar", size=thickness, clip=True), {"x": x, "y": y, "color": colour, "order": order}),
        *_arrows(beyond, {"x": x, "y": y}, "triangle-up"),
    ]
    return _plot(values, layers, inner, title_of(title, width))


def history_plot(values: Values, changes: Values, title: str, width: int) -> Spec:
    """The `gbps` of each `run` with its interval, and between `changes` the median as a line.

    Runs and intervals that are far from the median have an arrow at the edge.
    """
    rates = [value["gbps"] for value in values]
    levels = [change[level] for change in changes for level in ("before", "after")]
    middle = statistics.median(rates)
    least, most = ((1 + side * _FAR_SHARE) * middle for side in (-1, 1))
    shown = [end for value in values for end in (value["gbps"], value["low"], value["high"]) if least <= end <= most]
    low, high = min([*shown, *levels, middle]), max([*shown, *levels, middle])
    room = max(high - low, 0.02 * high) * 0.08
    low, high = max(0.0, low - room), high + room
    values, beyond = _within(values, "gbps", low, high)
    edges = [0.5, *(change["run"] for change in changes), len(values) + 0.5]
    medians = [*(change["before"] for change in changes), *(change["after"] for change in changes[-1:])]
    stretches = [
        {"run": begin, "end": end, "gbps": rate}
        for begin, end, rate in zip(edges[:-1], edges[1:], medians, strict=False)  # without a change there are none
    ]
    x = {**_quantity("run", "run, the oldest first", [0.5, len(values) + 0.5]), "axis": _WHOLE_NUMBERS}
    y = {**_numbers("gbps", "GB/s"), "scale": {"domain": [low, high], "zero": False, "nice": False}}
    at = {"x": x, "y": y}
    layers: list[Spec] = [
        _layer(
            _mark("rule", color=COLOURS[0], opacity=0.5), {**at, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        ),
        _layer({**_POINT, "size": 45, "color": COLOURS[0]}, {**at, **_tooltip("text")}),
        *_arrows(beyond, at, "triangle-up", "triangle-down"),
    ]
    if changes:
        line = _mark("rule", color=COLOURS[1], strokeWidth=2)
        layers.append(_layer(line, {**at, "x2": {"field": "end"}}, stretches))
        layers.append(_layer({**_PEAK_RULE, "aria": True}, {"x": x, **_tooltip("text")}, changes))
    return _plot(values, layers, inner_width(width, _NUMBERS + _NAME), title_of(title, width))


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
    (of_rows, rows), (of_columns, columns) = axes
    y, left = category("row", rows, width)
    y["title"] = of_rows or None
    left += _NAME * bool(of_rows)
    cell = max(_NARROWEST_CELL, min(_WIDEST_CELL, inner_width(width, left) // len(columns)))
    is_long = max(map(len, columns)) > _LONGEST_UPRIGHT
    form = {"orient": "bottom", "labelAngle": -40, "labelLimit": 190} if is_long else {"orient": "top", "labelAngle": 0}
    x: Spec = {"field": "column", "type": "nominal", "title": of_columns or None, "sort": list(columns)}
    x["axis"] = {"ticks": False, "domain": False, "labelOverlap": False, **form}
    used = [name for name in shades if any(value["shade"] == name for value in values)]
    colour = _named("shade", used, [shades[name] for name in used], {**_legend(width), **_SQUARE})
    square = {"type": "rect", "stroke": GRID, "strokeWidth": 1}
    layers: list[Spec] = [
        _layer(square, {"x": x, "y": y, "color": colour, **_tooltip("text")}),
        _layer(_mark("text", color=INK), {"x": x, "y": y, "text": _text("figure")}),
    ]
    return _plot(values, layers, cell * len(columns), title_of(title, width, notes), _CELL_HEIGHT * len(rows))


def timeline_plot(lanes: Values, steps: Values, ends: tuple[float, float], title: str, width: int) -> Spec:
    """When each `lane` was busy: spans from `begin` to `end` in ms, and below them the `steps` with their `step`.

    A lane's last column is its `share` of the stretch.
    """
    names = [*dict.fromkeys(value["lane"] for value in lanes), *(["step"] if steps else [])]
    y, left = category("lane", names, width)
    inner = inner_width(width, left)
    edge = ends[0] + (ends[1] - ends[0]) / (1 - _room([value["share"] for value in lanes], width) / inner)
    x = _quantity("begin", "ms after the beginning of the window", [ends[0], edge])
    x["axis"] = _ticks(width)
    known = [name for name in PARTS if name in names]
    colour = _named("lane", known, [PARTS[name] for name in known], None)
    shares = [next(value for value in lanes if value["lane"] == name) for name in names if name in known]
    span = {"x": x, "x2": {"field": "end"}, "y": y}
    # Without a stroke, a short span is invisible.
    bar = _mark("bar", height=_BAR_HEIGHT, strokeWidth=0.6)
    layers: list[Spec] = [
        _layer(bar, {**span, "color": colour, "stroke": colour}),
        _layer({**_WORDS, "align": "right"}, {"x": {"value": inner}, "y": y, "text": _text("share")}, shares),
    ]
    if steps:
        layers.append(_layer({**_BAR, "color": GRID}, {**span, **_tooltip("text")}, steps))
        middle = {"x": {**x, "field": "middle"}, "y": y, "text": _text("step")}
        layers.append(_layer({**_WORDS, "align": "center", "aria": False}, middle, steps))
    return _rows(lanes, layers, inner, title_of(title, width))


# --- parts of plots --------------------------------------------------------------------------------------------------


def inner_width(width: int, left: int, right: int = 0) -> int:
    return width - 2 * _PADDING - left - max(right, _RIGHT)


def _room(texts: Sequence[str], width: int) -> float:
    return max(map(len, texts), default=0) * _LETTER * type_size(width) + 10


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


def _up_to(values: Values, name: str, edge: float, *kept: str) -> tuple[Values, Values]:
    """The values cut at the edge of the axis of `name`, and those whose interval goes beyond it.

    `kept`: what tells where these are.
    """
    far = [value for value in values if value["high"] > edge]
    beyond = [{**{field: value[field] for field in kept}, name: edge, "beyond": value["high"]} for value in far]
    return [{**value, "high": min(value["high"], edge)} for value in values], beyond


def _within(values: Values, name: str, low: float, high: float) -> tuple[Values, Values]:
    """The values cut to the axis of `name`, and those that go beyond it at its edge, with their `side`."""
    bare = [{field: value[field] for field in value if field not in ("low", "high")} for value in values]
    beyond = [
        {**kept, name: edge, "side": side, "beyond": value[end]}
        for value, kept in zip(values, bare, strict=True)
        for end, edge, side in (("low", low, -1), ("high", high, 1))
        if side * (value[end] - edge) > 0
    ]
    fields = (name, "low", "high")
    return [{**value, **{field: max(low, min(high, value[field])) for field in fields}} for value in values], beyond


def _arrows(beyond: Values, encoding: Spec, shape: str, below: str = "") -> list[Spec]:
    """Arrows at the edge of a plot for what lies beyond it; `below`: the shape of those on the side below."""
    mark = _mark("point", filled=True, size=110, opacity=1, color=INK)
    return [
        _layer({**mark, "shape": arrow}, encoding, found)
        for side, arrow in ((-1, below), (1, shape))
        if (found := [value for value in beyond if value.get("side", 1) == side])
    ]


def _layer(mark: Spec, encoding: Spec, values: Values | None = None) -> Spec:
    """A layer of a plot; `values`: its own, without which it has those of the plot."""
    return {**({} if values is None else {"data": {"values": values}}), "mark": mark, "encoding": encoding}


def _quantity(name: str, title: str, domain: Sequence[float] | None = None) -> Spec:
    axis: Spec = {"field": name, "type": "quantitative", "title": title}
    return axis if domain is None else {**axis, "scale": {"domain": list(domain), "nice": False}}


def _numbers(name: str, title: str, domain: Sequence[float] | None = None) -> Spec:
    """A vertical axis of numbers, which takes the same room in every chart."""
    return {**_quantity(name, title, domain), "axis": _NUMBER_AXIS}


def _ticks(width: int) -> Spec:
    return {"grid": False, "tickCount": 5 if width < WIDE else 10, "labelBound": _RIGHT}


def category(name: str, order: Sequence[str], width: int) -> tuple[Spec, int]:
    room, most = int(_room(order, width)), int(_LONGEST_NAME * width)
    room = min(room, most)
    axis: Spec = {"labelLimit": room, "minExtent": room + 8, "maxExtent": room + 8, "labelPadding": 8}
    axis |= {"ticks": False, "domain": False}
    if room == most:  # two lines, because several names may begin alike
        line = type_size(width) - 1
        letters = int((room - 10) / (_LETTER * type_size(width)))
        is_long = f"length(datum.label) > {letters}"
        broken = f"replace(datum.label, /^(.{{1,{letters - 1}}}[ :.-])(.+)$/, '$1\\n$2')"
        axis |= {"labelExpr": f"{is_long} ? split({broken}, '\\n') : datum.label", "labelLineHeight": line}
        axis["labelOffset"] = {"condition": {"test": is_long, "value": -line / 2}, "value": 0}
    return {"field": name, "type": "nominal", "title": None, "sort": list(dict.fromkeys(order)), "axis": axis}, room + 8


def _named(field: str, names: Sequence[str], values: Sequence[Any], legend: Spec | None) -> Spec:
    scale = {"domain": list(names), "range": list(values)}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _legend(width: int) -> Spec:
    columns = 1 if width < WIDE else 3
    return {"title": None, "orient": "bottom", "columns": columns, "labelLimit": 280, "symbolSize": 110, **_SYMBOL}


def _text(name: str) -> Spec:
    return {"field": name, "type": "nominal"}


def _tooltip(*names: str) -> Spec:
    tooltip = [{"field": name, "type": "nominal"} for name in names]
    described = " + ': ' + ".join(f"datum['{name}']" for name in names)
    return {
        "tooltip": tooltip,
        "description": {"condition": {"test": "true", "value": {"expr": described}}, "value": ""},
    }


def title_of(text: str, width: int, notes: Sequence[str] = (), *, above: bool = False) -> Spec:
    """The title with its notes; `above`: words stand between it and the plot."""
    title: Spec = {"text": _wrapped(text, width, _BOLD_LETTER) or [""]}
    lines = [line for note in notes for line in _wrapped(note, width, _LETTER)]
    if lines:
        title |= {"subtitle": lines, "subtitleColor": FAINT}
    return {**title, "offset": 26} if above else title


def _wrapped(text: str, width: int, letter: float) -> list[str]:
    return textwrap.wrap(_FIGURE.sub("\u00a0", text), int((width - 2 * _PADDING) / (letter * type_size(width))))
