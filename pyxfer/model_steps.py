"""The steps of a watch, and where the time of each went; `pyxfer.model_watch` offers them too."""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec

from pyxfer.model import Fact, Summary

# In this order every instant belongs to the first that holds; at the last three the device does nothing.
StepPartName = Literal["kernels", "h2d", "d2h", "other copies", "input", "idle", "host"]
STEP_PARTS: tuple[StepPartName, ...] = get_args(StepPartName)
# Parts are means of whole nanoseconds, and a document may have been rounded.
_ROUNDING = 0.01


class Parts(msgspec.Struct, frozen=True):
    """Where the seconds of one period went; they sum to `period_s`.

    kernels: one is running, or memory is being set. h2d, d2h, other copies: one is under way and no kernel runs. The
    device does nothing: input, and the host is between steps; idle, and the step's thread is inside a call that waits;
    host, and it is not. `hidden_*`: copies under kernels, counted beside. `input_s` is null without steps, and where
    only their ends are known: it is in idle and host then.
    """

    period_s: float
    kernels_s: float | None
    h2d_s: float | None
    d2h_s: float | None
    other_copies_s: float | None
    input_s: float | None
    idle_s: float | None
    host_s: float
    hidden_h2d_s: float | None = None
    hidden_d2h_s: float | None = None

    def __post_init__(self) -> None:
        hidden = {"hidden_h2d_s": self.hidden_h2d_s, "hidden_d2h_s": self.hidden_d2h_s}
        named = {f"{name.replace(' ', '_')}_s": seconds for name, seconds in self.named()}
        check_amounts("a period", period_s=self.period_s, **named, **hidden)
        most_s = max(sum(named.values()), *(seconds or 0.0 for seconds in hidden.values()))
        if most_s > (1 + _ROUNDING) * self.period_s:
            raise ValueError(f"the parts of a period sum to its period_s; {most_s:g} s exceeds {self.period_s:g} s")

    def named(self) -> tuple[tuple[StepPartName, float], ...]:
        """Those that are known, in their order."""
        each = (
            *(self.kernels_s, self.h2d_s, self.d2h_s, self.other_copies_s),
            *(self.input_s, self.idle_s, self.host_s),
        )
        return tuple((name, value) for name, value in zip(STEP_PARTS, each, strict=True) if value is not None)

    def share(self, *names: StepPartName) -> float:
        """What part of the period these are together; 0 of a period without length."""
        if self.period_s <= 0:
            return 0.0
        return sum(value for name, value in self.named() if name in names) / self.period_s


class WatchedStep(msgspec.Struct, frozen=True):
    """One step, from the end of the one before to its own; `at_s` from the beginning of the window to its own."""

    number: int
    at_s: float
    thread: int
    parts: Parts
    slow: bool = False


class SlowSteps(msgspec.Struct, frozen=True):
    """The steps that lie far beyond the others. What else is said of a step is of the others, the usual ones.

    `more_s`: what they took beyond as many usual steps, in sum; `share`: that, of the time of all steps. `mostly`: the
    part that most of it lies in; null where none holds half of it, or where parts are not known.
    """

    count: int
    longest_s: float
    more_s: float
    share: float
    mostly: StepPartName | None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"slow steps are one at least; got {self.count}")
        if not (0 < self.more_s < math.inf and 0 < self.longest_s < math.inf and 0 < self.share <= 1):
            raise ValueError("slow steps took longer than others, and a share of the time; their seconds are finite")


class Steps(msgspec.Struct, frozen=True):
    """The steps of the window. Those that failed or were not closed are counted and in no other figure.

    `between_s`: the host between two steps, which is where the input is made; `inside_s`: from a step's beginning to
    its end; both null where only ends are known. `waiting_s`: in calls that wait for the device. These three are of
    the mean of the usual steps, as `Watched.parts` is: of all but the slow ones. `period` and `each` are of all.
    """

    watched: int
    skipped: int
    failed: int
    unclosed: int
    failure: str | None
    period: Fact[Summary]
    between_s: float | None = None
    inside_s: float | None = None
    waiting_s: float | None = None
    each: tuple[WatchedStep, ...] = ()
    slow: SlowSteps | None = None

    def __post_init__(self) -> None:
        check_amounts("a watch", watched=self.watched, skipped=self.skipped, failed=self.failed, unclosed=self.unclosed)
        check_amounts("a step", between_s=self.between_s, inside_s=self.inside_s, waiting_s=self.waiting_s)
        if self.slow is not None and self.usual < 1:
            raise ValueError(f"most steps are usual ones; got {self.slow.count} slow steps of {self.watched}")
        if len(self.each) == self.watched:
            self._check_those_listed()
        if self.slow is not None and self.period.value is not None:
            least_s, most_s = self.period.value.min_s, self.period.value.max_s
            if not least_s < self.slow.longest_s <= (1 + _ROUNDING) * most_s:
                raise ValueError(
                    f"the longest slow step is above the shortest of all steps, {least_s:g} s, and none is above "
                    f"{most_s:g} s; got {self.slow.longest_s:g} s"
                )

    def _check_those_listed(self) -> None:
        listed = [step.parts.period_s for step in self.each if step.slow]
        count = 0 if self.slow is None else self.slow.count
        if len(listed) != count:
            raise ValueError(f"every slow step is listed as one; got {count} slow steps, and {len(listed)} listed so")

    @property
    def usual(self) -> int:
        """How many are not slow."""
        return self.watched - (0 if self.slow is None else self.slow.count)


def check_amounts(of: str, **amounts: float | None) -> None:
    """Refuse what no time and no count can be; what is not known is no amount."""
    for name, amount in amounts.items():
        if amount is not None and not 0 <= amount < math.inf:
            raise ValueError(f"{name} of {of} is zero or above, and finite; got {amount}")
