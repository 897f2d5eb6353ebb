"""What was recorded while a tracer ran: one table of records, the names they point to, and what was lost.

The columns are those of `csrc/trace/record.hpp`; times are nanoseconds on the clock of `time.perf_counter_ns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Kind(IntEnum):
    """What a record is of."""

    COPY = 1
    SET = 2
    KERNEL = 3
    CALL = 4
    ALLOCATION = 5
    MARK = 6
    OVERHEAD = 7


class CopyWay(IntEnum):
    """Between which sides a copy went."""

    OTHER = 0
    H2D = 1
    D2H = 2
    D2D = 3
    H2H = 4
    P2P = 5


class MemoryKind(IntEnum):
    """The memory on one side of a copy, or of an allocation."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


class Flag(IntEnum):
    """Bits of the column `flags`."""

    ASYNCHRONOUS = 1
    """Of a copy: the caller did not ask to wait for it."""
    RUNTIME = 2
    """Of a call: one of the runtime's (cuda...); without it the driver's (cu...)."""
    FREED = 4
    """Of an allocation: memory was given back."""
    BEGIN = 8
    """Of a mark: a range begins. Its end has the same `correlation`."""
    END = 16


RECORD = np.dtype(
    [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("nbytes", np.uint64),
        ("correlation", np.uint32),
        ("stream", np.uint32),
        ("context", np.uint32),
        ("device", np.uint32),
        ("thread", np.uint32),
        ("name", np.uint32),
        ("copies", np.uint32),
        ("result", np.int32),
        ("kind", np.uint8),
        ("way", np.uint8),
        ("source", np.uint8),
        ("target", np.uint8),
        ("flags", np.uint32),
    ]
)
"""One record. `start_ns` and `end_ns` are 0 where the device gave no time. `correlation` joins what the device did with
the call that asked for it. `thread` is the calling thread's native id. `copies` counts the copies of a batch."""


@dataclass(frozen=True)
class Clock:
    """How well the records' times fit the host's clock."""

    error_ns: int
    """The two clocks were compared to within so many nanoseconds."""
    drift_ns: int
    """So far did they move against each other from the first comparison to the last; records between are corrected."""


@dataclass(frozen=True)
class Capture:
    """Everything that one window recorded."""

    records: NDArray[Any]
    names: tuple[str, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Records that found no room, by the word of their kind, and `unknown` for those that the library dropped."""
    clock: Clock = field(default_factory=lambda: Clock(0, 0))

    def of(self, kind: Kind) -> NDArray[Any]:
        """The records of a kind, in the order of their beginning."""
        chosen: NDArray[Any] = self.records[self.records["kind"] == kind]
        order = np.argsort(chosen["start_ns"], kind="stable")
        return chosen.take(order)

    def name(self, record: Any) -> str:
        """What a call, a kernel or a mark is called; empty where it has no name."""
        return self.names[int(record["name"])]


def no_records() -> NDArray[Any]:
    """An empty table."""
    return np.empty(0, RECORD)
