"""What a period is bound by, with the thresholds that users of TensorFlow's profiler know."""

from __future__ import annotations

from pyxfer.model import Fact, unknown
from pyxfer.model_watch import BoundBy, Degree, Parts, StepPartName, Verdict
from pyxfer.units import format_percent, format_seconds

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
