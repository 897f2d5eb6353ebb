"""The records of a window sorted out: what one device did, the calls that asked for it, and the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._trace.records import Capture, CopyWay, Flag, Kind, MemoryKind, intervals, total_ns, union

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._watch.window import Window


_COPIES = ("cudaMemcpy", "cuMemcpy")
# These return before the copy is done, or copy what does not concern the host.
_UNWAITED = ("Async", "Batch", "Peer", "DtoD")
_MEMORY = (
    *("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister"),
    *("cuMemCreate", "cuMemRelease"),
)


def is_wait(name: str) -> bool:
    """Whether it returns when the device has done something."""
    return "Synchronize" in name


def is_blocking_copy(name: str) -> bool:
    """Whether it copies, and returns when that is done."""
    return name.startswith(_COPIES) and not any(word in name for word in _UNWAITED)


def is_allocation(name: str) -> bool:
    """Whether it asks the driver for memory or gives it back, which a pool's calls (...Async) rarely do."""
    return name.startswith(_MEMORY) and "Async" not in name


def named(calls: NDArray[Any], names: Sequence[str], test: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Which of these calls bear a name of that kind; every name is looked at once."""
    passed = np.fromiter((test(name) for name in names), np.bool_, len(names))
    chosen: NDArray[np.bool_] = passed[calls["name"]]
    return chosen


def outermost(calls: NDArray[Any]) -> NDArray[Any]:
    """One of each call, in the order of their beginning."""
    return calls.take(outermost_places(calls))


def outermost_places(calls: NDArray[Any]) -> NDArray[np.intp]:
    """Where a runtime call makes driver calls, they share its number, and it alone counts."""
    inner = (calls["flags"] & Flag.RUNTIME) == 0
    order = np.lexsort((calls["start_ns"], inner, calls["correlation"]))
    numbers = calls["correlation"][order]
    first = np.concatenate(([True], numbers[1:] != numbers[:-1])) if len(order) else np.empty(0, np.bool_)
    kept = np.sort(order[first | (numbers == 0)])
    return kept[np.argsort(calls["start_ns"][kept], kind="stable")]


def issuing(calls: NDArray[Any], of: NDArray[Any]) -> NDArray[np.int64]:
    """For each of the device's records the place of the call that asked for it, -1 where it was not recorded."""
    if not len(calls):
        return np.full(len(of), -1, np.int64)
    order = np.argsort(calls["correlation"], kind="stable")
    numbers = calls["correlation"][order]
    place = np.minimum(np.searchsorted(numbers, of["correlation"]), len(order) - 1)
    found = (numbers[place] == of["correlation"]) & (of["correlation"] != 0)
    return np.where(found, order[place], -1).astype(np.int64)


class Cover:
    """Stretches, united, with their running total."""

    def __init__(self, *each: NDArray[np.int64]) -> None:
        self.united = union(*each)
        lengths = self.united[:, 1] - self.united[:, 0]
        self._before = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self._ends = np.concatenate(([0], self.united[:, 1]))

    @property
    def total_ns(self) -> int:
        """All that it covers."""
        return total_ns(self.united)

    def until(self, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it covers before each of these times."""
        begun = np.searchsorted(self.united[:, 0], at_ns, side="right")
        beyond = np.maximum(self._ends[begun] - at_ns, 0)
        return self._before[begun] - np.where(begun > 0, beyond, 0)

    def within(self, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it covers between each two of these times."""
        return self.until(end_ns) - self.until(begin_ns)

    def holds(self, at_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these times lies in one of its stretches, ends included."""
        begun = np.searchsorted(self.united[:, 0], at_ns, side="right")
        return (begun > 0) & (self._ends[begun] >= at_ns)


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
    calls = outermost(capture.of(Kind.CALL))
    return Gathered(
        names=capture.names,
        copies=own[Kind.COPY],
        kernels=own[Kind.KERNEL],
        sets=own[Kind.SET],
        calls=calls,
        issued=issuing(calls, own[Kind.COPY]),
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
