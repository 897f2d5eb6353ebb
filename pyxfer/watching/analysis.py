"""From a window to the document that says where its time went, what crossed the link, and what would be faster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pyxfer import stats
from pyxfer.model import Device, Environment, Fact, Link, Runtime, unknown
from pyxfer.model_watch import (
    NO_GPU_WATCHED,
    Activity,
    Advice,
    Pageable,
    Steps,
    Surprise,
    ThreadUse,
    Watched,
    WatchedStep,
)
from pyxfer.tracing.records import CopyWay
from pyxfer.watching.advice import Grounds, advice
from pyxfer.watching.allocated import allocated
from pyxfer.watching.copies import Ceilings, Copied
from pyxfer.watching.gathered import Gathered, Periods, gather, in_periods, periods_of
from pyxfer.watching.named_ranges import Ranges, named_ranges, ranges_of
from pyxfer.watching.overlap import overlap, streams
from pyxfer.watching.remarks import remarks
from pyxfer.watching.slow import Timed, slow_ones, slow_steps
from pyxfer.watching.steps import by_the_clock, by_the_records, mean_s
from pyxfer.watching.surprises import allocation_calls, surprises
from pyxfer.watching.verdict import verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.tracing.records import Capture
    from pyxfer.watching.copies import Chosen
    from pyxfer.watching.window import Step, Window

# Beyond these the document has the steps' statistics and not each of them.
MOST_STEPS = 10_000
MOST_THREADS = 64


@dataclass(frozen=True)
class Machine:
    """Where the program ran."""

    runtime: Runtime
    runtime_reason: str
    device: Device
    link: Link
    environment: Environment


def analyse(window: Window, ceilings: Ceilings | None, machine: Machine, *, unchanged: bool = False) -> Watched:
    """All that a window says; `ceilings` are asked for pinned copies of the sizes that it holds.

    `unchanged`: the program is a script that knows nothing of being watched.
    """
    window = _believed(window, machine)
    capture = window.capture.value
    gathered = None if capture is None else gather(window, capture)
    timed = _timed(window, gathered)
    slow = slow_ones(timed)
    usual, periods = timed.of(~slow), timed.periods
    parts, ranges, steps = usual.columns.mean(), ranges_of(window), _steps(window, timed, slow)
    unseen = window.capture.reason
    activity: Fact[Activity] = unknown(unseen or "")
    if unseen is None and machine.runtime == "host":
        unseen = NO_GPU_WATCHED  # what our own engine copies does not say what the program waits for
    gains: tuple[Advice, ...] = ()
    if gathered is not None and capture is not None:
        copied = Copied(gathered, ceilings)
        among = in_periods(gathered, usual.periods)
        pageable = _pageable(copied, among, usual.periods)
        seen = _activity(window, capture, gathered, periods, copied, pageable, ranges)
        calls = surprises(window, gathered, usual.periods, ranges) if slow.any() else seen.surprises
        activity = Fact(seen)
        if unseen is None:
            gains = advice(_grounds(usual, steps, copied, among, calls, machine))
    return Watched(
        ended=window.ended,
        runtime=machine.runtime,
        runtime_reason=machine.runtime_reason,
        device=machine.device,
        link=machine.link,
        environment=machine.environment,
        tracing=window.tracing,
        window_s=max(0, window.end_ns - window.begin_ns) / 1e9,
        steps=steps,
        parts=parts,
        verdict=verdict(parts, periods.stepped, unseen, no_gpu=unseen == NO_GPU_WATCHED),
        activity=activity,
        ranges=named_ranges(ranges, gathered, window),
        threads=_threads(window, gathered, periods),
        used_before_bytes=window.used_before,
        used_after_bytes=window.used_after,
        advice=gains,
        remarks=remarks(window, activity.value, ranges, steps, unchanged),
    )


def _believed(window: Window, machine: Machine) -> Window:
    """Without a GPU only pyxfer's own engine makes records, so that none says nothing of what a program did."""
    capture = window.capture.value
    if machine.runtime == "host" and capture is not None and not len(capture.records):
        return replace(window, capture=unknown(NO_GPU_WATCHED))
    return window


def _timed(window: Window, gathered: Gathered | None) -> Timed:
    periods = periods_of(window)
    return Timed(periods, by_the_clock(periods) if gathered is None else by_the_records(periods, gathered))


def _steps(window: Window, timed: Timed, slow: NDArray[np.bool_]) -> Steps:
    periods, columns = timed.periods, timed.columns
    failed = [step for step in window.steps if step.failed is not None]
    unclosed = sum(not step.closed for step in window.steps if step.failed is None)
    counts = (len(periods) if periods.stepped else 0, window.skipped, len(failed), unclosed)
    failure = failed[0].failed if failed else None
    if not periods.stepped:
        return Steps(*counts, failure, period=unknown("no step was watched to its end"))
    usual = timed.of(~slow)
    return Steps(
        *counts,
        failure,
        period=Fact(stats.summarise((columns.period / 1e9).tolist())),
        between_s=mean_s(usual.periods.begin_ns - usual.periods.from_ns) if periods.begun else None,
        inside_s=mean_s(usual.periods.end_ns - usual.periods.begin_ns) if periods.begun else None,
        waiting_s=None if columns.waiting is None else mean_s(usual.columns.waiting),
        slow=slow_steps(timed, slow),
        each=tuple(
            WatchedStep(
                number=window.skipped + place + 1,
                at_s=(step.begin_ns - window.begin_ns) / 1e9,
                thread=step.thread,
                parts=columns.row(row),
                slow=bool(slow[row]),
            )
            for row, (place, step) in enumerate(_placed(window)[:MOST_STEPS])
        ),
    )


def _placed(window: Window) -> list[tuple[int, Step]]:
    """The steps that count, with their place among all."""
    return [(place, step) for place, step in enumerate(window.steps) if step.closed and step.failed is None]


def _activity(
    window: Window,
    capture: Capture,
    gathered: Gathered,
    periods: Periods,
    copied: Copied,
    pageable: tuple[Pageable, ...],
    ranges: Ranges,
) -> Activity:
    return Activity(
        copies=copied.classes(),
        overlap=overlap(gathered, copied, window.begin_ns, window.end_ns),
        streams=streams(gathered),
        pageable=pageable,
        surprises=surprises(window, gathered, periods, ranges),
        allocated=allocated(gathered),
        allocation_calls_in_steps=allocation_calls(gathered, periods),
        dropped={word: count for word, count in capture.dropped.items() if count},
        untimed=int((~copied.timed).sum()),
        others=gathered.others,
        clock_error_s=capture.clock.error_ns / 1e9,
        clock_drift_s=capture.clock.drift_ns / 1e9,
    )


def _pageable(copied: Copied, among: Chosen, usual: Periods) -> tuple[Pageable, ...]:
    """Of the whole window, and what the usual steps' own copies would save in the mean one."""
    rows = copied.pageable(np.ones_like(among))
    if not usual.stepped:
        return rows
    saves = {row.way: row.saves_s.value for row in copied.pageable(among)}
    each = {way: None if saved is None else saved / len(usual) for way, saved in saves.items()}
    return tuple(msgspec.structs.replace(row, saves_per_step_s=each.get(row.way)) for row in rows)


def _grounds(
    usual: Timed, steps: Steps, copied: Copied, among: Chosen, calls: tuple[Surprise, ...], machine: Machine
) -> Grounds:
    return Grounds(
        periods=usual.periods,
        columns=usual.columns,
        parts=usual.columns.mean(),
        steps=steps,
        pageable=copied.pageable(among),
        surprises=calls,
        input_s=copied.at_the_ceiling_s(CopyWay.H2D, among),
        input_bytes=int(copied.nbytes[among & (copied.way == CopyWay.H2D)].sum()),
        cpus=machine.environment.cpus_usable,
    )


def _threads(window: Window, gathered: Gathered | None, periods: Periods) -> tuple[ThreadUse, ...]:
    """Threads that made calls or steps, those with the most time in calls first."""
    steps = Counter(periods.thread.tolist() if periods.stepped else ())
    calls: dict[int, tuple[int, float]] = {}
    if gathered is not None:
        found, place = np.unique(gathered.calls["thread"], return_inverse=True)
        took = np.bincount(place, weights=gathered.calls["end_ns"] - gathered.calls["start_ns"], minlength=len(found))
        counts = np.bincount(place, minlength=len(found))
        calls = {int(t): (int(n), float(s) / 1e9) for t, n, s in zip(found, counts, took, strict=True)}
    names = {thread: window.threads.get(thread) or f"thread {thread}" for thread in {*calls, *steps}}
    uses = [
        ThreadUse(thread, name, *calls.get(thread, (0, 0.0)), steps=steps[thread]) for thread, name in names.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.calls_s, use.thread))[:MOST_THREADS])
