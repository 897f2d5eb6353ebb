"""What a watch has gathered: steps, ranges, the device's records, and what else happened meanwhile.

Times are nanoseconds on the clock of `time.perf_counter_ns`, as in the records; threads are native ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyxfer.model import Fact, Remark, Tracing
from pyxfer.tracing.records import Capture

# complete: all steps, or all the time, that was asked for; ended: the program or its block came to an end before.
WindowEnding = Literal["complete", "ended", "failed"]


@dataclass(frozen=True)
class Step:
    """One step of the program. What lies between the step before and this one is its input."""

    from_ns: int
    """Where the step before ended, or the watch began."""
    begin_ns: int
    end_ns: int
    thread: int
    failed: str | None = None
    """What was raised in it."""
    closed: bool = True
    """False where the window ended before the step did."""


@dataclass(frozen=True)
class Range:
    """A stretch that the user has named."""

    name: str
    begin_ns: int
    end_ns: int
    thread: int


@dataclass(frozen=True)
class Seen:
    """Where in its Python source a thread was at a moment."""

    at_ns: int
    thread: int
    line: str
    """As `train.py:31 in step`: the innermost line that is the user's own."""


@dataclass(frozen=True)
class Window:
    """All of it; nothing in here is worked out yet."""

    begin_ns: int
    end_ns: int
    ended: WindowEnding
    capture: Fact[Capture]
    """The records of the device, or why there are none."""
    tracing: Fact[Tracing]
    device: int = 0
    steps: tuple[Step, ...] = ()
    skipped: int = 0
    """Steps that were left out before."""
    ranges: tuple[Range, ...] = ()
    seen: tuple[Seen, ...] = ()
    threads: Mapping[int, str] = field(default_factory=dict)
    """Their names, by native id."""
    used_before: Fact[int] = field(default_factory=lambda: Fact(reason="it was not read"))
    """Bytes of the device's memory in use, everybody's."""
    used_after: Fact[int] = field(default_factory=lambda: Fact(reason="it was not read"))
    remarks: tuple[Remark, ...] = ()
