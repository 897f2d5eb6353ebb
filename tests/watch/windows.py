"""Windows made by hand, with times in microseconds from the beginning of the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from samples import make_device, make_environment, make_link

from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Tracing
from pyxfer._document.watches import CeilingSource, Watched
from pyxfer._trace.records import RECORD, Capture, Clock, CopyKind, Flag, Kind, MemoryKind
from pyxfer._watch.analysis import analyse
from pyxfer._watch.marks import Range, Seen
from pyxfer._watch.options import Target
from pyxfer._watch.step_tracking import Step
from pyxfer._watch.window import Window
from pyxfer.native import Choice, load

# Far from zero, so that tests fail if a time since the beginning is confused with a time of the clock.
ZERO_NS = 1_000_000_000_000
US = 1_000
MAIN, LOADER = 4001, 4002
MIB = 1 << 20
H2D, D2H, D2D, P2P = CopyKind.H2D, CopyKind.D2H, CopyKind.D2D, CopyKind.P2P
NO_TRACE = "trace: unavailable: no CUPTI library was found"

_SIDES = {
    CopyKind.H2D: (MemoryKind.PINNED, MemoryKind.DEVICE),
    CopyKind.D2H: (MemoryKind.DEVICE, MemoryKind.PINNED),
    CopyKind.D2D: (MemoryKind.DEVICE, MemoryKind.DEVICE),
    CopyKind.P2P: (MemoryKind.DEVICE, MemoryKind.DEVICE),
}


def at(us: float) -> int:
    """That many microseconds after the window's beginning, on its clock."""
    return ZERO_NS + round(us * US)


class Script:
    """Records, in any order. Each method adds some and returns the script; `number` is that of the last call."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.names: list[str] = [""]
        self.number = 0

    def kernel(self, begin: float, end: float, name: str = "gemm", stream: int = 7, device: int = 0) -> Script:
        return self._add(Kind.KERNEL, at(begin), at(end), stream=stream, name=name, device=device)

    def set(self, begin: float, end: float, nbytes: int = 4096) -> Script:
        return self._add(Kind.SET, at(begin), at(end), nbytes=nbytes)

    def copy(
        self,
        kind: CopyKind,
        begin: float,
        end: float,
        nbytes: int = MIB,
        pageable: bool = False,
        call: tuple[str, float, float] | int | None = None,
        thread: int = MAIN,
        stream: int = 7,
        copies: int = 1,
        device: int = 0,
    ) -> Script:
        """A copy and the call that requested it: name, beginning and end, or the number of an earlier call."""
        source, target = (
            MemoryKind.PAGEABLE if pageable and side is MemoryKind.PINNED else side for side in _SIDES[kind]
        )
        if isinstance(call, tuple):
            call = self.call(*call, thread=thread).number
        number = self._next() if call is None else call
        times = (at(begin), at(end)) if end > begin else (0, 0)
        columns: dict[str, Any] = {"nbytes": nbytes, "way": kind, "source": source, "target": target}
        columns |= {"correlation": number, "stream": stream, "copies": copies, "device": device}
        return self._add(Kind.COPY, *times, **columns)

    def call(self, name: str, begin: float, end: float, thread: int = MAIN, inside: int | None = None) -> Script:
        """A runtime call; with `inside`, a driver call inside the runtime call of that number."""
        number = self._next() if inside is None else inside
        flags = Flag.RUNTIME if inside is None else 0
        return self._add(Kind.CALL, at(begin), at(end), thread=thread, name=name, correlation=number, flags=flags)

    def nvtx(self, name: str, begin: float, end: float | None, thread: int = MAIN) -> Script:
        number = self._next()
        self._add(Kind.MARK, at(begin), at(begin), thread=thread, name=name, correlation=number, flags=Flag.BEGIN)
        if end is not None:
            self._add(Kind.MARK, at(end), at(end), thread=thread, correlation=number, flags=Flag.END)
        return self

    def allocation(self, when: float, nbytes: int, *, freed: bool = False) -> Script:
        flags = Flag.FREED if freed else 0
        return self._add(Kind.ALLOCATION, at(when), at(when), nbytes=nbytes, target=MemoryKind.DEVICE, flags=flags)

    def capture(self, dropped: dict[str, int] | None = None, clock: Clock | None = None) -> Capture:
        return Capture(np.array(self.rows, RECORD), tuple(self.names), dropped or {}, clock or Clock(0, 0))

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _add(self, kind: Kind, start_ns: int, end_ns: int, name: str = "", **given: int) -> Script:
        if name not in self.names:
            self.names.append(name)
        columns = {"name": self.names.index(name), "context": 1, "stream": 7, **given}
        columns |= {"kind": kind, "start_ns": start_ns, "end_ns": end_ns}
        self.rows.append(tuple(columns.get(column, 0) for column in RECORD.names or ()))
        return self


def steps_at(*spans: tuple[float, float, float], thread: int = MAIN) -> tuple[Step, ...]:
    """Steps by the end of the previous step, their beginning, and their end."""
    return tuple(Step(at(since), at(begin), at(end), thread) for since, begin, end in spans)


def mark(name: str, begin: float, end: float, thread: int = MAIN) -> Range:
    return Range(name, at(begin), at(end), thread)


def seen(when: float, line: str, thread: int = MAIN) -> Seen:
    return Seen(at(when), thread, line)


def make_window(script: Script | None, length: float, steps: Sequence[Step] = (), **given: Any) -> Window:
    """A window of `length` microseconds. Without a script it has no records."""
    known: dict[str, Any] = {"dropped": given.pop("dropped", None), "clock": given.pop("clock", None)}
    capture: Fact[Capture] = unknown(NO_TRACE) if script is None else Fact(script.capture(**known))
    tracing: Fact[Tracing] = unknown(NO_TRACE) if script is None else Fact(Tracing("libcupti.so.12", 26))
    return Window(
        begin_ns=ZERO_NS,
        end_ns=at(length),
        ended=given.pop("ended", "complete"),
        capture=capture,
        tracing=tracing,
        steps=tuple(steps),
        **given,
    )


def flat(gbps: float | None, reason: str = "it was not measured") -> Fact[CeilingSource]:
    """The same ceiling for every size, or none."""
    if gbps is None:
        return unknown(reason)
    points = tuple((size, size / gbps / 1e9) for size in (1, 1 << 40))
    when = "2026-01-04T00:00:00+00:00"
    return Fact(CeilingSource("measured", "NVIDIA H200", "vm", when, {"h2d": points, "d2h": points}))


GPU = Target(Choice(load("host"), "cuda", "a GPU answers"), make_device())
HOST = replace(GPU, choice=GPU.choice._replace(runtime="host"))


def analysed(
    window: Window,
    ceilings: Fact[CeilingSource] | None = None,
    target: Target = GPU,
    *,
    unchanged: bool = False,
    cpus: int | None = None,
) -> Watched:
    environment = make_environment() if cpus is None else make_environment(cpus_usable=cpus)
    return analyse(window, ceilings or flat(50.0), target, make_link(), environment, unchanged=unchanged)


def activity_of(watched: Watched) -> Any:
    """The figures of the records, which must exist."""
    assert watched.activity.value is not None
    return watched.activity.value
