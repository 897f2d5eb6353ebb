"""The traced trials of a worker: its routes and its raw copies, in the same rounds, after everything that is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyxfer import stats
from pyxfer.model import Fact, Tracing
from pyxfer.raw.assemble import Collected, ceiling_trials
from pyxfer.raw.traced import Ceilings, ceiling_seconds, way_candidate
from pyxfer.tracing import phase
from pyxfer.tracing.phase import Candidate
from pyxfer.workers.messages import Doing, FromWorker, Task, Tracer
from pyxfer.workers.subjects import side_of

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.tracing.taking import Taking
    from pyxfer.workers.assemble import Found
    from pyxfer.workers.subjects import RouteSubject

Pairs = Sequence[tuple["Found", "RouteSubject | None"]]


def trace_worker(
    engine: Engine,
    device: int,
    task: Task,
    raw: Sequence[Collected],
    routes: Pairs,
    deadline_s: float,
    cancelled: Callable[[], bool],
    send: Callable[[FromWorker], None],
) -> None:
    """A few trials of each row that has some which count; what it was is told of before a trial that could crash."""
    ceilings = ceiling_trials(raw)
    candidates = [
        way_candidate(found, ceilings, task.seed + number, task.explained) for number, found in enumerate(raw)
    ]
    candidates += [
        _route_candidate(found, subject, ceilings, task.seed + 2 * number, task.explained)
        for number, (found, subject) in enumerate(routes, start=len(raw))
    ]

    def tell(tracing: Fact[Tracing]) -> None:
        send(Tracer(tracing))

    if not task.trace:
        phase.leave_out(candidates, tell)
        return
    send(Doing("tracing", 1.0, ""))
    phase.trace_candidates(
        engine,
        device,
        candidates,
        seconds=phase.seconds_for(task.budget_s, deadline_s),
        seed=task.seed,
        cancelled=cancelled,
        on_start=tell,
        on_round=lambda number: send(Doing("tracing", 1.0, f"round {number + 1} of {phase.TRIALS}")),
    )


def _route_candidate(
    found: Found, subject: RouteSubject | None, ceilings: Ceilings, seed: int, explained: str
) -> Candidate:
    """How a route is traced, if it has a trial that counts; an explained one until one is near to the timed ones."""
    route, side = found.route, side_of(found.route)
    if subject is None or found.series is None or not found.series.valid_times(side):
        return Candidate(None, found.untraced)
    ceiling_s = ceiling_seconds(ceilings, route.direction, side, found.nbytes)

    def trace(taking: Taking, fresh: bool) -> None:
        trial, right = subject.traced(taking, seed if fresh else None)
        if not right:
            found.verified = Fact(False)
        found.evidence.add(trial, ceiling_s, found.nbytes)

    median_s = stats.summarise(found.series.valid_times(side)).median_s
    is_near = partial(found.evidence.is_near, median_s) if route.name == explained else None
    return Candidate(trace, found.untraced, is_near)
