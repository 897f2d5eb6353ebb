"""A run of links: everything is prepared and checked, then measured in rounds, so that all rows meet the same host."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from pyxfer._ceiling.stages import MEASURING_S, PREPARING_S, circumstances
from pyxfer._document.links import Counter, LinkDevice, LinkGroup, Links, PeerLink
from pyxfer._document.machines import Device, Environment, Fact, LinkState, Remark, unknown
from pyxfer._document.runs import LEFT_OUT, Ending
from pyxfer._links import plan as plans
from pyxfer._links.chases import LatencySubject, load_plan
from pyxfer._links.plan import LatencyPlan, LinksRequest, TrafficPlan
from pyxfer._links.resources import LinkResources, Memory
from pyxfer._links.rows import Assembler, interference
from pyxfer._links.surroundings import host_nodes, read_device, read_peers, read_tree
from pyxfer._links.traffic import DEPTH, SIZES, SmallSubject, TrafficSubject
from pyxfer._machine import nvlink
from pyxfer._machine import nvml as management
from pyxfer._machine.devices import find_device, list_devices
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import link_under_load, with_load
from pyxfer._measure.exclusive import Presence, turn
from pyxfer._measure.run import RunSession, SaveNowAndThen
from pyxfer._measure.sampler import Group, OnProgress, Progress, Sampler, silent, unsaved
from pyxfer.errors import UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import format_seconds

SaveLinks = Callable[[Links], None]
Subject = TrafficSubject | LatencySubject | SmallSubject

WAKE_S = 0.15
MAX_ROUNDS = 24
LATE = 1.25
"""A run that takes longer than its budget by this factor says so."""
# Saving and releasing take the rest of the budget.
CLOSING_S = 1.0
NOT_MEASURED = {"interrupted": "the run was interrupted before it was measured", "failed": "the run failed before"}


def links(
    device: Iterable[str | int] | str | int | None = None,
    *,
    group: Iterable[LinkGroup] | str = ("host", "together", "pairs", "local", "latency", "numa", "small"),
    engine: Iterable[str] | str = ("ce", "sm"),
    size: str | int | None = None,
    precision: str | float = 0.005,
    budget: str | float | None = None,
    seed: int | None = None,
    require_gpu: bool = False,
    complete: bool = False,
    on_progress: OnProgress | None = None,
    save_to: SaveLinks | None = None,
) -> Links:
    """Measure every link of this host, alone and together, and return the run.

    Args:
        device: One or more indices, UUIDs or PCI addresses; by default all GPUs that CUDA shows.
        group: One or more of host (each link to the host), together (all of them at once), pairs (between two GPUs),
            local (inside one), latency, numa (host memory of each node) and small (many small copies).
        engine: One or more of ce (copy engines) and sm (kernels).
        size: Bytes of a copy; by default 128 MiB to and from the host, 512 MiB between GPUs, 2 GiB inside one, and
            1 MiB without a GPU.
        precision: Target precision of each figure, such as "1%".
        budget: Time limit for measuring, by default 15 s for each GPU. Rows have fewer trials than usual if these would
            take 8 s more.
        seed: Seed of the order of trials; by default a new one, which the run stores.
        require_gpu: Raise an error if no GPU is usable.
        complete: Measure everything, however long that takes.
        on_progress: Called with the progress of the run.
        save_to: Called with the run so far every few seconds.

    Ctrl-C ends the run and returns the results so far (`run.ended == "interrupted"`). If a device fails after the first
    trials, `run.ended` is "failed" and `run.failure` has the reason.

    Raises:
        UsageError: an argument is invalid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
        CudaError: a device failed before anything was measured.
    """
    request = replace(plans.make_request(device, group, engine, size, precision, budget, seed), complete=complete)
    choice = choose(HOST if HOST in request.devices else 0, require_gpu)
    return run_on(choice, _find(choice, request), request, on_progress=on_progress, save_to=save_to)


def run_on(
    choice: Choice,
    devices: Sequence[Device],
    request: LinksRequest,
    *,
    on_progress: OnProgress | None = None,
    save_to: SaveLinks | None = None,
) -> Links:
    with ExitStack() as turns:
        for device in sorted(devices, key=_name):
            turns.enter_context(turn(_name(device)))
        return Session(save_to or unsaved, choice, devices, request, on_progress or silent).run()


def _find(choice: Choice, request: LinksRequest) -> tuple[Device, ...]:
    if not request.devices:
        return list_devices(choice.engine)
    found = [find_device(choice.engine, selector) for selector in request.devices]
    numbers = [device.index for device in found]
    for selector, device in zip(request.devices, found, strict=True):
        if numbers.count(device.index) > 1:
            raise UsageError(f"{selector!r} names device {device.index}, as another one does: name each device once.")
    return tuple(found)


def _name(device: Device) -> str:
    return device.uuid.value or f"{device.name} {device.index}"


@dataclass(eq=False)
class Session(RunSession[Links]):
    _resources: LinkResources = field(init=False)
    _choice: Choice
    _found: Sequence[Device]
    _request: LinksRequest
    _on_progress: OnProgress

    def __post_init__(self) -> None:
        super().__post_init__()
        choice, devices, request = self._choice, self._found, self._request
        self._started = time.perf_counter()
        nvml = management.shared()
        self._nvml = nvml
        self._before = read_environment(choice.engine, devices[0])
        self._after: Environment | None = None
        self._devices: list[LinkDevice] = [read_device(choice.engine, device, nvml) for device in devices]
        self._peers: tuple[PeerLink, ...] = read_peers(choice.engine, devices, nvml)
        self._tree = read_tree(devices)
        self._numbers = [device.index for device in devices]
        interpreted = choice.runtime == "host" and "sm" in request.engines
        least_free = min(choice.engine.memory_info(number)[0] for number in self._numbers)
        self._parameters = request.parameters(self._numbers, least_free, interpreted=interpreted)
        self._presences = [Presence(_name(device)) for device in devices]
        nodes = {each.device.index: each.node for each in self._devices}
        memory = Memory(choice.engine, nodes, request.seed)
        self._resources = LinkResources(choice.engine, memory)
        self._traffics: list[TrafficSubject] = []
        self._latencies: list[LatencySubject] = []
        self._prepared_s: dict[str, float] = {}
        self._small: list[SmallSubject] = []
        self._groups: list[Group] = []
        self._alone: dict[TrafficPlan, float | None] = {}
        self._plan()

    def _plan(self) -> None:
        given, resources, brief = self._parameters, self._resources, self._request.brief
        nodes = host_nodes()
        if "numa" in given.groups and len(nodes.value or ()) < 2:  # noqa: PLR2004 - near and far
            why = nodes.reason or "this machine shows one NUMA node with processors and memory"
            self._remarks.append(Remark("numa", f"No NUMA node was compared with another: {why}."))
        if len(self._numbers) == 1 and {"together", "pairs"} & set(given.groups):
            self._remarks.append(
                Remark("one-device", "There is one GPU, so nothing was measured together or in pairs.")
            )
        copied = plans.traffics(given, nodes.value or (), brief=brief)
        loaded = plans.latencies(given, nodes.value or (), brief=brief)
        self._traffics = [TrafficSubject(plan, resources) for plan in copied]
        self._latencies = [
            LatencySubject(plan, resources, given.seed, self._rate_alone, given.host_bytes) for plan in loaded
        ]
        if "small" in given.groups:
            self._small = [
                SmallSubject(device, direction, mode, nbytes, resources)
                for device in self._numbers
                for direction in ("h2d", "d2h")
                for nbytes in SIZES
                for mode in ("queue", "batch")
            ]

    def _has_trials(self) -> bool:
        return any(row.trials for row in self._traffics) or any(row.trials for row in self._latencies)

    def _measure_all(self) -> None:
        with ExitStack() as present:
            for presence in self._presences:
                present.enter_context(presence)
            self._prepare()
            self._measure()
        self._after = read_environment(self._choice.engine, self._devices[0].device)

    # --- preparing ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        # Also without rows that copy with them: they open the gates of several devices together.
        self._devices = [
            msgspec.structs.replace(each, kernels_s=self._resources.kernels_s(each.device.index))
            for each in self._devices
        ]
        for traffic in self._traffics:
            takes_s, plan = 0.0, traffic.plan
            if self._choice.runtime == "host" and plan.engine == "sm":  # the check of interpreted kernels
                takes_s = DEPTH * len(plan.flows) * plan.nbytes / plans.INTERPRETED_BYTES_PER_S
            read = self._read_counters if self._choice.runtime == "cuda" else None
            self._prepare_in_time(traffic, partial(traffic.prepare, read), takes_s)
        for number, small in enumerate(self._small):
            self._prepare_in_time(small, partial(small.prepare, self._request.seed + number))
        self._wake_links()
        self._note_pages()
        for latency in self._latencies:
            self._prepare_in_time(latency, latency.prepare)
        for latency in self._latencies:
            chase = latency.plan
            if latency.is_ready and not chase.large and not chase.quick and chase.target < 0 and chase.node is None:
                latency.measure_multiprocessors()

    def _prepare_in_time(self, subject: Subject, prepare: Callable[[], object], takes_s: float = 0.0) -> None:
        """Prepare a row, or leave it out if others have used the time, or if it is known to take longer."""
        began_s = time.perf_counter()
        if self._prepared_s and began_s + takes_s > self._latest_s(PREPARING_S):
            subject.unavailable = LEFT_OUT
            return
        self._on_progress(Progress("preparing", 0.0, subject.key))
        prepare()
        self._prepared_s[subject.key] = time.perf_counter() - began_s

    def _latest_s(self, more_s: float) -> float:
        return math.inf if self._request.complete else self._started + self._parameters.budget_s - CLOSING_S + more_s

    def _read_counters(self, device: int) -> dict[Counter, Fact[int]]:
        found = next(each.device for each in self._devices if each.device.index == device)
        return nvlink.read_counters(self._nvml, found)

    def _wake_links(self) -> None:
        """Read the state of each link while it copies, because an idle link may be slower."""
        for place, each in enumerate(self._devices):
            subject = next(
                (one for one in self._traffics if one.is_ready and one.plan.devices == {each.device.index}), None
            )
            if subject is not None and self._choice.runtime == "cuda":
                with ThreadPoolExecutor(1) as pool:
                    reading = pool.submit(self._read_soon, each.device)
                    subject.run(WAKE_S)
                    self._devices[place] = msgspec.structs.replace(each, link=with_load(each.link, reading.result()))

    @staticmethod
    def _read_soon(device: Device) -> Fact[LinkState]:
        time.sleep(2 * WAKE_S / 3)
        return link_under_load(device)

    def _note_pages(self) -> None:
        for place, each in enumerate(self._devices):
            for subject in self._traffics:
                plan = subject.plan
                is_source = plan.flows[0].source < 0 and each.device.index in plan.devices
                if subject.is_ready and plan.group == "host" and is_source:
                    block = self._resources.memory.source(plan.flows[0], None, plan.nbytes)
                    pages = self._resources.memory.pages(block)
                    self._devices[place] = msgspec.structs.replace(each, pages_by_node=pages)
                    break

    def _rate_alone(self, plan: LatencyPlan) -> float | None:
        wanted = load_plan(plan, self._parameters.host_bytes, self._parameters.peer_bytes)
        if wanted not in self._alone:
            subject = TrafficSubject(wanted, self._resources)
            subject.prepare()
            self._alone[wanted] = subject.quick_rate() if subject.is_ready else None
        return self._alone[wanted]

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        subjects: list[Subject] = [*self._traffics, *self._latencies, *self._small]
        ready = self._affordable([subject for subject in subjects if subject.is_ready])
        if not ready:
            return
        # One group: what is compared runs in the same rounds.
        self._groups = [Group.of("links", ready, most_rounds=MAX_ROUNDS)]
        sampler = Sampler(
            self._groups,
            precision=self._request.precision,
            deadline_s=self._started + self._parameters.budget_s - CLOSING_S,
            latest_s=self._latest_s(MEASURING_S),
            seed=self._request.seed,
            on_progress=self._on_progress,
            on_turn=SaveNowAndThen(self._save),
        )
        sampler.run()

    def _affordable(self, ready: Sequence[Subject]) -> list[Subject]:
        """The rows of which one trial each fits into the time, if it takes as long as the preparation did."""
        kept: list[Subject] = []
        left_s = self._latest_s(MEASURING_S) - time.perf_counter()
        for subject in sorted(ready, key=lambda each: self._prepared_s[each.key]):
            left_s -= self._prepared_s[subject.key]
            if kept and left_s < 0:
                subject.unavailable = LEFT_OUT
            else:
                kept.append(subject)
        return [subject for subject in ready if subject in kept]

    def _save(self) -> None:
        for presence in self._presences:
            presence.look()
        self._save_to(self._document("interrupted", None))

    def _document(self, ended: Ending, failure: str | None) -> Links:
        parameters = self._parameters
        failures = {
            series.subject.key: series.failure
            for group in self._groups
            for series in group.series
            if series.failure is not None
        }
        limits = parameters.precision, parameters.budget_s
        assembler = Assembler(self._devices, self._peers, *limits, NOT_MEASURED.get(ended), failures)
        rows = assembler.traffics(self._traffics)
        return Links(
            kind="links",
            ended=ended,
            runtime=self._choice.runtime,
            runtime_reason=self._choice.reason,
            parameters=parameters,
            environment=self._before,
            environment_after=self._after,
            devices=tuple(self._devices),
            peers=self._peers,
            traffics=rows,
            latencies=tuple(map(assembler.latency, self._latencies)),
            small=tuple(map(assembler.small, self._small)),
            sharing=interference(rows, self._numbers, self._peers, self._tree),
            duration_s=time.perf_counter() - self._started,
            remarks=(*self._remarks, *self._circumstances()),
            failure=failure,
        )

    def _circumstances(self) -> list[Remark]:
        met = {pid for presence in self._presences for pid in presence.other_processes}
        alone = msgspec.structs.replace(self._before, other_gpu_processes=unknown("of each GPU"))
        remarks = circumstances(met, alone, self._after)
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
            text = "CUDA_LAUNCH_BLOCKING is set, so every launch waits for its kernel, and gates open late."
            remarks.append(Remark("launch-blocking", text, "unset CUDA_LAUNCH_BLOCKING"))
        for each in self._devices:
            if each.other_processes.value:
                who = ", ".join(map(str, each.other_processes.value))
                text = f"Other processes use GPU {each.device.index} (process {who}); its figures may be low."
                remarks.append(Remark("shared", text, "end them, or measure when they are idle"))
        took_s, budget_s = time.perf_counter() - self._started, self._parameters.budget_s
        left_out = sum(each.unavailable == LEFT_OUT for each in (*self._traffics, *self._latencies, *self._small))
        if left_out:
            rows = "1 row, which is" if left_out == 1 else f"{left_out} rows, which are"
            text = f"The budget of {format_seconds(budget_s)} was too short for {rows} left out."
            remarks.append(Remark("late", text, "choose fewer groups or a smaller size, or give --complete"))
        elif took_s > LATE * budget_s:
            times = f"The run took {format_seconds(took_s)}, and its budget is {format_seconds(budget_s)}"
            text = f"{times}: every row has a few trials, which take long on slow links and on a busy machine."
            remarks.append(Remark("late", text, "choose fewer groups or a smaller size"))
        return remarks
