"""From a window to the document that says where its time went, what crossed the link, and what would be faster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pyxfer._document.runs import Device, Environment, Fact, Link, Remark, Runtime, unknown
from pyxfer._document.watches import (
    NO_GPU_WATCHED,
    Activity,
    Advice,
    Allocated,
    Pageable,
    SlowSteps,
    Steps,
    Surprise,
    ThreadUse,
    Watched,
    WatchedStep,
)
from pyxfer._measure import stats
from pyxfer._trace.records import CopyWay, Flag
from pyxfer._watch.advice import Grounds, advice, verdict
from pyxfer._watch.ceilings import remarks_on_shares
from pyxfer._watch.copies import MEMORIES, Ceilings, Copied, overlap, streams
from pyxfer._watch.gathered import Gathered, Periods, gather, in_periods, periods_of
from pyxfer._watch.parts import Timed, by_the_clock, by_the_records, mean_s, slow_ones, slow_steps
from pyxfer._watch.ranges import MOST_NAMES, Ranges, allocation_calls, named_ranges, ranges_of, surprises
from pyxfer.units import format_percent, format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._trace.records import Capture
    from pyxfer._watch.copies import Chosen
    from pyxfer._watch.gathered import Gathered
    from pyxfer._watch.window import Step, Window


def allocated(gathered: Gathered) -> tuple[Allocated, ...]:
    """One row a kind of memory."""
    records = gathered.allocations
    memory = records["target"]
    released = (records["flags"] & Flag.FREED) != 0
    rows = []
    for kind in np.unique(memory):
        own = memory == kind
        rows.append(
            Allocated(
                memory=MEMORIES.get(int(kind), "unknown"),
                allocations=int((own & ~released).sum()),
                allocated_bytes=int(records["nbytes"][own & ~released].sum()),
                releases=int((own & released).sum()),
                released_bytes=int(records["nbytes"][own & released].sum()),
            )
        )
    return tuple(rows)


# Steps are told apart to better than this, so that clocks that agree no better than it are said to.
MOST_CLOCK_ERROR_S = 20e-6
MOST_DRIFT_SHARE = 1e-4
"""A quartz is good to a tenth of this; more is a clock that was set."""
_MARK_THEM = "put what is done with each input into `with w.step():`"
_MARK_THEM_IN_IT = (
    "only the steps of PyTorch's optimizers are found by themselves; for others put `with pyxfer.watch() as w:` around "
    "the script's loop, and `with w.step():` into it"
)
# Of the time of all steps: with less in slow ones, what is said of the usual ones is as good as said of all.
MOST_SLOW_SHARE = 0.05
_SOME_INPUTS = "look at what making the input does in some steps only, such as opening the next file"
# Records that the library has lost, for whatever reason.
_LOST = "unknown"


def remarks(
    window: Window, activity: Activity | None, ranges: Ranges, steps: Steps, unchanged: bool
) -> tuple[Remark, ...]:
    """The session's own first, then what the analysis met."""
    said = {remark.code for remark in window.remarks}
    found = [*window.remarks]
    if not said & {"never-opened", "lost"}:
        found += _of_steps(steps, "capacity" in said, unchanged)
    if activity is not None:
        found += [*_of_records(activity, "capacity" in said), *remarks_on_shares(activity.copies)]
        found += _of_clocks(activity, (window.end_ns - window.begin_ns) / 1e9)
    if ranges.unpaired:
        text = f"{_count(ranges.unpaired, 'NVTX range')} had not ended with the window, and last to its end"
        found.append(Remark("open-ranges", text))
    if len(ranges.names) > MOST_NAMES:
        text = f"of {len(ranges.names)} names of ranges the {MOST_NAMES} that lasted longest are here"
        found.append(Remark("many-ranges", text, "names without numbers in them make one row"))
    return tuple(found)


def _of_steps(steps: Steps, is_cut: bool, unchanged: bool) -> list[Remark]:
    failed, unclosed = steps.failed, steps.unclosed
    mark_them = _MARK_THEM_IN_IT if unchanged else _MARK_THEM
    found = []
    if failed:
        text = f"{_count(failed, 'step')} failed and {_are(failed)} in no figure of a step: {steps.failure}"
        found.append(Remark("failed-steps", text))
    if unclosed:
        text = f"{_count(unclosed, 'step')} had not ended with the window, and {_are(unclosed)} in no figure of a step"
        found.append(Remark("unclosed-steps", text))
    if not steps.watched and not failed and not unclosed:
        none = "no step ended in the part that the records cover" if is_cut else "no step was begun"
        text = f"{none}, so the whole window is one period, and its input cannot be told apart"
        found.append(Remark("no-steps", text, None if is_cut else mark_them))
    elif steps.watched and steps.between_s is None:
        text = "only the ends of steps are known, so the making of their input is in what the host does"
        found.append(Remark("ends-only", text, mark_them))
    if steps.slow is not None and steps.slow.share >= MOST_SLOW_SHARE:
        found.append(_of_slow_steps(steps, steps.slow, "--skip N" if unchanged else "skip=N"))
    if len(steps.each) < steps.watched:
        found.append(Remark("many-steps", "the first steps are listed one by one, the statistics are of all"))
    return found


def _of_slow_steps(steps: Steps, slow: SlowSteps, skip: str) -> Remark:
    text = (
        f"{slow.count} of {steps.watched} steps {_are(slow.count)} slow, at the cost of {format_percent(slow.share)} "
        f"of the time of all steps; the verdict, the parts and the predictions are of the {steps.usual} usual ones"
    )
    is_first = bool(steps.each) and steps.each[0].slow
    fixes = [f"the first step of the window is a slow one: {skip} leaves the first steps out"] if is_first else []
    fixes += [_SOME_INPUTS] if slow.mostly == "input" and slow.count > len(fixes) else []
    return Remark("slow-steps", text, "; ".join(fixes) or None)


def _of_records(activity: Activity, is_cut: bool) -> list[Remark]:
    """A window that was cut to what its records cover says itself what found no room."""
    found = []
    dropped = {word: count for word, count in activity.dropped.items() if word == _LOST or not is_cut}
    if dropped:
        lost = ", ".join(f"{count} {word}" for word, count in sorted(dropped.items()))
        text = f"records found no room and are missing: {lost}; what is counted and summed of them is too low"
        found.append(Remark("dropped", text, "watch fewer steps, or give a larger capacity"))
    if activity.untimed:
        text = f"the device gave no time for {_count(activity.untimed, 'record')} of copies; their bytes are counted"
        found.append(Remark("untimed", text))
    if activity.others:
        text = f"{_count(activity.others, 'record')} of other devices {_are(activity.others)} in no figure"
        found.append(Remark("other-devices", text, "watch each device by itself"))
    return found


def _of_clocks(activity: Activity, window_s: float) -> list[Remark]:
    found = []
    if activity.clock_error_s > MOST_CLOCK_ERROR_S:
        text = (
            f"the device's clock fits the host's to {format_seconds(activity.clock_error_s)}; parts shorter than that "
            "may be in the wrong place"
        )
        found.append(Remark("clock-error", text))
    drift_s = abs(activity.clock_drift_s)
    if drift_s > max(MOST_CLOCK_ERROR_S, MOST_DRIFT_SHARE * window_s):
        text = (
            f"the device's clock and the host's moved {format_seconds(drift_s)} against each other in the window; the "
            "records are corrected as if evenly, and may be in the wrong place"
        )
        found.append(Remark("clock-drift", text, "watch again: a clock may have been set"))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


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
