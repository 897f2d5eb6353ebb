"""A callable as a subject of the sampler, and the raw copy that it is set against."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pyxfer.errors import CleanupWarning, CudaError
from pyxfer.model import Direction, Side, Trial
from pyxfer.raw.subjects import RawSubject
from pyxfer.raw.workshop import Workshop
from pyxfer.sampling.bracket import Bracket
from pyxfer.sampling.interruptible import GRACE_S, Ending, run_at_most, run_interruptible

Sync = Callable[[], object]
Result = TypeVar("Result")
# The first calls may compile, and may still grow a pool.
WARM_CALLS = 2
UNRECORDED_CALLS = 1 + WARM_CALLS


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Call:
    """What is timed: `run`. `before` comes before each of its calls, untimed; `sync` waits for a framework after it.

    Of its calls the first `unrecorded` are no trials. With `rounds` there are so many trials, whatever they cost.
    """

    run: Callable[[], object]
    route: str
    before: Callable[[], object] = _nothing
    sync: Sync | None = None
    unrecorded: int = UNRECORDED_CALLS
    rounds: int | None = None


class OwnError(Exception):
    """Holds what the callable raised."""

    def __init__(self, error: CudaError) -> None:
        super().__init__(error)
        self.error = error


class CallableSubject:
    """Somebody's callable as a subject."""

    key = "callable"

    def __init__(self, call: Call, bracket: Bracket, side: Side, anchor: str | None) -> None:
        self.anchor = anchor
        self._call = call
        self._bracket = bracket
        self._side = side

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One call; its error ends the sampling, which would else take a CUDA error for one route's own."""
        try:
            return self.once(round_index)
        except CudaError as error:
            raise OwnError(error) from error

    def once(self, round_index: int) -> Mapping[Side, Trial]:
        """One call."""
        bracket, run = self._bracket, self._call.run
        self._call.before()
        bracket.begin()
        run()
        bracket.returned()
        bracket.end(self._call.sync)
        trial = Trial(round_index, bracket.elapsed_s, bracket.dispatch_s, bracket.wall_s, invalid=bracket.fault)
        return {self._side: trial}


class ReferenceSubject:
    """The raw copy that a callable is set against. It runs apart from the thread that Ctrl-C has to reach."""

    anchor = None

    def __init__(self, subject: RawSubject, shop: Workshop) -> None:
        self.key = subject.key
        self.direction: Direction = subject.way.direction
        self._subject = subject
        self._shop = shop

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One window of copies."""
        return apart(self._shop, lambda: self._subject.trial(round_index))


def apart(shop: Workshop, work: Callable[[], Result]) -> Result:
    """Do it in a thread of its own; on Ctrl-C a device that does not answer is left to that thread."""
    done: list[Result] = []
    ending = run_interruptible(lambda: done.append(work()), shop.cancel)
    if ending is Ending.STUCK:
        shop.leave()
    if ending is not Ending.DONE:
        raise KeyboardInterrupt
    return done[0]


def release(shop: Workshop) -> None:
    """Release it in a thread of its own, and after Ctrl-C wait for no device that does not answer."""
    faults: list[str] = []
    run_at_most(lambda: faults.extend(shop.close()), GRACE_S if shop.cancelled() else None)
    for fault in faults:
        warnings.warn(fault, CleanupWarning, stacklevel=2)
