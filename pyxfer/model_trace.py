"""The part of the document that comes from the device's own records; `pyxfer.model` offers it too."""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec

from pyxfer.model_machine import Fact

NOT_TRACED = "nobody traced it"
NOT_ASKED = "it was not asked for (--no-trace)"
UNTRACED = "the run ended before it was traced"
NO_TRIAL_TO_TRACE = "it has no trial that counts"
# Of runs that earlier versions have saved.
OUT_OF_TIME = "the budget was spent before it was traced: give a longer --budget"
OF_SIDES = "its two sides have theirs"
NO_FAULT: frozenset[str] = frozenset((NOT_TRACED, NOT_ASKED, UNTRACED, NO_TRIAL_TO_TRACE, OUT_OF_TIME, OF_SIDES))
"""Why a row may have no traced trial although nothing went wrong."""
# In the order in which they come about. What pyxfer cannot tell apart stays in the part that it began in.
PartName = Literal[
    "preparing", "waiting", "copying", "staging", "gaps", "kernels", "other copies", "returning", "finishing"
]
PARTS: tuple[PartName, ...] = get_args(PartName)
# Parts are sums of floating point numbers, and a document keeps every digit of them.
_ROUNDING = 1e-6


class Tracing(msgspec.Struct, frozen=True):
    """What the records come from."""

    library: str
    version: int


class Dma(msgspec.Struct, frozen=True):
    """What the copy engines did for one transfer.

    `seconds`: at least one copy in the route's direction was under way, in the traced trial nearest to the median of
    those only timed; the rest is of most of the traced trials. `source`: the memory that they met on the
    host's side, `pageable` or `pinned`, or both with a `+` between.
    """

    seconds: Fact[float]
    nbytes: int
    copies: float
    source: str
    trials: int

    def __post_init__(self) -> None:
        _check_amounts(seconds=self.seconds.value or 0.0, nbytes=self.nbytes, copies=self.copies)
        _check_trials(self.trials)

    @property
    def gbps(self) -> float | None:
        """1e9 bytes a second while the copy engines were at work."""
        return None if not self.seconds.value else self.nbytes / self.seconds.value / 1e9


class Part(msgspec.Struct, frozen=True):
    """A stretch of a trial, with its name."""

    name: PartName
    seconds: float

    def __post_init__(self) -> None:
        _check_amounts(seconds=self.seconds)


class Breakdown(msgspec.Struct, frozen=True):
    """Where the time of one transfer went, in the traced trial nearest to the median of those only timed.

    The parts sum to `elapsed_s`.

    `switches`: how often the calling thread waited for something; `preemptions`: how often the processor was taken
    from it. `left_out`: how many traced trials could not be broken down, beside the `trials` that could.
    """

    elapsed_s: float
    parts: tuple[Part, ...]
    dispatch_s: float
    wall_s: float
    faults: float
    switches: float
    preemptions: float
    trials: int
    left_out: int = 0

    def __post_init__(self) -> None:
        _check_amounts(elapsed_s=self.elapsed_s, dispatch_s=self.dispatch_s, wall_s=self.wall_s)
        _check_amounts(faults=self.faults, switches=self.switches, preemptions=self.preemptions)
        _check_amounts(left_out=self.left_out)
        _check_trials(self.trials)
        whole = sum(part.seconds for part in self.parts)
        if abs(whole - self.elapsed_s) > _ROUNDING * self.elapsed_s:
            raise ValueError(f"the parts of a breakdown sum to its elapsed_s; {whole:g} s is not {self.elapsed_s:g} s")

    def seconds(self, name: PartName) -> float:
        """How long a part took; nothing where there was none."""
        return sum(part.seconds for part in self.parts if part.name == name)


def _check_amounts(**amounts: float) -> None:
    for name, amount in amounts.items():
        if not 0 <= amount < math.inf:
            raise ValueError(f"{name} of a traced trial is zero or above, and finite; got {amount}")


def _check_trials(trials: int) -> None:
    if trials < 1:
        raise ValueError(f"what was traced has one trial at least; got {trials}")
