"""The traced trials of a run: after all that are timed, so that the tracer is in no figure.

They run in rounds of shuffled order as the timed ones do, the first of them with fresh content that is verified.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyxfer._document.runs import NO_TRIAL_TO_TRACE, NOT_ASKED, Fact, Tracing, unknown
from pyxfer._trace.collector import Collector, Taking
from pyxfer.errors import (
    CancelledError,
    CudaError,
    CudaUnavailableError,
    DeviceLostError,
    MeasurementError,
    TraceUnavailableError,
)

if TYPE_CHECKING:
    from pyxfer.native import Engine


TRIALS = 3
# A route that is explained has so many in each round, and then more by itself, up to so many in all, until one is near
# to those that are only timed: host memory can be faster or slower for seconds.
EXPLAINED_TRIALS, MOST_EXPLAINED_TRIALS = 5, 100
# Fresh content is always sent; only a trial after it shows what is served from a cache.
LEAST_TRIALS = 2
# At most this part of a budget is theirs; what they do not need, the timed trials have.
SHARE = 0.15
# And this part also where the timed trials have left nothing of it.
LEAST_SHARE = 0.05
# Of the time for all, what a route that is explained may take beyond it.
SEARCH_SHARE = 0.5
# To open the library and make it record; and to take the records, beside the trial itself.
OPENING_S, TAKING_S = 0.5, 0.004
NOT_COME_TO = "the run ended before it came to tracing"


@dataclass(eq=False)
class Candidate:
    """A row to trace: `trace` runs one trial, of fresh content the first time, and keeps what it shows.

    None where the row has no trial that counts; `give_up` is told why there is no traced one, and whether that is
    because it failed. `is_near`: whether a trial of it is near to those that are only timed; of a row that is not
    explained nobody asks.
    """

    trace: Callable[[Taking, bool], None] | None
    give_up: Callable[[str, bool], None]
    is_near: Callable[[], bool] | None = None
    trials: int = 0

    @property
    def each_round(self) -> int:
        """Its trials in a round."""
        return EXPLAINED_TRIALS if self.is_near else 1


def trace_candidates(
    engine: Engine,
    device: int,
    candidates: Sequence[Candidate],
    *,
    seconds: float,
    seed: int,
    cancelled: Callable[[], bool],
    on_start: Callable[[Fact[Tracing]], None],
    on_round: Callable[[int], None] = lambda _: None,
) -> None:
    """A few trials of each in so much time, or the reason why there are none.

    Raises:
        CancelledError: the run was asked to end.

    """
    with tracing(engine, device) as (taking, started):
        on_start(started)
        for each in candidates:
            if started.reason is not None or each.trace is None:
                each.give_up(started.reason or NO_TRIAL_TO_TRACE, False)
        if taking is not None:
            waiting = [each for each in candidates if each.trace is not None]
            _rounds(waiting, taking, seconds, seed, cancelled, on_round)
            _search(waiting, taking, SEARCH_SHARE * seconds, cancelled)


def leave_out(candidates: Sequence[Candidate], on_start: Callable[[Fact[Tracing]], None]) -> None:
    """None of them is traced, because nobody asked for it."""
    for each in candidates:
        each.give_up(NOT_ASKED, False)
    on_start(unknown(NOT_ASKED))


def seconds_for(budget_s: float, deadline_s: float) -> float:
    """The time for tracing: its share of the budget, or what is left."""
    return min(SHARE * budget_s, max(LEAST_SHARE * budget_s, deadline_s - time.perf_counter()))


@contextmanager
def tracing(engine: Engine, device: int) -> Iterator[tuple[Taking | None, Fact[Tracing]]]:
    """A collector at work, or the reason why there is none."""
    try:
        collector = Collector(engine)
    except TraceUnavailableError as error:
        yield None, unknown(f"trace: unavailable: {error}")
        return
    try:
        try:
            started = collector.start()
        except TraceUnavailableError as error:
            yield None, unknown(f"trace: unavailable: {error}")
            return
        try:
            with closing(Taking(engine, collector, device)) as taking:
                yield taking, Fact(started)
        finally:
            collector.stop()
    finally:
        collector.close()


def _rounds(
    waiting: list[Candidate],
    taking: Taking,
    seconds: float,
    seed: int,
    cancelled: Callable[[], bool],
    on_round: Callable[[int], None],
) -> None:
    """As many as the time allows; the fewest however long they take."""
    until = time.perf_counter() + seconds
    order = random.Random(seed)  # noqa: S311 - an order of trials, no secret
    for number in range(TRIALS):
        on_round(number)
        for each in order.sample(waiting, len(waiting)):
            _end_if(cancelled)
            if number >= LEAST_TRIALS and time.perf_counter() > until:
                return
            if not all(_trial(each, taking) for _ in range(each.each_round)):
                waiting.remove(each)


def _search(waiting: list[Candidate], taking: Taking, seconds: float, cancelled: Callable[[], bool]) -> None:
    """More trials of what is explained, as long as none shows what the timed ones took."""
    until = time.perf_counter() + seconds
    for each in waiting:
        while each.is_near is not None and 0 < each.trials < MOST_EXPLAINED_TRIALS and not each.is_near():
            _end_if(cancelled)
            if time.perf_counter() > until or not _trial(each, taking):
                break


def _end_if(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise CancelledError("the measurement was asked to end")


def _trial(each: Candidate, taking: Taking) -> bool:
    """Whether it can go on: what fails here has its figures already, and is only not traced further."""
    try:
        if each.trace is not None:
            each.trace(taking, each.trials == 0)
        each.trials += 1
    except (CancelledError, CudaUnavailableError, DeviceLostError):
        raise
    except (CudaError, MeasurementError, TraceUnavailableError) as error:
        each.give_up(f"its traced trial failed: {error}", True)
        return False
    return True
