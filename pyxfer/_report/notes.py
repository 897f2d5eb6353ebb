"""What a reader must know about single values: a letter behind each, and one line a letter."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyxfer import units
from pyxfer._document import runs
from pyxfer._document.runs import NO_FAULT
from pyxfer._report.text import clean, remark_text

_PLACES_SHOWN = 4
_STRETCH = 3
# A precise median stays precise beside these; the document has them, and the page counts the invalid trials elsewhere.
# What tracing costs is in no median.
_HARMLESS = {"outliers", "invalid-trials", "traced"}


@dataclass(frozen=True)
class Note:
    """One line under the table, about every value that bears its mark."""

    mark: str
    text: str


@dataclass(frozen=True)
class _Concern:
    index: int
    group: str
    remark: runs.Remark


def gather(run: runs.Run) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """The marks of each measurement in order, and the notes that explain them."""
    groups: dict[str, list[_Concern]] = {}
    for index, measurement in enumerate(run.measurements):
        concerns = _concerns(index, measurement, run.parameters.precision)
        concerns += _untraced(index, measurement) if run.tracing.value is not None else []
        for concern in concerns:
            groups.setdefault(concern.group, []).append(concern)
    marks = [""] * len(run.measurements)
    notes = []
    for order, alike in enumerate(groups.values()):
        mark = _letters(order)
        for index in {concern.index for concern in alike}:
            marks[index] += mark
        notes.append(Note(mark, _sentence(run, alike)))
    return tuple(marks), tuple(notes)


def label(measurement: runs.Measurement, run: runs.Run) -> str:
    """A measurement in a reader's words, its size left out: `h2d pinned`, `both pageable streams:2`, `torch.to`."""
    name = clean(measurement.route, longest=40)
    if run.kind == "measure" or measurement.nature is not None:
        return name
    if measurement.worker is not None or run.kind == "frameworks":
        variant = " fresh" if measurement.variant == "fresh" else ""
        return f"{name}{variant} {measurement.direction} of {clean(measurement.worker or 'no worker', longest=40)}"
    return " ".join((measurement.direction, *label_words(measurement, run)))


def label_words(measurement: runs.Measurement, run: runs.Run) -> tuple[str, ...]:
    """The memory, then mode and variant where the run holds several; that it is staged always."""
    words = [clean(measurement.memory, longest=40)]
    modes = {other.mode for other in run.measurements if _alike(other, measurement)}
    if len(modes) > 1 or runs.STAGED in modes:
        words.append(clean(measurement.mode, longest=40))
    if measurement.variant == "fresh":
        words.append("fresh")
    return tuple(words)


def _alike(other: runs.Measurement, measurement: runs.Measurement) -> bool:
    return (other.memory, other.direction) == (measurement.memory, measurement.direction)


def sizes_text(sizes: Sequence[int], known: Sequence[int], say: Callable[[int], str] = units.format_size) -> str:
    """Sizes as a reader would say them: a stretch of the known ones from its first to its last, else a list."""
    wanted = sorted(set(sizes))
    first, last = wanted[0], wanted[-1]
    if len(wanted) >= _STRETCH and wanted == sorted({size for size in known if first <= size <= last}):
        return f"{say(first)} to {say(last)}"
    shown = [say(size) for size in wanted[:_PLACES_SHOWN]]
    return ", ".join(shown) + _and_more(len(wanted) - len(shown))


def _concerns(index: int, measurement: runs.Measurement, precision: float) -> list[_Concern]:
    if measurement.rate.value is None:
        reason = measurement.rate.reason or "no reason given"
        return [_Concern(index, f"missing {reason}", runs.Remark("missing", reason))]
    doubts = [remark for remark in measurement.remarks if remark.code not in _HARMLESS]
    found = [_Concern(index, f"remark {remark.code}", remark) for remark in doubts]
    if measurement.verified.value is False:
        wrong = runs.Remark("contents", "the bytes that arrived are not the bytes that were sent", None)
        found.append(_Concern(index, "contents", wrong))
    half_width = measurement.summary.relative_half_width if measurement.summary is not None else None
    if not found and half_width is not None and half_width > precision:
        text = f"the median is known to {units.format_percent(half_width)}, not to {units.format_percent(precision)}"
        found.append(_Concern(index, "wide", runs.Remark("wide", text, "a longer --budget would narrow it")))
    return found


def _untraced(index: int, measurement: runs.Measurement) -> list[_Concern]:
    """Of a figure beside which it is not known what crossed, where others have it: lost records, a failed trial."""
    reason = measurement.dma.reason
    if measurement.rate.value is None or measurement.direction == "ingest" or reason is None or reason in NO_FAULT:
        return []
    return [_Concern(index, f"untraced {reason}", runs.Remark("untraced", reason))]


def _sentence(run: runs.Run, concerns: Sequence[_Concern]) -> str:
    alike = len({concern.remark.text for concern in concerns}) == 1
    if not alike and {concern.remark.code for concern in concerns} <= {"unstable", "wide"}:
        return f"{_where(run, concerns)}: {_widths_text(run, concerns)}"
    worst = max(concerns, key=lambda concern: _half_width(run.measurements[concern.index]))
    joint = ": " if alike else "; at worst: "
    return f"{_where(run, concerns)}{joint}{remark_text(worst.remark)}"


def _widths_text(run: runs.Run, concerns: Sequence[_Concern]) -> str:
    """Many medians that are not precise, as one: from the best known to the worst."""
    widths = sorted(_half_width(run.measurements[concern.index]) for concern in concerns)
    least, most = units.format_percent(widths[0]), units.format_percent(widths[-1])
    if widths[-1] > 1:
        most = "more than 100 %"
    known = least if least == most else f"{least} to {most}"
    return (
        f"the medians are known within {known}, not {units.format_percent(run.parameters.precision)}; "
        "a longer --budget narrows them"
    )


def _where(run: runs.Run, concerns: Sequence[_Concern]) -> str:
    sizes_of: dict[str, list[int]] = {}
    for concern in concerns:
        measurement = run.measurements[concern.index]
        sizes_of.setdefault(label(measurement, run), []).append(measurement.nbytes)
    labels_at: dict[str, list[str]] = {}
    for name, sizes in sizes_of.items():
        labels_at.setdefault(_places_text(run, sizes), []).append(name)
    everything = {label(measurement, run) for measurement in run.measurements}
    places = [f"{_names_text(names, everything)} at {sizes}" for sizes, names in labels_at.items()]
    return "; ".join(places[:_PLACES_SHOWN]) + _and_more(len(places) - _PLACES_SHOWN)


def _places_text(run: runs.Run, sizes: Sequence[int]) -> str:
    known = [measurement.nbytes for measurement in run.measurements]
    batches = {measurement.nbytes: measurement.batch for measurement in run.measurements if measurement.batch}
    if not batches:
        return sizes_text(sizes, known)
    return f"batch {sizes_text(sizes, known, lambda nbytes: str(batches.get(nbytes, units.format_size(nbytes))))}"


def _names_text(names: Sequence[str], everything: set[str]) -> str:
    if len(names) > 1 and set(names) == everything:
        return "everything"
    return ", ".join(names[:_PLACES_SHOWN]) + _and_more(len(names) - _PLACES_SHOWN)


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _half_width(measurement: runs.Measurement) -> float:
    return (measurement.summary.relative_half_width or 0.0) if measurement.summary is not None else 0.0


def _letters(order: int) -> str:
    letters = string.ascii_lowercase
    return (
        letters[order] if order < len(letters) else letters[order // len(letters) - 1] + letters[order % len(letters)]
    )
