"""Charts of links: heat maps of GPUs and NUMA nodes, and latency under load."""

from __future__ import annotations

import statistics
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyxfer._document import links as documents
from pyxfer._document.links import HOST_END, Links, Traffic
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Rate
from pyxfer._report import link_words, plots
from pyxfer._report.report import Charts
from pyxfer._report.text import clean, titled
from pyxfer.units import format_gbps, format_percent

Place = tuple[int, int]
"""The row and the column of a cell, as the numbers of GPUs or nodes."""
# From the most to the least.
_OF_THE_HIGHEST = (
    *((0.95, "95 % of the highest or more"), (0.8, "80 to 95 %"), (0.5, "50 to 80 %"), (0.25, "25 to 50 %")),
    (0.0, "below 25 %"),
)
_KEPT = (
    *((0.97, "keeps 97 % or more"), (0.9, "90 to 97 %"), (0.75, "75 to 90 %"), (0.6, "60 to 75 %")),
    (0.0, "below 60 %"),
)
_NO_FIGURE = "no figure"
_NOT_MEASURED: Fact[Any] = Fact(reason="this pair was not measured")
_DIRECTIONS: tuple[documents.HostDirection, ...] = ("h2d", "d2h")
_PAIR_CASES: tuple[tuple[str, documents.CopyEngine, str], ...] = (
    ("read", "ce", "read by the destination"),
    ("write", "ce", "written by the source"),
    ("read", "sm", "read by the destination"),
    ("write", "sm", "written by the source"),
    ("through-host", "ce", "through host memory"),
)
# A pair is named if it is slower than this share of the fastest.
_NAMED_BELOW = 0.9
_LOADS = (0.0, 0.5, 1.0)
"""Shares of the link's rate that are copied beside a latency."""


class _Cell(NamedTuple):
    value: float | None
    reason: str
    text: str


def charts_of_links(run: Links) -> Charts:
    return {
        "host": _host(run),
        "interference": plots.stack(_keeps(run, run.sharing, direction) for direction in _DIRECTIONS if run.sharing),
        "pairs": plots.stack(_pairs(run, *case) for case in _PAIR_CASES),
        "numa": plots.stack(_numa(run, direction) for direction in _DIRECTIONS),
        "latency": _latency(run),
    }


def _host(run: Links) -> plots.Make | None:
    rows = [row for engine in ("ce", "sm") for row in run.traffics if (row.group, row.engine) == ("host", engine)]
    flows = [(flow.device, bar) for row in rows for flow in row.flows if (bar := _host_bar(row, flow)) is not None]
    bars = [bar for _, bar in sorted(flows[: plots.MAX_BARS], key=lambda pair: pair[0])]
    title = titled(run.runtime, link_words.alone_text(run) or link_words.sentence(run))
    return (lambda width: plots.bar_plot(bars, title, width, "GB/s")) if bars else None


def _host_bar(row: Traffic, flow: documents.LinkFlow) -> dict[str, object] | None:
    rate, peak = flow.rate.value, flow.peak_share.value
    if rate is None or flow.verified.value is False:
        return None
    both, kernel = len(row.flows) > 1, row.engine == "sm"
    words = ", both ways" * both + ", kernel" * kernel
    role = "by a kernel" if kernel else "both at once" if both else "one direction"
    return _bar(f"GPU {flow.device} {flow.side}{words}", rate, None if both else peak, role, " of the peak")


def _bar(name: str, rate: Rate, share: float | None, role: str, whole: str = "") -> dict[str, object]:
    beside = "" if share is None else f", {format_percent(share)}{whole}"
    text, figure = f"{name}: {format_gbps(rate.gbps)}{beside}", plots.bar_figure(rate.gbps, share)
    return {**plots.bar(name, rate.gbps, text, figure, low=rate.low_gbps, high=rate.high_gbps), "role": role}


def _keeps(run: Links, sharing: documents.LinksSharing, direction: documents.HostDirection) -> plots.Make | None:
    facts = {(keep.beside, keep.device): keep.share for keep in sharing.keeps if keep.direction == direction}
    cells = {}
    for place in _places(run):
        share = facts.get(place, _NOT_MEASURED)
        words = f"GPU {place[1]} beside GPU {place[0]}, {direction}"
        cells[place] = _Cell(share.value.value if share.value else None, share.reason or "", words)
    known = [cell.value for cell in cells.values() if cell.value is not None]
    if not known:
        return None
    title = titled(run.runtime, _keeps_text(sharing, direction, min(known)))
    axes = (("beside GPU", link_words.numbers(run)), ("GPU", link_words.numbers(run)))
    return _heat_map(cells, axes, title, partial(_shade, _KEPT), lambda share: f"{share * 100:.0f} %")


def _keeps_text(sharing: documents.LinksSharing, direction: documents.HostDirection, least: float) -> str:
    if sharing.groups.value is None:
        return f"{direction}: whether links are shared is not known: {clean(sharing.groups.reason or '')}"
    groups = [group for group in sharing.groups.value if group.direction == direction]
    if groups:
        return " ".join(map(link_words.group_text, groups))
    return f"{direction}: no shared uplink was found; beside another one a GPU keeps {format_percent(least)} or more"


def _pairs(run: Links, case: str, engine: documents.CopyEngine, words: str) -> plots.Make | None:
    cells = {}
    for place in _places(run):
        row = link_words.found(run, "pairs", case, engine, place)
        total: Fact[Any] = _NOT_MEASURED if row is None else row.total
        gbps = None if row is None else row.gbps
        cells[place] = _Cell(gbps, total.reason or "", f"GPU {place[0]} to GPU {place[1]}")
    rates = {place: cell.value for place, cell in cells.items() if cell.value is not None}
    if not rates:
        return None
    text = f"GPU to GPU, {words}, {link_words.engine_words(engine)}: {_range_text(list(rates.values()))}"
    title = titled(run.runtime, f"{text}{_slowest_text(run, case, engine, rates)}")
    axes = (("from GPU", link_words.numbers(run)), ("to GPU", link_words.numbers(run)))
    return _heat_map(cells, axes, title, _shade_by_highest(rates.values()), _rate_text)


def _slowest_text(run: Links, case: str, engine: documents.CopyEngine, rates: Mapping[Place, float]) -> str:
    """The links that the document calls slow; else the slowest pair, if it is far below the fastest."""
    slow = run.sharing.slow.value if run.sharing is not None and engine == "ce" else None
    named = [link_words.slow_text(link) for link in slow or () if link.case == case]
    if named:
        return f". {' '.join(named)}"
    slowest, highest = min(rates, key=lambda place: rates[place]), max(rates.values())
    share = rates[slowest] / highest if highest else 1.0
    if share >= _NAMED_BELOW:
        return ""
    return f"; {slowest[0]} to {slowest[1]} gets {format_percent(share)} of the fastest"


def _numa(run: Links, direction: documents.HostDirection) -> plots.Make | None:
    cells = {}
    for row in run.traffics:
        if (row.group, row.case) == ("numa", direction) and row.node is not None:
            device, node = row.flows[0].device, row.node
            words = f"GPU {device} and node {node}, {direction}"
            cells[device, node] = _Cell(row.gbps, row.total.reason or "", words)
    rates = {place: cell.value for place, cell in cells.items() if cell.value is not None}
    if not rates:
        return None
    near = {each.device.index: each.node.value for each in run.devices}
    own = [rate for (device, node), rate in rates.items() if near.get(device) == node]
    others = [rate for (device, node), rate in rates.items() if near.get(device) not in (None, node)]
    text = f"{_range_text(list(rates.values()))} between GPUs and NUMA nodes"
    if own and others:
        text = f"{_range_text(own)} with memory of a GPU's own node, {_range_text(others)} with that of others"
    axes = (("GPU", link_words.numbers(run)), ("memory of node", sorted({node for _, node in cells})))
    title = titled(run.runtime, f"{direction}: {text}")
    return _heat_map(cells, axes, title, _shade_by_highest(rates.values()), _rate_text)


def _heat_map(
    cells: Mapping[Place, _Cell],
    axes: tuple[tuple[str, Sequence[int]], tuple[str, Sequence[int]]],
    title: str,
    shade: Callable[[float], str],
    say: Callable[[float], str],
) -> plots.Make:
    """The cells with their values; a cell without one has the letter of its reason, which is below the title."""
    reasons = list(dict.fromkeys(cell.reason for cell in cells.values() if cell.value is None))
    letters = dict(zip(reasons, string.ascii_lowercase[:5], strict=False))
    values: plots.Values = [
        {
            "row": str(place[0]),
            "column": str(place[1]),
            "shade": _NO_FIGURE if cell.value is None else shade(cell.value),
            "figure": letters.get(cell.reason, "-") if cell.value is None else say(cell.value),
            "text": f"{cell.text}: {clean(cell.reason) if cell.value is None else say(cell.value)}",
        }
        for place, cell in cells.items()
    ]
    notes = [f"{letter}: {clean(reason)}" for reason, letter in letters.items()]
    rows, columns = ((name, [str(number) for number in numbers]) for name, numbers in axes)
    return lambda width: plots.heat_plot(values, (rows, columns), _SHADES, title, notes, width)


_SHADES = {
    **dict(zip([name for _, name in _OF_THE_HIGHEST], reversed(plots.BLUES), strict=True)),
    **dict(zip([name for _, name in _KEPT], plots.ORANGES, strict=True)),
    _NO_FIGURE: plots.GRID,
}


def _shade(shades: Sequence[tuple[float, str]], share: float) -> str:
    return next((name for least, name in shades if share >= least), shades[-1][1])


def _shade_by_highest(rates: Iterable[float]) -> Callable[[float], str]:
    highest = max(rates)
    return lambda rate: _shade(_OF_THE_HIGHEST, rate / highest if highest else 1.0)


def _places(run: Links) -> list[Place]:
    return [(row, column) for row in link_words.numbers(run) for column in link_words.numbers(run) if row != column]


def _rate_text(gbps: float) -> str:
    return f"{gbps:.0f}" if gbps >= 100 else f"{gbps:.3g}"  # noqa: PLR2004 - three digits


def _range_text(rates: Sequence[float]) -> str:
    ends = dict.fromkeys(format_gbps(rate) for rate in (min(rates), max(rates)))
    return " to ".join(ends)


def _latency(run: Links) -> plots.Make | None:
    """Of each pair without load and beside copies, and of each NUMA node; the host's memory comes first."""
    plain = [row for row in run.latencies if row.node is None]
    pairs = sorted(dict.fromkeys((row.device, row.target) for row in plain), key=lambda pair: pair[1])
    found = [link_words.latency_row(plain, pair, quick=load > 0, load=load) for pair in pairs for load in _LOADS]
    found += [row for row in run.latencies if row.node is not None]
    bars: plots.Values = []
    idle: dict[str, list[float]] = {}
    loaded = []
    for row in found:
        if row is None or (chased := row.p50.value) is None:
            continue
        name, role, figure = f"GPU {row.device} from {_from_text(row)}", "without load", f"{chased.ns:.0f}"
        if row.load:
            name, role = f"{name}, {row.load * 100:.0f} % load", "beside copies"
            loaded.append(chased.ns)
        else:
            peer = "the GPU itself" if row.target == row.device else "another GPU"
            idle.setdefault("the host" if row.target == HOST_END else peer, []).append(chased.ns)
        drawn = plots.bar(name, chased.ns, f"{name}: {figure} ns", figure, low=chased.low_ns, high=chased.high_ns)
        bars.append({**drawn, "role": role})
    words = [f"{statistics.median(times):.0f} ns from {where}" for where, times in idle.items()]
    beside = f", and up to {max(loaded):.0f} ns beside copies" if loaded else ""
    title = titled(run.runtime, f"A dependent load takes {', '.join(words)}{beside}")
    return (lambda width: plots.bar_plot(bars[: plots.MAX_BARS], title, width, "ns")) if bars else None


def _from_text(row: documents.Latency) -> str:
    if row.node is not None:
        return f"node {row.node}"
    return "the host" if row.target == HOST_END else "itself" if row.target == row.device else f"GPU {row.target}"
