"""The page of a frameworks run: usual and fastest routes, all rates, and how the workers ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from rich.table import Table

from pyxfer import units
from pyxfer._document import runs
from pyxfer._report import orders, route_tables
from pyxfer._report.layout import Column, Page, fitting_table, pack, rate_cells
from pyxfer._report.notes import at_most, gather
from pyxfer._report.rates import RATES_HEADING, worker_number
from pyxfer._report.report import Advice
from pyxfer._report.text import Lines, clean, fact_text, place_text, remark_text, sentence

_PLAIN_FROM = 10
_WHOLE_FROM = 99.95


def group_text(run: runs.Run, group: route_tables.Group) -> str:
    """`PyTorch h2d, 96 MiB: usual torch.to 17.8 GB/s, 32.2 % of the ceiling; fastest ...`, of a group with a rate."""
    usual, best, name = group.usual, group.best, _name(group)
    sizes = [nbytes for nbytes in usual.at if usual.speed(nbytes) is not None] if usual is not None else []
    if usual is not None and sizes:
        nbytes = max(sizes)
        best = group.best_at(nbytes)
        role = "usual and fastest" if best is usual and len(group.routes) > 1 else "usual"
        place = route_tables.place_text(run, group, nbytes)
        text = f"{name}, {place}: {role} {_route_text(run, group, usual, nbytes)}"
        if best is None or best is usual:
            return text
        slow, fast = usual.gbps(nbytes), best.gbps(nbytes)
        times = fast / slow if slow and fast is not None else None
        ratio = "" if times is None else f"; {times:.{1 if times < _PLAIN_FROM else 0}f} times as fast"
        return f"{text}; fastest {_route_text(run, group, best, nbytes)}{ratio}"
    without = "" if usual is None else f": usual {usual.name} has no bandwidth"
    fastest = "" if best is None else f"; fastest {_route_text(run, group, best, group.largest)}"
    return f"{name}, {route_tables.place_text(run, group, group.largest)}{without}{fastest}"


def _name(group: route_tables.Group) -> str:
    form = "" if group.form is None else f" as {group.form}"
    return f"{route_tables.title(group.framework)} {group.direction}{form}"


def _route_text(run: runs.Run, group: route_tables.Group, row: route_tables.Row, nbytes: int) -> str:
    """`torch.to 17.8 GB/s, 32.2 % of the ceiling`."""
    if row.copies_nothing(nbytes):
        return f"{row.name} {units.format_seconds(row.at[nbytes].elapsed_s or 0.0)}, without a copy"
    figure = _rate_text(run, row.gbps(nbytes) or 0.0)
    share = row.at[nbytes].of_ceiling
    if share is None:
        return f"{row.name} {figure}"
    whole = "one copy" if group.direction == "ingest" else "the ceiling"
    return f"{row.name} {figure}, {units.format_percent(share)} of {whole}"


def _rate_text(run: runs.Run, gbps: float) -> str:
    unit, factor = route_tables.rate_unit(run)
    rate = gbps * factor
    return f"{rate:.0f} {unit}" if abs(rate) >= _WHOLE_FROM else f"{rate:#.3g} {unit}"


_WIDEST_WORDS = 12
_LONGEST_LABEL = 60


def batch_tables(run: runs.Run, group: route_tables.Group, width: int) -> list[tuple[str, list[Table]]]:
    head = [Column(("batch",), tuple(str(route_tables.batch_of(group, nbytes) or nbytes) for nbytes in group.sizes))]
    ceiling = group.ceiling
    rates = [[_rates(group, row), *_published(run, group, row)] for row in group.routes]
    measured = [[_rates(group, ceiling, ("ceiling:",))]] if ceiling is not None else []
    could_be = orders.could_be(run, group.framework)
    if could_be is not None:
        values = rate_cells(orders.could_be_column(could_be, group.sizes), least=0)
        measured.append([Column(("could be:", orders.COMPARED), values)])
    named = [
        ("MB/s", [*measured, *rates]),
        ("images/s", [[_images_a_second(group, row)] for row in group.routes]),
    ]
    return [
        (name, [fitting_table(columns, width) for columns in pack(head, blocks, width)])
        for name, blocks in named
        if any(cell for block in blocks for column in block for cell in column.cells)
    ]


def published_lines(run: runs.Run, groups: Sequence[route_tables.Group]) -> Lines:
    routes = {row.any.route for group in groups for row in group.routes}
    shown = [published for published in run.published if published.route in routes]
    if not shown:
        return []
    lines = [("-", "Published figures are means of 100 calls on the named GPU; figures of this host are medians.")]
    sources: dict[str, list[str]] = {}
    for published in shown:
        name = f"{clean(published.label, longest=_LONGEST_LABEL)} on {clean(published.gpu, longest=_LONGEST_LABEL)}"
        sources.setdefault(clean(published.source), []).append(name)
    lines += [("-", f"{', '.join(names)}: {source}") for source, names in sources.items()]
    return [*lines, *orders.could_be_lines(run, [group.framework for group in groups])]


def _rates(group: route_tables.Group, row: route_tables.Row, words: tuple[str, ...] = ()) -> Column:
    values = [row.gbps(nbytes) for nbytes in group.sizes]
    return _whole_column(group, row, [None if value is None else value * 1000 for value in values], words)


def _published(run: runs.Run, group: route_tables.Group, row: route_tables.Row) -> list[Column]:
    columns = []
    for published in run.published:
        if published.route == row.any.route:
            values = [published.mbps.get(route_tables.batch_of(group, nbytes) or 0) for nbytes in group.sizes]
            words = [clean(text, longest=_LONGEST_LABEL).split(" ") for text in (published.label, published.gpu)]
            heading = [line for part in words for line in _wrapped(part, " ")]
            columns.append(Column(("published:", *heading), rate_cells(values, least=0)))
    return [column for column in columns if any(column.cells)]


def _images_a_second(group: route_tables.Group, row: route_tables.Row) -> Column:
    values = [
        m.batch / m.elapsed_s if m and m.gbps is not None and m.batch and m.elapsed_s else None
        for m in (row.at.get(nbytes) for nbytes in group.sizes)
    ]
    return _whole_column(group, row, values)


def _whole_column(
    group: route_tables.Group, row: route_tables.Row, values: Sequence[float | None], words: tuple[str, ...] = ()
) -> Column:
    gaps = ["-" if nbytes in row.at else "" for nbytes in group.sizes]
    marks = tuple(row.marks.get(nbytes, "") for nbytes in group.sizes)
    return Column((*words, *_heading(group, row)), rate_cells(values, gaps, least=0), marks)


def _heading(group: route_tables.Group, row: route_tables.Row) -> tuple[str, ...]:
    mark = f"{'>' if row.usual else ''}{'*' if row is group.best else ''}"
    parts = row.name.replace(".", ".\0").replace("-", "-\0").split("\0")
    return (*([mark] if mark else []), *_wrapped(parts, ""))


def _wrapped(words: Sequence[str], joint: str) -> tuple[str, ...]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(joint) + len(word) <= _WIDEST_WORDS:
            lines[-1] += joint + word
        else:
            lines.append(word)
    return tuple(lines)


# --- the first page --------------------------------------------------------------------------------------------------

_WORTH_A_CHANGE = 1.2
_ORDINARY = {"h2d": ", from ordinary memory", "d2h": ", into ordinary memory"}
_LOCKED = {"h2d": ", from page-locked memory", "d2h": ", into page-locked memory"}


def answer(run: runs.Run) -> str:
    known = route_tables.group_rows(run, [""] * len(run.measurements))
    where = place_text(run)
    groups = [group for group in known if _share(group, group.usual) is not None]
    crossing = [group for group in groups if group.direction != "ingest"]
    groups = crossing or groups
    of_orders = orders.answer(run)
    if not groups and of_orders:
        return f"{sentence(where)} {of_orders}"
    if not groups:
        free = _titles([group for group in known if group.usual and group.usual.copies_nothing(group.largest)])
        what = f"the usual calls of {free} copy nothing" if free else "no usual call was compared with a ceiling"
        return sentence(f"{where}: {what}")
    usual = [share for group in groups if (share := _share(group, group.usual)) is not None]
    fastest = [share for group in groups if (share := _share(group, group.best)) is not None]
    whole = "raw copies reach" if crossing else "one copy in host memory reaches"
    reached = f"reach {_range_text(usual)} of what {whole}"
    reached += f", and their fastest routes {_range_text(fastest) if fastest else 'copy nothing'}"
    calls = f"At {_largest_text(run, groups)} the usual calls of {_titles(groups)} {reached}"
    return f"{sentence(where)} {sentence(calls)} {of_orders}".rstrip()


def _titles(groups: Sequence[route_tables.Group]) -> str:
    return units.joined(list(dict.fromkeys(route_tables.title(group.framework) for group in groups)))


def _share(group: route_tables.Group, row: route_tables.Row | None) -> float | None:
    m = None if row is None else row.at.get(group.largest)
    return None if m is None else m.of_ceiling


def _range_text(shares: Sequence[float]) -> str:
    low, high = (f"{share * 100:.0f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def print_summary(run: runs.Run, page: Page) -> bool:
    """The answer, the comparison, and the faster calls. False, with nothing printed, if nothing was compared."""
    groups = route_tables.group_rows(run, [""] * len(run.measurements))
    shown = [m for m in route_tables.compared(groups) if not route_tables.copies_nothing(m)]
    marks, notes = gather(msgspec.structs.replace(run, measurements=tuple(shown)), wrong_only=True)
    letters = dict(zip(map(id, shown), marks, strict=True))
    table = route_tables.overview_table(run, groups, page.columns, letters)
    if table is None:
        if orders.answer(run):
            page.line(answer(run), style="bold")
        return orders.print_summary(run, page)
    page.line(answer(run), style="bold")
    page.heading(f"{route_tables.rate_unit(run)[0]} at {_largest_text(run, groups)}, medians")
    page.show(table)
    page.line(route_tables.LEGEND)
    if notes:
        page.line()
        page.hanging(at_most(notes), style="yellow")
    faster = [(group, call) for group in groups for call in _faster_calls(run, group)]
    names = route_tables.once([_name(group) for group, _ in faster])
    lines = [
        (f"  {name}" if name else "", f"{call.figure}  {call.code}{call.where}")
        for name, (_, call) in zip(names, faster, strict=True)
    ]
    pinned = " (pinned: an array in page-locked memory)" if any("pinned" in call.code for _, call in faster) else ""
    page.section(f"Faster calls{pinned}", lines)
    orders.print_summary(run, page)
    return True


def unmeasured_lines(run: runs.Run) -> Lines:
    return [("-", _worker_text(worker)) for worker in run.workers if worker.ended != "complete"]


def next_steps(run: runs.Run) -> Lines:
    routes = [m for m in run.measurements if m.route_info is not None and m.form is None]
    usual = next((m.route for m in routes if m.route_info is not None and m.route_info.usual), None)
    shown = "where its time goes, and the code of faster calls"
    steps = [] if usual is None else [(f"  pyxfer explain {clean(usual)}", shown)]
    return [*steps, ("  pyxfer frameworks --details", "every route at every size")]


class _Faster(NamedTuple):
    figure: str
    code: str
    where: str
    is_locked: bool


def _faster_calls(run: runs.Run, group: route_tables.Group) -> list[_Faster]:
    """The fastest route, and the fastest from ordinary memory, if they are clearly faster than the usual call."""
    usual, best = group.usual, group.best
    slow = None if usual is None else usual.gbps(group.largest)
    if not slow:
        return []
    ordinary = group.fastest([row for row in group.routes if row.any.memory == "pageable"], group.largest)
    found = []
    for row, where in ((best, ""), *([] if ordinary is best else [(ordinary, _ORDINARY.get(group.direction, ""))])):
        if row is not None and (rate := row.gbps(group.largest) or 0.0) >= _WORTH_A_CHANGE * slow:
            info = row.any.route_info
            code = clean(info.call if info is not None else row.name, 200)
            found.append(_Faster(_rate_text(run, rate), code, where, row.any.memory == "pinned"))
    return found


def advice(run: runs.Run) -> list[Advice]:
    found: list[Advice] = []
    for group in route_tables.group_rows(run, [""] * len(run.measurements)):
        for call in _faster_calls(run, group):
            where = _LOCKED.get(group.direction, "") if call.is_locked else call.where
            found.append((f"{_name(group)}: {call.figure}{where}", call.code))
    return [*found, *orders.advice(run)]


def print_frameworks(run: runs.Run, marks: Sequence[str], page: Page) -> None:
    groups, is_batch = route_tables.group_rows(run, marks), route_tables.is_image_batch(run)
    overview = route_tables.overview_table(run, groups, page.columns)
    if overview is not None:
        page.heading(RATES_HEADING.replace("GB", "MB").replace("1e9", "1e6") if is_batch else RATES_HEADING)
        page.line()
        page.line(f"Usual call and fastest route of each framework, at {_largest_text(run, groups)}")
        page.show(overview)
        page.line()
        page.line(route_tables.LEGEND)
    for group in [group for group in groups if group.routes or not run.parameters.forms]:
        page.heading(route_tables.group_title(run, group))
        if is_batch:
            for name, tables in batch_tables(run, group, page.columns):
                page.line(name)
                _print_tables(tables, page)
                page.line()
        elif len(group.sizes) > 1:
            _print_tables(route_tables.rate_pivot(group, page.columns), page)
            page.line()
        page.line(f"at {route_tables.place_text(run, group, group.largest)}")
        for details in route_tables.detail_grids(run, group):
            details.print_on(page)
            page.line()
        page.hanging([("-", text) for text in (*route_tables.clock_lines(group), *route_tables.elsewhere_lines(group))])
    page.section("Published figures", published_lines(run, groups) if is_batch else [])
    orders.print_summary(run, page)
    orders.print_orders(run, marks, page)


def worker_lines(run: runs.Run) -> Lines:
    lines = []
    for worker in run.workers:
        lines.append((worker_number(run, worker.name), _worker_text(worker)))
        if worker.ended != "complete":
            lines.extend(("", f"  {clean(line)}") for line in worker.log[-12:])
        lines.extend(("", f"  {remark_text(remark)}") for remark in worker.remarks)
    return lines


def _print_tables(tables: Sequence[Table], page: Page) -> None:
    for order, table in enumerate(tables):
        if order:
            page.line()
        page.show(table)


def _largest_text(run: runs.Run, groups: Sequence[route_tables.Group]) -> str:
    places = {group.largest: route_tables.place_text(run, group, group.largest) for group in groups if group.routes}
    return " or ".join(places[nbytes] for nbytes in sorted(places, reverse=True))


def _worker_text(worker: runs.Worker) -> str:
    words = [f"{route_tables.title(worker.framework)} {fact_text(worker.version)}"] if worker.version.value else []
    took = units.format_seconds(worker.duration_s)
    if worker.ended == "complete":
        reason = clean(worker.cuda.reason or "no reason given").rstrip(".")  # more words follow
        reason = reason if reason.startswith("no GPU") else f"no GPU: {reason}"
        words.append(f"CUDA {clean(worker.cuda.value)}" if worker.cuda.value is not None else reason)
        if worker.start_s.value is not None:
            words.append(f"started in {units.format_seconds(worker.start_s.value)}")
        words.append(f"took {took}")
    else:
        ending = "not available" if worker.ended == "unavailable" else f"{worker.ended} after {took}"
        words.append(f"{ending}: {clean(worker.reason or 'no reason given')}")
    return f"{clean(worker.name, 60)}: {', '.join(words)}"
