"""The figures of a watch that follow from its steps, its copies and its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pyxfer._document import watches
from pyxfer._document.machines import Fact
from pyxfer._machine.link import derived_link
from pyxfer._measure import stats
from pyxfer._watch import copies as measured
from pyxfer._watch.advice import verdict
from pyxfer._watch.analysis import MAX_STEPS
from pyxfer._watch.ceilings import Points, seconds_at
from pyxfer._watch.copies import CLASS_BOUNDS, MAX_STREAMS, allocated, mean_size, share_of
from pyxfer._watch.device_records import is_allocation, is_wait
from pyxfer._watch.parts import main_part
from pyxfer._watch.ranges import MAX_GROUPS, summed, sums_of

replace = msgspec.structs.replace


def derive_watch(watched: watches.Watched) -> watches.Watched:
    steps, parts = watched.steps, watched.parts
    unseen = watched.activity.reason or (watches.NO_GPU_WATCHED if watched.runtime == "host" else None)
    activity, period_s = watched.activity.value, parts.period_s
    return replace(
        watched,
        device=replace(watched.device, runtime=watched.runtime),
        link=derived_link(watched.link),
        steps=_counted(_steps(steps, parts)),
        parts=_parts(steps, parts),
        verdict=verdict(parts, steps.watched > 0, unseen, no_gpu=unseen == watches.NO_GPU_WATCHED),
        activity=watched.activity if activity is None else Fact(_activity(activity, watched)),
        window_s=_window_s(watched),
        ranges=tuple(summed(each.name, each.source, each.over_time, watched.window_s) for each in watched.ranges),
        advice=tuple(
            replace(
                each, gain_share=each.gain_s / period_s if period_s > 0 else 0.0, predicted_s=period_s - each.gain_s
            )
            for each in watched.advice
        ),
    )


def _usual(steps: watches.Steps) -> list[watches.Parts]:
    usual = [step.parts for step in steps.each if not step.slow]
    return usual if len(steps.each) == steps.watched else []


def _parts(steps: watches.Steps, parts: watches.Parts) -> watches.Parts:
    usual = _usual(steps)
    if not usual:
        return parts
    known = {name for name in watches.Parts.__struct_fields__ if getattr(parts, name) is not None}
    means = {name: math.fsum(getattr(each, name) or 0.0 for each in usual) / len(usual) for name in known}
    return replace(parts, **means)


def _steps(steps: watches.Steps, parts: watches.Parts) -> watches.Steps:
    if not _usual(steps):
        return steps
    periods = [step.parts.period_s for step in steps.each]
    slow = steps.slow
    if slow is not None:
        longest_s = max(step.parts.period_s for step in steps.each if step.slow)
        share = slow.more_s / math.fsum(periods)
        slow = replace(slow, longest_s=longest_s, share=share, mostly=_mostly(steps, slow.more_s))
    return replace(
        steps,
        period=Fact(stats.summarise(periods)),
        inside_s=None if steps.between_s is None else parts.period_s - steps.between_s,
        slow=slow,
    )


def _mostly(steps: watches.Steps, more_s: float) -> watches.StepPartName | None:
    """The part that makes the slow steps longer than the usual ones of their thread."""
    more: dict[watches.StepPartName, float] = {}
    for thread in {step.thread for step in steps.each if step.slow}:
        own = [(step.slow, dict(step.parts.named())) for step in steps.each if step.thread == thread]
        took, usual = [parts for is_slow, parts in own if is_slow], [parts for is_slow, parts in own if not is_slow]
        for name in took[0]:
            usual_s = math.fsum(parts[name] for parts in usual) / len(usual)
            more[name] = more.get(name, 0.0) + math.fsum(parts[name] - usual_s for parts in took)
    return main_part(more, more_s)


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
    # Those that are listed, and more only if the list is full.
    is_full = len(activity.surprises) >= MAX_GROUPS
    listed = sum(row.count for row in activity.surprises if row.what == "allocation") if steps.watched else 0
    return replace(
        activity,
        copies=copies,
        overlap=replace(overlap, busy_share=busy_s / watched.window_s if watched.window_s > 0 else 0.0),
        streams=streams,
        pageable=tuple(_pageable(each, copies, steps, points.get(each.direction, ())) for each in activity.pageable),
        surprises=tuple(_surprise(each, fetched, steps.watched) for each in activity.surprises),
        allocated=allocated(stretches),
        allocation_calls_in_steps=max(listed, activity.allocation_calls_in_steps) if is_full else listed,
    )


def _class(row: watches.CopyClass, points: Points) -> watches.CopyClass:
    """Its class is that of the mean size: all copies of a class are within its bounds."""
    place = int(np.searchsorted(CLASS_BOUNDS, row.nbytes / row.count, side="right")) if row.count > 0 else 0
    least = (0, *CLASS_BOUNDS)[place]
    share = row.ceiling_share
    if points and row.seconds > 0:
        share = share_of(Fact(_ideal_s(row, points)), least, row.seconds)
    return replace(
        row,
        least_bytes=least,
        below_bytes=(*CLASS_BOUNDS, None)[place],
        gbps=Fact(row.timed_bytes / row.seconds / 1e9) if row.seconds > 0 else row.gbps,
        ceiling_share=share,
    )


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
        kernels_at_once=measured.mean_level(kernels_s, overlap.kernels_at_once.reason or ""),
        kernels_share=measured.share_from_two(kernels_s, overlap.kernels_share.reason or ""),
        copies_at_once=len(copies_s),
        copies_share=measured.share_from_two(copies_s, overlap.copies_share.reason or ""),
        kernels_s=kernels_s,
        copies_s=copies_s,
    )


def _levels(seconds: tuple[float, ...], whole_s: float) -> tuple[float, ...]:
    """The seconds with one, two and more at once, of which the shortest takes what the others leave."""
    known = [place for place, span in enumerate(seconds) if span]
    if not known:
        return seconds
    shortest = min(known, key=seconds.__getitem__)
    rest = measured.level_sum([span if place != shortest else 0.0 for place, span in enumerate(seconds)])
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
    # Nanoseconds that add up to nothing leave some rounding.
    seconds = seconds if abs(seconds) > _NANOSECOND else 0.0
    own = replace(streams[most], copies=count, copied_bytes=nbytes, copies_s=seconds)
    found = [own if place == most else use for place, use in enumerate(streams)]
    return tuple(sorted(found, key=lambda use: -(use.copies_s + use.kernels_s)))


_NANOSECOND = 1e-9


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
