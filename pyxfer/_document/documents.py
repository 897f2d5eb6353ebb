"""Run documents: saved whole or not at all, read with care, and exported flat.

What a document says is data. Nothing in it is run, opened or formatted as anything but text.
`python -m pyxfer._document.documents` prints the JSON Schema of a run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyxfer._document import table
from pyxfer._document.files import Path, check_writable, read_whole, write_whole
from pyxfer._document.json_text import KINDS, converted, described, from_json, on_one_line, to_json
from pyxfer._document.runs import SCHEMA_VERSION, Link, Measurement, Remark, Run, Worker
from pyxfer.errors import DocumentError
from pyxfer.units import format_gbps, format_percent, format_seconds, format_size

__all__ = [
    "Path",
    "check_writable",
    "decode",
    "encode",
    "from_document",
    "load",
    "on_fewer_lines",
    "rows",
    "save",
    "schema",
    "to_csv",
    "to_markdown",
    "upgrade",
]


Document = dict[str, Any]
Step = Callable[[Document], Document]

# Version 2 added frameworks: workers, the nature of a route, page faults. Version 3 added what the device has recorded.
# All of it may be absent.
UPGRADES: Mapping[int, Step] = MappingProxyType({1: dict, 2: dict})
"""What makes a document of version n one of version n + 1."""
_TRIAL_OR_PART = re.compile(rb'\{\s*("round":|"name": "[a-z ]*",\s*"seconds":)[^{}]*\}')


# --- bytes -----------------------------------------------------------------------------------------------------------


def encode(run: Run) -> bytes:
    """The document as JSON that a person can read too."""
    return on_fewer_lines(to_json(run)) + b"\n"


def on_fewer_lines(data: bytes) -> bytes:
    """JSON with each trial, and each part, on a line of its own."""
    return on_one_line(data, _TRIAL_OR_PART)


def decode(data: bytes, source: str = "this document") -> Run:
    """The run in these bytes; `DocumentError`, which names the source, says why there is none."""
    return from_document(from_json(data, source, "run", SCHEMA_VERSION), source)


def from_document(document: Document, source: str = "this document") -> Run:
    """The run that parsed JSON holds, its version checked; `DocumentError` says why there is none."""
    kind = document.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        raise DocumentError(f"{source} is {KINDS[kind]}, and not a run; name a file that holds one")
    run = converted(upgrade(document), Run, source, "run")
    _check_explained(run, source)
    return run


def _check_explained(run: Run, source: str) -> None:
    """Refuse a run that is about a route which it does not have, unless it has ended before it had any."""
    name = run.parameters.explained
    ended_early = run.ended != "complete" and not run.measurements
    if run.kind == "explain" and not ended_early and all(row.route != name for row in run.measurements):
        raise DocumentError(f"{source} explains {name!r} and holds no measurement of it; explain it again")


def upgrade(document: Document, steps: Mapping[int, Step] = UPGRADES, newest: int = SCHEMA_VERSION) -> Document:
    """An older document, step by step, as one of the newest version."""
    for version in range(document["schema_version"], newest):
        document = {**steps[version](document), "schema_version": version + 1}
    return document


def schema() -> Document:
    """The JSON Schema (2020-12) of a saved run, which `docs/run.schema.json` holds."""
    return described(Run, "pyxfer run", "docs/run.schema.json")


# --- files -----------------------------------------------------------------------------------------------------------


def save(run: Run, path: Path) -> None:
    """Write the run to a file, whole or not at all; a file that was there stays as it was if anything fails."""
    write_whole(path, encode(run))


def load(path: Path) -> Run:
    """The run in a file; `DocumentError` says why there is none."""
    return decode(read_whole(path), repr(os.fspath(path)))


# --- flat exports ----------------------------------------------------------------------------------------------------

_HEADER = (
    *("route", "direction", "side", "memory", "mode", "variant", "nbytes"),
    *("gbps", "low_gbps", "high_gbps", "of_ceiling", "of_peak"),
    *("median_s", "low_s", "high_s", "iqr_s", "mad_s", "min_s", "n"),
    *("dispatch_s", "wall_s", "first_s", "verified", "missing", "remarks"),
    *("worker", "framework", "call", "host_copies", "dma", "returns", "batch", "overhead_s", "faults"),
    *("dma_s", "dma_bytes", "dma_copies", "dma_source", "dma_gbps", "dma_missing"),
)
_READABLE_HEADER = (
    *("route", "direction", "side", "memory", "mode", "variant", "size"),
    *("bandwidth", "95 % interval", "of ceiling", "of peak", "notes"),
)
_READABLE_HEADER_OF_FRAMEWORKS = (
    *("worker", "framework", "call", "host copies", "dma", "returns", "batch", "overhead", "faults"),
)


def rows(run: Run) -> tuple[tuple[str, ...], list[tuple[table.Cell, ...]]]:
    """Names of the columns, and one row of unrounded values a measurement."""
    return _HEADER, [_row(measurement) for measurement in run.measurements]


def to_csv(run: Run) -> str:
    """Every measurement with all its figures, for a program or a spreadsheet."""
    return table.to_csv(*rows(run))


def to_markdown(run: Run) -> str:
    """Every measurement with its headline figures, for a reader."""
    made = f"{run.environment.taken_at}, pyxfer {run.environment.pyxfer}"
    heading = f"## {table.escape_markdown(f'{run.device.name}, {_link_words(run.link)}, {made}')}\n"
    notes = "".join(f"- {table.escape_markdown(note)}\n" for note in _notes(run))
    readable = [_readable_row(measurement) for measurement in run.measurements]
    header: tuple[str, ...] = _READABLE_HEADER
    if run.kind == "frameworks" or run.workers:
        header = (*header, *_READABLE_HEADER_OF_FRAMEWORKS)
        readable = [
            (*row, *_framework_cells(m, format_seconds)) for row, m in zip(readable, run.measurements, strict=True)
        ]
    return "\n".join(filter(None, (heading, notes, table.to_markdown(header, readable), _parts_markdown(run))))


def _parts_markdown(run: Run) -> str:
    """Where the time of an explained route goes, or why that is not known; nothing of any other run."""
    row = next((m for m in run.measurements if m.route == run.parameters.explained and m.variant == "warm"), None)
    if run.kind != "explain" or row is None:
        return ""
    heading = f"### Where the time of {table.escape_markdown(row.route)} goes\n\n"
    breakdown = row.breakdown.value
    if row.verified.value is False:
        return f"{heading}Its contents were wrong, so none of its time says anything.\n"
    if breakdown is None:
        return f"{heading}Not known: {table.escape_markdown(row.breakdown.reason or 'no reason given')}\n"
    timed = "" if row.elapsed_s is None else f"; only timed, it takes {format_seconds(row.elapsed_s)}"
    whole_s = breakdown.elapsed_s
    lines = [*((part.name, part.seconds) for part in breakdown.parts), ("one traced transfer", whole_s)]
    cells = [(name, format_seconds(seconds), format_percent(seconds / (whole_s or 1.0))) for name, seconds in lines]
    return f"{heading}One traced transfer{timed}.\n\n{table.to_markdown(('part', 'time', 'of it'), cells)}"


def _labels(measurement: Measurement) -> tuple[str, ...]:
    m = measurement
    return m.route, m.direction, m.side, m.memory, m.mode, m.variant


def _row(measurement: Measurement) -> tuple[table.Cell, ...]:
    m, rate, summary = measurement, measurement.rate.value, measurement.summary
    rates = (rate.gbps, rate.low_gbps, rate.high_gbps) if rate else (None,) * 3
    times = (
        (summary.median_s, summary.low_s, summary.high_s, summary.iqr_s, summary.mad_s, summary.min_s, summary.n)
        if summary
        else (None,) * 7
    )
    costs = (m.dispatch_s, m.wall_s, m.first_s.value)
    remarks = "; ".join(_remark(remark) for remark in m.remarks)
    shares = (m.of_ceiling, m.of_peak)
    said = (m.verified.value, m.rate.reason, remarks)
    return *_labels(m), m.nbytes, *rates, *shares, *times, *costs, *said, *_framework_cells(m, float), *_dma_cells(m)


def _framework_cells(measurement: Measurement, say: Callable[[float], table.Cell]) -> tuple[table.Cell, ...]:
    """What only rows of a framework have; a raw row in a framework's worker has that worker's name."""
    m, nature = measurement, measurement.nature
    natures: tuple[table.Cell, ...] = (None,) * 5
    overhead = None
    if nature is not None:
        natures = (nature.framework, nature.call, nature.host_copies, nature.dma, nature.returns)
        overhead = None if m.overhead_s is None else say(m.overhead_s)
    return m.worker, *natures, m.batch, overhead, m.faults


def _dma_cells(measurement: Measurement) -> tuple[table.Cell, ...]:
    """What the device's records say."""
    dma = measurement.dma.value
    if dma is None:
        return (None,) * 5 + (measurement.dma.reason,)
    return dma.seconds.value, dma.nbytes, dma.copies, dma.source, dma.gbps, dma.seconds.reason


def _readable_row(measurement: Measurement) -> tuple[table.Cell, ...]:
    m, rate = measurement, measurement.rate.value
    interval = None
    if rate and rate.low_gbps is not None and rate.high_gbps is not None:
        interval = f"{format_gbps(rate.low_gbps).removesuffix(' GB/s')} to {format_gbps(rate.high_gbps)}"
    shares = (None if share is None else format_percent(share) for share in (m.of_ceiling, m.of_peak))
    notes = "; ".join([*([m.rate.reason] if m.rate.reason else []), *map(_remark, m.remarks)])
    bandwidth = format_gbps(rate.gbps) if rate else None
    return *_labels(m), format_size(m.nbytes), bandwidth, interval, *shares, notes


def _remark(remark: Remark) -> str:
    return f"{remark.text} ({remark.fix})" if remark.fix else remark.text


def _notes(run: Run) -> list[str]:
    """What must be known of the run as a whole before its figures are read."""
    ended = {
        "complete": [],
        "interrupted": ["This run was interrupted before its end."],
        "failed": ["This run has failed before its end."],
    }[run.ended]
    failure = [run.failure] if run.failure else []
    host = [run.runtime_reason] if run.runtime == "host" else []
    workers = [_worker_note(worker) for worker in run.workers if worker.ended != "complete"]
    return [*ended, *failure, *host, *workers, *map(_remark, (*run.link.remarks, *run.remarks))]


def _worker_note(worker: Worker) -> str:
    ended = "was not available" if worker.ended == "unavailable" else f"ended as {worker.ended}"
    return f"The worker {worker.name} {ended}: {worker.reason or 'no reason given'}"


def _link_words(link: Link) -> str:
    if link.kind == "none":
        return "no link"
    name = {"pcie": "PCIe", "c2c": "NVLink-C2C", "nvlink": "NVLink", "unknown": "link unknown"}[link.kind]
    state = link.under_load.value or link.now.value
    return f"{name} {state.generation}.0 x{state.width}" if state and link.kind == "pcie" else name


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
