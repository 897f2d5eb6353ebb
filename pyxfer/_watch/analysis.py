"""Analyses a window: makes the document with its steps, copies, verdict, advice and remarks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from pyxfer._document import watches
from pyxfer._document.machines import Device, Environment, Fact, Link, Remark, Runtime, unknown
from pyxfer._measure import stats
from pyxfer._trace.records import Capture, CopyKind, clip, intervals, total_ns, union
from pyxfer._watch.advice import Evidence, advice, verdict
from pyxfer._watch.ceilings import Ceilings, remarks_on_shares
from pyxfer._watch.copies import DIRECTIONS, Chosen, CopyTable, allocated, overlap, streams, stretches
from pyxfer._watch.device_records import DeviceRecords, Periods, Stretches, device_records, in_periods, periods_of
from pyxfer._watch.framework_calls import calls_of
from pyxfer._watch.parts import Timed, columns_by_clock, columns_by_records, find_slow, mean_s, slow_steps
from pyxfer._watch.ranges import MAX_NAMES, Ranges, allocation_calls, calls_in_steps, line_uses, named_ranges, ranges_of
from pyxfer._watch.step_tracking import Step
from pyxfer._watch.window import LOST, Window
from pyxfer.units import format_percent, format_seconds

# A larger deviation of the clocks can move time between the parts of a step, and gets a remark.
MAX_CLOCK_ERROR_S = 20e-6
MAX_DRIFT_SHARE = 1e-4
"""A quartz drifts by a tenth of this. A larger drift means that a clock was set."""
_MARK_THEM = "put what is done with each input into `with w.step():`"
_MARK_THEM_IN_IT = (
    "name the function that is called for each input, --step module:function, or put `with pyxfer.watch() as w:` "
    "around the script's loop, and `with w.step():` into it"
)
# Share of the time of all steps. If slow steps cost less, the usual steps represent all.
MAX_SLOW_SHARE = 0.05
_SOME_INPUTS = "find what only some steps do when making their input, such as opening the next file"


def remarks(
    window: Window,
    activity: watches.Activity | None,
    ranges: Ranges,
    steps: watches.Steps,
    unchanged: bool,
    warm: int = 0,
) -> tuple[Remark, ...]:
    """The remarks of the session, then those of the analysis. `warm`: the number of first steps that are left out."""
    said = {remark.code for remark in window.remarks}
    found = [*window.remarks]
    if not said & {"never-opened", "lost"}:
        found += _step_remarks(steps, "capacity" in said, unchanged, warm)
    if activity is not None:
        found += _record_remarks(activity, "capacity" in said, (window.end_ns - window.begin_ns) / 1e9)
    if ranges.unpaired:
        text = f"{_count(ranges.unpaired, 'NVTX range')} had not ended with the window, and last to its end"
        found.append(Remark("open-ranges", text))
    if len(ranges.names) > MAX_NAMES:
        text = f"only the {MAX_NAMES} longest of {len(ranges.names)} range names are listed"
        found.append(Remark("many-ranges", text, "use names without numbers"))
    return tuple(found)


def _step_remarks(steps: watches.Steps, is_cut: bool, unchanged: bool, warm: int) -> list[Remark]:
    """`warm`: how many of the slow steps have a remark of their own."""
    failed, unclosed = steps.failed, steps.unclosed
    mark_them = _MARK_THEM_IN_IT if unchanged else _MARK_THEM
    found = []
    if failed:
        text = f"{_count(failed, 'step')} failed, and {_are(failed)} not in the figures of steps: {steps.failure}"
        found.append(Remark("failed-steps", text))
    if unclosed:
        text = f"{_count(unclosed, 'step')} had not ended with the window, and {_are(unclosed)} not in the figures"
        found.append(Remark("unclosed-steps", text))
    if not steps.watched and not failed and not unclosed:
        none = (
            "no step ended in the part that the records cover"
            if is_cut
            else "no step was found"
            if unchanged
            else "no step was begun"
        )
        text = f"{none}, so the whole window is one period, and the time for its input is not known"
        found.append(Remark("no-steps", text, None if is_cut else mark_them))
    elif steps.watched and steps.between_s is None:
        text = "only the ends of steps are known, so the time to make their input is part of host"
        found.append(Remark("ends-only", text, mark_them))
    slow = steps.slow
    if slow is not None and slow.share >= MAX_SLOW_SHARE and slow.count > warm:
        text = (
            f"{slow.count} of {steps.watched} steps {_are(slow.count)} slow, at the cost of "
            f"{format_percent(slow.share)} of the time of all steps; the verdict, the parts and the predictions are of "
            f"the {steps.usual} usual ones"
        )
        fixes = []
        if not warm and steps.each and steps.each[0].slow:
            skip = _skip("N", unchanged)
            fixes = [f"the first step of the window is a slow one: {skip} to leave the first steps out"]
        fixes += [_SOME_INPUTS] if slow.mostly == "input" and slow.count > len(fixes) else []
        found.append(Remark("slow-steps", text, "; ".join(fixes) or None))
    if len(steps.each) < steps.watched:
        found.append(Remark("many-steps", "only the first steps are listed; the statistics are of all"))
    return found


def _first_steps_remark(timed: Timed, numbers: NDArray[np.int64], slow: Chosen, first: Chosen, skip: str) -> Remark:
    """The first steps that are left out. `numbers` and the masks are of the steps; `skip`: the option for it."""
    seconds, usual, several = timed.columns.period / 1e9, int((~slow).sum()), first.sum() > 1
    which = " and ".join(map(str, numbers[first].tolist()))
    took = f"{format_seconds(float(seconds[first].sum()))}{' together' if several else ''}"
    others = "the only other one" if usual == 1 else f"the {usual} usual ones a median of"
    text = (
        f"{'steps' if several else 'step'} {which} took {took}, and {others} "
        f"{format_seconds(float(np.median(seconds[~slow])))}; the verdict, the parts and the predictions leave "
        f"{'them' if several else 'it'} out"
    )
    return Remark(watches.FIRST_STEPS, text, f"{skip} and more steps" if usual == 1 else skip)


def _skip(count: int | str, unchanged: bool) -> str:
    """What leaves out the first steps: the option of the command, or the argument of `pyxfer.watch`."""
    return f"--skip {count}" if unchanged else f"call pyxfer.watch with skip={count}"


def _record_remarks(activity: watches.Activity, is_cut: bool, window_s: float) -> list[Remark]:
    """`is_cut`: the window was cut to its capacity, and has a remark on the dropped records already."""
    found = []
    dropped = {word: count for word, count in activity.dropped.items() if word == LOST or not is_cut}
    if dropped:
        lost = ", ".join(f"{count} {word}" for word, count in sorted(dropped.items()))
        text = f"records are missing: {lost}; counts and sums of these kinds are too low"
        found.append(Remark("dropped", text, "watch fewer steps, or give a larger capacity"))
    if activity.untimed:
        text = (
            f"the device gave no time for {_count(activity.untimed, 'record')} of copies; only their bytes are counted"
        )
        found.append(Remark("untimed", text))
    if activity.others:
        text = f"{_count(activity.others, 'record')} of other devices {_are(activity.others)} not in the figures"
        found.append(Remark("other-devices", text, "watch each device separately"))
    if activity.clock_error_s > MAX_CLOCK_ERROR_S:
        text = (
            f"the device's clock matches the host's to {format_seconds(activity.clock_error_s)}; shorter parts may be "
            "wrong"
        )
        found.append(Remark("clock-error", text))
    drift_s = abs(activity.clock_drift_s)
    if drift_s > max(MAX_CLOCK_ERROR_S, MAX_DRIFT_SHARE * window_s):
        text = (
            f"the device's clock drifted by {format_seconds(drift_s)} against the host's in the window; the records "
            "are corrected for an even drift, and their times may be wrong"
        )
        found.append(Remark("clock-drift", text, "watch again: a clock may have been set"))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


# At most this many steps are listed. The statistics are of all steps.
MAX_STEPS = 10_000
MAX_THREADS = 64


@dataclass(frozen=True)
class Machine:
    runtime: Runtime
    runtime_reason: str
    device: Device
    link: Link
    environment: Environment


def analyse(window: Window, ceilings: Ceilings, machine: Machine, *, unchanged: bool = False) -> watches.Watched:
    """`unchanged`: the program is a script that was run by `pyxfer watch`."""
    capture = window.capture.value
    # Without a GPU only pyxfer's own engine makes records, so their absence does not mean that nothing was copied.
    if machine.runtime == "host" and capture is not None and not len(capture.records):
        window, capture = replace(window, capture=unknown(watches.NO_GPU_WATCHED)), None
    records = None if capture is None else device_records(window, capture)
    periods = periods_of(window)
    timed = Timed(periods, columns_by_clock(periods) if records is None else columns_by_records(periods, records))
    slow, first = find_slow(timed)
    usual = timed.select(~slow)
    parts, ranges, steps = usual.columns.mean(), ranges_of(window), _steps(window, timed, slow)
    left_out: tuple[Remark, ...] = ()
    if first.any():
        numbers = _numbers(window)
        skip = _skip(int(np.max(numbers[first])), unchanged)
        left_out = (_first_steps_remark(timed, numbers, slow, first, skip),)
    unseen = window.capture.reason
    activity: Fact[watches.Activity] = unknown(unseen or "")
    if unseen is None and machine.runtime == "host":
        unseen = watches.NO_GPU_WATCHED  # the copies of pyxfer's own engine do not show what the program waits for
    gains: tuple[watches.Advice, ...] = ()
    too_low: tuple[Remark, ...] = ()
    if records is not None and capture is not None:
        copied = CopyTable(records, ceilings)
        among = in_periods(records, usual.periods)
        pageable = _pageable(copied, among, usual.periods)
        seen = _activity(window, capture, records, periods, copied, pageable, ranges)
        calls = calls_in_steps(window, records, usual.periods, ranges) if slow.any() else seen.surprises
        activity, too_low = Fact(seen), remarks_on_shares(seen.copies, ceilings.source.value)
        if unseen is None:
            gains = advice(_evidence(usual, steps, copied, among, calls, machine, window.framework))
    # The thread whose steps take the most of the window.
    _, thread = np.unique(periods.thread, return_inverse=True)
    most_ns = int(np.max(np.bincount(thread, weights=timed.columns.period)))
    return watches.Watched(
        ended=window.ended,
        runtime=machine.runtime,
        runtime_reason=machine.runtime_reason,
        device=machine.device,
        link=machine.link,
        environment=machine.environment,
        tracing=window.tracing,
        window_s=max(0, window.end_ns - window.begin_ns) / 1e9,
        outside_s=max(0, window.end_ns - window.begin_ns - most_ns) / 1e9,
        steps=steps,
        parts=parts,
        verdict=verdict(parts, periods.stepped, unseen, no_gpu=unseen == watches.NO_GPU_WATCHED),
        activity=activity,
        ranges=named_ranges(ranges, records, window),
        threads=_threads(window, records, periods),
        lines=line_uses(window),
        used_before_bytes=window.used_before,
        used_after_bytes=window.used_after,
        advice=gains,
        remarks=(*left_out, *remarks(window, activity.value, ranges, steps, unchanged, int(first.sum())), *too_low),
        ceiling_source=ceilings.source,
    )


def _steps(window: Window, timed: Timed, slow: NDArray[np.bool_]) -> watches.Steps:
    periods, columns = timed.periods, timed.columns
    failed = [step for step in window.steps if step.failed is not None]
    unclosed = sum(not step.closed for step in window.steps if step.failed is None)
    failure = failed[0].failed if failed else None
    counts = (len(periods) if periods.stepped else 0, window.skipped, len(failed), unclosed, failure)
    if not periods.stepped:
        return watches.Steps(*counts, period=unknown("no step was watched to its end"))
    usual = timed.select(~slow)
    return watches.Steps(
        *counts,
        period=Fact(stats.summarise((columns.period / 1e9).tolist())),
        between_s=mean_s(usual.periods.begin_ns - usual.periods.from_ns) if periods.begun else None,
        inside_s=mean_s(usual.periods.end_ns - usual.periods.begin_ns) if periods.begun else None,
        waiting_s=None if columns.waiting is None else mean_s(usual.columns.waiting),
        slow=slow_steps(timed, slow),
        finder=window.finder,
        functions=window.functions,
        each=tuple(
            watches.WatchedStep(
                number=window.skipped + place + 1,
                at_s=(step.begin_ns - window.begin_ns) / 1e9,
                thread=step.thread,
                parts=columns.row(row),
                slow=bool(slow[row]),
            )
            for row, (place, step) in enumerate(_placed(window)[:MAX_STEPS])
        ),
    )


def _placed(window: Window) -> list[tuple[int, Step]]:
    return [(place, step) for place, step in enumerate(window.steps) if step.closed and step.failed is None]


def _numbers(window: Window) -> NDArray[np.int64]:
    return np.array([window.skipped + place + 1 for place, _ in _placed(window)], np.int64)


def _activity(
    window: Window,
    capture: Capture,
    records: DeviceRecords,
    periods: Periods,
    copied: CopyTable,
    pageable: tuple[watches.Pageable, ...],
    ranges: Ranges,
) -> watches.Activity:
    over_time = stretches(records, Stretches(window.begin_ns, window.end_ns))
    return watches.Activity(
        copies=copied.classes(),
        overlap=overlap(records, copied, window.begin_ns, window.end_ns),
        streams=streams(records),
        pageable=pageable,
        surprises=calls_in_steps(window, records, periods, ranges),
        allocated=allocated(over_time),
        stretches=over_time,
        allocation_calls_in_steps=allocation_calls(records, periods),
        dropped={word: count for word, count in capture.dropped.items() if count},
        untimed=int((~copied.timed).sum()),
        others=records.others,
        clock_error_s=capture.clock.error_ns / 1e9,
        clock_drift_s=capture.clock.drift_ns / 1e9,
        timeline=timeline(window, records, periods, _numbers(window)),
    )


def _pageable(copied: CopyTable, among: Chosen, usual: Periods) -> tuple[watches.Pageable, ...]:
    """Copies of pageable memory in the whole window, with the saving in the mean usual step."""
    rows = copied.pageable(np.ones_like(among))
    if not usual.stepped:
        return rows
    saves = {row.direction: row.saves_s.value for row in copied.pageable(among)}
    return tuple(
        msgspec.structs.replace(row, saves_per_step_s=saved_s / len(usual), other_saves_s=whole_s - saved_s)
        if (saved_s := saves.get(row.direction, 0.0)) is not None and (whole_s := row.saves_s.value) is not None
        else row
        for row in rows
    )


def _evidence(
    usual: Timed,
    steps: watches.Steps,
    copied: CopyTable,
    among: Chosen,
    calls: tuple[watches.Surprise, ...],
    machine: Machine,
    framework: str,
) -> Evidence:
    return Evidence(
        periods=usual.periods,
        columns=usual.columns,
        parts=usual.columns.mean(),
        steps=steps,
        pageable=copied.pageable(among),
        calls=calls,
        input_s=copied.at_the_ceiling_s(CopyKind.H2D, among),
        copied_bytes={
            name: int(copied.nbytes[among & (copied.kind == kind)].sum()) for kind, name in DIRECTIONS.items()
        },
        returning=copied.returning(among),
        cpus=machine.environment.cpus_usable,
        offers=calls_of(framework),
    )


def _threads(window: Window, records: DeviceRecords | None, periods: Periods) -> tuple[watches.ThreadUse, ...]:
    steps = Counter(periods.thread.tolist() if periods.stepped else ())
    calls: dict[int, tuple[int, float]] = {}
    if records is not None:
        found, place = np.unique(records.calls["thread"], return_inverse=True)
        took = np.bincount(place, weights=records.calls["end_ns"] - records.calls["start_ns"], minlength=len(found))
        counts = np.bincount(place, minlength=len(found))
        calls = {int(t): (int(n), float(s) / 1e9) for t, n, s in zip(found, counts, took, strict=True)}
    names = {thread: window.threads.get(thread) or f"thread {thread}" for thread in {*calls, *steps}}
    uses = [
        watches.ThreadUse(thread, name, *calls.get(thread, (0, 0.0)), steps=steps[thread])
        for thread, name in names.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.calls_s, use.thread))[:MAX_THREADS])


# --- the timeline of a few steps: when the device copied and computed -------------------------------------------------

TIMELINE_STEPS = 4
MAX_SPANS = 300
"""In one lane. If there are more, spans that are close to each other become one."""
_LANES: tuple[tuple[watches.LaneName, CopyKind], ...] = (("h2d", CopyKind.H2D), ("d2h", CopyKind.D2H))


def timeline(window: Window, records: DeviceRecords, periods: Periods, numbers: NDArray[np.int64]) -> watches.Timeline:
    """The stretch of a few usual steps, or of the whole window without steps. `numbers`: of the completed steps."""
    chosen = _middle_steps(periods) if periods.stepped else np.arange(len(periods))
    begin_ns, end_ns = int(np.min(periods.from_ns[chosen])), int(np.max(periods.end_ns[chosen]))
    merged_ns, spans = 0, _spans(records, begin_ns, end_ns)
    busy_ns = {name: total_ns(own) for name, own in spans.items()}
    if max(map(len, spans.values()), default=0) > MAX_SPANS:
        merged_ns = -(-(end_ns - begin_ns) // MAX_SPANS)
        spans = {name: _merged(own, merged_ns) for name, own in spans.items()}
    steps, zero = chosen.tolist() if periods.stepped else [], window.begin_ns
    at_s = (periods.inside - zero) / 1e9
    return watches.Timeline(
        begin_s=(begin_ns - zero) / 1e9,
        end_s=(end_ns - zero) / 1e9,
        merged_s=merged_ns / 1e9,
        steps=tuple(watches.StepSpan(int(numbers[row]), *at_s[row].tolist()) for row in steps),
        lanes=tuple(
            watches.Lane(name, busy_ns[name] / 1e9, tuple(map(tuple, ((own - zero) / 1e9).tolist())))
            for name, own in spans.items()
            if len(own)
        ),
    )


def _middle_steps(periods: Periods) -> NDArray[np.intp]:
    """The consecutive steps of one thread whose length together is the median of all such stretches."""
    threads, counts = np.unique(periods.thread, return_counts=True)
    own = np.flatnonzero(periods.thread == threads[np.argmax(counts)])
    own = own[np.argsort(periods.end_ns[own], kind="stable")]
    count = min(TIMELINE_STEPS, len(own))
    lengths = periods.end_ns[own][count - 1 :] - periods.from_ns[own][: len(own) - count + 1]
    first = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    return own[first : first + count]


def _spans(records: DeviceRecords, begin_ns: int, end_ns: int) -> dict[watches.LaneName, NDArray[np.int64]]:
    kind = records.copies["way"]
    others = ~np.isin(kind, [known for _, known in _LANES])
    found: dict[watches.LaneName, NDArray[np.int64]] = {
        "kernels": records.computing,
        **{name: intervals(records.copies[kind == known]) for name, known in _LANES},
        "other copies": intervals(records.copies[others]),
    }
    return {name: clip(union(own), begin_ns, end_ns) for name, own in found.items()}


def _merged(spans: NDArray[np.int64], most_ns: int) -> NDArray[np.int64]:
    """Without the gaps of at most this length."""
    if len(spans) < 2:  # noqa: PLR2004 - one has no gap
        return spans
    apart = spans[1:, 0] - spans[:-1, 1] > most_ns
    return np.column_stack((spans[np.concatenate(([True], apart)), 0], spans[np.concatenate((apart, [True])), 1]))
