"""Watch documents: saved whole or not at all, read with care, and exported flat.

`python -m pyxfer._document.watch_documents` prints the JSON Schema of a watch.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pyxfer._document import json_text, table
from pyxfer._document.files import Path, read_whole, write_whole
from pyxfer._document.runs import Fact, Remark
from pyxfer._document.watches import (
    NO_GPU_WATCHED,
    STEP_PARTS,
    WATCH_SCHEMA_VERSION,
    CopyClass,
    Parts,
    StepPartName,
    Watched,
)
from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_gbps, format_percent, format_seconds, format_size

Rows = tuple[tuple[str, ...], list[tuple[table.Cell, ...]]]

_NAME_A_FILE = "name a file, such as watch.json"
_STEP = re.compile(rb'\{\s*"number":[^{}]*\{[^{}]*\}[^{}]*\}')


# --- bytes and files -------------------------------------------------------------------------------------------------


def encode(watched: Watched) -> bytes:
    """The document as JSON that a person can read too, a step on a line of its own."""
    return json_text.on_one_line(json_text.to_json(watched), _STEP) + b"\n"


def decode(data: bytes, source: str = "this document") -> Watched:
    """The watch in these bytes; `DocumentError`, which names the source, says why there is none."""
    document = json_text.from_json(data, source, "watch", WATCH_SCHEMA_VERSION)
    if document.get("kind") != "watch":
        raise DocumentError(f"{source} is not a pyxfer watch but of another kind; pyxfer.Run.load reads a run")
    return json_text.converted(document, Watched, source, "watch")


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a saved watch, which `docs/watch.schema.json` holds."""
    return json_text.described(Watched, "pyxfer watch", "docs/watch.schema.json")


def save(watched: Watched, path: Path) -> None:
    """Write it to a file, whole or not at all; a file that was there stays as it was if anything fails."""
    if not os.fspath(path):
        raise UsageError(f"the path is empty; {_NAME_A_FILE}")
    write_whole(path, encode(watched))


def load(path: Path) -> Watched:
    """The watch in a file; `DocumentError` says why there is none."""
    if not os.fspath(path):
        raise DocumentError(f"the path is empty; {_NAME_A_FILE}")
    return decode(read_whole(path), repr(os.fspath(path)))


# --- flat exports ----------------------------------------------------------------------------------------------------

_PART_COLUMNS = tuple(f"{name.replace(' ', '_')}_s" for name in STEP_PARTS)
_CALLS = ("what", "call", "line", "range", "count", "seconds", "nbytes", "per_step")
_RANGES = ("name", "source", "count", "seconds", "share", "busy_s", "h2d_bytes", "d2h_bytes")
_COPIES = (
    *("way", "memory", "least_bytes", "below_bytes", "count", "nbytes", "timed_bytes", "seconds"),
    *("gbps", "ceiling_share", "hidden_share"),
)


_WORDS: dict[StepPartName, str] = {
    "kernels": "kernels and sets",
    "h2d": "copies to the device",
    "d2h": "copies to the host",
    "other copies": "other copies",
    "input": "input being made",
    "idle": "waiting, device idle",
    "host": "host, device idle",
}
# Without records nobody knows what the device did meanwhile.
_BY_THE_CLOCK: dict[StepPartName, str] = {**_WORDS, "input": "between steps", "host": "inside steps"}


def part_words(parts: Parts) -> Mapping[StepPartName, str]:
    """Each part as a reader sees it."""
    if parts.kernels_s is not None:
        return _WORDS
    return _BY_THE_CLOCK if parts.input_s is not None else {**_BY_THE_CLOCK, "host": "the program"}


def unseen_reason(watched: Watched) -> str:
    """Why there are no records; nothing where there are some, or where a remark says the same."""
    reason = watched.activity.reason or ""
    no_gpu = reason == NO_GPU_WATCHED
    said = any(remark.text == reason or (no_gpu and remark.code == "no-gpu") for remark in watched.remarks)
    return "" if said else reason


def slow_text(watched: Watched) -> str:
    """How many steps lie far beyond the others, and what they cost; nothing where none does."""
    steps, slow = watched.steps, watched.steps.slow
    if slow is None:
        return ""
    are, usual = ("is", "a usual one") if slow.count == 1 else ("are", "as many usual ones")
    text = (
        f"{slow.count} of {steps.watched} steps {are} slow: {format_seconds(slow.more_s)} more than {usual}, "
        f"{format_percent(slow.share)} of the time of all steps"
    )
    mostly = "" if slow.mostly is None else f", most of it {part_words(watched.parts)[slow.mostly]}"
    return f"{text}{mostly}; the longest took {format_seconds(slow.longest_s)}"


def rows(watched: Watched, name: str) -> Rows:
    """Names of the columns of a table, and its rows with unrounded values."""
    if name not in TABLES:
        raise UsageError(f"a watch has no table {name!r}; choose one of {', '.join(TABLES)}")
    return TABLES[name](watched)


def to_csv(watched: Watched, name: str = "steps") -> str:
    """One table, for a program or a spreadsheet."""
    return _as_unicode(table.to_csv(*rows(watched, name)))


def to_markdown(watched: Watched) -> str:
    """What a reader wants of it, as tables of a Markdown document."""
    environment, device = watched.environment, watched.device
    made = f"{environment.taken_at}, pyxfer {environment.pyxfer}"
    heading = f"## {table.escape_markdown(f'{device.name}, {made}')}\n"
    beside = [text for text in (slow_text(watched), unseen_reason(watched)) if text]
    said = [watched.verdict.text, *watched.verdict.evidence, *beside, *map(_remark, watched.remarks)]
    sections = [heading, "".join(f"- {table.escape_markdown(text)}\n" for text in said)]
    for name, header, readable in _readable(watched):
        if readable:
            sections.append(f"### {name}\n\n{table.to_markdown(header, readable)}")
    return _as_unicode("\n".join(sections))


def _steps(watched: Watched) -> Rows:
    header = ("number", "at_s", "thread", "period_s", *_PART_COLUMNS, "hidden_h2d_s", "hidden_d2h_s", "slow")
    each = watched.steps.each
    return header, [(step.number, step.at_s, step.thread, *_cells(step.parts), step.slow) for step in each]


def _cells(parts: Parts) -> tuple[table.Cell, ...]:
    known = dict(parts.named())
    return parts.period_s, *(known.get(name) for name in STEP_PARTS), parts.hidden_h2d_s, parts.hidden_d2h_s


def _copies(watched: Watched) -> Rows:
    activity = watched.activity.value
    return _COPIES, _table(activity.copies if activity is not None else (), _COPIES)


def _calls(watched: Watched) -> Rows:
    activity = watched.activity.value
    return _CALLS, _table(activity.surprises if activity is not None else (), _CALLS)


def _ranges(watched: Watched) -> Rows:
    return _RANGES, _table(watched.ranges, _RANGES)


TABLES: Mapping[str, Callable[[Watched], Rows]] = {
    "steps": _steps,
    "copies": _copies,
    "calls": _calls,
    "ranges": _ranges,
}


def _table(each: Sequence[msgspec.Struct], names: Sequence[str]) -> list[tuple[table.Cell, ...]]:
    return [tuple(_cell(getattr(row, name)) for name in names) for row in each]


def _cell(value: table.Cell | Fact[Any]) -> table.Cell:
    """A fact without its reason: an empty cell."""
    if isinstance(value, Fact):
        known: table.Cell = value.value
        return known
    return value


def _readable(watched: Watched) -> list[tuple[str, tuple[str, ...], list[tuple[table.Cell, ...]]]]:
    parts, activity = watched.parts, watched.activity.value
    shares: list[tuple[table.Cell, ...]] = [
        (part_words(parts)[name], format_seconds(seconds), format_percent(parts.share(name)))
        for name, seconds in parts.named()
    ]
    copies = [_readable_copies(row) for row in activity.copies] if activity is not None else []
    calls: list[tuple[table.Cell, ...]] = [
        (each.call, each.line.value or each.line.reason, each.range, each.count, format_seconds(each.seconds))
        for each in (activity.surprises if activity is not None else ())
    ]
    gains: list[tuple[table.Cell, ...]] = [
        (each.text, format_seconds(each.gain_s), format_percent(each.gain_share), each.worked_out)
        for each in watched.advice
    ]
    ranges: list[tuple[table.Cell, ...]] = [
        (each.name, each.count, format_seconds(each.seconds), format_percent(each.share)) for each in watched.ranges
    ]
    return [
        ("Parts of the period", ("part", "time", "share"), shares),
        ("Copies", ("way", "memory", "size", "count", "bytes", "bandwidth", "of ceiling", "hidden"), copies),
        ("Calls inside steps", ("call", "line", "range", "count", "time"), calls),
        ("Ranges", ("name", "count", "time", "of the window"), ranges),
        ("Next steps (predicted)", ("what", "gain a period", "share", "worked out"), gains),
    ]


def _readable_copies(row: CopyClass) -> tuple[table.Cell, ...]:
    shares = (None if share is None else format_percent(share) for share in (row.of_ceiling, row.hidden_share.value))
    bandwidth = None if row.gbps.value is None else format_gbps(row.gbps.value)
    return row.way, row.memory, size_text(row), row.count, sum_text(row.nbytes), bandwidth, *shares


def size_text(row: CopyClass) -> str:
    """The sizes that a class of copies holds."""
    if row.below_bytes is None:
        return f"from {format_size(row.least_bytes)}"
    if row.least_bytes == 0:
        return f"below {format_size(row.below_bytes)}"
    least, below = format_size(row.least_bytes), format_size(row.below_bytes)
    return f"{least.split()[0] if least.split()[1] == below.split()[1] else least} to {below}"


def sum_text(nbytes: int) -> str:
    """Three digits in decimal units: a sum of sizes is a round number of nothing."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        text = f"{nbytes / factor:.3g}"
        if float(text) >= 1:
            return f"{text} {unit}"
    return f"{nbytes} B"


def _as_unicode(text: str) -> str:
    """Names in a foreign encoding as the JSON has them; no file could hold them otherwise."""
    return text.encode(errors="backslashreplace").decode()


def _remark(remark: Remark) -> str:
    return f"{remark.text} ({remark.fix})" if remark.fix else remark.text


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
