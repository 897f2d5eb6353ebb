"""The verdict on what a program is bound by, and predictions of what would make its steps shorter.

Predictions use the measured parts and the ceilings, and say how they were computed. Their gains overlap, so they do not
add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyxfer._document import watches
from pyxfer._document.machines import Fact, unknown
from pyxfer._report.text import capitalised
from pyxfer._watch.copies import DIRECTIONS, CopyTable
from pyxfer._watch.device_records import Periods
from pyxfer._watch.framework_calls import Calls
from pyxfer._watch.host_conversions import HostConversion
from pyxfer._watch.source_lines import ITEM_BYTES
from pyxfer.units import format_gbps, format_percent, format_seconds, format_size, joined

BOUND = 0.20
MODERATELY = 0.05


def verdict(parts: watches.Parts, stepped: bool, unseen: str | None) -> watches.Verdict:
    """What the program is bound by: the largest of its input, its output and the host, otherwise the device."""
    if unseen is not None:
        return _unknown(parts, unseen)
    if parts.period_s <= 0:
        text = "The window has no length, so there is nothing to be bound by."
        return watches.Verdict("unknown", "", unknown("the window has no length"), text, ())
    waited, sent, idle = parts.share("input", "h2d"), parts.share("d2h"), parts.share("idle", "host")
    shares = (("input", waited, MODERATELY), ("output", sent, MODERATELY), ("host", idle, BOUND))
    causes = {name: share for name, share, least in shares if share > least}
    largest = max(causes, key=causes.__getitem__, default="device")
    share = causes.get(largest, parts.share("kernels", "other copies"))
    by, what, text, names = _causes(parts, waited, format_percent(share), "step" if stepped else "window")[largest]
    degree: watches.Degree = "moderately" if largest in ("input", "output") and share <= BOUND else ""
    how = f"{degree} bound" if degree else "bound"
    text = f"The {'step' if stepped else 'program'} is {how} by {what}. The device {text}."
    return watches.Verdict(by, degree, Fact(share), text, _figures(parts, *names))


def _causes(
    parts: watches.Parts, waited: float, share: str, span: str
) -> dict[str, tuple[watches.BoundBy, str, str, tuple[watches.StepPartName, ...]]]:
    by: watches.BoundBy = "input" if parts.share("input") >= parts.share("h2d") else "link"
    receiving = f"does nothing but receive input for {share} of the {span}"
    if parts.input_s is not None:
        mostly = "while it is made" if by == "input" else "while it crosses the link"
        receiving = f"waits for input for {share} of the step, most of it {mostly}"
    nothing = f"has nothing to do for {share} of the {span}"
    if waited > MODERATELY:
        nothing += f", and receives or awaits its input for another {format_percent(waited)}"
    elif parts.input_s is not None:
        nothing += ", and its input is not the cause"
    return {
        "input": (by, "its input", receiving, ("input", "h2d")),
        "output": ("output", "its output", f"does nothing but send results back for {share} of the {span}", ("d2h",)),
        "host": ("host", "the host", nothing, ("host", "idle")),
        "device": ("device", "the device", f"computes for {share} of the {span}", ("kernels",)),
    }


def _unknown(parts: watches.Parts, reason: str) -> watches.Verdict:
    what = "No GPU was watched" if reason == watches.NO_GPU_WATCHED else "What the device did was not recorded"
    text = f"{what}, so what the program is bound by is not known."
    evidence: tuple[str, ...] = ()
    if parts.kernels_s is None and parts.input_s is not None and parts.period_s > 0:  # by the clock alone
        share = format_percent(parts.input_s / parts.period_s)
        evidence = (
            f"the host is between steps for {format_seconds(parts.input_s)} of {format_seconds(parts.period_s)} "
            f"({share}); whether the device was busy in that time is not known",
        )
    return watches.Verdict("unknown", "", unknown(reason), text, evidence)


_MEANINGS: dict[watches.StepPartName, str] = {
    "kernels": "a kernel runs, or memory is being set",
    "input": "the device does nothing while the host is between steps",
    "h2d": "copies to the device are under way and no kernel runs",
    "d2h": "copies to the host are under way and no kernel runs",
    "idle": "the device does nothing while the host waits for it",
    "host": "the device does nothing while the host is busy",
}


def _figures(parts: watches.Parts, *names: watches.StepPartName) -> tuple[str, ...]:
    whole, known = format_seconds(parts.period_s), dict(parts.named())
    return tuple(
        f"{name} {format_seconds(known[name])} of {whole} ({format_percent(parts.share(name))}): {_MEANINGS[name]}"
        for name in names
        if known.get(name)
    )


MIN_SHARE = 0.02
"""Advice that gains a smaller share of the period is not shown."""
MIN_PAGEABLE = 0.05
"""A direction of which less is copied from pageable memory is pinned already."""
_MOSTLY = 0.5
# An input and its result are few tensors of a step, weights and activations of a model are many of several sizes.
MIN_RETURNING, MIN_RETURNING_SIZES, RETURNING_SHARE = 8, 3, 0.9


@dataclass(frozen=True)
class Evidence:
    """The input of the predictions: figures of the usual steps, or of a window without steps."""

    periods: Periods
    copies: CopyTable
    calls: tuple[watches.Surprise, ...]
    between_s: float | None
    """The host's time between two steps, in which the input is made."""
    cpus: int
    offers: Calls
    conversions: tuple[HostConversion, ...] = ()

    @cached_property
    def parts(self) -> watches.Parts:
        return self.periods.mean()

    @cached_property
    def pageable(self) -> tuple[watches.Pageable, ...]:
        return self.copies.pageable()

    @cached_property
    def copied_bytes(self) -> dict[str, int]:
        return {name: int(self.copies.of(kind).total("nbytes")) for kind, name in DIRECTIONS.items()}

    def predicted(self, code: str, text: str, predicted_s: float, worked_out: str) -> watches.Advice:
        period_s = self.parts.period_s
        gain_s = period_s - predicted_s
        return watches.Advice(code, text, gain_s, gain_s / period_s, predicted_s, worked_out)

    def pageable_share(self, direction: str) -> float:
        whole = self.copied_bytes[direction]
        return sum(row.nbytes for row in self.pageable if row.direction == direction) / whole if whole else 0.0

    @property
    def sends_pageable(self) -> bool:
        """Whether most bytes to the device are of pageable memory, and pinned memory would be faster if known."""
        own = [(row.pinned_s.value, row.seconds) for row in self.pageable if row.direction == "h2d"]
        slower = all(pinned_s is None or pinned_s < seconds for pinned_s, seconds in own)
        return self.pageable_share("h2d") > _MOSTLY and slower

    @property
    def offloads(self) -> bool:
        """Whether nearly all bytes go to the device and come back, in more copies and sizes than an input has."""
        found, most = self.copies.returning(), max(self.copied_bytes.values())
        return (
            found.copies >= MIN_RETURNING * len(self.periods)
            and found.sizes >= MIN_RETURNING_SIZES
            and found.nbytes >= RETURNING_SHARE * most
        )

    def in_most_steps(self, calls: Sequence[watches.Surprise]) -> bool:
        """Whether at least half of the steps have such a call; in a window without steps, whether there is any."""
        known = [row.per_step for row in calls if row.per_step is not None]
        return sum(known) >= _MOSTLY if known else bool(calls)


def advice(evidence: Evidence) -> tuple[watches.Advice, ...]:
    if evidence.parts.period_s <= 0:
        return ()
    makers: tuple[Callable[[Evidence], watches.Advice | None], ...]
    makers = (_keep if evidence.offloads else _prefetch, _pin, _waits, _allocate, _second_stream, _convert)
    found = [row for make in makers if (row := make(evidence)) is not None and row.gain_share >= MIN_SHARE]
    return tuple(sorted(found, key=lambda row: -row.gain_s))


def _keep(evidence: Evidence) -> watches.Advice:
    """Of weights or activations that live in host memory."""
    parts, found, count = evidence.parts, evidence.copies.returning(), len(evidence.periods)
    exposed_s = {"h2d": parts.h2d_s or 0.0, "d2h": parts.d2h_s or 0.0}
    gain_s = sum(seconds * found.nbytes / evidence.copied_bytes[way] for way, seconds in exposed_s.items())
    size, copies = format_size(float(f"{found.nbytes / count:.3g}")), round(found.copies / count)
    stream = f" on {evidence.offers.stream}" if evidence.offers.stream else ""
    text = (
        f"Keep more on the device: {size} go to it in {copies} copies and come back in copies of the same sizes, as "
        "weights or activations do that are kept in host memory. What has room on the device needs neither; send the "
        f"rest ahead{stream}, from page-locked memory."
    )
    worked_out = (
        f"without these copies, of which h2d {format_seconds(exposed_s['h2d'])} and d2h "
        f"{format_seconds(exposed_s['d2h'])} are outside of kernels, if all of it stays on the device"
    )
    return evidence.predicted("keep-on-device", text, parts.period_s - gain_s, worked_out)


def _prefetch(evidence: Evidence) -> watches.Advice | None:
    """With prefetching, a step takes as long as the longest of the rest of it, making the input, and copying it.

    If making the input is the longest, it is shared by as many processes as are needed to change that. Input that is
    copied when its step begins adds to the rest.
    """
    parts, made_s, offers = evidence.parts, evidence.between_s, evidence.offers
    pageable = evidence.sends_pageable
    how = offers.ahead if pageable else offers.ahead_pinned
    if made_s is None or parts.input_s is None or parts.h2d_s is None or not how:
        return None
    pins = pageable and offers.pins_ahead
    staging_s = evidence.periods.mean_s("staging_s") if offers.copies_ahead or pins else 0.0
    rest_s = parts.period_s - parts.input_s - parts.h2d_s - staging_s
    known = evidence.copies.input_s().value if pins else None
    link_s = known / len(evidence.periods) if known is not None else parts.h2d_s + (parts.hidden_h2d_s or 0.0)
    if not offers.copies_ahead:
        rest_s, link_s = rest_s + min(link_s, parts.h2d_s), 0.0
    longest_s, cpus = max(rest_s, link_s), evidence.cpus
    # One processor is left to the program itself.
    makers = max(1, min(math.ceil(made_s / longest_s) if longest_s > 0 else cpus, cpus - 1))
    less = [f"input {format_seconds(parts.input_s)}", f"h2d {format_seconds(parts.h2d_s)}"]
    less += [f"sending pageable memory {format_seconds(staging_s)}"] if staging_s > 0 else []
    worked_out = f"the longest of the step less {joined(less)} ({format_seconds(rest_s)}), making the input "
    if not offers.copies_ahead:
        worked_out = f"the longer of the step with the copies of its input alone ({format_seconds(rest_s)}) and "
        worked_out += "making the input "
    worked_out += f"({format_seconds(made_s)}{f' shared by {makers}' if makers > 1 else ''})"
    if offers.copies_ahead:
        as_now = "as long as now, because the ceiling is not known" if pins else "as long as now"
        speed = as_now if known is None else "at the ceiling of pinned memory"
        worked_out += f", and its copies {speed} ({format_seconds(link_s)})"
    code, what, where = ("pin-and-prefetch", "Pin the input and prefetch it", " in pinned memory")
    if not pins:
        code, what, where = "prefetch", "Prefetch the input", ""
    who = "another thread or process make the next one" if makers == 1 else f"{makers} processes make the next ones"
    text = f"{what}: let {who}{where}"
    text += ", and copy it without waiting while the device computes." if offers.copies_ahead else "."
    text += f" {capitalised(how.replace('{makers}', str(makers)))}."
    return evidence.predicted(code, text, max(rest_s, made_s / makers, link_s), worked_out)


def _pin(evidence: Evidence) -> watches.Advice | None:
    """The time of pageable copies outside of kernels shrinks in the same ratio as the time of all pageable copies."""
    exposed = {"h2d": evidence.periods.mean_s("pageable_h2d_s"), "d2h": evidence.periods.mean_s("pageable_d2h_s")}
    gain_s, words, directions = 0.0, [], set()
    for row in evidence.pageable:
        pinned_s, is_pageable = row.pinned_s.value, evidence.pageable_share(row.direction) >= MIN_PAGEABLE
        if pinned_s is None or pinned_s >= row.seconds or row.direction not in evidence.offers.pin or not is_pageable:
            continue
        saved_s = exposed[row.direction] * (1 - pinned_s / row.seconds)
        if saved_s >= MIN_SHARE * evidence.parts.period_s:
            gain_s += saved_s
            directions.add(row.direction)
            share = format_percent(evidence.pageable_share(row.direction))
            now, pinned = (format_gbps(row.nbytes / seconds / 1e9) for seconds in (row.seconds, pinned_s))
            words.append(
                f"{row.direction} of pageable memory ({share} of its bytes) at {now} could reach {pinned}, and "
                f"{format_seconds(exposed[row.direction])} of it is outside of kernels"
            )
    if not words:
        return None
    how = ". ".join(capitalised(evidence.offers.pin[direction]) for direction in sorted(directions, reverse=True))
    text = f"Pin the copied memory: the copy engine reads page-locked memory directly. {how}."
    return evidence.predicted("pin", text, evidence.parts.period_s - gain_s, joined(words))


def _waits(evidence: Evidence) -> watches.Advice | None:
    """Without waits the host runs ahead, and a period takes as long as the longer of its work and the device's."""
    parts, waiting_s = evidence.parts, evidence.periods.mean_s("waiting_s")
    waits = [row for row in evidence.calls if row.what in ("d2h", "wait")]
    # If most of the input is pageable, its copies wait for the stream anyway, and the host would not run ahead.
    if not evidence.in_most_steps(waits) or not evidence.offers.waits or evidence.pageable_share("h2d") > _MOSTLY:
        return None
    device_s = sum(value or 0.0 for value in (parts.kernels_s, parts.h2d_s, parts.d2h_s, parts.other_copies_s))
    host_s = parts.period_s - waiting_s
    which = waits[0].call if len({row.call for row in waits}) == 1 else f"{waits[0].call} and others"
    text = f"Do not wait in every step ({which}): {evidence.offers.waits}."
    worked_out = (
        f"the longer of the device's work ({format_seconds(device_s)}) and the host's ({format_seconds(host_s)}), "
        f"which is the period less the {format_seconds(waiting_s)} in calls that wait"
    )
    return evidence.predicted("waits", text, max(device_s, host_s), worked_out)


def _allocate(evidence: Evidence) -> watches.Advice | None:
    if not evidence.in_most_steps([row for row in evidence.calls if row.what == "allocation"]):
        return None
    allocating_s = evidence.periods.mean_s("allocating_s")
    text = "Allocate once, before the loop, and use the memory again: requesting it from the driver takes time."
    worked_out = f"the device does nothing for {format_seconds(allocating_s)} while the step's thread is in such calls"
    return evidence.predicted("allocate-once", text, evidence.parts.period_s - allocating_s, worked_out)


def _second_stream(evidence: Evidence) -> watches.Advice | None:
    """Pinned copies on the kernels' own streams could run during kernels that no copy runs with."""
    parts = evidence.parts
    if not evidence.offers.stream:
        return None
    exposed_s = evidence.periods.mean_s("behind_kernels_s")
    room_s = (parts.kernels_s or 0.0) - (parts.hidden_h2d_s or 0.0) - (parts.hidden_d2h_s or 0.0)
    gain_s = max(0.0, min(exposed_s, room_s))
    text = (
        f"Copy on a second stream ({evidence.offers.stream}), one step ahead, so that pinned copies run while kernels "
        "do."
    )
    worked_out = (
        f"{format_seconds(exposed_s)} of pinned copies are on the kernels' own stream and outside of kernels, and "
        f"kernels have room for {format_seconds(room_s)} of copies"
    )
    return evidence.predicted("second-stream", text, parts.period_s - gain_s, worked_out)


def _convert(evidence: Evidence) -> watches.Advice | None:
    """The longest conversion whose time is known. It is not certain that fewer bytes cross, so none are counted."""
    sent = evidence.copied_bytes["h2d"] / len(evidence.periods)
    alone = [each for each in evidence.conversions if not each.found.others]
    if not alone or not sent or evidence.offers.to is None:
        return None
    row, found = alone[0], alone[0].found
    arguments = [f"to={evidence.offers.to}"]
    arguments += [f"dtype='{found.dtype}'"] if found.dtype else []
    arguments += [f"layout='{found.layout or '...->...'}'"] if found.permutes else []
    text = (
        f"Convert on the way: {row.line} {row.does} on the host, in {format_percent(row.share)} of the samples. "
        f"pyxfer.upload(x, {', '.join(arguments)}) takes x as it is before, and converts it where that is fastest"
    )
    text += "" if found.sent else ", if the result of this line is what the program sends"
    text += ". Multiply or divide on the device. " if found.scales else ". "
    text += _crossing(found.source, found.dtype, sent, " a step" if evidence.periods.stepped else "")
    worked_out = (
        f"the period less the {format_seconds(row.exposed_s)} in which the device does nothing and the thread is at "
        f"this line, in no call of CUDA ({row.exposed} of {row.of} samples), if sending takes as long as now"
    )
    return evidence.predicted("convert-on-the-way", text, evidence.parts.period_s - row.exposed_s, worked_out)


def _crossing(source: str, dtype: str, sent: float, often: str) -> str:
    """What crosses in place of `sent` bytes, if a cast to this dtype is made on the way."""
    before, after = ITEM_BYTES.get(source or "uint8", 0), ITEM_BYTES.get(dtype, 0)
    if not dtype or before >= after:
        return "As many bytes cross as now."
    size, less = (format_size(float(f"{nbytes:.3g}")) for nbytes in (sent, sent * before / after))
    of = f"as {source} they are" if source else "if x is uint8 they are"
    return f"{size} go to the device{often}; {of} {less}."
