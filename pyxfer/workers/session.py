"""A frameworks run: one worker after the other, and one document of what they all have told."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from pyxfer.errors import UsageError
from pyxfer.machine.devices import find_device
from pyxfer.machine.environment import read_environment
from pyxfer.machine.link import read_link
from pyxfer.machine.numa import device_node
from pyxfer.model import Device, Environment, Fact, Measurement, Placement, Run, Tracing, Worker, unknown
from pyxfer.model import Ending as RunEnding
from pyxfer.model_ring import NOT_STAGED
from pyxfer.model_trace import UNTRACED
from pyxfer.native import HOST, Choice, choose
from pyxfer.raw.assemble import NO_TRIAL
from pyxfer.raw.circumstances import circumstances
from pyxfer.raw.request import DEFAULT_PRECISION, between
from pyxfer.routes.base import Framework
from pyxfer.routes.published import published_for
from pyxfer.routes.registry import load_framework
from pyxfer.sampling.exclusive import Presence, turn
from pyxfer.sampling.progress import OnProgress, Progress, SaveTo, silent, unsaved
from pyxfer.workers.assemble import Found, RouteAssembler
from pyxfer.workers.messages import Doing, Task
from pyxfer.workers.request import DEFAULT_BUDGET_S, Request, make_request
from pyxfer.workers.supervisor import STEP_PATIENCE_S, Outcome, Patience, Supervisor

# A worker that crashes is started again without the route that did it; a framework that goes on crashing is left.
MOST_STARTS = 4
# About this part of a worker's time goes into preparing.
PREPARING = 0.3
_NOT_READ = "no worker came so far"
_OWN_RINGS = "each worker had a ring of its own, with the settings that pyxfer info shows"


def frameworks(
    names: Sequence[str] | str | None = None,
    *,
    routes: Sequence[str] | str = (),
    workload: str = "copy",
    sizes: str | Sequence[int] | None = None,
    batches: str | Sequence[int] | None = None,
    directions: Sequence[str] | str | None = None,
    ingest: bool = False,
    device: int | str = 0,
    precision: float = DEFAULT_PRECISION,
    budget_s: float = DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    trace: bool = True,
    patience_s: float = STEP_PATIENCE_S,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> Run:
    """Time every route of the frameworks named (all, if none is) beside the raw copies of the same sizes.

    Each framework runs in a process of its own; one that is not installed, crashes or hangs is recorded, and the others
    go on. `routes` are patterns such as `tf.*`. `budget_s` is the measuring time of each worker, its preparation
    apart; a worker that is not heard of for `patience_s` hangs, and is ended. After all timed trials a few are traced,
    which takes at most 15 % of the budget; without `trace` none is. Without a GPU the `ingest` routes are timed,
    which stay in host memory. Ctrl-C ends the run with what was measured.

    Raises:
        UsageError: something asked for cannot be; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.

    """
    choice = checked_choice(device, require_gpu=require_gpu)
    request = make_request(
        names,
        device,
        choice.runtime,
        routes=routes,
        workload=workload,
        sizes=sizes,
        batches=batches,
        directions=directions,
        ingest=ingest,
        precision=precision,
        budget_s=budget_s,
        seed=seed,
        trace=trace,
    )
    return run_workers(choice, request, patience_s, on_progress, save_to)


def checked_choice(device: int | str, *, require_gpu: bool) -> Choice:
    """The engine to measure with."""
    if device == HOST and require_gpu:
        raise UsageError("The host's memory was asked for, and a GPU was required: leave one of the two out.")
    return choose(device, require_gpu)


def run_workers(
    choice: Choice, request: Request, patience_s: float, on_progress: OnProgress | None, save_to: SaveTo | None
) -> Run:
    """Measure what was asked for, once it is known to be possible."""
    device: int | str = request.device
    between(patience_s, "patience", 86400.0, "120 (seconds)")
    found = find_device(choice.engine, 0 if device == HOST else device)
    with turn(found.uuid.value or found.name):
        return Session(
            choice, found, request, Patience(step_s=patience_s), on_progress or silent, save_to or unsaved
        ).run()


class Session:
    """One run under way."""

    def __init__(
        self,
        choice: Choice,
        device: Device,
        request: Request,
        patience: Patience,
        on_progress: OnProgress,
        save_to: SaveTo,
    ) -> None:
        self._choice = choice
        self._device = device
        self._request = request
        self._patience = patience
        self._on_progress = on_progress
        self._save_to = save_to
        self._started = time.perf_counter()
        self._link = read_link(choice.engine, device)
        self._before = read_environment(choice.engine, device)
        self._after: Environment | None = None
        self._placement = Placement(device_node(device), unknown(_NOT_READ), unknown(_NOT_READ), unknown(_NOT_READ))
        self._presence = Presence(device.uuid.value or device.name)
        self._measurements: list[Measurement] = []
        self._workers: list[Worker] = []
        self._ended: RunEnding = "complete"

    def run(self) -> Run:
        """Every worker, one after the other: two frameworks at once would share the link and the GPU's memory."""
        loaded = [load_framework(name) for name in self._request.names]
        tasks = [(framework, task) for framework in loaded for task in self._request.tasks(framework)]
        try:
            with self._presence:
                for number, (framework, task) in enumerate(tasks):
                    self._task(framework, task, number / len(tasks), 1 / len(tasks))
                    if self._ended == "interrupted":
                        break
            self._after = read_environment(self._choice.engine, self._device)
        except KeyboardInterrupt:  # between two workers
            self._ended = "interrupted"
        run = self._document(self._ended)
        self._save_to(run)
        return run

    def _task(self, framework: Framework, task: Task, done: float, part: float) -> None:
        """One worker, and after a crash another one without the route that was at work."""
        rows: list[Measurement] = []
        name = task.worker
        for start in range(1, MOST_STARTS + 1):
            if start > 1:
                task = msgspec.structs.replace(task, worker=f"{name}, start {start}")
            outcome = self._supervise(framework, task, rows, done, part)
            self._workers.append(_worker(task, framework, outcome))
            if outcome.ended not in ("crashed", "hung") or outcome.hello is None or _was_traced(outcome):
                break
            guilty = outcome.guilty.route if outcome.guilty else None
            if guilty in task.routes:
                rows += self._rows_of(guilty, framework, task, outcome)
                task = msgspec.structs.replace(task, routes=tuple(each for each in task.routes if each != guilty))
            if not task.routes:
                break
        self._ended = "interrupted" if outcome.ended == "interrupted" else self._ended
        self._measurements += [*self._told(framework, task, outcome), *rows]
        self._save_to(self._document("interrupted"))

    def _told(self, framework: Framework, task: Task, outcome: Outcome) -> list[Measurement]:
        """What the last worker measured, and for what it did not come to, why it ended."""
        missing = self._missing(framework, task, task.routes, outcome)
        told = {(row.route, row.nbytes): row for row in outcome.measurements}
        raw = [row for row in outcome.measurements if row.nature is None and task.routes]
        kept = [told.get((row.route, row.nbytes), row) for row in missing]
        if outcome.ended == "complete":
            return [*raw, *kept]
        pairs = zip(kept, missing, strict=True)
        routes = [late if row.rate.reason == NO_TRIAL else _told_of_end(row, outcome) for row, late in pairs]
        return [*(_without_trial(row, _why_missing(outcome)) for row in raw), *routes]

    def _rows_of(self, route: str, framework: Framework, task: Task, outcome: Outcome) -> list[Measurement]:
        """Of a route that a worker has not survived: what it had measured before at other sizes, and why no more."""
        at = outcome.guilty.nbytes if outcome.guilty else None
        kept = {row.nbytes: row for row in outcome.measurements if row.route == route and row.gbps and row.nbytes != at}
        return [kept.get(row.nbytes, row) for row in self._missing(framework, task, (route,), outcome)]

    def _supervise(
        self, framework: Framework, task: Task, rows: Sequence[Measurement], done: float, part: float
    ) -> Outcome:
        title = " ".join(filter(None, (framework.title, task.setting)))

        def on_doing(doing: Doing) -> None:
            prepared = doing.phase != "preparing"
            share = PREPARING + (1 - PREPARING) * doing.done if prepared else PREPARING * doing.done
            self._on_progress(Progress(f"{title}: {doing.phase}", done + part * share, doing.text))

        def on_rows(outcome: Outcome) -> None:
            self._take_link(outcome)
            self._presence.look()
            self._save_to(self._document("interrupted", (*outcome.measurements, *rows)))

        self._on_progress(Progress(f"{title}: starting", done, ""))
        outcome = Supervisor(task, framework.environment, self._patience, on_doing, on_rows).run()
        self._take_link(outcome)
        return outcome

    def _take_link(self, outcome: Outcome) -> None:
        if outcome.awake is not None:
            self._link, self._placement = outcome.awake.link, outcome.awake.placement

    def _missing(self, framework: Framework, task: Task, names: Sequence[str], outcome: Outcome) -> list[Measurement]:
        """A row for everything that a worker did not come to tell of."""
        why = _why_missing(outcome)
        assembler = RouteAssembler(
            task.worker, framework.name, self._link, task.precision, task.budget_s, task.workload
        )
        routes = [route for route in framework.routes if route.name in names]
        return [assembler.measurement(Found(route, nbytes, why), {}) for nbytes in task.sizes for route in routes]

    def _document(self, ended: RunEnding, under_way: Sequence[Measurement] = ()) -> Run:
        measurements = (*self._measurements, *under_way)
        request = self._request
        return Run(
            kind="explain" if request.explained else "frameworks",
            ended=ended,
            runtime=self._choice.runtime,
            runtime_reason=self._choice.reason,
            parameters=request.parameters(),
            device=self._device,
            link=self._link,
            placement=self._placement,
            environment=self._before,
            environment_after=self._after,
            duration_s=time.perf_counter() - self._started,
            measurements=tuple(measurements),
            remarks=tuple(circumstances(self._presence.met, self._before, self._after)),
            workers=tuple(self._workers),
            published=published_for(request.workload, request.names),
            tracing=_tracing(self._workers),
            ring=unknown(_OWN_RINGS if any(map(_was_staged, measurements)) else NOT_STAGED),
        )


def _why_missing(outcome: Outcome) -> str:
    """Why a worker has not told of everything."""
    return outcome.reason or {"interrupted": "the run was interrupted before it"}.get(outcome.ended, outcome.ended)


def _without_trial(row: Measurement, why: str) -> Measurement:
    """A raw row that had no trial yet when its worker ended, which is not for want of a budget."""
    if row.rate.reason != NO_TRIAL:
        return row
    return msgspec.structs.replace(row, rate=unknown(why), peak_share=unknown(why), ceiling_share=unknown(why))


def _told_of_end(row: Measurement, outcome: Outcome) -> Measurement:
    """The row whose traced trial its worker has not survived says so in the place of what was to be found out."""
    mark = outcome.guilty
    if mark is None or not _was_traced(outcome) or (row.route, row.nbytes) != (mark.route, mark.nbytes):
        return row
    why = f"its worker ended while it was traced: {outcome.how or outcome.ended}"
    dma = unknown(why) if row.dma.reason == UNTRACED else row.dma
    return msgspec.structs.replace(row, dma=dma, breakdown=unknown(why))


def _was_staged(row: Measurement) -> bool:
    return row.nature is not None and row.nature.staged and row.summary is not None


def _was_traced(outcome: Outcome) -> bool:
    """Whether it had sent all that it was to measure, so that another worker would measure the same."""
    return outcome.guilty is not None and outcome.guilty.phase == "traced"


def _tracing(workers: Sequence[Worker]) -> Fact[Tracing]:
    """What the records come from, in the first worker that had some; each worker has its own."""
    known = [worker.tracing for worker in workers if worker.tracing.value is not None]
    return next(iter([*known, *(worker.tracing for worker in workers)]), unknown(_NOT_READ))


def _worker(task: Task, framework: Framework, outcome: Outcome) -> Worker:
    hello = outcome.hello
    why = outcome.reason or "it was ended before it had started"
    return Worker(
        name=task.worker,
        framework=framework.name,
        setting=task.setting,
        version=unknown(why) if hello is None else Fact(hello.version),
        cuda=unknown(why) if hello is None else hello.cuda,
        settings={} if hello is None else hello.settings,
        ended=outcome.ended,
        reason=outcome.reason,
        log=outcome.log,
        start_s=unknown(why) if hello is None else Fact(hello.start_s),
        duration_s=outcome.duration_s,
        remarks=outcome.remarks,
        tracing=outcome.tracing,
    )
