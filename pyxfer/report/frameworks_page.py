"""A frameworks run: the usual call beside the best one, every route at every size, and how each worker ended."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pyxfer import model, units

from .framework_groups import Group, group_rows, group_title, is_image_batch, place_text, title
from .image_batch_tables import batch_tables, published_lines
from .rate_tables import worker_number
from .route_sentences import sentences
from .route_tables import LEGEND, detail_tables, elsewhere_lines, overview_table, rate_pivot
from .run_sections import RATES_HEADING
from .terminal import Page
from .text import clean, fact_text, remark_text

BATCHES_HEADING = RATES_HEADING.replace("GB", "MB").replace("1e9", "1e6")
_LONGEST_NAME = 60
_MOST_LOG_LINES = 12
_ENDINGS = {
    "interrupted": "interrupted",
    "unavailable": "not available",
    "crashed": "crashed",
    "hung": "hung",
    "failed": "failed",
}


def print_frameworks(run: model.Run, marks: Sequence[str], page: Page) -> None:
    """The overview, then each framework and direction."""
    groups = group_rows(run, marks)
    overview = overview_table(run, groups, page.columns)
    if overview is not None:
        page.heading(BATCHES_HEADING if is_image_batch(run) else RATES_HEADING)
        page.line()
        page.line(f"Each framework's usual call and its fastest route, at {_largest_text(run, groups)}")
        page.show(overview)
        page.line()
        page.line(LEGEND)
    for group in groups:
        page.heading(group_title(run, group))
        _print_group(run, group, page)
    lines = published_lines(run, groups) if is_image_batch(run) else []
    if lines:
        page.heading("Published figures")
        page.hanging(lines)


def in_words(run: model.Run, marks: Sequence[str]) -> list[tuple[str, str]]:
    """A closing sentence a framework."""
    return sentences(run, group_rows(run, marks))


def worker_lines(run: model.Run) -> list[tuple[str, str]]:
    """Each worker with its framework's version; of one that did not complete, why and what it said last."""
    lines = []
    for worker in run.workers:
        lines.append((worker_number(run, worker.name), _worker_text(worker)))
        if worker.ended != "complete":
            lines.extend(("", f"  {clean(line)}") for line in worker.log[-_MOST_LOG_LINES:])
        lines.extend(("", f"  {remark_text(remark)}") for remark in worker.remarks)
    return lines


def _print_group(run: model.Run, group: Group, page: Page) -> None:
    if is_image_batch(run):
        for name, tables in batch_tables(run, group, page.columns):
            page.line(name)
            _print_tables(tables, page)
            page.line()
    elif len(group.sizes) > 1:
        _print_tables(rate_pivot(run, group, page.columns), page)
        page.line()
    page.line(f"at {place_text(run, group, group.largest)}{_overhead_text(group)}")
    _print_tables(detail_tables(run, group, page.columns), page)
    page.hanging([("-", text) for text in elsewhere_lines(group)])


def _overhead_text(group: Group) -> str:
    """What the table's overhead is, where it has that column."""
    known = any(group.largest in row.at and row.at[group.largest].overhead_s is not None for row in group.routes)
    return "; overhead is the time beyond the ceiling's copy" if known and group.direction != "ingest" else ""


def _print_tables(tables: Sequence[Table], page: Page) -> None:
    for order, table in enumerate(tables):
        if order:
            page.line()
        page.show(table)


def _largest_text(run: model.Run, groups: Sequence[Group]) -> str:
    """Where the overview's rates are from; groups that were broken off may end earlier than others."""
    places = {group.largest: place_text(run, group, group.largest) for group in groups if group.routes}
    return " or ".join(places[nbytes] for nbytes in sorted(places, reverse=True))


def _worker_text(worker: model.Worker) -> str:
    name = clean(worker.name, longest=_LONGEST_NAME)
    words = [f"{title(worker.framework)} {fact_text(worker.version)}"] if worker.version.value else []
    if worker.ended == "complete":
        words.append(_cuda_text(worker.cuda))
        if worker.start_s.value is not None:
            words.append(f"started in {units.format_seconds(worker.start_s.value)}")
        words.append(f"took {units.format_seconds(worker.duration_s)}")
    else:
        reason = clean(worker.reason or "no reason given")
        after = "" if worker.ended == "unavailable" else f" after {units.format_seconds(worker.duration_s)}"
        words.append(f"{_ENDINGS[worker.ended]}{after}: {reason}")
    return f"{name}: {', '.join(words)}"


def _cuda_text(cuda: model.Fact[str]) -> str:
    if cuda.value is not None:
        return f"CUDA {clean(cuda.value)}"
    reason = clean(cuda.reason or "no reason given").rstrip(".")  # more words follow
    return reason if reason.startswith("no GPU") else f"no GPU: {reason}"
