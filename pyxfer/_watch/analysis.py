"""Analyses a window: makes the document with its steps, copies, verdict, advice and remarks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pyxfer._document import watches
from pyxfer._document.machines import Environment, Fact, Link, Remark, unknown
from pyxfer._report.text import counted
from pyxfer._trace.records import Capture, CopyKind, clip, intervals, total_ns, union
from pyxfer._watch.advice import MIN_SHARE, Evidence, advice
from pyxfer._watch.ceilings import remarks_on_shares
from pyxfer._watch.copies import Chosen, CopyTable, copy_table, overlap, streams, stretches
from pyxfer._watch.derived import MAX_STEPS, derive_watch
from pyxfer._watch.device_records import DeviceRecords, Periods, Stretches, device_records, in_periods, periods_of
from pyxfer._watch.framework_calls import calls_of
from pyxfer._watch.host_conversions import HostConversion, conversions_of
from pyxfer._watch.options import Target
from pyxfer._watch.parts import find_slow, timed
from pyxfer._watch.ranges import MAX_NAMES, Ranges, calls_in_steps, line_uses, named_ranges, ranges_of
from pyxfer._watch.window import LOST, Window
from pyxfer.units import format_percent, format_seconds, joined

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
    watched: watches.Watched,
    ranges: Ranges,
    periods: Periods,
    slow: Chosen,
    first: Chosen,
    unchanged: bool,
    conversions: tuple[HostConversion, ...],
) -> tuple[Remark, ...]:
    """First steps that are left out, the remarks of the session, then those of the analysis."""
    said, activity = {remark.code for remark in window.remarks}, watched.activity.value
    found = [_first_steps_remark(periods, slow, first, unchanged)] if first.any() else []
    found += window.remarks
    if not said & {"never-opened", "lost"}:
        found += _step_remarks(watched.steps, "capacity" in said, unchanged, int(first.sum()))
    if activity is not None:
        found += _record_remarks(activity, "capacity" in said, watched.window_s)
    if ranges.unpaired:
        text = f"{counted(ranges.unpaired, 'NVTX range')} had not ended with the window, and last to its end"
        found.append(Remark("open-ranges", text))
    if len(ranges.names) > MAX_NAMES:
        text = f"only the {MAX_NAMES} longest of {len(ranges.names)} range names are listed"
        found.append(Remark("many-ranges", text, "use names without numbers"))
    if activity is not None:
        found += remarks_on_shares(activity.copies, watched.ceiling_source.value)
    found += [
        _conversion_remark(row) for row in conversions if row.found.others and row.exposed_s >= MIN_SHARE * row.period_s
    ]
    return tuple(found)


def _conversion_remark(row: HostConversion) -> Remark:
    """On a line whose conversion is not all that takes time."""
    text = (
        f"{row.line} {row.does} on the host, in {format_percent(row.share)} of the samples; they do not separate that "
        f"from what the same statement does with {joined(row.found.others[:3])}"
    )
    return Remark("host-conversion", text, "give the conversion a line of its own to have its gain predicted")


def _step_remarks(steps: watches.Steps, is_cut: bool, unchanged: bool, warm: int) -> list[Remark]:
    """`warm`: how many of the slow steps have a remark of their own."""
    failed, unclosed = steps.failed, steps.unclosed
    mark_them = _MARK_THEM_IN_IT if unchanged else _MARK_THEM
    found = []
    if failed:
        text = f"{counted(failed, 'step')} failed, and {_are(failed)} not in the figures of steps: {steps.failure}"
        found.append(Remark("failed-steps", text))
    if unclosed:
        text = f"{counted(unclosed, 'step')} had not ended with the window, and {_are(unclosed)} not in the figures"
        found.append(Remark("unclosed-steps", text))
    if not steps.watched and not failed and not unclosed:
        none = f"no step was {'found' if unchanged else 'begun'}"
        if is_cut:
            none = "no step ended in the part that the records cover"
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
    if len(steps.each) > MAX_STEPS:
        found.append(Remark("many-steps", "only the first steps are listed; the statistics are of all"))
    return found


def _first_steps_remark(periods: Periods, slow: Chosen, first: Chosen, unchanged: bool) -> Remark:
    """The first steps that are left out. The masks are of the steps."""
    seconds, usual, several = periods.seconds["period_s"], int((~slow).sum()), first.sum() > 1
    which = " and ".join(map(str, periods.number[first].tolist()))
    took = f"{format_seconds(float(seconds[first].sum()))}{' together' if several else ''}"
    others = "the only other one" if usual == 1 else f"the {usual} usual ones a median of"
    text = (
        f"{'steps' if several else 'step'} {which} took {took}, and {others} "
        f"{format_seconds(float(np.median(seconds[~slow])))}; the verdict, the parts and the predictions leave "
        f"{'them' if several else 'it'} out"
    )
    skip = _skip(int(np.max(periods.number[first])), unchanged)
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
            f"the device gave no time for {counted(activity.untimed, 'record')} of copies; only their bytes are counted"
        )
        found.append(Remark("untimed", text))
    if activity.others:
        text = f"{counted(activity.others, 'record')} of other devices {_are(activity.others)} not in the figures"
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


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


_FOLLOWS: Fact[Any] = unknown("it follows from other figures")


def analyse(
    window: Window,
    ceilings: Fact[watches.CeilingSource],
    target: Target,
    link: Link,
    environment: Environment,
    *,
    unchanged: bool = False,
) -> watches.Watched:
    """The document of a window. `unchanged`: the program is a script that was run by `pyxfer watch`.

    What follows from other figures is left out at first: `derive_watch` adds it.
    """
    runtime, window = target.choice.runtime, _as_seen(window, target)
    capture = window.capture.value
    records = None if capture is None else device_records(window, capture)
    periods = timed(periods_of(window), records)
    slow, first = find_slow(periods)
    usual, ranges = periods.select(~slow), ranges_of(window)
    steps = _steps(window, periods, usual, slow)
    activity: Fact[watches.Activity] = unknown(window.capture.reason or "")
    gains, conversions = tuple[watches.Advice, ...](), tuple[HostConversion, ...]()
    if records is not None and capture is not None:
        copied = copy_table(records, ceilings)
        of_usual = copied.select(in_periods(records, usual))
        found = _activity(window, capture, records, periods, copied, _pageable(copied, of_usual, usual), ranges)
        activity = Fact(found)
        if runtime != "host":  # the copies of pyxfer's own engine do not show what the program waits for
            calls = calls_in_steps(window, records, usual, ranges) if slow.any() else found.surprises
            known = (usual, of_usual, calls, steps.between_s, environment.cpus_usable, calls_of(window.framework))
            gains = advice(Evidence(*known, conversions := conversions_of(window, records, usual)))
    watched = derive_watch(
        watches.Watched(
            ended=window.ended,
            runtime=runtime,
            runtime_reason=target.choice.reason,
            device=target.device,
            link=link,
            environment=environment,
            tracing=window.tracing,
            window_s=0.0,
            outside_s=_outside_s(window, periods),
            steps=steps,
            parts=usual.mean(),
            verdict=watches.Verdict("unknown", "", _FOLLOWS, "", ()),
            activity=activity,
            ranges=named_ranges(ranges, records, window),
            lines=line_uses(window),
            used_before_bytes=window.used_before,
            used_after_bytes=window.used_after,
            advice=gains,
            remarks=(),
            ceiling_source=ceilings,
        )
    )
    return msgspec.structs.replace(
        watched,
        steps=msgspec.structs.replace(watched.steps, each=watched.steps.each[:MAX_STEPS]),
        remarks=remarks(window, watched, ranges, periods, slow, first, unchanged, conversions),
    )


def _as_seen(window: Window, target: Target) -> Window:
    """Without a GPU only pyxfer's own engine makes records, so their absence does not mean that nothing was copied."""
    capture = window.capture.value
    if target.choice.runtime != "host" or capture is None or len(capture.records):
        return window
    return replace(window, capture=unknown(watches.NO_GPU_WATCHED))


def _outside_s(window: Window, periods: Periods) -> float:
    """The time outside of the steps of the thread whose steps take the most of the window."""
    _, thread = np.unique(periods.thread, return_inverse=True)
    most_s = float(np.max(np.bincount(thread, weights=periods.seconds["period_s"])))
    return max(0.0, (window.end_ns - window.begin_ns) / 1e9 - most_s)


def _steps(window: Window, periods: Periods, usual: Periods, slow: NDArray[np.bool_]) -> watches.Steps:
    failed = [step for step in window.steps if step.failed is not None]
    unclosed = sum(not step.closed for step in window.steps if step.failed is None)
    failure = failed[0].failed if failed else None
    counts = (len(periods) if periods.stepped else 0, window.skipped, len(failed), unclosed, failure)
    if not periods.stepped:
        return watches.Steps(*counts, period=unknown("no step was watched to its end"))
    between_ns = usual.begin_ns - usual.from_ns
    at_s = (periods.begin_ns - window.begin_ns) / 1e9
    rows = zip(
        *map(np.ndarray.tolist, (periods.number, at_s, periods.thread)), periods.each(), slow.tolist(), strict=True
    )
    return watches.Steps(
        *counts,
        period=_FOLLOWS,
        between_s=float(between_ns.mean()) / 1e9 if periods.begun else None,
        waiting_s=usual.mean_s("waiting_s") if "waiting_s" in usual.seconds else None,
        finder=window.finder,
        functions=window.functions,
        each=tuple(watches.WatchedStep(*row) for row in rows),
    )


def _activity(
    window: Window,
    capture: Capture,
    records: DeviceRecords,
    periods: Periods,
    copied: CopyTable,
    pageable: tuple[watches.Pageable, ...],
    ranges: Ranges,
) -> watches.Activity:
    return watches.Activity(
        copies=copied.classes(),
        overlap=overlap(records),
        streams=streams(records),
        pageable=pageable,
        surprises=calls_in_steps(window, records, periods, ranges),
        allocated=(),
        stretches=stretches(records, Stretches(window.begin_ns, window.end_ns)),
        dropped={word: count for word, count in capture.dropped.items() if count},
        untimed=int((~copied.rows["timed"]).sum()),
        others=records.others,
        clock_error_s=capture.clock.error_ns / 1e9,
        clock_drift_s=capture.clock.drift_ns / 1e9,
        timeline=timeline(window, records, periods),
    )


def _pageable(copied: CopyTable, of_usual: CopyTable, usual: Periods) -> tuple[watches.Pageable, ...]:
    """Copies of pageable memory in the whole window, with the saving of those outside of the usual steps."""
    if not usual.stepped:
        return copied.pageable()
    saves = {row.direction: row.saves_s.value for row in of_usual.pageable()}
    return tuple(
        msgspec.structs.replace(row, other_saves_s=whole_s - saved_s)
        if (saved_s := saves.get(row.direction, 0.0)) is not None and (whole_s := row.saves_s.value) is not None
        else row
        for row in copied.pageable()
    )


# --- the timeline of a few steps: when the device copied and computed -------------------------------------------------

TIMELINE_STEPS = 4
MAX_SPANS = 300
"""In one lane. If there are more, spans that are close to each other become one."""
_LANES: tuple[tuple[watches.LaneName, CopyKind], ...] = (("h2d", CopyKind.H2D), ("d2h", CopyKind.D2H))


def timeline(window: Window, records: DeviceRecords, periods: Periods) -> watches.Timeline:
    """The stretch of a few usual steps, or of the whole window without steps."""
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
        steps=tuple(watches.StepSpan(int(periods.number[row]), *at_s[row].tolist()) for row in steps),
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
