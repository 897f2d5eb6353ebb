"""Which steps are slow: they would move every mean, and say nothing of the usual step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyxfer import stats
from pyxfer.model_watch import SlowSteps, StepPartName

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.watching.gathered import Periods
    from pyxfer.watching.steps import Columns

LEAST_STEPS = 8
"""Of fewer in a thread a quartile is hardly more than one of them."""
FAR_OUT = 3.0
"""Tukey's far-out fence, in interquartile ranges above the upper quartile. Modes that take turns, or a steady
drift, widen that range and lie within the fence, as long as they are a quarter of the steps."""
ALIKE = 1.05
"""Steps of one length have no such range; what is within this of their upper quartile is no other kind of step."""
MOST_SHARE = 0.15
"""Of a thread's steps: what comes about in more of them is how the program is. By the fence alone every fourth step, if
it is longer (as where gradients are gathered), would be slow or not by one step more in the window."""
_MOST = 0.5


@dataclass(frozen=True)
class Timed:
    """Steps, or the window where it has none, and where their time went."""

    periods: Periods
    columns: Columns

    def of(self, chosen: NDArray[np.bool_]) -> Timed:
        """Some of them."""
        return Timed(self.periods.of(chosen), self.columns.of(chosen))


def slow_ones(timed: Timed) -> NDArray[np.bool_]:
    """Which of them are steps beyond the fence of their own thread."""
    slow = np.zeros(len(timed.periods), np.bool_)
    if timed.periods.stepped:
        threads, counts = np.unique(timed.periods.thread, return_counts=True)
        for thread in threads[counts >= LEAST_STEPS]:
            own = timed.periods.thread == thread
            slow[own] = _far_out(timed.columns.period[own] / 1e9)
    return slow


def slow_steps(timed: Timed, slow: NDArray[np.bool_]) -> SlowSteps | None:
    """What they took beyond the usual ones of their own thread, if there are any."""
    if not slow.any():
        return None
    columns, thread = timed.columns, timed.periods.thread
    more_ns = 0.0
    more: dict[StepPartName, float] = {}
    for each in np.unique(thread[slow]):
        took, usual = columns.of(slow & (thread == each)), columns.of(~slow & (thread == each))
        count = len(took.period)
        more_ns += int(took.period.sum()) - count * int(usual.period.sum()) / len(usual.period)
        before = dict(usual.mean().named())
        for name, seconds in took.mean().named():
            more[name] = more.get(name, 0.0) + count * (seconds - before[name])
    return SlowSteps(
        count=int(slow.sum()),
        longest_s=int(columns.period[slow].max()) / 1e9,
        more_s=more_ns / 1e9,
        share=more_ns / int(columns.period.sum()),
        mostly=_mostly(more, more_ns / 1e9),
    )


def _far_out(seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of one thread's steps lie beyond the fence; none, where they are too many to be but slow."""
    summary = stats.summarise(seconds.tolist())
    beyond: NDArray[np.bool_] = seconds > max(summary.q3_s + FAR_OUT * summary.iqr_s, ALIKE * summary.q3_s)
    return beyond & (int(beyond.sum()) / len(beyond) <= MOST_SHARE)


def _mostly(more: Mapping[StepPartName, float], more_s: float) -> StepPartName | None:
    """The part that holds more of the difference than all others together; a period in one part does not tell."""
    most = max(more, key=lambda name: more[name])
    return most if len(more) > 1 and more[most] > _MOST * more_s else None
