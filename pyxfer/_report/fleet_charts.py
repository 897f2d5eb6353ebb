"""The charts of a fleet: a heat map of the losses of hosts, and the figures of one host's document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pyxfer._document.fleets import Fleet, HostReport
from pyxfer._report.fleet_words import figure_text, sentence, worst_first
from pyxfer._report.plots import INK, MAX_BARS, WIDE, Spec, bar, bar_figure, bar_plot, category, inner_width, title_of
from pyxfer._report.report import Charts
from pyxfer._report.text import clean
from pyxfer.units import format_percent

_MAX_ROWS = 24
_MAX_COLUMNS, _MAX_COLUMNS_NARROW = 12, 5
# Dark letters on all of them have a contrast of 7 or more, on a light page and on a dark one.
_LETTERS = "#101418"
_SHADES = ("#e8edf2", "#ffe3c2", "#ffbf80", "#ff944d")
_STEPS = (0.005, 0.02, 0.10)
"""Losses from which on the next shade is used."""
_LOW = 2
"""The shade from which on a loss was judged low; others have a paler one, however large they are."""
_AXIS: Spec = {"title": None, "domain": False, "ticks": False, "labelColor": INK, "labelLimit": 190}


@dataclass(frozen=True)
class Row:
    """A row of the map: a host, or a quantile of many."""

    name: str
    losses: dict[str, float]
    low: frozenset[str] = frozenset()
    """The families in which the host was judged low."""


def charts_of_fleet(fleet: Fleet) -> Charts:
    is_judged = any(cell.usual.value is not None for cohort in fleet.cohorts for cell in cohort.cells)
    rows = lru_cache(maxsize=1)(partial(rows_of, fleet))
    return {"fleet": (lambda width: _heat_map(fleet, rows(), width)) if is_judged else None}


def losses_of(fleet: Fleet) -> dict[int, dict[str, float]]:
    """By the place of each judged host its largest loss in each family of cells; below zero if all are better."""
    plans = [
        [
            (cell.cell.family.text, place, cell.usual.value, cell.unit == "GB/s")
            for place, cell in enumerate(cohort.cells)
            if cell.usual.value is not None
        ]
        for cohort in fleet.cohorts
    ]
    found: dict[int, dict[str, float]] = {}
    for number, host in enumerate(fleet.hosts):
        losses: dict[str, float] = {}
        for family, place, usual, is_rate in [] if host.cohort is None else plans[host.cohort]:
            value = host.values[place]
            if value is not None:
                loss = 1 - value / usual if is_rate else value / usual - 1
                losses[family] = max(losses.get(family, loss), loss)
        if losses:
            found[number] = losses
    return found


def rows_of(fleet: Fleet) -> tuple[Row, ...]:
    losses = losses_of(fleet)
    flagged = worst_first(host for place, host in enumerate(fleet.hosts) if place in losses and host.losses)
    first = {id(host): number for number, host in enumerate(flagged)}
    order = sorted(
        losses, key=lambda place: (first.get(id(fleet.hosts[place]), len(first)), -max(losses[place].values()))
    )
    many = len(order) > _MAX_ROWS
    shown = order[: _MAX_ROWS - 3] if many else order
    rows = []
    for number, place in enumerate(shown, start=1):
        host = fleet.hosts[place]
        mark = "" if host.verdict == "fine" else f" ({host.verdict})"
        # Numbered, so that two hosts with one name have a row each.
        name = f"{number}. {clean(host.host, 24)}{mark}"
        rows.append(Row(name, losses[place], frozenset(loss.cell.family.text for loss in host.losses)))
    others: dict[str, list[float]] = {}
    for place in order[len(shown) :]:
        for family, loss in losses[place].items():
            others.setdefault(family, []).append(loss)
    for words, share in (("worst of", 0.0), ("worst 1 % of", 0.01), ("median of", 0.5)) if many else ():
        quantiles = {
            family: sorted(found, reverse=True)[int(share * (len(found) - 1))] for family, found in others.items()
        }
        rows.append(Row(f"{words} {len(order) - len(shown)} others", quantiles))
    return tuple(rows)


def _heat_map(fleet: Fleet, rows: Sequence[Row], width: int) -> Spec:
    worst: dict[str, float] = {}
    for row in rows:
        for family, loss in row.losses.items():
            worst[family] = max(worst.get(family, loss), loss)
    most = _MAX_COLUMNS if width >= WIDE else _MAX_COLUMNS_NARROW
    chosen = sorted(worst, key=lambda family: -worst[family])[:most]
    columns = [family for family in worst if family in chosen]
    left = len(worst) - len(columns)
    more = f" The {len(columns)} of {len(worst)} figures with the largest losses are drawn." if left else ""
    axis = {**_AXIS, "labelAngle": -40, "orient": "bottom", "labelOverlap": False}
    x = {"field": "cell", "type": "nominal", "sort": [clean(name) for name in columns], "axis": axis}
    y, room = category("host", [row.name for row in rows], width)
    shade = {"field": "shade", "type": "nominal", "scale": None}
    square = {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1}
    text = {"type": "text", "color": _LETTERS, "aria": False}
    return {
        "title": title_of(f"{sentence(fleet)}{more}", width),
        "width": inner_width(width, room),
        "height": 24 * len(rows),
        "data": {"values": [_square(row, family) for row in rows for family in columns]},
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": square, "encoding": {"color": shade, "description": {"field": "words"}}},
            {"mark": text, "encoding": {"text": {"field": "text"}}},
        ],
    }


def _square(row: Row, family: str) -> dict[str, Any]:
    loss = row.losses.get(family)
    text, words, shade = "-", "not measured", "#ffffff"
    if loss is not None:
        text = f"{round(-loss * 100, 1) + 0.0:+.1f}"
        words = f"{format_percent(abs(loss))} {'worse' if loss > 0 else 'better'} than usual"
        step = sum(loss >= step for step in _STEPS)
        shade = _SHADES[max(step, _LOW) if family in row.low else min(step, _LOW - 1)]
    name = clean(family)
    return {"host": row.name, "cell": name, "text": text, "words": f"{row.name}, {name}: {words}", "shade": shade}


def charts_of_host(report: HostReport) -> Charts:
    bars = []
    for cell in report.cells:
        if (value := cell.value.value) is not None and cell.unit == "GB/s":
            name = clean(cell.cell.text)
            text = f"{name}: {figure_text(value, cell.unit)}"
            bars.append(bar(clean(name, 48), value, text, bar_figure(value), low=cell.low, high=cell.high))
    shown = bars[:MAX_BARS]
    title = f"{clean(report.host or 'a host without a name')}: the {len(shown)} rates that a fleet judges"
    return {"figures": (lambda width: bar_plot(shown, title, width, "GB/s")) if shown else None}
