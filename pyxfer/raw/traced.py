"""The traced trials of raw copies: which ways have one, in how much time, against which ceiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyxfer import stats
from pyxfer.model import Fact, Side, Tracing, Trial
from pyxfer.raw.assemble import Collected, ceiling_trials, locked_trials
from pyxfer.sampling.rounds import After
from pyxfer.tracing import phase
from pyxfer.tracing.phase import Candidate

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.raw.request import Request
    from pyxfer.tracing.taking import Taking

Ceilings = Mapping[tuple[str, Side, int], Sequence[Trial]]


def ceiling_seconds(ceilings: Ceilings, direction: str, side: Side, nbytes: int) -> float | None:
    """What the ceiling of this process takes for one copy."""
    times = [trial.elapsed_s for trial in ceilings.get((direction, side, nbytes), ()) if trial.invalid is None]
    return stats.summarise(times).median_s if times else None


def way_candidate(found: Collected, ceilings: Ceilings, seed: int, explained: str) -> Candidate:
    """How a way is traced, if it has a trial that counts; an explained one until one is near to the timed ones."""
    subject, series = found.subject, found.series
    if subject is None or series is None or not any(series.valid_times(side) for side in series.trials):
        return Candidate(None, found.untraced)

    def trace(taking: Taking, fresh: bool) -> None:
        traced, right = subject.traced(taking, seed if fresh else None)
        if not right:
            found.verified = Fact(False)
        for side, trial in traced.items():
            ceiling_s = ceiling_seconds(ceilings, found.way.direction, side, found.nbytes)
            found.evidence[side].add(trial, ceiling_s, found.nbytes)

    def is_near() -> bool:
        return all(
            found.evidence[side].is_near(stats.summarise(times).median_s)
            for side in series.trials
            if (times := series.valid_times(side))
        )

    return Candidate(trace, found.untraced, is_near if found.way.route == explained else None)


def trace_ways(
    engine: Engine,
    device: int,
    collected: Sequence[Collected],
    request: Request,
    deadline_s: float,
    cancelled: Callable[[], bool],
    on_start: Callable[[Fact[Tracing]], None],
) -> None:
    """The traced trials of a ceiling run."""
    ceilings, locked = ceiling_trials(collected), locked_trials(collected)
    candidates = [
        way_candidate(found, locked if found.way.staged else ceilings, request.seed + number, request.explained)
        for number, found in enumerate(collected)
    ]
    if not request.trace:
        phase.leave_out(candidates, on_start)
        return
    phase.trace_candidates(
        engine,
        device,
        candidates,
        seconds=phase.seconds_for(request.budget_s, deadline_s),
        seed=request.seed,
        cancelled=cancelled,
        on_start=on_start,
    )


def after_timing(budget_s: float, *, trace: bool) -> After:
    """What the traced trials are left of a budget."""
    return After(phase.TRIALS, phase.OPENING_S, phase.TAKING_S, phase.SHARE * budget_s) if trace else After()
