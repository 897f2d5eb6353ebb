"""What would make a period shorter, and by how much: predictions from its own measured parts and the ceilings.

Each says how it was worked out. They do not add up, because what one takes away another cannot take again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyxfer._document.runs import Fact, unknown
from pyxfer._document.watches import Advice, BoundBy, Degree, Pageable, Parts, StepPartName, Steps, Surprise, Verdict
from pyxfer._watch.parts import Columns, mean_s
from pyxfer.units import format_gbps, format_percent, format_seconds

if TYPE_CHECKING:
    from pyxfer._watch.gathered import Periods


BOUND = 0.20
MODERATELY = 0.05
_DEGREES: dict[bool, Degree] = {True: "", False: "moderately"}


def verdict(parts: Parts, stepped: bool, unseen: str | None, no_gpu: bool = False) -> Verdict:
    """Input first, then what is fetched back, then the host; else the device has enough to do."""
    if unseen is not None:
        return _unseen(parts, unseen, "No GPU was watched" if no_gpu else "What the device did was not recorded")
    if parts.period_s <= 0:
        text = "The window has no length, so there is nothing to be bound by."
        return Verdict("unknown", "", unknown("the window has no length"), text, ())
    waited = parts.share("input", "h2d")
    if waited > MODERATELY:
        return _input(parts, waited, stepped)
    if parts.share("d2h") > MODERATELY:
        return _output(parts, stepped)
    idle = parts.share("idle", "host")
    if idle > BOUND:
        text = f"The device has nothing to do for {format_percent(idle)} of {_of(stepped)}"
        text += ", and input is not why." if parts.input_s is not None else "."
        return Verdict("host", "", Fact(idle), _bound("the host", "", text, stepped), _lines(parts, "host", "idle"))
    work = parts.share("kernels", "other copies")
    text = f"The device computes for {format_percent(work)} of {_of(stepped)}."
    return Verdict("device", "", Fact(work), _bound("the device", "", text, stepped), _lines(parts, "kernels"))


def _input(parts: Parts, share: float, stepped: bool) -> Verdict:
    made, sent = parts.share("input"), parts.share("h2d")
    by: BoundBy = "input" if made >= sent else "link"
    degree = _DEGREES[share > BOUND]
    if parts.input_s is not None:
        mostly = "while it is made" if by == "input" else "while it crosses the link"
        text = f"The device waits for input for {format_percent(share)} of the step, most of it {mostly}."
    else:
        text = f"The device does nothing but receive input for {format_percent(share)} of {_of(stepped)}."
    return Verdict(by, degree, Fact(share), _bound("its input", degree, text, stepped), _lines(parts, "input", "h2d"))


def _output(parts: Parts, stepped: bool) -> Verdict:
    share = parts.share("d2h")
    degree = _DEGREES[share > BOUND]
    text = f"The device does nothing but send results back for {format_percent(share)} of {_of(stepped)}."
    bound = _bound("what it fetches back", degree, text, stepped)
    return Verdict("output", degree, Fact(share), bound, _lines(parts, "d2h"))


def _unseen(parts: Parts, reason: str, what: str) -> Verdict:
    text = f"{what}, so it cannot be told what the program is bound by."
    evidence: tuple[str, ...] = ()
    if parts.kernels_s is None and parts.input_s is not None and parts.period_s > 0:  # by the clock alone
        share = format_percent(parts.input_s / parts.period_s)
        evidence = (
            f"the host is between steps for {format_seconds(parts.input_s)} of {format_seconds(parts.period_s)} "
            f"({share}); whether the device was at work meanwhile is not known",
        )
    return Verdict("unknown", "", unknown(reason), text, evidence)


_MEANINGS: dict[StepPartName, str] = {
    "kernels": "a kernel runs, or memory is being set",
    "input": "the device does nothing while the host is between steps",
    "h2d": "copies to the device are under way and no kernel runs",
    "d2h": "copies to the host are under way and no kernel runs",
    "idle": "the device does nothing while the host waits for it",
    "host": "the device does nothing while the host is at work",
}


def _lines(parts: Parts, *names: StepPartName) -> tuple[str, ...]:
    """The figures of these parts; one that took no time is no evidence."""
    whole, known = format_seconds(parts.period_s), dict(parts.named())
    return tuple(
        f"{name} {format_seconds(known[name])} of {whole} ({format_percent(parts.share(name))}): {_MEANINGS[name]}"
        for name in names
        if known.get(name)
    )


def _bound(what: str, degree: Degree, text: str, stepped: bool) -> str:
    subject = "The step" if stepped else "The program"
    return f"{subject} is {f'{degree} ' if degree else ''}bound by {what}. {text}"


def _of(stepped: bool) -> str:
    return "the step" if stepped else "the window"


LEAST_SHARE = 0.02
"""What gains less than this of the period is not worth a reader's time."""
_MOSTLY = 0.5
_STAGING = {"h2d": "upload", "d2h": "download"}


@dataclass(frozen=True)
class Grounds:
    """All that the predictions are made of: the usual steps, or the window where it has none."""

    periods: Periods
    columns: Columns
    parts: Parts
    steps: Steps
    pageable: tuple[Pageable, ...]
    """Of the copies in the periods: what lies beside them is in no prediction of a step, nor in the next three."""
    surprises: tuple[Surprise, ...]
    input_s: Fact[float]
    """What the copies to the device would take at the ceiling of pinned memory."""
    input_bytes: int
    """Of the copies to the device."""
    cpus: int
    """Processors that the program may use."""

    def each_s(self, seconds: float) -> float:
        """Of the mean period."""
        return seconds / max(1, len(self.periods))

    def rows(self, way: str) -> list[Pageable]:
        """Copies of pageable memory in one direction."""
        return [row for row in self.pageable if row.way == way]


@dataclass(frozen=True)
class _Prediction:
    code: str
    text: str
    predicted_s: float
    worked_out: str


def advice(grounds: Grounds) -> tuple[Advice, ...]:
    """Those that gain enough, in the order of their gain."""
    period_s = grounds.parts.period_s
    if period_s <= 0:
        return ()
    makers: tuple[Callable[[Grounds], _Prediction | None], ...] = (_prefetch, _pin, _waits, _allocate, _second_stream)
    made = [prediction for prediction in (make(grounds) for make in makers) if prediction is not None]
    found = [
        Advice(
            code=each.code,
            text=each.text,
            gain_s=period_s - each.predicted_s,
            gain_share=(period_s - each.predicted_s) / period_s,
            predicted_s=each.predicted_s,
            worked_out=each.worked_out,
        )
        for each in made
    ]
    worth = [each for each in found if each.gain_share >= LEAST_SHARE]
    return tuple(sorted(worth, key=lambda each: -each.gain_s))


def _prefetch(grounds: Grounds) -> _Prediction | None:
    """Without its input a step takes what is left of it, unless making the input, or its copies, take longer.

    One that takes longer to make than the rest of the step is shared among as many makers as bring it below that.
    """
    parts, made_s = grounds.parts, grounds.steps.between_s
    if made_s is None or parts.input_s is None or parts.h2d_s is None:
        return None
    staging_s = mean_s(grounds.columns.staging)
    rest_s = parts.period_s - parts.input_s - parts.h2d_s - staging_s
    known = grounds.input_s.value
    link_s = grounds.each_s(known) if known is not None else parts.h2d_s + (parts.hidden_h2d_s or 0.0)
    makers = _makers(made_s, max(rest_s, link_s), grounds.cpus)
    less = [f"input {format_seconds(parts.input_s)}", f"h2d {format_seconds(parts.h2d_s)}"]
    less += [f"sending pageable memory {format_seconds(staging_s)}"] if staging_s > 0 else []
    speed = "at the ceiling of pinned memory" if known is not None else "as long as now, for want of a ceiling"
    worked_out = (
        f"the longest of the step less {_joined(less)} ({format_seconds(rest_s)}), making the input "
        f"({format_seconds(made_s)}{f' shared by {makers}' if makers > 1 else ''}), and its copies {speed} "
        f"({format_seconds(link_s)})"
    )
    code, what, where = "prefetch", "Prefetch the input", ""
    if grounds.rows("h2d"):
        code, what, where = "pin-and-prefetch", "Pin the input and prefetch it", " in pinned memory"
    who = "another thread or process make the next one" if makers == 1 else f"{makers} processes make the next ones"
    text = f"{what}: let {who}{where}, and copy it without waiting while the device computes."
    if code == "pin-and-prefetch":
        text += " pyxfer.prefetch does both for ordinary arrays: it stages them through pinned memory, ahead."
    return _Prediction(code, text, max(rest_s, made_s / makers, link_s), worked_out)


def _makers(made_s: float, rest_s: float, cpus: int) -> int:
    """How many it takes that inputs come as fast as the rest of the step; one processor is the program's own."""
    needed = math.ceil(made_s / rest_s) if rest_s > 0 else cpus
    return max(1, min(needed, cpus - 1))


def _pin(grounds: Grounds) -> _Prediction | None:
    """The part of pageable copies that no kernel hides shrinks as their time does at the ceiling."""
    exposed = {"h2d": mean_s(grounds.columns.pageable_h2d), "d2h": mean_s(grounds.columns.pageable_d2h)}
    gain_s, words, ways = 0.0, [], set()
    for row in grounds.pageable:
        pinned_s = row.pinned_s.value
        if pinned_s is None or row.seconds <= 0 or pinned_s >= row.seconds:
            continue
        saved_s = exposed[row.way] * (1 - pinned_s / row.seconds)
        gain_s += saved_s
        if saved_s >= LEAST_SHARE * grounds.parts.period_s:
            ways.add(row.way)
            words.append(
                f"{row.way} of pageable memory at {format_gbps(row.nbytes / row.seconds / 1e9)} could reach "
                f"{format_gbps(row.nbytes / pinned_s / 1e9)}, and {format_seconds(exposed[row.way])} of it lie outside "
                "of kernels"
            )
    if not words:
        return None
    calls = _joined([f"pyxfer.{_STAGING[way]}" for way in sorted(ways, reverse=True)])
    text = (
        "Pin what is copied: page-locked memory is read by the copy engine itself. pyxfer.pin(x) pins an array where "
        f"it lies; {calls} would stage ordinary ones with several threads."
    )
    return _Prediction("pin", text, grounds.parts.period_s - gain_s, _joined(words))


def _waits(grounds: Grounds) -> _Prediction | None:
    """A host that does not wait runs ahead, and the period is the longer of its own work and the device's."""
    parts, waiting_s = grounds.parts, mean_s(grounds.columns.waiting)
    fetches = [each for each in grounds.surprises if each.what != "allocation"]
    pageable = sum(row.nbytes for row in grounds.rows("h2d"))
    # Copies from pageable memory wait for the stream themselves, so the host would not run ahead.
    if not fetches or waiting_s <= 0 or (grounds.input_bytes and pageable / grounds.input_bytes > _MOSTLY):
        return None
    device_s = sum(value or 0.0 for value in (parts.kernels_s, parts.h2d_s, parts.d2h_s, parts.other_copies_s))
    host_s = parts.period_s - waiting_s
    who = fetches[0].call if len({each.call for each in fetches}) == 1 else f"{fetches[0].call} and others"
    text = f"Do not wait in every step ({who}): fetch results every so many steps, or a step later."
    worked_out = (
        f"the longer of the device's work ({format_seconds(device_s)}) and the host's ({format_seconds(host_s)}), "
        f"which is the period less the {format_seconds(waiting_s)} in calls that wait"
    )
    return _Prediction("waits", text, max(device_s, host_s), worked_out)


def _allocate(grounds: Grounds) -> _Prediction | None:
    asked_s = mean_s(grounds.columns.allocating)
    if asked_s <= 0:
        return None
    text = "Allocate once, before the loop, and use the memory again: asking the driver for it takes the host's time."
    worked_out = f"the device does nothing for {format_seconds(asked_s)} while the step's thread is in such calls"
    return _Prediction("allocate-once", text, grounds.parts.period_s - asked_s, worked_out)


def _second_stream(grounds: Grounds) -> _Prediction | None:
    """Copies that no kernel hides, from pinned memory, fit under the kernels that hide none."""
    parts, columns = grounds.parts, grounds.columns
    if not parts.kernels_s:
        return None
    exposed_s = (parts.h2d_s or 0.0) + (parts.d2h_s or 0.0)
    exposed_s -= mean_s(columns.pageable_h2d) + mean_s(columns.pageable_d2h)
    room_s = parts.kernels_s - (parts.hidden_h2d_s or 0.0) - (parts.hidden_d2h_s or 0.0)
    gain_s = min(exposed_s, room_s)
    text = "Copy on a second stream, so that pinned copies run while kernels do."
    worked_out = (
        f"{format_seconds(max(0.0, exposed_s))} of pinned copies lie outside of kernels, and kernels have room for "
        f"{format_seconds(max(0.0, room_s))} under them"
    )
    return _Prediction("second-stream", text, parts.period_s - gain_s, worked_out)


def _joined(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
