"""The records of a window sorted out: what one device did, the calls that asked for it, and the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.tracing.intervals import intervals
from pyxfer.tracing.records import Capture, CopyWay, Kind, MemoryKind
from pyxfer.watching import calls as call_kinds
from pyxfer.watching.cover import Cover

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.watching.window import Window


@dataclass(frozen=True)
class Periods:
    """The steps that count, as columns; without any, the whole window as the one period."""

    from_ns: NDArray[np.int64]
    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    stepped: bool

    def __len__(self) -> int:
        return len(self.from_ns)

    @property
    def begun(self) -> bool:
        """Whether the beginnings of steps are known. Of an optimizer's only the ends are, and each begins at one."""
        return self.stepped and bool((self.begin_ns > self.from_ns).any())

    @property
    def inside(self) -> NDArray[np.int64]:
        """The stretches of the steps themselves, or of the window."""
        return np.column_stack((self.begin_ns, self.end_ns))

    def of(self, chosen: NDArray[np.bool_]) -> Periods:
        """Some of them."""
        return Periods(
            self.from_ns[chosen], self.begin_ns[chosen], self.end_ns[chosen], self.thread[chosen], self.stepped
        )


@dataclass(frozen=True)
class Gathered:
    """The records of the watched device, each kind in the order of its beginning."""

    names: Sequence[str]
    copies: NDArray[Any]
    kernels: NDArray[Any]
    sets: NDArray[Any]
    calls: NDArray[Any]
    """Outermost ones, of all devices."""
    issued: NDArray[np.int64]
    """For each copy the place of its call, or -1."""
    allocations: NDArray[Any]
    others: int
    """Copies, sets and kernels of other devices."""

    def copies_of(self, way: int, memory: MemoryKind | None = None) -> NDArray[np.bool_]:
        """Which copies go this way, from or to this kind of host memory."""
        chosen: NDArray[np.bool_] = self.copies["way"] == way
        return chosen if memory is None else chosen & (self.host_memory == memory)

    @cached_property
    def host_memory(self) -> NDArray[np.uint8]:
        """The memory on each copy's host side; of a copy without one, that of its source."""
        to_host = self.copies["way"] == CopyWay.D2H
        memory: NDArray[np.uint8] = np.where(to_host, self.copies["target"], self.copies["source"])
        return memory

    @cached_property
    def computing(self) -> NDArray[np.int64]:
        """The stretches of kernels and of memory being set."""
        return np.concatenate((intervals(self.kernels), intervals(self.sets)))

    @cached_property
    def busy(self) -> Cover:
        """Where the device does anything."""
        return Cover(self.computing, intervals(self.copies))


def gather(window: Window, capture: Capture) -> Gathered:
    """Sort the records out; those of other devices are counted and left."""
    device = {kind: capture.of(kind) for kind in (Kind.COPY, Kind.KERNEL, Kind.SET)}
    own = {kind: records[records["device"] == window.device] for kind, records in device.items()}
    calls = call_kinds.outermost(capture.of(Kind.CALL))
    return Gathered(
        names=capture.names,
        copies=own[Kind.COPY],
        kernels=own[Kind.KERNEL],
        sets=own[Kind.SET],
        calls=calls,
        issued=call_kinds.issuing(calls, own[Kind.COPY]),
        allocations=capture.of(Kind.ALLOCATION),
        others=sum(len(device[kind]) - len(own[kind]) for kind in device),
    )


def periods_of(window: Window) -> Periods:
    """The steps that were closed and did not fail."""
    steps = [step for step in window.steps if step.closed and step.failed is None]
    if not steps:
        whole = np.array([window.begin_ns], np.int64)
        end = np.array([max(window.begin_ns, window.end_ns)], np.int64)
        return Periods(whole, whole, end, np.zeros(1, np.int64), stepped=False)
    columns = np.array([(step.from_ns, step.begin_ns, step.end_ns, step.thread) for step in steps], np.int64).T
    begin = np.maximum(columns[1], columns[0])
    return Periods(columns[0], begin, np.maximum(columns[2], begin), columns[3], stepped=True)


def in_periods(gathered: Gathered, periods: Periods) -> NDArray[np.bool_]:
    """Which copies belong to the periods: those half of whose time, or else whose call, lies in one of them."""
    copies, calls = gathered.copies, gathered.calls
    at_ns = (copies["start_ns"] + copies["end_ns"]) // 2
    untimed = copies["end_ns"] <= copies["start_ns"]
    asked = untimed & (gathered.issued >= 0)
    at_ns[asked] = calls["start_ns"][gathered.issued[asked]]
    return Cover(np.column_stack((periods.from_ns, periods.end_ns))).holds(at_ns)


def issued_by(gathered: Gathered, way: int, memory: MemoryKind) -> NDArray[np.bool_]:
    """The calls that asked for copies of this way and memory."""
    found = np.zeros(len(gathered.calls), np.bool_)
    places = gathered.issued[gathered.copies_of(way, memory)]
    found[places[places >= 0]] = True
    return found
