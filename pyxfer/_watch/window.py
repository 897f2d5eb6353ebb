"""The data of one watch window: steps, ranges, sampled lines and the device's records; saving and loading it.

Times are nanoseconds on the clock of `time.perf_counter_ns`, as in the records. Threads are native ids.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from pyxfer._document.codec import to_bare_json
from pyxfer._document.machines import Fact, Remark
from pyxfer._document.runs import Tracing
from pyxfer._document.watches import StepFinder
from pyxfer._trace.records import RECORD, Capture
from pyxfer._watch.marks import Range, Seen
from pyxfer._watch.step_tracking import Step
from pyxfer.errors import DocumentError
from pyxfer.units import format_seconds

# The kind of the records that CUPTI itself has lost. They do not mean that pyxfer's capacity was used up.
LOST = "unknown"
_TO_S = 1e-9
_PARTIAL = ".part"

# complete: all requested steps or seconds were watched; ended: the program or its block ended before that.
WindowEnding = Literal["complete", "ended", "failed"]


@dataclass(frozen=True)
class Window:
    """Everything that was recorded between two times, before any analysis."""

    begin_ns: int
    end_ns: int
    ended: WindowEnding
    capture: Fact[Capture]
    """The device's records, or why there are none."""
    tracing: Fact[Tracing]
    device: int = 0
    steps: tuple[Step, ...] = ()
    skipped: int = 0
    finder: StepFinder | None = None
    """How the steps were found. None if the program marks them, or without any."""
    functions: tuple[str, ...] = ()
    framework: str = ""
    """The framework in use, a key of `framework_calls.CALLS`; empty if it is not known."""
    ranges: tuple[Range, ...] = ()
    seen: tuple[Seen, ...] = ()
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """The file and the number of the lines that were seen."""
    threads: Mapping[int, str] = field(default_factory=dict)
    """Thread names by native id."""
    used_before: Fact[int] = field(default_factory=lambda: Fact(reason="it was not read"))
    """Bytes of device memory in use, by all processes."""
    used_after: Fact[int] = field(default_factory=lambda: Fact(reason="it was not read"))
    remarks: tuple[Remark, ...] = ()


def within_capacity(window: Window) -> Window:
    """Cut the window at its last record if later records were dropped because the capacity was used up.

    Without the cut the device would seem idle after that record.
    """
    capture = window.capture.value
    if capture is None or not len(capture.records):
        return window
    dropped = sum(count for kind, count in capture.dropped.items() if kind != LOST)
    last_ns = max(int(capture.records["end_ns"].max()), int(capture.records["start_ns"].max()))
    if not dropped or not window.begin_ns < last_ns < window.end_ns:
        return window
    covered, whole = (format_seconds((end_ns - window.begin_ns) * _TO_S) for end_ns in (last_ns, window.end_ns))
    text = (
        f"the capacity for records was used up after {covered}; the rest of the {whole}, with {dropped} more records, "
        "is not in this report"
    )
    remark = Remark("capacity", text, "watch fewer steps or a shorter time, or give a larger capacity")
    ranges = [named._replace(end_ns=min(named.end_ns, last_ns)) for named in window.ranges if named.begin_ns < last_ns]
    return replace(
        window,
        end_ns=last_ns,
        steps=tuple(step for step in window.steps if step.end_ns <= last_ns),
        ranges=tuple(ranges),
        seen=tuple(sample for sample in window.seen if sample.at_ns <= last_ns),
        remarks=(*window.remarks, remark),
    )


def save_window(window: Window, path: Path) -> None:
    """Write the window to a file, whole or not at all. Records are written as they are in memory.

    Names that are not valid Unicode, such as those of files in another encoding, are escaped as in documents.
    """
    capture, records = window.capture.value, np.empty(0, RECORD)
    nothing: Any = ()
    if capture is not None:
        records = capture.records
        window = replace(window, capture=Fact(replace(capture, records=nothing)))
    partial = path.with_name(path.name + _PARTIAL)
    with partial.open("wb") as file:
        np.save(file, records, allow_pickle=False)
        file.write(to_bare_json(window))
    os.replace(partial, path)


def load_window(path: Path) -> Window:
    try:
        with path.open("rb") as file:
            records = np.load(file, allow_pickle=False)
            return msgspec.json.decode(file.read(), type=Window, dec_hook=lambda *_: records)
    except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
        raise DocumentError(f"the window that the script's process has written cannot be read: {error}") from error
