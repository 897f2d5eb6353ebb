"""The charts of a fleet: a heat map of the losses of hosts, and the figures of one host's document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pyxfer._document.fleets import Fleet, HostReport
from pyxfer._report import plots
from pyxfer._report.fleet_words import figure_text, sentence, worst_first
from pyxfer._report.report import Charts
from pyxfer._report.text import clean
from pyxfer.units import format_percent

_MAX_ROWS = 24
_MAX_COLUMNS, _MAX_COLUMNS_NARROW = 12, 5
# Only what was judged low has a strong colour, however large other losses are.
_SMALL, _LARGE, _NONE = "loss below 0.5 %", "0.5 % or more, not judged low", "not measured"
_LOW, _VERY_LOW = "judged low", "judged low, 10 % or more"
_SHADES = {
    _SMALL: plots.BLUES[0],
    _LARGE: plots.ORANGES[1],
    _LOW: plots.ORANGES[3],
    _VERY_LOW: plots.ORANGES[4],
    _NONE: plots.GRID,
}
_SMALL_LOSS, _LARGE_LOSS = 0.005, 0.10


@dataclass(frozen=True)
class Row:
    """A host of the map. `low`: the families in which it was judged low."""

    name: str
    losses: dict[str, float]
    low: frozenset[str]


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
    rows = []
    for number, place in enumerate(order[:_MAX_ROWS], start=1):
        host = fleet.hosts[place]
        mark = "" if host.verdict == "fine" else f" ({host.verdict})"
        # Numbered, so that two hosts with one name have a row each.
        name = f"{number}. {clean(host.host, 24)}{mark}"
        rows.append(Row(name, losses[place], frozenset(loss.cell.family.text for loss in host.losses)))
    return tuple(rows)


def _heat_map(fleet: Fleet, rows: Sequence[Row], width: int) -> plots.Spec:
    worst: dict[str, float] = {}
    for row in rows:
        for family, loss in row.losses.items():
            worst[family] = max(worst.get(family, loss), loss)
    most = _MAX_COLUMNS if width >= plots.WIDE else _MAX_COLUMNS_NARROW
    chosen = sorted(worst, key=lambda family: -worst[family])[:most]
    columns = [family for family in worst if family in chosen]
    left = len(worst) - len(columns)
    more = f" The {len(columns)} of {len(worst)} figures with the largest losses are drawn." if left else ""
    more += f" The worst {_MAX_ROWS} hosts are drawn." if len(rows) == _MAX_ROWS else ""
    values = [_square(row, family) for row in rows for family in columns]
    axes = (("", [row.name for row in rows]), ("", list(map(clean, columns))))
    return plots.heat_plot(values, axes, _SHADES, f"{sentence(fleet)}{more}", [], width)


def _square(row: Row, family: str) -> dict[str, Any]:
    loss, name = row.losses.get(family), clean(family)
    figure, words, shade = "-", "not measured", _NONE
    if loss is not None:
        figure = f"{round(-loss * 100, 1) + 0.0:+.1f}"
        words = f"{format_percent(abs(loss))} {'worse' if loss > 0 else 'better'} than usual"
        pale = _SMALL if loss < _SMALL_LOSS else _LARGE
        shade = (_LOW if loss < _LARGE_LOSS else _VERY_LOW) if family in row.low else pale
    return {"row": row.name, "column": name, "figure": figure, "text": f"{row.name}, {name}: {words}", "shade": shade}


def charts_of_host(report: HostReport) -> Charts:
    bars = []
    for cell in report.cells:
        if (value := cell.value.value) is not None and cell.unit == "GB/s":
            name = clean(cell.cell.text)
            text = f"{name}: {figure_text(value, cell.unit)}"
            bars.append(plots.bar(clean(name, 48), value, text, plots.bar_figure(value), low=cell.low, high=cell.high))
    shown = bars[: plots.MAX_BARS]
    title = f"{clean(report.host or 'a host without a name')}: the {len(shown)} rates that a fleet judges"
    return {"figures": (lambda width: plots.bar_plot(shown, title, width, "GB/s")) if shown else None}
