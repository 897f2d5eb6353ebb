"""The records of a window as tables: the work of one device, the calls that requested it, and the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.watches import MAX_STRETCHES, Parts
from pyxfer._trace.records import Capture, CopyKind, Flag, Kind, MemoryKind, intervals, union
from pyxfer._watch.window import Window

_COPIES = ("cudaMemcpy", "cuMemcpy")
# These return before the copy is done, or their copy does not involve the host.
_UNWAITED = ("Async", "Batch", "Peer", "DtoD")
_MEMORY = (
    *("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister"),
    *("cuMemCreate", "cuMemRelease"),
)


def is_wait(name: str) -> bool:
    return "Synchronize" in name


def is_blocking_copy(name: str) -> bool:
    return name.startswith(_COPIES) and not any(word in name for word in _UNWAITED)


def is_allocation(name: str) -> bool:
    """Whether the call requests memory from the driver or returns it. Calls of a memory pool (...Async) rarely do."""
    return name.startswith(_MEMORY) and "Async" not in name


def outermost_indices(calls: NDArray[Any]) -> NDArray[np.intp]:
    """In the order of their beginning. Driver calls inside a runtime call have its correlation number."""
    inner = (calls["flags"] & Flag.RUNTIME) == 0
    order = np.lexsort((calls["start_ns"], inner, calls["correlation"]))
    numbers = calls["correlation"][order]
    first = np.concatenate(([True], numbers[1:] != numbers[:-1])) if len(order) else np.empty(0, np.bool_)
    kept: NDArray[np.intp] = np.sort(order[first | (numbers == 0)])
    return kept[np.argsort(calls["start_ns"][kept], kind="stable")]


def issuing(calls: NDArray[Any], of: NDArray[Any]) -> NDArray[np.int64]:
    """For each of the device's records the index of the call that requested it, -1 if that was not recorded."""
    if not len(calls):
        return np.full(len(of), -1, np.int64)
    order = np.argsort(calls["correlation"], kind="stable")
    numbers = calls["correlation"][order]
    place = np.minimum(np.searchsorted(numbers, of["correlation"]), len(order) - 1)
    found = (numbers[place] == of["correlation"]) & (of["correlation"] != 0)
    return np.where(found, order[place], -1).astype(np.int64)


def stream_keys(records: NDArray[Any]) -> NDArray[np.uint64]:
    device, context, stream = (records[name].astype(np.uint64) for name in ("device", "context", "stream"))
    keys: NDArray[np.uint64] = device << np.uint64(48) | context << np.uint64(32) | stream
    return keys


def split_stream_key(key: int) -> tuple[int, int, int]:
    return key >> 48, key >> 32 & 0xFFFF, key & 0xFFFFFFFF


class Cover:
    def __init__(self, *parts: NDArray[np.int64]) -> None:
        self.united = union(*parts)
        lengths = self.united[:, 1] - self.united[:, 0]
        self._before = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self._ends = np.concatenate(([0], self.united[:, 1]))

    def until(self, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The covered time before each of these times."""
        begun = np.searchsorted(self.united[:, 0], at_ns, side="right")
        beyond = np.maximum(self._ends[begun] - at_ns, 0)
        return self._before[begun] - np.where(begun > 0, beyond, 0)

    def within(self, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.until(end_ns) - self.until(begin_ns)

    def added_by(
        self, spans: NDArray[np.int64], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The time between each pair of times that `spans` cover and this does not."""
        return Cover(self.united, spans).within(begin_ns, end_ns) - self.within(begin_ns, end_ns)

    def holds(self, at_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these times is covered. The ends of intervals count as covered."""
        begun = np.searchsorted(self.united[:, 0], at_ns, side="right")
        return (begun > 0) & (self._ends[begun] >= at_ns)


@dataclass(frozen=True)
class Stretches:
    begin_ns: int
    end_ns: int

    def number(self, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """In which stretch each of these times is. Times outside of the window are in the first or the last."""
        ends = self.bounds[:-1, 1]
        return np.searchsorted(ends, at_ns, side="right").astype(np.int64)

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        length = max(0, self.end_ns - self.begin_ns)
        edges = self.begin_ns + length * np.arange(MAX_STRETCHES + 1, dtype=np.int64) // MAX_STRETCHES
        return np.column_stack((edges[:-1], edges[1:]))

    def sums(self, number: NDArray[np.int64], weights: NDArray[Any]) -> list[int]:
        found = np.bincount(number, weights=weights.astype(np.float64), minlength=MAX_STRETCHES)
        return [int(each) for each in found.tolist()]


@dataclass(frozen=True)
class Periods:
    """The completed steps as columns. A window without any has one period, the whole window."""

    number: NDArray[np.int64]
    """Of each among all steps of the program, those that were skipped and those that failed too."""
    from_ns: NDArray[np.int64]
    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    stepped: bool
    seconds: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """What `parts.timed` adds: the known fields of `Parts`, and times that only predictions use."""

    def __len__(self) -> int:
        return len(self.from_ns)

    @property
    def begun(self) -> bool:
        """Whether the beginnings of steps are known. Of an optimizer's steps only the ends are known."""
        return self.stepped and bool((self.begin_ns > self.from_ns).any())

    @property
    def inside(self) -> NDArray[np.int64]:
        """The intervals of the steps without their input, or of the window."""
        return np.column_stack((self.begin_ns, self.end_ns))

    def select(self, chosen: NDArray[np.bool_]) -> Periods:
        columns = {name: getattr(self, name)[chosen] for name in ("number", "from_ns", "begin_ns", "end_ns", "thread")}
        return replace(self, **columns, seconds={name: column[chosen] for name, column in self.seconds.items()})

    def mean_s(self, name: str) -> float:
        """The mean of these seconds; 0 if they are not known."""
        return float(self.seconds[name].mean()) if name in self.seconds else 0.0

    def mean(self) -> Parts:
        """The mean period. The means of the parts sum to it, and medians would not."""
        return Parts(**{**_NO_PARTS, **{name: self.mean_s(name) for name in self._known}})

    def each(self) -> list[Parts]:
        rows = zip(*(self.seconds[name].tolist() for name in self._known), strict=True)
        return [Parts(**{**_NO_PARTS, **dict(zip(self._known, row, strict=True))}) for row in rows]

    @property
    def _known(self) -> list[str]:
        return [name for name in _NO_PARTS if name in self.seconds]


_NO_PARTS: dict[str, Any] = dict.fromkeys(Parts.__struct_fields__)


@dataclass(frozen=True)
class DeviceRecords:
    """The records of the watched device, each kind in the order of beginning."""

    names: Sequence[str]
    copies: NDArray[Any]
    kernels: NDArray[Any]
    sets: NDArray[Any]
    calls: NDArray[Any]
    """The outermost calls, of all devices."""
    issued: NDArray[np.int64]
    """For each copy the index of its call, or -1."""
    allocations: NDArray[Any]
    others: int
    """Number of copies, sets and kernels of other devices."""

    def copies_of(self, kind: int, memory: MemoryKind | None = None) -> NDArray[np.bool_]:
        """A mask of the copies that go this kind, and from or to this kind of host memory."""
        chosen: NDArray[np.bool_] = self.copies["way"] == kind
        return chosen if memory is None else chosen & (self.host_memory == memory)

    def calls_named(self, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        """A mask of the calls whose name passes the test, which is called once for each name."""
        passed = np.fromiter(map(test, self.names), np.bool_, len(self.names))
        chosen: NDArray[np.bool_] = passed[self.calls["name"]]
        return chosen

    def calls_that_copy(self, kind: int, memory: MemoryKind) -> NDArray[np.bool_]:
        found = np.zeros(len(self.calls), np.bool_)
        places = self.issued[self.copies_of(kind, memory)]
        found[places[places >= 0]] = True
        return found

    @cached_property
    def host_memory(self) -> NDArray[np.uint8]:
        """The kind of memory on the host side of each copy. For copies without a host side, that of the source."""
        to_host = self.copies["way"] == CopyKind.D2H
        memory: NDArray[np.uint8] = np.where(to_host, self.copies["target"], self.copies["source"])
        return memory

    @cached_property
    def computing(self) -> NDArray[np.int64]:
        return np.concatenate((intervals(self.kernels), intervals(self.sets)))

    @cached_property
    def busy(self) -> Cover:
        return Cover(self.computing, intervals(self.copies))


def device_records(window: Window, capture: Capture) -> DeviceRecords:
    """The records of the watched device. Those of other devices are only counted."""
    device = {kind: capture.of(kind) for kind in (Kind.COPY, Kind.KERNEL, Kind.SET)}
    own = {kind: records[records["device"] == window.device] for kind, records in device.items()}
    calls = capture.of(Kind.CALL)
    calls = calls.take(outermost_indices(calls))
    return DeviceRecords(
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
    """The steps that ended in the window and did not fail."""
    rows = [
        (number, step.from_ns, step.begin_ns, step.end_ns, step.thread)
        for number, step in enumerate(window.steps, start=window.skipped + 1)
        if step.closed and step.failed is None
    ]
    columns = np.array(rows or [(0, window.begin_ns, window.begin_ns, window.end_ns, 0)], np.int64).T
    begin = np.maximum(columns[2], columns[1])
    return Periods(columns[0], columns[1], begin, np.maximum(columns[3], begin), columns[4], stepped=bool(rows))


def in_periods(records: DeviceRecords, periods: Periods) -> NDArray[np.bool_]:
    """A mask of the copies whose middle is in a period. For copies without a time, their call is used."""
    copies, calls = records.copies, records.calls
    at_ns = (copies["start_ns"] + copies["end_ns"]) // 2
    untimed = copies["end_ns"] <= copies["start_ns"]
    requested = untimed & (records.issued >= 0)
    at_ns[requested] = calls["start_ns"][records.issued[requested]]
    return Cover(np.column_stack((periods.from_ns, periods.end_ns))).holds(at_ns)
