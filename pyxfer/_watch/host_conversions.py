"""The time that the program's lines which cast or reorder an array on the host take, by the samples of its lines.

An array that a function gets as an argument may be on the device, where a cast takes the host no time. So only samples
count in which the device does nothing, for longer than between two kernels of a program that is short of work.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyxfer._trace.records import intervals
from pyxfer._watch.device_records import Cover, DeviceRecords, Periods
from pyxfer._watch.marks import Seen
from pyxfer._watch.source_lines import Conversion, Source
from pyxfer._watch.window import Window

MIN_SAMPLES = 8
"""Of fewer samples in which the device does nothing, the time at a line is not known to a third."""
MIN_IDLE_NS = 500_000
"""Between two kernels that Python queues, a device has nothing to do for a tenth of this."""


@dataclass(frozen=True)
class HostConversion:
    """A conversion and its samples of one thread in the usual steps.

    `line`: the line that most of them saw. `samples`: those at its lines; `exposed`: those of them in which the device
    did nothing and the thread was in no call of CUDA; `of`: all samples. `exposed_s`: the time of `exposed`, a step.
    """

    line: str
    found: Conversion
    samples: int
    exposed: int
    of: int
    period_s: float

    @property
    def does(self) -> str:
        """Such as `casts to float32 and reorders NHWC->NCHW`."""
        found = self.found
        words = [f"casts {f'{found.source} ' if found.source else ''}to {found.dtype}"] if found.dtype else []
        layout = found.layout or "the axes"
        return " and ".join([*words, *([f"reorders {layout}"] if found.permutes else [])])

    @property
    def share(self) -> float:
        return self.samples / self.of

    @property
    def exposed_s(self) -> float:
        return self.period_s * self.exposed / self.of


def conversions_of(window: Window, records: DeviceRecords, usual: Periods) -> tuple[HostConversion, ...]:
    """The conversions on the host whose time is known, the longest first."""
    thread = _thread_of(window, usual)
    own = usual.thread == thread if usual.stepped else np.ones(len(usual), np.bool_)
    covered = Cover(np.column_stack((usual.from_ns, usual.end_ns))[own])
    of = int(covered.holds(_times(window.seen)).sum())
    seen = [each for each in window.seen if each.thread == thread and each.line in window.places]
    at_ns = np.array([each.at_ns for each in seen], np.int64)
    inside = covered.holds(at_ns)
    samples = _by_line(seen, inside)
    exposed = _by_line(seen, inside & _is_exposed(records, thread, at_ns, window))
    groups: dict[tuple[str, int], dict[str, Conversion]] = {}
    for line, found in _conversions(window, exposed).items():
        groups.setdefault((window.places[line][0], found.first), {})[line] = found
    rows = [
        HostConversion(
            line=max(lines, key=exposed.__getitem__),
            found=lines[max(lines, key=lambda line: window.places[line][1])],
            samples=sum(samples[line] for line in lines),
            exposed=sum(exposed[line] for line in lines),
            of=of,
            period_s=usual.mean_s("period_s"),
        )
        for lines in groups.values()
    ]
    return tuple(sorted((row for row in rows if row.exposed >= MIN_SAMPLES), key=lambda row: -row.exposed))


def _times(seen: Sequence[Seen]) -> NDArray[np.int64]:
    """Of all samples. The threads are sampled together."""
    return np.unique(np.array([each.at_ns for each in seen], np.int64))


def _by_line(seen: Sequence[Seen], chosen: NDArray[np.bool_]) -> Counter[str]:
    return Counter(seen[place].line for place in np.flatnonzero(chosen).tolist())


def _thread_of(window: Window, usual: Periods) -> int:
    """The thread with the most steps, or the main thread."""
    if usual.stepped:
        threads, counts = np.unique(usual.thread, return_counts=True)
        return int(threads[np.argmax(counts)])
    return next((number for number, name in window.threads.items() if name == "MainThread"), -1)


def _is_exposed(records: DeviceRecords, thread: int, at_ns: NDArray[np.int64], window: Window) -> NDArray[np.bool_]:
    """A mask of the times at which the thread is in no call of CUDA, and the device does nothing for long."""
    spans = records.busy.united
    begins, ends = np.append(spans[:, 0], window.end_ns), np.concatenate(([window.begin_ns], spans[:, 1]))
    place = np.searchsorted(spans[:, 0], at_ns, side="right")
    idle = (at_ns > ends[place]) & (begins[place] - ends[place] >= MIN_IDLE_NS)
    calls = intervals(records.calls[records.calls["thread"] == thread])
    exposed: NDArray[np.bool_] = idle & ~Cover(calls).holds(at_ns)
    return exposed


def _conversions(window: Window, lines: Iterable[str]) -> dict[str, Conversion]:
    """The conversions at these lines. A file that is gone, or no Python that this version reads, has none."""
    sources: dict[str, Source | None] = {}
    found = {}
    for line in lines:
        name, number = window.places[line]
        if name not in sources:
            linecache.checkcache(name)
            try:
                sources[name] = Source("".join(linecache.getlines(name)))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                sources[name] = None
        source = sources[name]
        conversion = None if source is None else source.conversion_at(number)
        if conversion is not None:
            found[line] = conversion
    return found
