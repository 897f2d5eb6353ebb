"""The figures of a watch that follow from its steps, its copies and its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from pyxfer._document.machines import Fact
from pyxfer._document.watches import (
    NO_GPU_WATCHED,
    Activity,
    Advice,
    CopyClass,
    NamedRange,
    Overlap,
    Pageable,
    Parts,
    StepPartName,
    Steps,
    StreamUse,
    Surprise,
    SurpriseKind,
    Watched,
)
from pyxfer._machine.link import derived_link
from pyxfer._measure import stats
from pyxfer._watch.advice import verdict
from pyxfer._watch.copies import CLASS_BOUNDS, MOST_STREAMS
from pyxfer._watch.device_records import is_allocation, is_wait
from pyxfer._watch.parts import main_part
from pyxfer._watch.ranges import MOST_GROUPS

replace = msgspec.structs.replace


def derive_watch(watched: Watched) -> Watched:
    """The watch with what follows from its other figures."""
    steps, parts = watched.steps, watched.parts
    unseen = watched.activity.reason or (NO_GPU_WATCHED if watched.runtime == "host" else None)
    activity = watched.activity.value
    return replace(
        watched,
        device=replace(watched.device, runtime=watched.runtime),
        link=derived_link(watched.link),
        steps=_counted(_steps(steps, parts)),
        parts=_parts(steps, parts),
        verdict=verdict(parts, steps.watched > 0, unseen, no_gpu=unseen == NO_GPU_WATCHED),
        activity=watched.activity if activity is None else Fact(_activity(activity, watched)),
        window_s=max(watched.window_s, _least_window_s(steps, parts)),
        ranges=tuple(_range(each, watched) for each in watched.ranges),
        advice=tuple(_advice(each, parts.period_s) for each in watched.advice),
    )


def _usual(steps: Steps) -> list[Parts]:
    """The parts of the usual steps, if all steps are listed."""
    usual = [step.parts for step in steps.each if not step.slow]
    return usual if len(steps.each) == steps.watched else []


def _parts(steps: Steps, parts: Parts) -> Parts:
    """The means of the usual steps."""
    usual = _usual(steps)
    if not usual:
        return parts
    means: dict[str, Any] = {
        name: None
        if getattr(parts, name) is None
        else math.fsum(getattr(each, name) or 0.0 for each in usual) / len(usual)
        for name in Parts.__struct_fields__
    }
    return Parts(**means)


def _steps(steps: Steps, parts: Parts) -> Steps:
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


def _mostly(steps: Steps, more_s: float) -> StepPartName | None:
    """The part that makes the slow steps longer than the usual ones of their thread."""
    more: dict[StepPartName, float] = {}
    for thread in {step.thread for step in steps.each if step.slow}:
        own = [(step.slow, dict(step.parts.named())) for step in steps.each if step.thread == thread]
        took, usual = [parts for is_slow, parts in own if is_slow], [parts for is_slow, parts in own if not is_slow]
        for name in took[0]:
            usual_s = math.fsum(parts[name] for parts in usual) / len(usual)
            more[name] = more.get(name, 0.0) + math.fsum(parts[name] - usual_s for parts in took)
    return main_part(more, more_s)


def _counted(steps: Steps) -> Steps:
    """The steps that were skipped are those before the first of the window."""
    failed = 0 if steps.failure is None else steps.failed
    if not steps.each or failed or steps.unclosed:
        return replace(steps, failed=failed)
    return replace(steps, failed=failed, skipped=steps.each[0].number - 1)


def _least_window_s(steps: Steps, parts: Parts) -> float:
    """The window is as long as its only period, or lasts until the end of its last step."""
    if not steps.watched:
        return parts.period_s
    return max((step.at_s for step in steps.each), default=0.0)


def _busy_share(overlap: Overlap, watched: Watched) -> float:
    """The device is busy as long as the parts of the steps say, and perhaps in the rest of the window."""
    window_s, found = watched.window_s, [step.parts for step in watched.steps.each]
    if len(found) != watched.steps.watched or len({step.thread for step in watched.steps.each}) > 1 or window_s <= 0:
        return overlap.busy_share
    busy_s = math.fsum(
        seconds for parts in found or [watched.parts] for name, seconds in parts.named() if name in _BUSY
    )
    rest_s = max(0.0, window_s - math.fsum(parts.period_s for parts in found or [watched.parts]))
    return min(max(overlap.busy_share, busy_s / window_s), (busy_s + rest_s) / window_s)


_BUSY = ("kernels", "h2d", "d2h", "other copies")


def _activity(activity: Activity, watched: Watched) -> Activity:
    steps = watched.steps
    copies = tuple(map(_class, activity.copies))
    streams = _streams(activity.streams, copies)
    fetched = sum(row.nbytes for row in copies if row.way == "d2h")
    return replace(
        activity,
        copies=copies,
        overlap=replace(_overlap(activity.overlap, copies, streams), busy_share=_busy_share(activity.overlap, watched)),
        streams=streams,
        pageable=tuple(_pageable(each, copies, steps) for each in activity.pageable),
        surprises=tuple(_surprise(each, fetched, steps.watched) for each in activity.surprises),
        allocation_calls_in_steps=_allocation_calls(activity, steps.watched),
    )


def _class(row: CopyClass) -> CopyClass:
    """Its class is that of the mean size: all copies of a class are within its bounds."""
    place = int(np.searchsorted(CLASS_BOUNDS, row.nbytes / row.count, side="right")) if row.count > 0 else 0
    return replace(
        row,
        least_bytes=(0, *CLASS_BOUNDS)[place],
        below_bytes=(*CLASS_BOUNDS, None)[place],
        gbps=Fact(row.timed_bytes / row.seconds / 1e9) if row.seconds > 0 else row.gbps,
    )


def _overlap(overlap: Overlap, copies: Sequence[CopyClass], streams: Sequence[StreamUse]) -> Overlap:
    seconds = math.fsum(row.seconds for row in copies)
    hidden_s = math.fsum((row.hidden_share.value or 0.0) * row.seconds for row in copies)
    all_listed = len(streams) < MOST_STREAMS
    at_once, shared = overlap.kernels_at_once.value, overlap.kernels_share.value
    if at_once is not None and shared is not None:
        # While two or more run, there are two at least.
        shared = min(max(shared, 0.0), 1.0)
        at_once = min(max(at_once, 1 + shared), 1 + shared * (_MOST_KERNELS - 1)) if shared > 0 else 1.0
    copied = overlap.copies_share.value
    return replace(
        overlap,
        kernels_at_once=overlap.kernels_at_once if at_once is None else Fact(at_once),
        kernels_share=overlap.kernels_share if shared is None else Fact(shared),
        copies_at_once=overlap.copies_at_once if copied else min(1, overlap.copies_at_once),
        hidden_share=Fact(hidden_s / seconds) if seconds > 0 else overlap.hidden_share,
        kernels=sum(use.kernels for use in streams) if all_listed else overlap.kernels,
    )


_MOST_KERNELS = 128
"""A device runs no more at once (CUDA C Programming Guide, technical specifications)."""


def _streams(streams: tuple[StreamUse, ...], copies: Sequence[CopyClass]) -> tuple[StreamUse, ...]:
    """The busiest first, with the bytes and seconds of all copies."""
    if not streams or len(streams) >= MOST_STREAMS:
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


def _pageable(row: Pageable, copies: Sequence[CopyClass], steps: Steps) -> Pageable:
    own = [each for each in copies if (each.way, each.memory) == (row.way, "pageable")]
    seconds = math.fsum(each.seconds for each in own)
    ideal = [None if each.ceiling_share.value is None else each.ceiling_share.value * each.seconds for each in own]
    known = [each for each in ideal if each is not None]
    pinned = row.pinned_s if row.pinned_s.value is None or len(known) < len(ideal) else Fact(math.fsum(known))
    saves = row.saves_s if pinned.value is None else Fact(seconds - pinned.value)
    per_step = row.saves_per_step_s
    if per_step is not None and pinned.value is not None and steps.usual:
        # The copies of the usual steps are some of these.
        per_step = min(max(per_step, -pinned.value / steps.usual), seconds / steps.usual)
    return replace(
        row,
        count=sum(each.count for each in own),
        nbytes=sum(each.nbytes for each in own),
        seconds=seconds,
        pinned_s=pinned,
        saves_s=saves,
        saves_per_step_s=per_step,
    )


def _surprise(row: Surprise, fetched: int, steps: int) -> Surprise:
    """A call that fetches is known by its bytes, and another one by its name."""
    is_named: dict[SurpriseKind, bool] = {
        "wait": is_wait(row.call),
        "allocation": is_allocation(row.call),
        "blocking copy": True,
    }
    what: SurpriseKind = "d2h" if row.nbytes else next(word for word, fits in is_named.items() if fits)
    per_step = None if row.per_step is None or not steps else row.count / steps
    return replace(row, what=what, nbytes=min(row.nbytes, fetched), per_step=per_step)


def _allocation_calls(activity: Activity, steps: int) -> int:
    """Those that are listed, and more only if the list is full."""
    listed = sum(row.count for row in activity.surprises if row.what == "allocation") if steps else 0
    return max(listed, activity.allocation_calls_in_steps) if len(activity.surprises) >= MOST_GROUPS else listed


def _range(row: NamedRange, watched: Watched) -> NamedRange:
    """Ranges of one name may overlap, so that they cover less than the sum of their lengths."""
    window_s, activity = watched.window_s, watched.activity.value
    share = min(row.share, row.seconds / window_s) if window_s > 0 else 0.0
    if row.count == 1 and window_s > 0:
        share = row.seconds / window_s
    copied = {
        way: 0 if activity is None else sum(each.nbytes for each in activity.copies if each.way == way) for way in _WAYS
    }
    return replace(
        row,
        share=share,
        busy_s=None if row.busy_s is None else min(row.busy_s, share * window_s),
        h2d_bytes=None if row.h2d_bytes is None else min(row.h2d_bytes, copied["h2d"]),
        d2h_bytes=None if row.d2h_bytes is None else min(row.d2h_bytes, copied["d2h"]),
    )


_WAYS = ("h2d", "d2h")


def _advice(row: Advice, period_s: float) -> Advice:
    predicted_s = period_s - row.gain_s
    return replace(row, gain_share=row.gain_s / period_s if period_s > 0 else 0.0, predicted_s=predicted_s)
