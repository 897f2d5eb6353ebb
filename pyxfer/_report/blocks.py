"""The page of a run of `pyxfer blocks`: the fastest method by size and count, where it changes, and what rules lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyxfer import units
from pyxfer._blocks.choice import RULES, Cell, Knee, Place, cells_of, costs_of, knees_of
from pyxfer._document.blocks import METHODS, BlockDirection, BlockMethod
from pyxfer._document.runs import LEFT_OUT, Measurement, Run, Share, Work
from pyxfer._report import plots
from pyxfer._report.grid import Grid, text_grid
from pyxfer._report.layout import Column, Page, fitting_table, pack, spread, time_cells
from pyxfer._report.overview import contents_text, doubts, footer
from pyxfer._report.rates import ending_text
from pyxfer._report.report import Advice, Charts
from pyxfer._report.text import Lines, clean, counted, device_text, reason_text, titled

if TYPE_CHECKING:
    from rich.table import Table

LETTERS: dict[BlockMethod, str] = {"loop": "L", "batch": "B", "strided": "S", "kernel": "K", "packed": "P"}
NAMES: dict[str, str] = {
    "loop": "loop of copies",
    "batch": "batch call",
    "strided": "2D copy",
    "kernel": "kernel",
    "packed": "packing",
}
WAYS: dict[BlockDirection, str] = {"h2d": "to the GPU", "d2h": "to the host", "both": "both ways"}
MEMORIES = {"pinned": "page-locked memory", "pageable": "ordinary memory"}
WORKS: dict[Work, str] = {"copy": "a kernel that copies memory of the GPU", "compute": "a kernel that computes"}
_WORK_HEADINGS = {
    WORKS["copy"]: ("a kernel that copies", "memory of the GPU"),
    WORKS["compute"]: ("a kernel", "that computes"),
}
# Three digits of which the last is uncertain would make the table too wide.
_WHOLE_FROM = 9.95
_FEW_COUNTS = 3
# The size at which the page shows what a call costs its caller.
_CALLED_BYTES = 16 << 10
_SHADES = (
    *((0.9, "90 % of the ceiling or more"), (0.7, "70 to 90 %"), (0.4, "40 to 70 %"), (0.15, "15 to 40 %")),
    (0.0, "below 15 %"),
)


def place_name(place: Place) -> str:
    """`to the GPU, page-locked memory, random`."""
    return f"{WAYS[place.direction]}, {MEMORIES[place.memory]}, {place.order}"


def shown_places(cells: dict[Place, list[Cell]]) -> list[Place]:
    """Those that have a table of their own: page-locked memory, random places, one way."""
    return [Place(way, "pinned", "random") for way in ("h2d", "d2h") if Place(way, "pinned", "random") in cells]


def winner_text(cell: Cell) -> str:
    """`K 51/92`: the letter of the fastest method, its GB/s and its share; two letters if about equal."""
    letters = "".join(LETTERS[method] for method in cell.equal[:2])
    gbps, share = cell.best.gbps or 0.0, cell.best.of_ceiling
    rate = f"{gbps:.0f}" if gbps >= _WHOLE_FROM else f"{gbps:.1f}" if gbps >= 1 else f"{gbps:.2f}"
    return f"{letters} {rate}{'' if share is None else f'/{share * 100:.0f}'}"


def answer(run: Run) -> str:
    cells = cells_of(run)
    texts = [f"{_capitalised(WAYS[place.direction])} {_wins_text(cells[place])}" for place in shown_places(cells)]
    if not texts:
        texts = [f"{_capitalised(place_name(place))}: {_wins_text(found)}" for place, found in cells.items()]
    return " ".join(texts) or "No method has a rate."


def _wins_text(cells: Sequence[Cell]) -> str:
    wins: dict[BlockMethod, int] = {}
    for cell in cells:
        if len(cell.equal) == 1:
            wins[cell.equal[0]] = wins.get(cell.equal[0], 0) + 1
    equal = len(cells) - sum(wins.values())
    parts = [f"the {NAMES[method]} in {wins[method]}" for method in sorted(wins, key=lambda method: -wins[method])]
    best = max((cell.best for cell in cells), key=lambda row: row.gbps or 0.0)
    share = "" if best.of_ceiling is None else f", {units.format_percent(best.of_ceiling)} of the ceiling"
    most = f"at most {units.format_gbps(best.gbps or 0.0)}{share}"
    certain = f"the fastest is {', '.join(parts)} of {counted(len(cells), 'cell')}; " if parts else ""
    where = f"{equal}" if parts else "all cells" if equal > 1 else "the only cell"
    unsure = f"in {where} the trials do not tell which of two or more methods is; " if equal else ""
    return f"{certain}{unsure}{most}."


def print_blocks(run: Run, page: Page) -> None:
    cells = cells_of(run)
    page.line(f"{page_title(run)}: the fastest method by size and count", style="bold")
    page.line(device_text(run.device))
    if text := ending_text(run):
        page.line(text, style="bold red")
    page.line()
    for label, text in _legend(cells):
        page.line(f"{label}: {text}")
    shown = shown_places(cells)
    for place in shown:
        page.heading(_table_heading(run, place))
        for table in _winner_tables(cells[place], page.columns):
            page.show(table)
    _print_others(page, {place: found for place, found in cells.items() if place not in shown})
    _print_calls(page, cells)
    page.section("Copies are as fast as the kernel", knee_lines(cells))
    _print_costs(page, cells)
    _print_beside(page, run)
    page.section("Not measured", unmeasured_lines(run), style="yellow")
    page.section("Next", [("-", f"{code}: {text}") for text, code in advice(run)])
    page.section("Checks", [("-", text) for text in (contents_text(run), *doubts(run)) if text])
    page.line()
    page.line(footer(run))


def page_title(run: Run) -> str:
    return titled(run.runtime, "Blocks between pools")


def _legend(cells: dict[Place, list[Cell]]) -> Lines:
    used = {method for found in cells.values() for cell in found for method in cell.equal[:2]}
    letters = ", ".join(f"{LETTERS[method]} {NAMES[method]}" for method in METHODS if method in used)
    text = "GB/s by the caller's clock until all have arrived / % of the ceiling"
    return [("K 51/92", text), ("Letters", letters), ("Two letters", "either may be faster")] if used else []


def _table_heading(run: Run, place: Place) -> str:
    ceiling = ceiling_of(run, place.direction)
    known = "" if ceiling is None else f" (ceiling {units.format_gbps(ceiling)})"
    return f"{_capitalised(place_name(place))}{known}"


def _capitalised(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def ceiling_of(run: Run, direction: BlockDirection) -> float | None:
    """The rate of page-locked copies that were measured in the same rounds."""
    side = "sum" if direction == "both" else direction
    rows = [row for row in run.measurements if row.is_raw and (row.direction, row.side) == (direction, side)]
    return rows[0].gbps if rows else None


def _grid_of(cells: Iterable[Cell]) -> tuple[list[int], list[int], dict[tuple[int, int], Cell]]:
    at = {(cell.block_bytes, cell.count): cell for cell in cells}
    sizes, counts = (sorted({key[part] for key in at}) for part in (0, 1))
    return sizes, counts, at


def _sizes(cells: Iterable[Cell]) -> Column:
    sizes, _, _ = _grid_of(cells)
    return Column(("block",), tuple(map(units.format_size, sizes)))


def _winner_columns(cells: Sequence[Cell], above: str = "") -> list[Column]:
    """A column for each count; the name `above` stands over the first."""
    sizes, counts, at = _grid_of(cells)
    return [
        Column(
            (*([above if count == counts[0] else ""] if above else []), f"{count:,}"),
            tuple(winner_text(at[size, count]) if (size, count) in at else "-" for size in sizes),
        )
        for count in counts
    ]


def _winner_tables(cells: Sequence[Cell], width: int) -> Iterator[Table]:
    """As few tables as fit, each with the sizes that it has cells of."""
    counts = sorted({cell.count for cell in cells})
    each = -(-len(counts) // len(spread([_sizes(cells)], _winner_columns(cells), [], width)))
    for begin in range(0, len(counts), each):
        part = [cell for cell in cells if cell.count in counts[begin : begin + each]]
        yield fitting_table([_sizes(part), *_winner_columns(part)], width)


def _print_others(page: Page, cells: dict[Place, list[Cell]]) -> None:
    """Other orders, memories and both ways; side by side if they have few counts."""
    few = {place: found for place, found in cells.items() if len(_grid_of(found)[1]) <= _FEW_COUNTS}
    for place, found in cells.items():
        if place not in few:
            page.heading(_capitalised(place_name(place)))
            for table in _winner_tables(found, page.columns):
                page.show(table)
    by_sizes: dict[tuple[int, ...], list[Place]] = {}
    for place, found in few.items():
        by_sizes.setdefault(tuple(_grid_of(found)[0]), []).append(place)
    for places in by_sizes.values():
        page.heading("Other orders, and both ways at once")
        blocks = [_winner_columns(cells[place], _short_name(place)) for place in places]
        for number, columns in enumerate(pack([_sizes(cells[places[0]])], blocks, page.columns)):
            if number:
                page.line()
            page.show(fitting_table(columns, page.columns))


def _short_name(place: Place) -> str:
    words: list[str] = [place.direction if place.direction != "both" else "both ways"]
    words += ["ordinary"] if place.memory == "pageable" else []
    words += [place.order] if place.order != "random" else []
    return " ".join(words)


def _print_calls(page: Page, cells: dict[Place, list[Cell]]) -> None:
    """How long the call itself takes, by method and count, at one size."""
    found = cells.get(Place("h2d", "pinned", "random"), [])
    sizes = sorted({cell.block_bytes for cell in found}, key=lambda size: abs(size - _CALLED_BYTES))
    at = {cell.count: cell for cell in found if cell.block_bytes == sizes[0]} if found else {}
    methods = [method for method in METHODS if any(method in cell.rows for cell in at.values())]
    if not methods:
        return
    rows = {method: [_called_s(at[count].rows.get(method)) for count in at] for method in methods}
    unit, cells_of_all = time_cells([seconds for row in rows.values() for seconds in row])
    texts = iter(cells_of_all)
    by_method = {method: [next(texts) or "-" for _ in at] for method in methods}
    columns = [Column(("blocks",), tuple(NAMES[method] for method in methods), left=True)]
    for number, count in enumerate(at):
        columns.append(Column((f"{count:,}",), tuple(by_method[method][number] for method in methods)))
    page.heading(f"Time of the call itself, {unit}, to the GPU, blocks of {units.format_size(sizes[0])}")
    for table in spread(columns[:1], columns[1:], [], page.columns):
        page.show(table)


def _called_s(row: Measurement | None) -> float | None:
    return None if row is None else row.dispatch_s


def knee_lines(cells: dict[Place, list[Cell]]) -> Lines:
    lines = []
    for place in shown_places(cells):
        by_knee: dict[str, list[int]] = {}
        for count, knee in knees_of(cells[place]).items():
            by_knee.setdefault(_knee_text(knee), []).append(count)
        texts = [f"{text} ({_counts_text(counts)})" for text, counts in by_knee.items()]
        if texts:
            lines.append((WAYS[place.direction], "; ".join(texts)))
    return lines


def _knee_text(knee: Knee) -> str:
    if knee.block_bytes is None:
        return f"not up to {units.format_size(knee.largest)}"
    return f"from {units.format_size(knee.block_bytes)} on"


def _counts_text(counts: Sequence[int]) -> str:
    named = f"{', '.join(f'{count:,}' for count in counts[:-1])} and {counts[-1]:,}" if counts[1:] else f"{counts[0]:,}"
    return f"{named} {'block' if counts == [1] else 'blocks'}"


def _print_costs(page: Page, cells: dict[Place, list[Cell]]) -> None:
    places = shown_places(cells)
    costs = {place: {cost.rule.name: cost for cost in costs_of(place.direction, cells[place])} for place in places}
    rules = [rule for rule in RULES if any(rule.name in found for found in costs.values())]
    if not rules:
        return
    columns = [Column(("", "rule"), tuple(rule.name for rule in rules), left=True)]
    for place in places:
        found = [costs[place].get(rule.name) for rule in rules]
        columns += [
            Column(
                (WAYS[place.direction], "typical"),
                tuple("-" if cost is None else _times(cost.typical) for cost in found),
            ),
            Column(("", "worst"), tuple("-" if cost is None else _times(cost.worst) for cost in found)),
            Column(
                ("", "in the cell"), tuple("-" if cost is None else _cell_text(cost.at) for cost in found), left=True
            ),
        ]
    page.heading("How many times as long as the fastest a fixed rule takes here")
    page.show(fitting_table(columns, page.columns))
    page.hanging([(rule.name, rule.text) for rule in rules if rule.text])


def _times(times: float) -> str:
    return f"{times:.2f}" if times < _WHOLE_FROM else f"{times:.0f}"


def _cell_text(cell: Cell) -> str:
    return f"{units.format_size(cell.block_bytes)} x {cell.count:,}"


def cost_lines(cells: dict[Place, list[Cell]]) -> Lines:
    """The same for a report, which has no room for so wide a table."""
    lines = []
    for place in shown_places(cells):
        for cost in costs_of(place.direction, cells[place]):
            rule = f"{cost.rule.name}{f' ({cost.rule.text})' if cost.rule.text else ''}"
            worst = f"at worst {_times(cost.worst)} times ({_cell_text(cost.at)})"
            text = f"{rule}: typically {_times(cost.typical)} times as long as the fastest, {worst}"
            lines.append((WAYS[place.direction], text))
    return lines


def _print_beside(page: Page, run: Run) -> None:
    if grid := beside_grid(run):
        headings, rows = grid.readable()
        texts = [tuple(cell.text for cell in cells) for cells in zip(*rows, strict=True)]
        columns = [Column(("", name), cells, left=True) for name, cells in zip(headings[:2], texts[:2], strict=True)]
        columns += [Column(_WORK_HEADINGS[name], cells) for name, cells in zip(headings[2:], texts[2:], strict=True)]
        page.heading(grid.name)
        page.show(fitting_table(columns, page.columns))
        page.hanging(grid.notes)


def beside_grid(run: Run) -> Grid | None:
    """How many times as long each work takes beside each method."""
    found = () if run.blocks is None else run.blocks.beside.value or ()
    if not found:
        return None
    works = [work for work in WORKS if any(each.work == work for each in found)]
    at = {(each.direction, each.method, each.work): _ratio_text(each.times) for each in found}
    rows = [
        (WAYS[direction], _method_name(method), *(at.get((direction, method, work), "") for work in works))
        for direction, method in dict.fromkeys((each.direction, each.method) for each in found)
    ]
    moved = dict.fromkeys(f"{units.format_size(each.block_bytes)} x {each.count:,}" for each in found)
    taken = dict.fromkeys(
        f"the {_method_name(each.method)} on at most {counted(each.multiprocessors, 'multiprocessor')}"
        for each in found
        if each.multiprocessors
    )
    notes = [("blocks", "; ".join([f"{', '.join(moved)}, again and again", *taken]))]
    name = "What moving blocks costs other work: how many times as long it takes"
    grid = text_grid(name, ("direction", "moved by", *(WORKS[work] for work in works)), rows)
    return replace(grid, notes=notes)


def _method_name(method: str) -> str:
    return NAMES.get(method, clean(method))


def _ratio_text(times: Share) -> str:
    ends = "" if times.low is None or times.high is None else f" ({times.low:.3f} to {times.high:.3f})"
    return f"{times.value:.3f}{ends}"


def unmeasured_lines(run: Run) -> Lines:
    """What has no figure, with the reason once for all that have the same."""
    by_reason: dict[str, list[Measurement]] = {}
    for row in run.measurements:
        if row.gbps is None and row.rate.reason and row.rate.reason != LEFT_OUT:
            by_reason.setdefault(row.rate.reason, []).append(row)
    return [("-", f"{_methods_text(rows)}: {reason_text(reason)}") for reason, rows in by_reason.items()]


def _methods_text(rows: Sequence[Measurement]) -> str:
    names = dict.fromkeys(NAMES.get(row.mode, row.route) for row in rows)
    return f"{', '.join(names)} in {counted(len(rows), 'row')}"


def advice(run: Run) -> list[Advice]:
    if not any(len(cell.rows) > 1 for found in cells_of(run).values() for cell in found):
        return []
    return [("write the fastest method of each cell for a server to read", "pyxfer blocks --export-thresholds FILE")]


# --- reports ---------------------------------------------------------------------------------------------------------


def grids(run: Run) -> list[Grid]:
    """The table of winners of each place, and what moving blocks costs other work."""
    made = []
    for place, cells in cells_of(run).items():
        sizes, counts, at = _grid_of(cells)
        rows = [
            (units.format_size(size), *(winner_text(at[size, n]) if (size, n) in at else "" for n in counts))
            for size in sizes
        ]
        name = f"Fastest {place_name(place)}"
        made.append(text_grid(name, ("block", *(f"{count:,}" for count in counts)), rows))
    beside = beside_grid(run)
    return [*made, beside] if beside else made


def sections(run: Run) -> list[tuple[str, Lines]]:
    cells = cells_of(run)
    return [
        ("Letters", _legend(cells)),
        ("Copies are as fast as the kernel", knee_lines(cells)),
        ("What rules cost here", cost_lines(cells)),
        ("Not measured", unmeasured_lines(run)),
    ]


def charts_of_blocks(run: Run) -> Charts:
    cells = cells_of(run)
    makes = [
        partial(_heat_map, run, place, cells[place], method)
        for place in shown_places(cells) or list(cells)
        for method in METHODS
        if any(method in cell.rows for cell in cells[place])
    ]
    return {"blocks": plots.stack(makes)}


def _heat_map(run: Run, place: Place, cells: Sequence[Cell], method: BlockMethod, width: int) -> plots.Spec:
    sizes, counts, at = _grid_of(cell for cell in cells if method in cell.rows)
    values = []
    for (size, count), cell in at.items():
        row = cell.rows[method]
        share = row.of_ceiling or 0.0
        text = f"{_cell_text(cell)}: {units.format_gbps(row.gbps or 0.0)}, "
        text += f"{units.format_percent(share)} of the ceiling, {units.format_seconds(row.elapsed_s or 0.0)}"
        shade = next(name for least, name in _SHADES if share >= least)
        names = {"row": units.format_size(size), "column": f"{count:,}"}
        values.append({**names, "figure": f"{share * 100:.0f}", "shade": shade, "text": text})
    axes = ("block", list(map(units.format_size, sizes))), ("blocks", [f"{count:,}" for count in counts])
    title = titled(run.runtime, f"{NAMES[method].capitalize()}, {place_name(place)}: per cent of the ceiling")
    shades = dict(zip((name for _, name in _SHADES), reversed(plots.BLUES), strict=True))
    return plots.heat_plot(values, axes, shades, title, [], width)
