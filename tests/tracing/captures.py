"""Records written by hand. Their times are microseconds after the beginning of a trial."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyxfer._trace.collector import Traced, Usage
from pyxfer._trace.records import RECORD, Capture, Clock, CopyKind, Kind, MemoryKind, no_records

# The clock of a machine that has been up for a day.
BEGIN_NS = 86_400_000_000_000
MIB = 1 << 20


def record(kind: Kind, start_us: float | None, end_us: float | None, **columns: Any) -> Any:
    """One record. None for its times is a record that the device gave no time for."""
    made = np.zeros(1, RECORD)
    made["kind"] = kind
    if start_us is not None and end_us is not None:
        made["start_ns"] = BEGIN_NS + round(start_us * 1000)
        made["end_ns"] = BEGIN_NS + round(end_us * 1000)
    for name, value in columns.items():
        made[name] = value
    return made


def copy(
    start_us: float | None,
    end_us: float | None,
    nbytes: int = MIB,
    kind: CopyKind = CopyKind.H2D,
    memory: MemoryKind = MemoryKind.PAGEABLE,
    **columns: Any,
) -> Any:
    """A copy; `memory` is that of the host."""
    sides = (memory, MemoryKind.DEVICE) if kind is CopyKind.H2D else (MemoryKind.DEVICE, memory)
    return record(
        Kind.COPY, start_us, end_us, nbytes=nbytes, way=kind, source=sides[0], target=sides[1], copies=1, **columns
    )


def call(start_us: float, end_us: float, correlation: int) -> Any:
    """A call of the runtime or the driver."""
    return record(Kind.CALL, start_us, end_us, correlation=correlation)


def kernel(start_us: float, end_us: float) -> Any:
    """A kernel."""
    return record(Kind.KERNEL, start_us, end_us)


def capture(*records: Any, dropped: dict[str, int] | None = None, error_ns: int = 0, drift_ns: int = 0) -> Capture:
    """A capture of these records."""
    return Capture(np.concatenate([no_records(), *records]), ("",), dropped or {}, Clock(error_ns, drift_ns))


def traced(
    *records: Any,
    elapsed_us: float = 1000.0,
    returned_us: float | None = None,
    kind: CopyKind | None = CopyKind.H2D,
    copies: int = 1,
    **options: Any,
) -> Traced:
    """A trial that began at 0 us. By default its call returned at its end."""
    returned_us = elapsed_us if returned_us is None else returned_us
    return Traced(
        kind=kind,
        begin_ns=BEGIN_NS,
        returned_ns=BEGIN_NS + round(returned_us * 1000),
        elapsed_s=elapsed_us * 1e-6,
        dispatch_s=returned_us * 1e-6,
        wall_s=elapsed_us * 1e-6,
        copies=copies,
        usage=Usage(120, 4, 2),
        capture=capture(*records, **options),
    )
