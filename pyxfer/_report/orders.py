"""Orders of work on images: the fastest of each form beside the usual code, and where the time of each goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyxfer import units
from pyxfer._document import runs
from pyxfer._report import plots
from pyxfer._report.explain import Explained, part_colours, times_as_fast, times_text, trial_lines, waterfall_lines
from pyxfer._report.grid import Cell, Grid, text_grid
from pyxfer._report.layout import Column, Page, fitting_table, time_cells
from pyxfer._report.notes import gather, label
from pyxfer._report.report import Advice
from pyxfer._report.route_tables import Group, Row, batch_of, once, order_groups, place_text, title
from pyxfer._report.text import Lines, clean, reason_text, sentence, titled

if TYPE_CHECKING:
    from rich.table import Table

COMPARED: runs.Form = "nhwc-float32"
"""The form of the published benchmark."""
EQUAL = "about equal"
_MAX_REASONS = 3
_WORTH_A_CHANGE = 1.2
# A smaller ratio is shown as 1.00.
_MIN_SHOWN = 1.005
_HEADINGS = ("order", "crosses", "before a copy", "the call", "copying", "kernels", "whole step", "times", "notes")
_MEANING = (
    "Crosses: bytes by the device's records, or (~) those that the order needs. Before a copy, copying, kernels: parts "
    "of a traced step, which may overlap. The call: until it returned. Times: how many times as fast "
    "as the usual code."
)


def gain(group: Group, row: Row | None, nbytes: int) -> runs.Share | None:
    """How many times as fast as the usual code a row is; None if it is not certainly faster, in the digits shown."""
    usual = group.usual
    if row is None or usual is None or row is usual or nbytes not in row.at or nbytes not in usual.at:
        return None
    return _more_than_once(times_as_fast(usual.at[nbytes], row.at[nbytes]))


def _more_than_once(times: runs.Share | None) -> runs.Share | None:
    """None also if the interval would be shown as `1.00 to ...`."""
    return times if times is not None and times.low is not None and times.low >= _MIN_SHOWN else None


def answer(run: runs.Run) -> str:
    """`As nchw-float32 at batch 512 the fastest orders of work are 3.1 (PyTorch) to 14 (JAX) times as fast as ...`."""
    texts = []
    for form in run.parameters.forms:
        groups = [group for group in order_groups(run, _no_marks(run)) if group.form == form]
        compared = [group for group in groups if _seconds(group.usual, group.largest) is not None]
        if compared:
            places = dict.fromkeys(place_text(run, group, group.largest) for group in compared)
            fastest = "order of work is" if len(compared) == 1 else "orders of work are"
            texts.append(f"as {form} at {' or '.join(places)} the fastest {fastest} {_gains_text(compared)}")
    return " ".join(map(sentence, texts[-1:]))


def _gains_text(groups: Sequence[Group]) -> str:
    """`3.1 (PyTorch) to 14.2 (JAX) times as fast as the usual code, or about equal to it (TensorFlow)`."""
    gains = [(found.value, group) for group in groups if (found := gain(group, group.best, group.largest))]
    if not gains:
        return f"{EQUAL} to the usual code"
    ends = [min(gains, key=lambda each: each[0]), max(gains, key=lambda each: each[0])]
    shown = [f"{times_text(times)} ({title(group.framework)})" for times, group in ends[: len(gains)]]
    faster = [group for _, group in gains]
    equal = [title(group.framework) for group in groups if group not in faster]
    rest = f", or {EQUAL} to it ({units.joined(equal)})" if equal else ""
    return f"{' to '.join(shown)} times as fast as the usual code{rest}"


def _no_marks(run: runs.Run) -> list[str]:
    return [""] * len(run.measurements)


def print_summary(run: runs.Run, page: Page) -> bool:
    """The usual code and the fastest order of each form. False, with nothing printed, without a time."""
    groups = [group for group in order_groups(run, _no_marks(run)) if group.best is not None]
    if not groups:
        return False
    places = dict.fromkeys(place_text(run, group, group.largest) for group in groups)
    page.heading(f"Orders of work at {' or '.join(places)}, medians of the whole step")
    page.show(_summary_table(groups, page.columns))
    page.section("Code", _code_lines(groups))
    if not page.details:  # where each has a row with its letter
        page.section("Orders without a time", _missing_lines(run), style="yellow")
    return True


def _missing_lines(run: runs.Run) -> Lines:
    """The orders without a figure, with their reasons; of those with one reason the first."""
    missing = {m.rate.reason: m for m in reversed(run.measurements) if m.form is not None and m.gbps is None}
    return [("-", f"{label(m, run)}: {reason_text(reason)}") for reason, m in list(missing.items())[:_MAX_REASONS]]


def _summary_table(groups: Sequence[Group], width: int) -> Table:
    slow = [_seconds(group.usual, group.largest) for group in groups]
    fast = [_seconds(group.best, group.largest) for group in groups]
    unit, cells = time_cells([*slow, *fast])
    columns = [
        Column(("",), once([title(group.framework) for group in groups]), left=True),
        Column(("form",), tuple(str(group.form) for group in groups), left=True),
        Column(("usual", unit), cells[: len(groups)]),
        Column(("fastest order",), tuple(_short(group.best) for group in groups), left=True),
        Column((unit,), cells[len(groups) :]),
        Column(("times as fast",), tuple(_gain_text(group) for group in groups), left=True),
    ]
    return fitting_table(columns, width)


def _seconds(row: Row | None, nbytes: int) -> float | None:
    return None if row is None or row.gbps(nbytes) is None else row.at[nbytes].elapsed_s


def _short(row: Row | None) -> str:
    """The name of an order without its framework."""
    return "" if row is None else row.name.partition(".")[2]


def _gain_text(group: Group) -> str:
    found = gain(group, group.best, group.largest)
    if found is None:
        return "" if _seconds(group.usual, group.largest) is None else EQUAL
    ends = "" if found.low is None or found.high is None else f" ({times_text(found.low)} to {times_text(found.high)})"
    return f"{times_text(found.value)}{ends}"


def _code_lines(groups: Sequence[Group]) -> Lines:
    """The usual code and that of the fastest order, for the last form of each framework."""
    lines = []
    for group in {group.framework: group for group in groups}.values():
        rows = list(dict.fromkeys(filter(None, [_named(group, "usual"), _named(group, "fastest")])))
        lines.append((title(group.framework), str(group.form)))
        lines += [(f"  {name}", call) for name, call in rows]
    return lines


def _named(group: Group, name: str) -> tuple[str, str] | None:
    row = group.usual if name == "usual" else group.best
    info = None if row is None or (name == "fastest" and row is group.usual) else row.any.route_info
    return None if info is None else (name, clean(info.call))


def advice(run: runs.Run) -> list[Advice]:
    found: list[Advice] = []
    for group in order_groups(run, _no_marks(run)):
        times, best = gain(group, group.best, group.largest), group.best
        if best is not None and best.any.route_info is not None and times is not None:
            text = f"{title(group.framework)}, {group.form}: {_gain_text(group)} times as fast as the usual code"
            found += [(text, clean(best.any.route_info.call))] if times.value >= _WORTH_A_CHANGE else []
    return found


# --- every order -----------------------------------------------------------------------------------------------------


def grids(run: runs.Run) -> list[Grid]:
    """The figures of every order at the largest batch, a grid with its notes for each framework and form."""
    marks, notes = gather(run)
    found = []
    for group in order_groups(run, marks):
        letters = {row.letters for row in group.routes}
        shown = [(note.mark, note.text) for note in notes if any(note.mark in each for each in letters)]
        found.append(replace(_grid(run, group), notes=shown))
    return found


def print_orders(run: runs.Run, marks: Sequence[str], page: Page) -> None:
    """The tables; the letters among `marks` lead to the notes of the page."""
    groups = order_groups(run, marks)
    for group in groups:
        _grid(run, group).print_on(page)
    if groups:
        page.line()
        page.hanging([("-", _MEANING)])


def _grid(run: runs.Run, group: Group) -> Grid:
    place = place_text(run, group, group.largest)
    rows = [_cells(group, row) for row in group.routes if group.largest in row.at]
    return text_grid(f"{title(group.framework)}: orders of work, {group.form}, {place}", _HEADINGS, rows)


def _cells(group: Group, row: Row) -> list[str | Cell]:
    m = row.at[group.largest]
    breakdown = m.breakdown.value
    parts = (None, None) if breakdown is None else (breakdown.seconds("preparing"), breakdown.seconds("kernels"))
    name = f"{_short(row)}{' >' * row.usual}{' *' * (row is group.best)}"
    if m.gbps is None:
        return [name, *[Cell("-")] * (len(_HEADINGS) - 2), row.letters]
    seconds = [_time(each) for each in (parts[0], m.dispatch_s, m.dma_s, parts[1], m.elapsed_s)]
    return [name, _crossed(m), *seconds, _times_cell(group, row), row.letters]


def _times_cell(group: Group, row: Row) -> Cell:
    usual = group.usual
    if usual is None or row is usual or usual.gbps(group.largest) is None:
        return Cell("")
    faster = _more_than_once(times_as_fast(usual.at[group.largest], row.at[group.largest]))
    slower = _more_than_once(times_as_fast(row.at[group.largest], usual.at[group.largest]))
    times = faster.value if faster else 1 / slower.value if slower else None
    return Cell("equal", 1.0) if times is None else Cell(times_text(times), times)


def _crossed(m: runs.Measurement) -> Cell:
    if m.dma.value is not None:
        return Cell(units.format_size(m.dma.value.nbytes), m.dma.value.nbytes)
    needed = round(m.nbytes * (m.route_info.inflation if m.route_info is not None else 1.0))
    return Cell(f"~{units.format_size(needed)}", needed)


def _time(seconds: float | None) -> Cell:
    return Cell("" if seconds is None else units.format_seconds(seconds), seconds)


# --- the published benchmark -----------------------------------------------------------------------------------------


def could_be(run: runs.Run, framework: str) -> Group | None:
    """The orders of a framework that end in the form of the published benchmark, if the run has them."""
    groups = [each for each in order_groups(run, _no_marks(run)) if each.framework == framework]
    return next((each for each in groups if each.form == COMPARED and each.best is not None), None)


def could_be_column(group: Group, sizes: Sequence[int]) -> list[float | None]:
    """MB/s of the fastest order at each size."""
    best = [group.best_at(nbytes) for nbytes in sizes]
    rates = [None if row is None else row.gbps(nbytes) for row, nbytes in zip(best, sizes, strict=True)]
    return [None if rate is None else rate * 1000 for rate in rates]


def could_be_lines(run: runs.Run, frameworks: Sequence[str]) -> Lines:
    groups = [group for name in frameworks if (group := could_be(run, name)) is not None]
    named = [f"{group.best.name} at batch {batch_of(group, group.largest)}" for group in groups if group.best]
    if not named:
        return []
    text = f"Could be: the fastest order of work that ends in {COMPARED}, such as {units.joined(named)}. It ends with "
    return [("-", f"{text}the whole batch on the GPU; no row is read back.")]


# --- charts ----------------------------------------------------------------------------------------------------------


def waterfalls(run: runs.Run) -> plots.Make | None:
    """The waterfall of each order that has a traced step, at the largest batch."""
    makes = []
    for group in order_groups(run, _no_marks(run)):
        ceiling = None if group.ceiling is None else group.ceiling.at.get(group.largest)
        for row in group.routes:
            m = row.at.get(group.largest)
            if m is not None and m.breakdown.value is not None and m.verified.value is not False:
                explained = Explained(run, m, ceiling, ())
                text = f"{row.name}, {group.form}, {place_text(run, group, group.largest)}"
                text += f": {units.format_seconds(m.breakdown.value.elapsed_s)}"
                unlike_timed = [line for name, line in trial_lines(explained, m.breakdown.value) if name == "ratio"]
                makes.append(partial(_waterfall, explained, titled(run.runtime, "; ".join([text, *unlike_timed]))))
    return plots.stack(makes)


def _waterfall(explained: Explained, text: str, width: int) -> plots.Spec:
    return plots.waterfall_plot(waterfall_lines(explained), part_colours(explained), text, width)
