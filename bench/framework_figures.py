"""The tables of `readme_figures.py` about the routes of frameworks."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from figure_parts import caption, fenced, gbps_cell, mbps_cell, printed, seconds_cell

from pyxfer._document.runs import Direction, Measurement, Published, Run
from pyxfer._report import orders
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer._report.notes import gather
from pyxfer._report.route_tables import Group, Row, batch_of, group_rows, group_title, order_groups, title
from pyxfer._report.run import print_run
from pyxfer.errors import UsageError
from pyxfer.units import format_percent, format_size

LINK: tuple[Direction, ...] = ("h2d", "d2h")
# The framework that the page shows in full below the overview.
SHOWN = "tensorflow"
# The calls compared in the published image benchmark; the fastest route of each framework is added to them.
IMAGE_ROUTES = ("tf.function", "tf.function-jit", "torch.to")
IMAGE_FRAMEWORKS = ("tensorflow", "torch")
AFTER_TABLES = "\nWorkers\n"


def overview_page(run: Run) -> str:
    """Terminal output: the overview of all frameworks, then one framework at its largest size with notes."""
    overview = restricted(run, LINK)
    groups = groups_of(overview)
    if not groups:
        raise UsageError("this document holds no route over the link")
    above, _, _ = printed(overview, print_run).partition(f"\n{group_title(run, groups[0])}\n")
    chosen = next((group for group in groups if group.framework == SHOWN), groups[0])
    block = restricted(run, (chosen.direction,), chosen.framework, chosen.largest)
    heading = group_title(run, chosen)
    _, _, below = printed(block, print_run).partition(f"\n{heading}\n")
    above = re.sub(r"\nSummary\n.*?\n\n", "\n", above, flags=re.DOTALL)  # the tables below have its figures
    return fenced(f"{above}\n{heading}\n{below.partition(AFTER_TABLES)[0]}")


def restricted(run: Run, directions: Sequence[str], framework: str | None = None, nbytes: int | None = None) -> Run:
    """The run reduced to these directions, this framework and this size."""
    workers = tuple(worker for worker in run.workers if framework in (None, worker.framework))
    names = {worker.name for worker in workers}
    measurements = tuple(
        row
        for row in run.measurements
        if row.direction in directions and row.worker in names and nbytes in (None, row.nbytes)
    )
    return msgspec.structs.replace(run, workers=workers, measurements=measurements)


def groups_of(run: Run) -> list[Group]:
    """The groups (framework and direction) over the link in which at least one route has a bandwidth."""
    found = group_rows(run, gather(run)[0])
    return [group for group in found if group.direction in LINK and group.best is not None]


def usual_best(run: Run) -> str:
    """The usual call and the fastest route, one row per framework and direction."""
    header = ["framework", "direction", "size", "usual call", "GB/s", "of ceiling"]
    header += ["fastest route", "GB/s", "of ceiling"]
    body = [
        [
            title(group.framework),
            group.direction,
            format_size(group.largest),
            *_route_cells(group.usual, group.largest),
            *_route_cells(group.best, group.largest),
        ]
        for group in groups_of(run)
    ]
    return f"{caption(run)}\n\n{markdown_table(header, body)}"


def image_batches(run: Run) -> str:
    """Rows are batch sizes; columns are this host's routes, the ceiling and published figures, in MB/s."""
    groups = [group for group in groups_of(run) if group.framework in IMAGE_FRAMEWORKS]
    rows = _image_rows(groups)
    names = [row.name for row in rows]
    published = [figures for figures in run.published if figures.route in names]
    sizes = sorted({nbytes for group in groups for nbytes in group.sizes})
    header = ["batch", *(_image_heading(row, groups) for row in rows), "ceiling"]
    header += [f"published: {figures.label}, {figures.gpu}" for figures in published]
    could_be = [found for group in groups if (found := orders.could_be(run, group.framework)) is not None]
    header += [f"could be: {title(group.framework)}, {group.form}" for group in could_be]
    body = []
    for nbytes in sizes:
        batch = _batch(groups, nbytes)
        rates = [mbps_cell(row.at.get(nbytes)) for row in rows]
        others = [_published(figures, batch) for figures in published]
        best = [group.best_at(nbytes) for group in could_be]
        others += ["-" if row is None else mbps_cell(row.at[nbytes]) for row in best]
        body.append([str(batch), *rates, mbps_cell(_ceiling(run, nbytes)), *others])
    sources = ", ".join(dict.fromkeys(figures.source for figures in published))
    below = f"\nPublished figures: {escape_markdown(sources)}.\n" if sources else ""
    below += "".join(f"\n{text}\n" for _, text in orders.could_be_lines(run, [group.framework for group in groups]))
    return f"{caption(run, 'MB/s, MB = 1e6 bytes.')}\n\n{markdown_table(header, body)}{below}"


def image_orders(run: Run) -> str:
    """Orders of work on images: the usual code and the fastest order of each framework, form and batch."""
    header = [
        "framework",
        "form",
        "images",
        "usual code takes",
        "fastest order",
        "takes",
        "times as fast",
        "of ceiling",
    ]
    body = []
    for group in order_groups(run, [""] * len(run.measurements)):
        for nbytes in group.sizes:
            usual, best = group.usual, group.best_at(nbytes)
            slow = None if usual is None else usual.at.get(nbytes)
            if best is None:
                continue
            fast, times = best.at[nbytes], orders.gain(group, best, nbytes)
            interval = "about equal" if times is None else f"{times.value:.2f} ({times.low:.2f} to {times.high:.2f})"
            body.append(
                [
                    title(group.framework),
                    str(group.form),
                    str(fast.batch),
                    "-" if slow is None else seconds_cell(slow),
                    best.name,
                    seconds_cell(fast),
                    "the usual code" if best is usual else interval,
                    "-" if fast.of_ceiling is None else format_percent(fast.of_ceiling),
                ]
            )
    return f"{caption(run)}\n\n{markdown_table(header, body)}"


def _image_rows(groups: Sequence[Group]) -> list[Row]:
    """`IMAGE_ROUTES` and the fastest route of each framework, without duplicates."""
    known = {row.name: row for group in groups for row in group.routes}
    named = [known[name] for name in IMAGE_ROUTES if name in known]
    best = [group.best for group in groups if group.best is not None]
    return list({row.name: row for row in (*named, *best)}.values())


def _image_heading(row: Row, groups: Sequence[Group]) -> str:
    fastest = any(row is group.best for group in groups)
    return f"{row.name} (fastest)" if fastest else row.name


def _batch(groups: Sequence[Group], nbytes: int) -> int:
    known = (batch_of(group, nbytes) for group in groups)
    return next(batch for batch in known if batch is not None)


def _ceiling(run: Run, nbytes: int) -> Measurement | None:
    try:
        return run.ceiling("h2d", nbytes)
    except UsageError:
        return None


def _published(figures: Published, batch: int) -> str:
    return f"{figures.mbps[batch]:.0f}" if batch in figures.mbps else "-"


def _route_cells(row: Row | None, nbytes: int) -> list[str]:
    """A route's name, rate and share of the ceiling."""
    if row is None:
        return ["-", "-", "-"]
    found: Measurement | None = row.at.get(nbytes)
    rate = gbps_cell(found)
    share = None if found is None or rate == "-" else found.of_ceiling
    return [row.name, rate, "-" if share is None else format_percent(share)]
