"""The traced trials of a run. They run after all timed trials, so that the tracer does not affect these.

Like the timed trials they run in rounds of shuffled order. The first one of a row has fresh content, which is verified.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from pyxfer import errors
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import NO_TRIAL_TO_TRACE, Tracing
from pyxfer._trace.collector import Collector, TrialRecorder
from pyxfer.native import Engine

TRIALS = 3
# Trials of an explained route in each round, and the most in total. Further trials run until one is near the median of
# the timed ones, because host memory can be faster or slower for seconds.
EXPLAINED_TRIALS, MAX_EXPLAINED_TRIALS = 5, 100
# Fresh content is always sent; only a second trial shows whether a route sends from a cache.
MIN_TRIALS = 2
# The largest share of the budget for tracing. The timed trials have the rest.
MAX_SHARE = 0.1
# The smallest share, even if the timed trials have used up the budget.
MIN_SHARE = 0.05
# The further time for the search for a trial near the median, as a share of the tracing time.
SEARCH_SHARE = 0.5
# To open the library and start it; and to take the records of a trial.
OPENING_S, TAKING_S = 0.5, 0.004
NOT_REACHED = "the run ended before it came to tracing"


@dataclass(eq=False)
class Candidate:
    """A row to trace, by `trace`, with fresh content if its argument is true; None if no timed trial is valid.

    `give_up` gets why no (further) trial is traced, and whether one failed. `is_near`, of the explained row alone, says
    whether a traced trial is near the median of the timed ones. `least_trials` may take longer than the others.
    """

    trace: Callable[[TrialRecorder, bool], None] | None
    give_up: Callable[[str, bool], None]
    is_near: Callable[[], bool] | None = None
    least_trials: int = MIN_TRIALS
    trials: int = 0


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
    latest_s: float = math.inf,
) -> None:
    """Trace a few trials of each candidate in `seconds`, and none after `latest_s`.

    Candidates without a trial are given up with the reason.
    """
    with tracing(engine, device) as (recorder, started):
        on_start(started)
        for candidate in candidates:
            if started.reason is not None or candidate.trace is None:
                candidate.give_up(started.reason or NO_TRIAL_TO_TRACE, False)
        if recorder is None:
            return
        remaining = [candidate for candidate in candidates if candidate.trace is not None]
        until_s = min(time.perf_counter() + seconds, latest_s)
        order = random.Random(seed)  # noqa: S311 - an order of trials, not a secret
        for number in range(TRIALS):
            on_round(number)
            for candidate in order.sample(remaining, len(remaining)):
                _end_if(cancelled)
                # The least trials of each may take longer than the others.
                if time.perf_counter() > (latest_s if number < candidate.least_trials else until_s):
                    continue
                if not all(_trial(candidate, recorder) for _ in range(EXPLAINED_TRIALS if candidate.is_near else 1)):
                    remaining.remove(candidate)
        _search(remaining, recorder, min(time.perf_counter() + SEARCH_SHARE * seconds, latest_s), cancelled)


def seconds_for(budget_s: float, deadline_s: float) -> float:
    """The time for tracing: the time left until the deadline, but at least and at most a share of the budget."""
    return min(MAX_SHARE * budget_s, max(MIN_SHARE * budget_s, deadline_s - time.perf_counter()))


@contextmanager
def tracing(engine: Engine, device: int) -> Iterator[tuple[TrialRecorder | None, Fact[Tracing]]]:
    """Run a collector during the block. Without a usable library it gives None and the reason."""
    with ExitStack() as stack:
        try:
            collector = stack.enter_context(closing(Collector(engine)))
            started = Fact(stack.enter_context(collector.running()))
        except errors.TraceUnavailableError as error:
            started = unknown(f"trace: unavailable: {error}")
        yield stack.enter_context(closing(TrialRecorder(engine, collector, device))) if started.value else None, started


def _search(remaining: list[Candidate], recorder: TrialRecorder, until_s: float, cancelled: Callable[[], bool]) -> None:
    for row in remaining:
        while row.is_near is not None and 0 < row.trials < MAX_EXPLAINED_TRIALS and not row.is_near():
            _end_if(cancelled)
            if time.perf_counter() > until_s or not _trial(row, recorder):
                break


def _end_if(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise errors.CancelledError("the measurement was asked to end")


def _trial(candidate: Candidate, recorder: TrialRecorder) -> bool:
    """Trace one trial. False if it failed: the row keeps its figures, and is not traced further."""
    try:
        if candidate.trace is not None:
            candidate.trace(recorder, candidate.trials == 0)
        candidate.trials += 1
    except (errors.CancelledError, errors.CudaUnavailableError, errors.DeviceLostError):
        raise
    except (errors.CudaError, errors.MeasurementError, errors.TraceUnavailableError) as error:
        candidate.give_up(f"its traced trial failed: {error}", True)
        return False
    return True
