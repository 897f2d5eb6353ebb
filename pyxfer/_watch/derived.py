"""The figures of a watch that follow from its steps, its copies and its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pyxfer._document import watches
from pyxfer._document.machines import Fact, unknown
from pyxfer._machine.link import derived_link
from pyxfer._measure import stats
from pyxfer._watch.advice import verdict
from pyxfer._watch.ceilings import Points, seconds_at
from pyxfer._watch.copies import CLASS_BOUNDS, DIRECTIONS, MAX_STREAMS, MEMORIES, UNTIMED, mean_size
from pyxfer._watch.device_records import is_allocation, is_wait
from pyxfer._watch.ranges import summed, sums_of
from pyxfer.units import format_size

# At most this many steps are listed. The statistics are of all steps.
MAX_STEPS = 10_000
# Nanoseconds that add up to nothing leave less than this.
_ROUNDING_S = 1e-9

replace = msgspec.structs.replace


def derive_watch(watched: watches.Watched) -> watches.Watched:
    unseen = watched.activity.reason or (watches.NO_GPU_WATCHED if watched.runtime == "host" else None)
    watched = replace(watched, steps=_counted(watched.steps))
    if watched.steps.each and len(watched.steps.each) == watched.steps.watched:
        watched = _of_steps(watched, watched.steps.each)
    window_s = _window_s(watched)
    watched = replace(watched, window_s=window_s)
    activity, period_s = watched.activity.value, watched.parts.period_s
    return replace(
        watched,
        device=replace(watched.device, runtime=watched.runtime),
        link=derived_link(watched.link),
        verdict=verdict(watched.parts, watched.steps.watched > 0, unseen),
        activity=watched.activity if activity is None else Fact(_activity(activity, watched)),
        ranges=tuple(summed(each.name, each.source, each.over_time, window_s) for each in watched.ranges),
        advice=tuple(
            replace(each, gain_share=each.gain_s / (period_s or math.inf), predicted_s=period_s - each.gain_s)
            for each in watched.advice
        ),
    )


def _of_steps(watched: watches.Watched, each: Sequence[watches.WatchedStep]) -> watches.Watched:
    """With the figures that follow from all steps."""
    parts, steps = _mean([step.parts for step in each if not step.slow]), watched.steps
    return replace(
        watched,
        parts=parts,
        steps=replace(
            steps,
            period=Fact(stats.summarise([step.parts.period_s for step in each])),
            inside_s=None if steps.between_s is None else parts.period_s - steps.between_s,
            slow=_slow(each) if any(step.slow for step in each) else None,
        ),
    )


def _mean(parts: Sequence[watches.Parts]) -> watches.Parts:
    known = [name for name in watches.Parts.__struct_fields__ if getattr(parts[0], name) is not None]
    means = {name: math.fsum(getattr(each, name) or 0.0 for each in parts) / len(parts) for name in known}
    return replace(parts[0], **means)


def _slow(each: Sequence[watches.WatchedStep]) -> watches.SlowSteps:
    """How much longer the slow steps took than usual steps of their own thread."""
    slow = [step for step in each if step.slow]
    more_s, more = 0.0, dict[watches.StepPartName, float]()
    for thread in {step.thread for step in slow}:
        own = [step for step in each if step.thread == thread]
        took, usual = (_mean([step.parts for step in own if step.slow is is_slow]) for is_slow in (True, False))
        count = sum(step.slow for step in own)
        more_s += count * (took.period_s - usual.period_s)
        for (name, seconds), (_, usual_s) in zip(took.named(), usual.named(), strict=True):
            more[name] = more.get(name, 0.0) + count * (seconds - usual_s)
    most = max(more, key=more.__getitem__)
    return watches.SlowSteps(
        count=len(slow),
        longest_s=max(step.parts.period_s for step in slow),
        more_s=more_s,
        share=more_s / math.fsum(step.parts.period_s for step in each),
        # A period of one part has no main one.
        mostly=most if len(more) > 1 and more[most] > more_s / 2 else None,
    )


def _counted(steps: watches.Steps) -> watches.Steps:
    """The steps that were skipped are those before the first of the window."""
    failed = 0 if steps.failure is None else steps.failed
    if len(steps.each) < MAX_STEPS:
        steps = replace(steps, watched=len(steps.each))
    if not steps.each or failed or steps.unclosed:
        return replace(steps, failed=failed)
    return replace(steps, failed=failed, skipped=steps.each[0].number - 1)


def _window_s(watched: watches.Watched) -> float:
    """The steps of the thread whose steps take the most, and the rest. Without steps it is the only period."""
    steps, taken = watched.steps, dict[int, list[float]]()
    if not steps.watched:
        return watched.parts.period_s + watched.outside_s
    if len(steps.each) < steps.watched:
        return max(watched.window_s, *(step.at_s for step in steps.each), watched.outside_s)
    for step in steps.each:
        taken.setdefault(step.thread, []).append(step.parts.period_s)
    return max(map(math.fsum, taken.values())) + watched.outside_s


def _activity(activity: watches.Activity, watched: watches.Watched) -> watches.Activity:
    steps, stretches = watched.steps, activity.stretches
    points = {} if watched.ceiling_source.value is None else watched.ceiling_source.value.points
    copies = _among([_class(row, points.get(row.direction, ())) for row in activity.copies], stretches)
    streams = _streams(activity.streams, copies)
    fetched = sum(row.nbytes for row in copies if row.direction == "d2h")
    busy_s = math.fsum(each.busy_s for each in stretches)
    overlap = _overlap(activity.overlap, copies, streams)
    return replace(
        activity,
        copies=copies,
        overlap=replace(overlap, busy_share=busy_s / watched.window_s if watched.window_s > 0 else 0.0),
        streams=streams,
        pageable=tuple(_pageable(each, copies, steps, points.get(each.direction, ())) for each in activity.pageable),
        surprises=tuple(_surprise(each, fetched, steps.watched) for each in activity.surprises),
        allocated=_allocated(stretches),
    )


def _allocated(stretches: Sequence[watches.Stretch]) -> tuple[watches.Allocated, ...]:
    """One row for each kind of memory."""
    found: dict[str, list[watches.AllocationSums]] = {}
    for stretch in stretches:
        for memory, sums in stretch.allocated.items():
            found.setdefault(memory, []).append(sums)
    names, order = watches.AllocationSums.__struct_fields__, [MEMORIES[kind] for kind in sorted(MEMORIES)]
    return tuple(
        watches.Allocated(memory, *(sum(getattr(each, name) for each in found[memory]) for name in names))
        for memory in sorted(found, key=order.index)
    )


_ISSUED = "their ceiling contains the time to issue a copy, and the device's records do not"
_TOO_SMALL = f"a copy below {format_size(watches.MIN_OF_CEILING)} goes within a command and has no ceiling"


def _class(row: watches.CopyClass, points: Points) -> watches.CopyClass:
    """Its class is that of the mean size: all copies of a class are within its bounds."""
    place = int(np.searchsorted(CLASS_BOUNDS, row.nbytes / row.count, side="right")) if row.count > 0 else 0
    least = (0, *CLASS_BOUNDS)[place]
    return replace(
        row,
        least_bytes=least,
        below_bytes=(*CLASS_BOUNDS, None)[place],
        gbps=Fact(row.timed_bytes / row.seconds / 1e9) if row.seconds > 0 else row.gbps,
        ceiling_share=_share(row, least, points) if row.direction in DIRECTIONS.values() else row.ceiling_share,
    )


def _share(row: watches.CopyClass, least_bytes: int, points: Points) -> Fact[float]:
    if least_bytes < watches.MIN_OF_CEILING:
        return unknown(_TOO_SMALL)
    if row.seconds <= 0:
        return unknown(UNTIMED)
    if not points:
        return row.ceiling_share
    share = _ideal_s(row, points) / row.seconds
    return unknown(_ISSUED) if least_bytes < watches.MIN_COMPARABLE and share > 1 else Fact(share)


def _ideal_s(row: watches.CopyClass, points: Points) -> float:
    size = mean_size(row.nbytes, row.count)
    return row.timed_bytes * seconds_at(points, size) / size


def _among(copies: Sequence[watches.CopyClass], stretches: Sequence[watches.Stretch]) -> tuple[watches.CopyClass, ...]:
    """The classes, of which the largest of each kind has the bytes that the stretches leave for it."""
    found = list(copies)
    for kind in {each.direction for each in copies}:
        own = [place for place, each in enumerate(copies) if each.direction == kind]
        largest = max(own, key=lambda place: copies[place].nbytes)
        whole = sum(each.copied_bytes.get(kind, 0) for each in stretches)
        rest = sum(copies[place].nbytes for place in own if place != largest)
        found[largest] = replace(copies[largest], nbytes=whole - rest)
    return tuple(found)


def _overlap(
    overlap: watches.Overlap, copies: Sequence[watches.CopyClass], streams: Sequence[watches.StreamUse]
) -> watches.Overlap:
    seconds = math.fsum(row.seconds for row in copies)
    hidden_s = math.fsum((row.hidden_share.value or 0.0) * row.seconds for row in copies)
    all_listed = len(streams) < MAX_STREAMS
    kernels_s, copies_s = overlap.kernels_s, _levels(overlap.copies_s, seconds)
    if all_listed:
        kernels_s = _levels(kernels_s, math.fsum(use.kernels_s for use in streams))
    return replace(
        overlap,
        hidden_share=Fact(hidden_s / seconds) if seconds > 0 else overlap.hidden_share,
        kernels=sum(use.kernels for use in streams) if all_listed else overlap.kernels,
        kernels_at_once=_over(_level_sum(kernels_s), kernels_s, overlap.kernels_at_once.reason),
        kernels_share=_over(math.fsum(kernels_s[1:]), kernels_s, overlap.kernels_share.reason),
        copies_at_once=len(copies_s),
        copies_share=_over(math.fsum(copies_s[1:]), copies_s, overlap.copies_share.reason),
        kernels_s=kernels_s,
        copies_s=copies_s,
    )


def _over(part: float, seconds: Sequence[float], why_not: str | None) -> Fact[float]:
    time = math.fsum(seconds)
    return Fact(part / time) if time > 0 else unknown(why_not or "")


def _level_sum(seconds: Sequence[float]) -> float:
    return math.fsum(level * span for level, span in enumerate(seconds, start=1))


def _levels(seconds: tuple[float, ...], whole_s: float) -> tuple[float, ...]:
    """The seconds with one, two and more at once, of which the shortest takes what the others leave."""
    known = [place for place, span in enumerate(seconds) if span]
    if not known:
        return seconds
    shortest = min(known, key=seconds.__getitem__)
    rest = _level_sum([span if place != shortest else 0.0 for place, span in enumerate(seconds)])
    found = list(seconds)
    found[shortest] = (whole_s - rest) / (shortest + 1)
    return tuple(found)


def _streams(
    streams: tuple[watches.StreamUse, ...], copies: Sequence[watches.CopyClass]
) -> tuple[watches.StreamUse, ...]:
    """The busiest first, with the bytes and seconds of all copies."""
    if not streams or len(streams) >= MAX_STREAMS:
        return streams
    most = max(range(len(streams)), key=lambda place: streams[place].copied_bytes)
    rest = [use for place, use in enumerate(streams) if place != most]
    nbytes = sum(row.nbytes for row in copies) - sum(use.copied_bytes for use in rest)
    count = sum(row.count for row in copies) - sum(use.copies for use in rest)
    seconds = math.fsum((*(row.seconds for row in copies), *(-use.copies_s for use in rest)))
    seconds = seconds if abs(seconds) > _ROUNDING_S else 0.0
    own = replace(streams[most], copies=count, copied_bytes=nbytes, copies_s=seconds)
    found = [own if place == most else use for place, use in enumerate(streams)]
    return tuple(sorted(found, key=lambda use: -(use.copies_s + use.kernels_s)))


def _pageable(
    row: watches.Pageable, copies: Sequence[watches.CopyClass], steps: watches.Steps, points: Points
) -> watches.Pageable:
    own = [each for each in copies if (each.direction, each.memory) == (row.direction, "pageable")]
    seconds = math.fsum(each.seconds for each in own)
    pinned = Fact(math.fsum(_ideal_s(each, points) for each in own)) if points else row.pinned_s
    saves = row.saves_s if pinned.value is None else Fact(seconds - pinned.value)
    per_step = row.saves_per_step_s
    if saves.value is not None and row.other_saves_s is not None and steps.usual:
        per_step = (saves.value - row.other_saves_s) / steps.usual
    return replace(
        row,
        count=sum(each.count for each in own),
        nbytes=sum(each.nbytes for each in own),
        seconds=seconds,
        pinned_s=pinned,
        saves_s=saves,
        saves_per_step_s=per_step,
    )


def _surprise(row: watches.Surprise, fetched: int, steps: int) -> watches.Surprise:
    """A call that fetches is known by its bytes, and another one by its name."""
    is_named: dict[watches.SurpriseKind, bool] = {
        "wait": is_wait(row.call),
        "allocation": is_allocation(row.call),
        "blocking copy": True,
    }
    sums = sums_of(row.over_time, None if row.per_step is None else steps)
    what: watches.SurpriseKind = "d2h" if sums["nbytes"] else next(word for word, fits in is_named.items() if fits)
    return replace(row, what=what, **{**sums, "nbytes": min(sums["nbytes"], fetched)})
