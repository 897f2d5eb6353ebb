"""What a reader must know of a window before its figures are believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.model import Remark
from pyxfer.model_watch import Activity, SlowSteps, Steps
from pyxfer.units import format_percent, format_seconds
from pyxfer.watching.ceiling_source import remarks_on_shares
from pyxfer.watching.named_ranges import MOST_NAMES, Ranges

if TYPE_CHECKING:
    from pyxfer.watching.window import Window

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
