"""Notes on single values: a letter behind each unusual value, and one line for each letter and for the common case."""

from __future__ import annotations

import statistics
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.remark_codes import severity_of
from pyxfer._document.runs import NO_FAULT
from pyxfer._report.text import clean, counted, remark_text
from pyxfer.units import first_of

_PLACES_SHOWN = 4
_STRETCH = 3
# In a small table a letter at every value is easy to read.
_FEWEST_VALUES = 12
_FAR = 3


@dataclass(frozen=True)
class Note:
    """One line under the table, about every value with its mark, or without one about most values."""

    mark: str
    text: str


@dataclass(frozen=True)
class _Concern:
    at: runs.Measurement
    index: int
    group: str
    remark: machines.Remark


def gather(run: runs.Run, *, wrong_only: bool = False) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """The marks of all measurements in their order, and the notes that explain the marks.

    `wrong_only`: without what is right and only less precise than asked, and without records that are missing.
    """
    groups: dict[str, list[_Concern]] = {}
    is_late = any(remark.code == "late" for remark in run.remarks)
    for index, measurement in enumerate(run.measurements):
        concerns = _concerns(index, measurement, run.parameters.precision)
        if wrong_only:
            concerns = [each for each in concerns if _is_wrong(each.remark.code)]
        elif run.tracing.value is not None:
            concerns += _untraced(index, measurement)
        for found in concerns:
            has_budget = is_late and found.remark.code == "few-trials"  # the run's remark has that of all rows
            bare = replace(found, remark=msgspec.structs.replace(found.remark, fix=None))
            groups.setdefault(found.group, []).append(bare if has_budget else found)
    marks = [""] * len(run.measurements)
    common: list[Note] = []
    notes: list[Note] = []
    for alike in groups.values():
        usual = _common(run, alike)
        if usual:
            known = sum(row.rate.value is not None for row in run.measurements)
            which = f"{'all' if len(usual) == known else 'most'} values ({len(usual)} of {known})"
            common.append(Note("-", _text(run, usual, which)))
        marked = [concern for concern in alike if concern not in usual]
        if marked:
            first, last = divmod(len(notes), 26)
            mark = (string.ascii_lowercase[first - 1] if first else "") + string.ascii_lowercase[last]
            for index in {concern.index for concern in marked}:
                marks[index] += mark
            notes.append(Note(mark, _text(run, marked, _where(run, marked))))
    return tuple(marks), (*common, *notes)


def at_most(notes: Sequence[Note], most: int = 3) -> list[tuple[str, str]]:
    shown = notes if len(notes) <= most else notes[: most - 1]
    lines = [(note.mark, note.text) for note in shown]
    rest = notes[len(shown) :]
    letters = ", ".join(note.mark for note in rest)
    return [*lines, (letters, f"{len(rest)} more kinds of doubt: see --details")] if rest else lines


def _common(run: runs.Run, alike: Sequence[_Concern]) -> list[_Concern]:
    """The concerns that most values share: a letter at nearly every value would not warn.

    A median that is far less precise than the others still has its letter.
    """
    known = [row for row in run.measurements if row.rate.value is not None]
    if {severity_of(concern.remark.code) for concern in alike} != {"precision"} or len(known) < _FEWEST_VALUES:
        return []
    far = _FAR * statistics.median(_half_width(concern.at) for concern in alike)
    usual = [concern for concern in alike if _half_width(concern.at) <= far]
    return usual if 2 * len(usual) > len(known) else []


def label(measurement: runs.Measurement, run: runs.Run) -> str:
    """A short name without the size: `h2d pinned`, `both pageable streams:2`, `torch.to`."""
    name = clean(measurement.route, longest=40)
    if measurement.block_bytes is not None:
        return f"{name} {measurement.direction}"
    if run.kind == "measure" or measurement.route_info is not None:
        return name if measurement.form is None else f"{name} ({measurement.form})"
    if measurement.worker is not None or run.kind == "frameworks":
        variant = " fresh" if measurement.variant == "fresh" else ""
        return f"{name}{variant} {measurement.direction} of {clean(measurement.worker or 'no worker', longest=40)}"
    return " ".join((measurement.direction, *label_words(measurement, run)))


def label_words(measurement: runs.Measurement, run: runs.Run) -> tuple[str, ...]:
    """The memory, then mode and variant if the run has several; `staged` is always named."""
    words = [clean(measurement.memory, longest=40)]
    place = measurement.memory, measurement.direction
    modes = {other.mode for other in run.measurements if (other.memory, other.direction) == place}
    if len(modes) > 1 or machines.STAGED in modes:
        words.append(clean(measurement.mode, longest=40))
    if measurement.variant == "fresh":
        words.append("fresh")
    return tuple(words)


def sizes_text(sizes: Sequence[int], known: Sequence[int], say: Callable[[int], str] = units.format_size) -> str:
    """`4 KiB to 256 KiB` if no known size between the ends is missing, else a list or the number of sizes."""
    wanted = sorted(set(sizes))
    first, last = wanted[0], wanted[-1]
    if len(wanted) >= _STRETCH and wanted == sorted({size for size in known if first <= size <= last}):
        return f"{say(first)} to {say(last)}"
    if len(wanted) <= _PLACES_SHOWN:
        return ", ".join(map(say, wanted))
    return f"{len(wanted)} sizes from {say(first)} to {say(last)}"


def _concerns(index: int, measurement: runs.Measurement, precision: float) -> list[_Concern]:
    if measurement.rate.value is None:
        reason = measurement.rate.reason or "no reason given"
        return [_Concern(measurement, index, f"missing {reason}", machines.Remark("missing", reason))]
    doubts = [remark for remark in measurement.remarks if severity_of(remark.code) != "info"]
    found = [_Concern(measurement, index, f"remark {remark.code}", remark) for remark in doubts]
    if measurement.verified.value is False:
        wrong = machines.Remark("contents", "the bytes that arrived are not the bytes that were sent", None)
        found.append(_Concern(measurement, index, "contents", wrong))
    half_width = _half_width(measurement)
    if not found and half_width > precision:
        wide = machines.Remark("wide", _precision_text([half_width], precision))
        found.append(_Concern(measurement, index, "remark unstable", wide))
    return found


def _is_wrong(code: str) -> bool:
    """Whether a rate itself is in doubt, and not only its precision or its share of the ceiling."""
    return code == "drift" or (severity_of(code) != "precision" and code != "share")


def _untraced(index: int, measurement: runs.Measurement) -> list[_Concern]:
    """Why the records of this row are missing, if others have them: records were lost, or the traced trial failed."""
    reason = measurement.dma.reason
    if measurement.rate.value is None or measurement.direction == "ingest" or reason is None or reason in NO_FAULT:
        return []
    return [_Concern(measurement, index, f"untraced {reason}", machines.Remark("untraced", reason))]


def _text(run: runs.Run, concerns: Sequence[_Concern], where: str) -> str:
    widths = [_half_width(concern.at) for concern in concerns]
    if len({concern.remark.text for concern in concerns}) == 1:
        return f"{where}: {remark_text(concerns[0].remark)}"
    if {concern.remark.code for concern in concerns} <= {"unstable", "wide"}:
        return f"{where}: {_precision_text(widths, run.parameters.precision)}"
    worst = concerns[widths.index(max(widths))]
    return f"{where}; at worst: {remark_text(worst.remark)}"


def _precision_text(half_widths: Sequence[float], target: float) -> str:
    ends = (min(half_widths), max(half_widths))
    texts = dict.fromkeys(units.format_percent(width) if width <= 1 else "more than 100 %" for width in ends)
    return f"precision {' to '.join(texts)}, target {units.format_percent(target)}"


def _where(run: runs.Run, concerns: Sequence[_Concern]) -> str:
    known = [measurement.nbytes for measurement in run.measurements]
    of_batches = [row for row in run.measurements if row.batch and row.block_bytes is None]
    batches = {row.nbytes: str(row.batch) for row in of_batches}
    sizes_of: dict[str, list[int]] = {}
    for concern in concerns:
        sizes_of.setdefault(label(concern.at, run), []).append(concern.at.nbytes)
    labels_at: dict[str, list[str]] = {}
    for name, sizes in sizes_of.items():
        text = sizes_text(sizes, known, lambda nbytes: batches.get(nbytes, units.format_size(nbytes)))
        labels_at.setdefault(f"{'batch ' * bool(batches)}{text}", []).append(name)
    everything = {label(measurement, run) for measurement in run.measurements}
    places = []
    for text, names in labels_at.items():
        some = first_of(names, _PLACES_SHOWN)
        places.append(f"{'all' if len(names) > 1 and set(names) == everything else some} at {text}")
    rest = sum(len(sizes_of[name]) for names in list(labels_at.values())[_PLACES_SHOWN:] for name in names)
    return "; ".join(places[:_PLACES_SHOWN]) + (f"; {counted(rest, 'more value')}" if rest else "")


def _half_width(measurement: runs.Measurement) -> float:
    return (measurement.summary.relative_half_width or 0.0) if measurement.summary is not None else 0.0
