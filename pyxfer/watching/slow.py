"""Which steps are slow: they would move every mean, and say nothing of the usual step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyxfer import stats
from pyxfer.model_watch import Parts, SlowSteps, StepPartName

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.watching.gathered import Periods
    from pyxfer.watching.steps import Columns

LEAST_STEPS = 8
"""Of fewer a quartile is hardly more than one of them."""
FAR_OUT = 3.0
"""Tukey's far-out fence, in interquartile ranges above the upper quartile. Modes that take turns, or a steady
drift, widen that range and lie within the fence, and no more than a quarter of the steps can lie beyond it."""
ALIKE = 1.05
"""Steps of one length have no such range; what is within this of their upper quartile is no other kind of step."""
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
    """Which of them are steps beyond the fence."""
    if not timed.periods.stepped or len(timed.periods) < LEAST_STEPS:
        return np.zeros(len(timed.periods), np.bool_)
    seconds = timed.columns.period / 1e9
    summary = stats.summarise(seconds.tolist())
    beyond: NDArray[np.bool_] = seconds > max(summary.q3_s + FAR_OUT * summary.iqr_s, ALIKE * summary.q3_s)
    return beyond


def slow_steps(columns: Columns, slow: NDArray[np.bool_]) -> SlowSteps | None:
    """What they took beyond the usual ones, if there are any."""
    count = int(slow.sum())
    if not count:
        return None
    took, usual = columns.period[slow], columns.period[~slow]
    more_ns = int(took.sum()) - count * int(usual.sum()) / len(usual)
    return SlowSteps(
        count=count,
        longest_s=int(took.max()) / 1e9,
        more_s=more_ns / 1e9,
        share=more_ns / int(columns.period.sum()),
        mostly=_mostly(columns.of(slow).mean(), columns.of(~slow).mean()),
    )


def _mostly(slow: Parts, usual: Parts) -> StepPartName | None:
    """The part that holds more of the difference than all others together; a period in one part does not tell."""
    before = dict(usual.named())
    more = {name: seconds - before[name] for name, seconds in slow.named()}
    most = max(more, key=lambda name: more[name])
    return most if len(more) > 1 and more[most] > _MOST * (slow.period_s - usual.period_s) else None
