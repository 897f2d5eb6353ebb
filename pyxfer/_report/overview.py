"""The first page of raw copies: a judgement, one table whose digits are certain, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from rich.table import Table

from pyxfer import units
from pyxfer._doctor.case import SIDES, best
from pyxfer._doctor.examine import examine, nearest_known
from pyxfer._document import runs
from pyxfer._document.examinations import Finding, Status
from pyxfer._document.links import Links
from pyxfer._document.remark_codes import severity_of
from pyxfer._report import rates
from pyxfer._report.layout import Column, Page, fitting_table, pack
from pyxfer._report.notes import at_most, gather, label_words
from pyxfer._report.report import Badge
from pyxfer._report.text import Lines, clean, counted, fact_text, moment_text, place_text, remark_text, sentence


class Answer(NamedTuple):
    """What a reader wants to know first. `status`: of the link, by the doctor."""

    status: Status
    text: str


STYLES: dict[Status, str] = {"fine": "bold green", "unknown": "bold", "suspicious": "bold yellow", "wrong": "bold red"}
BADGES: dict[Status, tuple[Badge, str]] = {
    "fine": ("good", "fine"),
    "unknown": ("none", "not judged"),
    "suspicious": ("doubtful", "suspicious"),
    "wrong": ("bad", "wrong"),
}
# What the doctor finds besides is about settings of the machine, and belongs on the doctor's page.
OF_LINK = {"contents", "ceiling", "known-host", "pageable", "link", "slot", "path"}
_WAY_WORDS = {"h2d": "to the GPU", "d2h": "to the host"}


def answer(run: runs.Run) -> Answer:
    judged = [finding for finding in examine(run, None, nearest_known(run).value) if finding.code in OF_LINK]
    ceilings = [finding for finding in judged if finding.code == "ceiling"]
    status: Status = "unknown"
    bad = [finding for finding in judged if finding.status in ("wrong", "suspicious")]
    if bad:
        status, verdict = bad[0].status, _bad_text(bad)
    elif run.runtime == "host":
        verdict = "these figures say nothing of a GPU"
    elif any(finding.status == "fine" for finding in ceilings):
        status, verdict = "fine", "the link is fine"
    else:
        reasons = [finding.seen for finding in ceilings if finding.status == "unknown"]
        verdict = f"whether the link is fine is not known: {clean(reasons[0], 200)}" if reasons else "measured"
    return Answer(status, " ".join(map(sentence, (f"{place_text(run)}: {verdict}", *_rates_texts(run)))))


def _bad_text(bad: Sequence[Finding]) -> str:
    worst = bad[0]
    kind = "something is wrong" if worst.status == "wrong" else "something looks wrong"
    more = f" ({len(bad) - 1} more: pyxfer doctor)" if len(bad) > 1 else ""
    do = f" {sentence(clean(worst.do, 300))}" if worst.do else ""
    return f"{kind}. {sentence(f'{clean(worst.subject)}: {clean(worst.seen, 300)}{more}')}{do}"


def _rates_texts(run: runs.Run) -> Iterator[str]:
    """`pinned memory moves 55.4 GB/s to the GPU and 55.3 GB/s to the host, 95 % and 96 % of the link's peak`."""
    pinned, pageable = (
        {side: row for side in SIDES if (row := best(run, side, pageable=kind)) is not None} for kind in (False, True)
    )
    ways = {"h2d": "h2d", "d2h": "d2h"} if run.runtime == "host" else _WAY_WORDS
    for rows in (pinned, pageable):
        alike = {side: row for side, row in rows.items() if side not in pinned or row.nbytes == pinned[side].nbytes}
        if not alike:
            continue
        rates_of = " and ".join(f"{_certain(row)} GB/s {ways[side]}" for side, row in alike.items())
        shares = dict.fromkeys(f"{row.of_peak * 100:.0f} %" for row in alike.values() if row.of_peak is not None)
        peak = f", {' and '.join(shares)} of what the link can carry" if shares and rows is pinned else ""
        yield f"{clean(next(iter(alike.values())).memory)} memory moves {rates_of}{peak}"


_MAX_DIGITS = 3
# The last digit is certain to within this many of its units; the factor 2 keeps a digit that 1 would drop at +-1.1.
_LAST_DIGIT_WITHIN = 2
UNCERTAIN = "~"


def certain_digits(value: float, half_width: float | None) -> str:
    """The value with the digits that are certain to within 2 in the last place, three at most.

    `~` stands before a value without a certain digit, or without a certain digit before the point if it has two there,
    because 60 would read as 60 and not as a rounded 55.
    """
    if value <= 0 or not math.isfinite(value):
        return f"{value:.3g}"
    first = math.floor(math.log10(float(f"{value:.2e}")))  # 9.999 has its first digit in the tens
    estimate = UNCERTAIN + _rounded(value, first - 1 if first > 0 else first)
    if half_width is None:
        return estimate
    certain = -99 if half_width <= 0 else math.ceil(math.log10(half_width / _LAST_DIGIT_WITHIN) - 1e-9)
    return estimate if certain > min(first, 0) else _rounded(value, max(first - _MAX_DIGITS + 1, certain))


def _rounded(value: float, place: int) -> str:
    return f"{round(value, -place):.{max(0, -place)}f}"


def _certain(m: runs.Measurement) -> str:
    shown = rates.shown_gbps(m)
    if shown is None:
        return "-"
    half = rates.half_width(m)
    return certain_digits(shown, None if half is None else half * shown)


def on_the_point(texts: Sequence[str]) -> tuple[str, ...]:
    tails = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    pairs = zip(texts, tails, strict=True)
    return tuple(text + " " * (max(tails) - tail) if text[-1:].isdigit() else text for text, tail in pairs)


_MAX_SIZES = 6


def _shown_rows(run: runs.Run) -> tuple[runs.Measurement, ...]:
    """Every second size if there are many, the largest first of all; of both ways at once only the sum."""
    sizes = sorted({m.nbytes for m in run.measurements})
    while len(sizes) > _MAX_SIZES:
        sizes = sizes[::-1][::2][::-1]
    return tuple(m for m in run.measurements if m.nbytes in sizes and (m.direction != "both" or m.side == "sum"))


def _tables(run: runs.Run, rows: Sequence[runs.Measurement], marks: Sequence[str], width: int) -> list[Table]:
    sizes = sorted({m.nbytes for m in rows})
    has_peak = any(m.of_peak is not None for m in rows)
    columns: dict[tuple[str, ...], dict[int, int]] = {}
    for index, m in enumerate(rows):
        columns.setdefault((rates.way(m), *label_words(m, run)), {})[m.nbytes] = index
    head = Column(("", "size"), (*map(units.format_size, sizes), *(["of peak"] if has_peak else [])))
    blocks: dict[str, list[Column]] = {}
    directions = [str(direction) for direction in run.parameters.directions]
    # Page-locked memory first.
    for key in sorted(columns, key=lambda key: (directions.index(key[0].split()[0]), key[1] == "pageable")):
        at = columns[key]
        texts = [_certain(rows[at[size]]) if size in at else "" for size in sizes]
        share = rows[at[max(at)]].of_peak if max(at) == sizes[-1] else None
        shares = [("" if share is None else f"{share * 100:.0f} %")] if has_peak else []
        letters = [marks[at[size]] if size in at else "" for size in sizes]
        column = Column(key, (*on_the_point(texts), *shares), (*letters, *([""] * len(shares))))
        blocks.setdefault(key[0], []).append(column)
    return [fitting_table(table, width) for table in pack([head], list(blocks.values()), width)]


def print_overview(run: runs.Run, page: Page) -> None:
    found = answer(run)
    page.line(found.text, style=STYLES[found.status])
    if rates.ending_text(run):
        page.line()
        page.line(rates.ending_text(run), style="bold red")
    rows = _shown_rows(run)
    marks, notes = gather(msgspec.structs.replace(run, measurements=rows), wrong_only=True)
    page.line()
    many = "; modes of many calls by the caller's" if any(map(rates.is_by_caller, rows)) else ""
    clock = f"by the device's clock{many}" if any(m.has_both_clocks for m in rows) else "medians"
    page.line(f"GB/s (1 GB = 1e9 bytes), {clock}", style="bold")
    for table in _tables(run, rows, marks, page.columns):
        page.show(table)
        page.line()
    if notes:
        page.hanging(at_most(notes), style="yellow")
        page.line()
    unsure = f"; {UNCERTAIN} stands before an estimate" if any(_certain(m)[0] == UNCERTAIN for m in rows) else ""
    digits = f"Digits are those that are certain (95 %){unsure}."
    for text in (digits, precision_text(run), contents_text(run), *_facts(run, rows), *doubts(run)):
        if text:
            page.line(text)
    page.section("Next", next_steps(run, found.status))
    page.line()
    page.line(footer(run))


_FINER = 0.005
_HOUR_S = 3600.0
_PINNED = ("raw.pinned-async", "warm")


def precision_text(run: runs.Run) -> str:
    asked = run.parameters.precision
    halves = [m.summary.relative_half_width for m in run.measurements if m.summary is not None]
    known = [half for half in halves if half is not None]
    missing = sum(half > asked for half in known)
    target = asked if missing else _FINER
    said = f"{len(known) - missing} of {len(known)} medians are within {units.format_percent(asked)}"
    if not known or (not missing and asked <= _FINER):
        return f"{said}." if known else ""
    needed_s, finer = seconds_for(run, target), units.format_percent(target)
    if needed_s > _HOUR_S:
        return f"{said}; {finer} for all would take more than an hour."
    options = f"--precision {finer.replace(' ', '')} --budget {_round_time(needed_s)}"
    return f"{said}; {finer} for all would take at least {_round_time(needed_s)} ({options})."


def seconds_for(run: runs.Run, precision: float) -> float:
    """About how long the run would have to last for medians as precise as this: errors shrink with the root of time."""
    spent: dict[tuple[object, ...], float] = {}
    widest: dict[tuple[object, ...], float] = {}
    for m in run.measurements:
        key = (m.worker, m.route, m.variant, m.direction, m.nbytes)
        times = sum(max(trial.elapsed_s, trial.wall_s or 0.0) * trial.copies for trial in m.trials)
        width = 0.0 if m.summary is None else m.summary.relative_half_width or 0.0
        spent[key], widest[key] = max(spent.get(key, 0.0), times), max(widest.get(key, 0.0), width)
    more_s = sum(spent[key] * max(0.0, (widest[key] / precision) ** 2 - 1) for key in spent)
    # Each trial has some untimed work, and none of it is in the times of the trials.
    return run.duration_s + _UNTIMED * more_s


_UNTIMED = 1.5


def _round_time(seconds: float) -> str:
    """Rounded up to a time that a person would type."""
    for step in (5.0, 10.0, 30.0):
        if seconds <= 12 * step:
            return f"{math.ceil(seconds / step) * step:.0f}s"
    return f"{math.ceil(seconds / 60)}min"


def contents_text(run: runs.Run) -> str:
    return f"Contents: {rates.verified_text(run)}."


def doubts(run: runs.Run) -> list[str]:
    of_workers = (remark for worker in run.workers for remark in worker.remarks)
    remarks = (*run.link.remarks, *run.remarks, *of_workers)
    return [sentence(remark_text(remark)) for remark in remarks if severity_of(remark.code) != "info"]


def _facts(run: runs.Run, rows: Sequence[runs.Measurement]) -> Iterator[str]:
    """Where copies are half as fast, when page-locking pays, and what a caller gets of the smallest copy."""
    halves = []
    for curve in run.curves:
        is_alone = curve.side in SIDES and curve.direction != "both"
        if curve.half_size.value is not None and is_alone and (curve.route, curve.variant) == _PINNED:
            size = units.format_size(1024 * float(f"{curve.half_size.value / 1024:.2g}"))
            halves.append(f"{size} ({curve.direction})")
    if halves:
        yield f"Pinned copies reach half of their top speed at {' and '.join(halves)}."
    pinned = [cost for cost in run.locking if cost.memory == "pinned" and cost.pays_after_transfers.value is not None]
    for cost in pinned[:1]:
        times = counted(cost.pays_after_transfers.value or 0, f"{cost.pays_direction} transfer")
        yield f"Page-locking an array of {units.format_size(cost.nbytes)} pays after {times} of it."
    both = [m for m in rows if m.has_both_clocks and m.caller_gbps is not None and m.direction in SIDES]
    for least in sorted(both, key=lambda m: m.nbytes)[:1]:
        what = f"{least.direction} {clean(least.memory)} at {units.format_size(least.nbytes)}"
        yield f"A caller gets {least.caller_gbps:.3g} GB/s of {what}: the device's clock leaves out the call."


# Below this share of the ceiling it pays to look at how frameworks copy.
_PAGEABLE_IS_SLOW = 0.8


def next_steps(run: runs.Run, status: Status) -> Lines:
    steps = [("  pyxfer list", "why no GPU is used here")] if run.runtime == "host" else []
    if status in ("wrong", "suspicious"):
        steps.append(("  pyxfer doctor", "everything that looks wrong, and the remedy of each"))
    slow = [m for m in run.measurements if m.memory == "pageable" and (m.of_ceiling or 1.0) < _PAGEABLE_IS_SLOW]
    if slow and run.runtime != "host":
        steps.append(("  pyxfer frameworks", "what TensorFlow, PyTorch, CuPy and JAX reach"))
    return [*steps, ("  pyxfer ceiling --details", "all figures; --report page.html draws them")]


def footer(run: runs.Run | Links) -> str:
    environment = run.environment
    words = [f"{moment_text(environment.taken_at)} UTC", f"took {units.format_seconds(run.duration_s)}"]
    words += [f"driver {fact_text(environment.driver)}"] if run.runtime == "cuda" else []
    return ", ".join([clean(environment.host), *words, f"pyxfer {clean(environment.pyxfer)}"])
