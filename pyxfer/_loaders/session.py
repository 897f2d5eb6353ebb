"""A run of `pyxfer files`: what the disk, the page cache and the link allow, and what each loader makes of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from pyxfer._ceiling.plans import CopyPlan, limits_of
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import ENDED_EARLY, NO_TRIAL, Assembler, Head, Item, ceiling_share, raw_head
from pyxfer._ceiling.session import PATIENCE_S, checked_choice
from pyxfer._ceiling.stages import circumstances, make_group, prepare_raw
from pyxfer._document.machines import Environment, Placement, unknown
from pyxfer._document.runs import (
    FILE,
    NOT_TRACED,
    LoadedFiles,
    Measurement,
    Parameters,
    RouteInfo,
    Run,
    Trial,
    Variant,
    limit_of,
    limits_beside,
)
from pyxfer._document.runs import Ending as RunEnding
from pyxfer._files.formats import stored_arrays
from pyxfer._frameworks.base import installed_version
from pyxfer._frameworks.registry import load_framework
from pyxfer._loaders import page_cache
from pyxfer._loaders.loaders import FRAMEWORKS, Loader, LoaderFramework, check_framework, select_loaders
from pyxfer._loaders.reads import CACHE_BYTES, DISK_BYTES, DISK_THREADS, MAX_THREADS, Reads, SlotReads
from pyxfer._loaders.worker import HOST, RunningLoader, Task
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.host import available_host_bytes, last_level_bytes
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import bind, device_node
from pyxfer._measure.exclusive import Presence, turn
from pyxfer._measure.run import RunSession, SaveNowAndThen, own_failure
from pyxfer._measure.sampler import OnProgress, Progress, Sampler, SaveTo, silent, unsaved
from pyxfer._upload.settings import usable_cpus
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.native import HOST as HOST_NAME
from pyxfer.native import Choice, is_host_name
from pyxfer.units import format_percent, format_size, items_of, seconds_of, words_of

if TYPE_CHECKING:
    from pyxfer._ceiling.plans import Limits
    from pyxfer._document.machines import Device, Side
    from pyxfer._files.load import Paths
    from pyxfer._files.stored import StoredFiles
    from pyxfer._measure.sampler import Subject

State = Literal["warm", "cold"]
STATES: tuple[State, ...] = get_args(State)
DEFAULT_BUDGET_S = 60.0
LINK_BYTES = 64 << 20
_LATER_ROUNDS = 1 << 20
_FEW_ROUNDS = 2
_ROOM = 1.1
_WARM_FROM = 0.99
_NOT_READ = "the run ended before it was read"


def files(
    paths: Paths,
    *,
    loader: str | Sequence[str] = (),
    to: LoaderFramework | None = None,
    state: str | Sequence[State] = STATES,
    device: int | str = 0,
    precision: str | float = 0.02,
    budget: str | float = DEFAULT_BUDGET_S,
    seed: int | None = None,
    require_gpu: bool = False,
    patience: str | float = 120.0,
    on_progress: OnProgress | None = None,
    save_to: SaveTo | None = None,
) -> Run:
    """Measure how fast files reach the GPU, and what limits them.

    Measures the disk, the page cache and the link, and beside them loaders of files, each in a process of its own. The
    contents of the first load of each process are compared with the files.

    Args:
        paths: As for `load_tensors`.
        loader: Names or patterns of loaders, such as "safetensors.*", or functions of your own as "module:function" or
            "file.py:function"; by default all that are installed and read such files.
        to: The framework of the arrays; by default the first that is installed of PyTorch, CuPy, JAX and TensorFlow,
            or NumPy without any.
        state: "warm" (from the page cache), "cold" (from the disk) or both.
        device: Index, UUID or PCI address of the GPU, or "host".
        precision: Target precision of each median, such as "1%".
        budget: Time limit for measuring, without the start of the loaders.
        seed: Seed of the order of trials; by default a new one, which the run stores.
        require_gpu: Raise an error if no GPU is usable.
        patience: A loader that takes longer for one load is ended.
        on_progress: Called with the progress of the run.
        save_to: Called with the run so far every few seconds.

    Raises:
        ArrayFileError: a file cannot be read or is damaged.
        UsageError: an argument is invalid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.

    """
    limits = limits_of(precision, budget, seed, trace=False)
    request = make_request(paths, loader, to, state, limits, seconds_of(patience, "patience"))
    choice = checked_choice(device, require_gpu=require_gpu)
    chosen = find_device(choice.engine, 0 if is_host_name(device) else device)
    free = choice.engine.memory_info(chosen.index)[0] if choice.runtime == "cuda" else available_host_bytes().value
    if free is not None and request.nbytes * _ROOM > free:
        size = format_size(request.nbytes)
        raise UsageError(f"The arrays have {size}, and {format_size(free)} are free for them: give fewer files.")
    with turn(chosen.uuid.value or chosen.name):
        return Session(choice, chosen, request, on_progress or silent, save_to or unsaved).run()


def make_request(
    paths: Paths,
    loader: str | Sequence[str],
    to: LoaderFramework | None,
    state: str | Sequence[State],
    limits: Limits,
    patience_s: float,
) -> Request:
    states = words_of(state, STATES, "state")
    if to is not None:
        check_framework(to)
    found = stored_arrays(paths)
    nbytes = sum(array.nbytes for array in found.arrays)
    if not nbytes:
        raise UsageError("The files have no bytes of arrays: give files with contents.")
    framework = to or _first_installed()
    wanted = items_of(loader, "loader") if isinstance(loader, str) else tuple(loader)
    loaders = select_loaders(framework, wanted, found.paths)
    return Request(framework, loaders, states, limits, patience_s, found, nbytes)


def _first_installed() -> str:
    for name in FRAMEWORKS:
        if name == "numpy" or installed_version(load_framework(name).distributions) is not None:
            return name
    raise AssertionError("the last one needs nothing")


@dataclass(frozen=True)
class Request:
    """What is loaded, by which loaders, and how long."""

    framework: str
    loaders: tuple[Loader, ...]
    states: tuple[State, ...]
    limits: Limits
    patience_s: float
    files: StoredFiles
    nbytes: int

    def parameters(self, device: str) -> Parameters:
        return Parameters(
            device=device,
            directions=("h2d", "ingest"),
            memories=("pinned",),
            modes=("async",),
            sizes_bytes=(self.nbytes,),
            fresh=False,
            precision=self.limits.precision,
            budget_s=self.limits.budget_s,
            seed=self.limits.seed,
            min_rounds=_FEW_ROUNDS,
            routes=tuple(loader.name for loader in self.loaders),
        )


class _Loads:
    """The loads of a loader in one state."""

    anchor = None
    ceiling_of = None

    def __init__(self, running: RunningLoader, state: Variant, paths: Sequence[str]) -> None:
        self.key = f"{running.loader.name} {state}"
        self._running, self._state, self._paths = running, state, paths

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        if self._state == "cold" and (why := page_cache.why_not_evicted(self._paths)) is not None:
            raise MeasurementError(why)
        return {"h2d": Trial(round_index, self._running.load(again=self._state == "warm"))}


class _Later:
    """A subject whose rounds have later numbers: the link is measured beside warm loads and again beside cold ones."""

    anchor = None
    ceiling_of = None

    def __init__(self, subject: Subject) -> None:
        self.key = subject.key
        self._subject = subject

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        found = self._subject.trial(round_index)
        return {side: msgspec.structs.replace(each, round=each.round + _LATER_ROUNDS) for side, each in found.items()}


class Session(RunSession[Run]):
    _resources: RunResources

    def __init__(
        self, choice: Choice, device: Device, request: Request, on_progress: OnProgress, save_to: SaveTo
    ) -> None:
        super().__init__(save_to)
        self._choice, self._device, self._request = choice, device, request
        self._on_progress = on_progress
        self._started = time.perf_counter()
        self._resources = RunResources(choice.engine, device.index, PATIENCE_S)
        self._link = read_link(choice.engine, device)
        self._before = read_environment(choice.engine, device)
        self._after: Environment | None = None
        self._placement = Placement(device_node(device), unknown(_NOT_READ), unknown(_NOT_READ), unknown(_NOT_READ))
        self._presence = Presence(device.uuid.value or device.name)
        self._loaders = [RunningLoader(loader, request.files.paths) for loader in request.loaders]
        plan = CopyPlan("h2d", "pinned", "async")
        self._link_item: Item[Any] = _untraced(Item(raw_head(plan), min(LINK_BYTES, request.nbytes)))
        self._reads: list[Item[Any]] = []
        self._loads = [
            (running, state, _load_item(running.loader, state, request.nbytes))
            for running in self._loaders
            for state in request.states
        ]

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _has_trials(self) -> bool:
        return any(item.series and item.series.trials for item in self._rows())

    def _rows(self) -> list[Item[Any]]:
        return [self._link_item, *self._reads, *(item for _, _, item in self._loads)]

    def _measure_all(self) -> None:
        with contextlib.ExitStack() as owned:
            try:
                self._start_loaders(owned)  # before this thread is bound to a node: they inherit its processors
                with self._presence, bind(self._choice.engine, self._placement.device_node) as placement:
                    self._placement = msgspec.structs.replace(placement, device_node=self._placement.device_node)
                    self._prepare()
                    self._measure(owned)
            except KeyboardInterrupt:
                for running in self._loaders:
                    running.interrupt()
                raise
        self._after = read_environment(self._choice.engine, self._device)

    def _start_loaders(self, owned: contextlib.ExitStack) -> None:
        request = self._request
        environment = {} if request.framework == "numpy" else load_framework(request.framework).environment
        device = HOST if self._choice.runtime != "cuda" else f"cuda:{self._device.index}"
        # Each process keeps the memory of a load for the next one, if the device has room for all of them.
        free = self._choice.engine.memory_info(self._device.index)[0]
        is_tight = free < _ROOM * len(self._loaders) * request.nbytes
        for running in self._loaders:
            owned.callback(running.close)
            running.is_emptied = is_tight
            task = Task(request.framework, running.reference, request.files.paths, device)
            running.start(task, environment, request.patience_s)

    def _prepare(self) -> None:
        resources, item, paths = self._resources, self._link_item, self._request.files.paths
        self._on_progress(Progress("preparing", 0.0, "reading the files into the page cache"))
        page_cache.fill(paths)
        resources.allocate(["pinned"], item.nbytes, last_level_bytes())
        self._link = resources.wake_link(self._device, self._link, "pinned", item.nbytes)
        prepare_raw(item, resources, self._request.limits.seed)
        for running in self._loaders:  # a start beside a load would slow it, and take memory of the device
            running.wait()
        for number, running in enumerate(self._loaders):
            share = number / len(self._loaders)
            self._on_progress(Progress("preparing", share, f"the first load of {running.loader.name}"))
            running.load_first(self._free_bytes if self._choice.runtime == "cuda" else None)

    def _free_bytes(self) -> int:
        return self._choice.engine.memory_info(self._device.index)[0]

    def _measure(self, owned: contextlib.ExitStack) -> None:
        states, budget_s = self._request.states, self._request.limits.budget_s
        begun_s = time.perf_counter()
        for number, state in enumerate(states):
            reads = self._made_reads(state, owned)
            self._reads += reads
            loads = self._ready_loads(state)
            why = self._why_not(state)
            for item in (*reads, *loads) if why is not None else ():
                item.unavailable, item.subject = why, None
            link = self._link_item if number == 0 else replace(self._link_item)
            chosen = [item for item in (link, *reads, *loads) if item.subject is not None]
            for item in chosen if number else ():
                item.subject = _Later(item.subject)
            try:
                if why is None and chosen:
                    self._sample(chosen, begun_s + (number + 1) / len(states) * budget_s)
            finally:
                self._keep_link(link)

    def _ready_loads(self, state: State) -> list[Item[Any]]:
        usable = [(running, item) for running, each, item in self._loads if each == state and running.is_usable]
        for running, item in usable:
            item.subject = _Loads(running, state, self._request.files.paths)
        return [item for _, item in usable]

    def _sample(self, items: Sequence[Item[Any]], deadline_s: float) -> None:
        Sampler(
            [make_group(items)],
            precision=self._request.limits.precision,
            deadline_s=deadline_s,
            seed=self._request.limits.seed,
            on_progress=self._on_progress,
            on_turn=SaveNowAndThen(self._save),
            few_rounds=_FEW_ROUNDS,
        ).run()

    def _keep_link(self, measured: Item[Any]) -> None:
        """Add the trials beside cold loads to those beside warm ones."""
        own = self._link_item.series
        if measured is not self._link_item and measured.series is not None:
            if own is None:
                self._link_item.series = measured.series
            else:
                for side, trials in measured.series.trials.items():
                    own.trials.setdefault(side, []).extend(trials)

    def _why_not(self, state: State) -> str | None:
        """Why there can be no loads in a state, or None if the page cache is as it should be."""
        paths = self._request.files.paths
        if state == "cold":
            return page_cache.why_not_evicted(paths)
        if page_cache.cached_share(paths) < _WARM_FROM:  # a loader has made the cache drop them
            page_cache.fill(paths)
        share = page_cache.cached_share(paths)
        if share < _WARM_FROM:
            return f"the page cache holds only {format_percent(share)} of the files: they are too large for this host"
        return None

    def _made_reads(self, state: State, owned: contextlib.ExitStack) -> list[Item[Any]]:
        engine, device, found = self._choice.engine, self._device.index, self._request.files
        most = min(MAX_THREADS, usable_cpus())
        made: list[Item[Any]] = []
        if state == "cold":
            for threads in DISK_THREADS:
                item = _read_item(f"disk-{threads}", state, _threads(threads))
                with own_failure(item.give_up):
                    item.subject = Reads(item.head.route, found.paths, threads, DISK_BYTES, direct=True)
                made.append(item)
        else:
            for threads in sorted({1, most}):
                item = _read_item(f"cache-{threads}", state, _threads(threads))
                with own_failure(item.give_up):
                    item.subject = Reads(item.head.route, found.paths, threads, CACHE_BYTES, direct=False)
                made.append(item)
            item = _read_item("slots", state, "into the slots of the ring")
            with own_failure(item.give_up):
                item.subject = SlotReads(item.head.route, engine, device, found)
            made.append(item)
        for item in made:
            if item.subject is not None:
                owned.callback(item.subject.close)
                item.nbytes = item.subject.nbytes
        return made

    # --- the document -------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._presence.look()
        if self._save_to is not unsaved:
            self._save_to(self._document("interrupted", None))

    def _document(self, ended: RunEnding, failure: str | None) -> Run:
        request, limits, choice = self._request, self._request.limits, self._choice
        for running, _, item in self._loads:
            running.describe(item)
        assembler = Assembler(self._link, limits.precision, limits.budget_s, ENDED_EARLY.get(ended, NO_TRIAL))
        return Run(
            kind="files",
            ended=ended,
            runtime=choice.runtime,
            runtime_reason=choice.reason,
            parameters=request.parameters(HOST_NAME if choice.runtime == "host" else str(self._device.index)),
            device=self._device,
            link=self._link,
            placement=self._placement,
            environment=self._before,
            environment_after=self._after,
            duration_s=time.perf_counter() - self._started,
            measurements=with_limits(assembler.measurements(self._rows(), {})),
            remarks=(*self._remarks, *circumstances(self._presence.other_processes, self._before, self._after)),
            failure=failure,
            workers=tuple(running.worker(request.framework) for running in self._loaders),
            files=LoadedFiles(
                paths=request.files.paths,
                nbytes=request.nbytes,
                arrays=len(request.files.arrays),
                filesystem=page_cache.filesystem_of(request.files.paths[0]),
            ),
        )


def with_limits(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The rows; those of loads have their share of what limits loads in their state."""
    return tuple(row if row.worker is None else _with_limit(row, rows) for row in rows)


def _with_limit(row: Measurement, rows: Sequence[Measurement]) -> Measurement:
    limit = limit_of(limits_beside(row, rows))
    if limit is None:
        return row
    valid = [trial for trial in row.trials if trial.invalid is None]
    return msgspec.structs.replace(row, ceiling_share=ceiling_share(valid, limit.trials, row.rate))


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _read_item(name: str, state: State, call: str) -> Item[Any]:
    head: Head[Any] = Head(
        None,
        f"files.{name}",
        "ingest",
        FILE,
        "read",
        "host",
        state,
        route_info=RouteInfo("files", call, 0, "", "done"),
    )
    return _untraced(Item(head, 1, verified=unknown("its bytes go nowhere")))


def _load_item(loader: Loader, state: State, nbytes: int) -> Item[Any]:
    info = RouteInfo(loader.framework, loader.call, 0, "", "done")
    head = Head(loader, loader.name, "h2d", FILE, "loader", "host", state, worker=loader.name, route_info=info)
    return _untraced(Item(head, nbytes))


def _untraced(item: Item[Any]) -> Item[Any]:
    item.untraced(NOT_TRACED, failed=False)
    return item
