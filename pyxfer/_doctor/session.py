"""`pyxfer doctor`: a short run between two readings of the counters, its findings, and the known hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import resources
from itertools import chain
from math import log

import msgspec

from pyxfer._ceiling.arena import check_memory
from pyxfer._ceiling.derived import derive_run
from pyxfer._ceiling.plans import DEFAULT_PRECISION, Request, make_request
from pyxfer._ceiling.session import run_on
from pyxfer._doctor import host, link, speed
from pyxfer._doctor.case import Case, Check, Findings
from pyxfer._document import codec
from pyxfer._document.examinations import Examination, FarRates, Finding, Health, Nearest, Reference, Status
from pyxfer._document.machines import Device, Fact, LinkState
from pyxfer._document.runs import Memory, Run
from pyxfer._machine import nvml as management
from pyxfer._machine.devices import find_device
from pyxfer._machine.health import read_counters, read_health
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.link import bottleneck, describe
from pyxfer._machine.numa import farthest_node
from pyxfer._measure.sampler import OnProgress, SaveTo, silent
from pyxfer.errors import PyxferError, UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import format_size, seconds_of

_FOLDER = "references"
_RUNS = ".run.json"


@cache
def references() -> tuple[Reference, ...]:
    """The known hosts of the package, sorted by file name."""
    files = (resources.files("pyxfer") / _FOLDER).iterdir()
    named = {file.name: file for file in files if file.name.endswith(".json") and not file.name.endswith(_RUNS)}
    return tuple(codec.decode_reference(named[name].read_bytes(), f"the reference {name}") for name in sorted(named))


def nearest_known(run: Run, known: tuple[Reference, ...] | None = None) -> Fact[Nearest]:
    known = references() if known is None else known
    state = bottleneck(run.link).value or run.link.under_load.value or run.link.now.value
    if run.link.kind != "pcie" or state is None:
        reason = run.link.raw_peak_gbps.reason or run.link.under_load.reason or "the link is not known"
        return Fact(reason=f"no known host is similar: {reason}")
    if not known:
        return Fact(reason="this pyxfer contains no known hosts")
    found = min(known, key=lambda reference: _distance(reference, run, state))
    differs = _differences(found, run, state)
    return Fact(Nearest(found, not differs, differs))


def _distance(reference: Reference, run: Run, state: LinkState) -> tuple[bool, float, bool]:
    ours, theirs = state.gbps or 1.0, reference.link.gbps or 1.0
    same_payload = reference.max_payload_bytes == run.link.max_payload_bytes.value
    return reference.device != run.device.name, abs(log(ours / theirs)), not same_payload


def _differences(reference: Reference, run: Run, state: LinkState) -> tuple[str, ...]:
    """Why the figures of the two hosts cannot be compared."""
    payload = run.link.max_payload_bytes.value
    here = "unknown" if payload is None else format_size(payload)
    found = [
        (reference.device != run.device.name, f"device {run.device.name} here, {reference.device} there"),
        (reference.link != state, f"link {describe(state)} here, {describe(reference.link)} there"),
        (reference.max_payload_bytes != payload, f"MaxPayload {here} here, {reference.max_payload_bytes} B there"),
        (bool(run.device.mig.value or run.device.vgpu.value), "a part of a GPU here, a whole one there"),
        (bool(run.device.confidential.value), "copies are encrypted here, and were not there"),
    ]
    return tuple(text for differs, text in found if differs)


_ORDER: tuple[Status, ...] = ("wrong", "suspicious", "unknown", "fine")
_Rule = Callable[[Case], Findings]

_LINK_RULES: tuple[_Rule, ...] = (
    *(speed.ceilings, speed.known_host, speed.pageable),
    *(link.link, link.slot, link.path, link.payload, link.ordering),
    *(link.replays, link.link_errors),
    *(host.numa_memory, host.processors, host.far_memory),
    *(host.throttling, host.persistence, host.sharing, host.partial_device),
    *(host.device_memory, host.iommu, host.access_control),
)
_HOST_RULES: tuple[_Rule, ...] = (
    *(host.huge_pages, host.lock_limit, host.container),
    *(host.shared_memory, host.virtual_machine),
)


def examine(run: Run, health: Health | None = None, nearest: Nearest | None = None) -> tuple[Finding, ...]:
    """The findings of a run, the wrong ones first; without `health` many checks are left out."""
    case = Case(run, health, nearest)
    rules = (speed.contents, *(_LINK_RULES if case.has_link else ()), *_HOST_RULES)
    found = [*_missing_parts(case), *chain.from_iterable(rule(case) for rule in rules)]
    return in_order(found)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.status)))


def _missing_parts(case: Case) -> Iterator[Finding]:
    """Findings for an examination without a link, a complete run, or the values around it."""
    if not case.has_link:
        reason = case.run.runtime_reason or case.run.link.raw_peak_gbps.reason
        yield Check("link", "link", "a GPU behind a link").unknown(f"no link to examine: {reason}", "see pyxfer list")
    if case.run.ended != "complete":
        reason = case.run.failure or f"the run was {case.run.ended}"
        yield Check("measurement", "measurement", "a complete run").unknown(reason, "measure again")
    if case.health is None:
        reason = "a saved run has no error counters, limits and settings"
        yield Check("health", "health", "the machine itself").unknown(reason, "run pyxfer doctor on the host itself")


DEFAULT_BUDGET_S = 6.0
# Without a link the run only has to show that copies arrive whole.
HOST_BUDGET_S = 1.5
FAR_PART = 1 / 3

_SMALL = 16 << 20
_LARGE = (256 << 20, 64 << 20, _SMALL)
_MEMORIES: tuple[Memory, ...] = ("pageable", "pinned")
_SAVED = "a saved run was examined, not the machine"
_NEAR_ONLY = "copies with memory on another node were left out"


def doctor(
    device: int | str = 0,
    *,
    budget_s: str | float = DEFAULT_BUDGET_S,
    require_gpu: bool = False,
    on_progress: OnProgress | None = None,
) -> Examination:
    """Measure for a few seconds, read the state of host and link, and report what is not as it should be.

    It needs no baseline: it compares the measurement with the computed peak of the link and with known hosts of the
    same kind. `device` is an index, UUID or PCI address, or `host` for host memory. Without a GPU only the limits and
    settings of the host are examined, unless `require_gpu` is true.

    Raises:
        UsageError: an argument is not valid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
        CudaError: the device failed before anything was measured.

    """
    if device == HOST and require_gpu:
        raise UsageError("The device is host memory, but a GPU is required: leave one of the two options out.")
    budget_s = seconds_of(budget_s, "budget_s")
    choice = choose(device, require_gpu)
    found = find_device(choice.engine, 0 if device == HOST else device)
    return examine_device(choice, found, budget_s, on_progress or silent, device)[1]


def examine_device(
    choice: Choice,
    found: Device,
    budget_s: float,
    report: OnProgress,
    device: int | str | None = None,
    *,
    far: bool = True,
    save_to: SaveTo | None = None,
) -> tuple[Run, Examination]:
    """The run with its trials, and the examination. `device`: as the user named it; `far`: also far memory, if any."""
    run_budget_s = min(budget_s, HOST_BUDGET_S) if choice.runtime == "host" else budget_s
    nvml, named = management.shared(), found.index if device is None else device
    request = _request(named, _sizes(choice, found.index), _MEMORIES, run_budget_s)
    before = read_counters(nvml, found)
    run = run_on(choice, found, request, on_progress=report, save_to=save_to)
    far_run = _far_run(choice, run, request, report) if far else Fact[Run](reason=_NEAR_ONLY)
    moved = moved_bytes(run) + (moved_bytes(far_run.value) if far_run.value else 0)
    health = read_health(choice.engine, found, nvml, before, moved, _far(run, far_run))
    if far_run.value is not None and far_run.value.ended == "interrupted":
        run = msgspec.structs.replace(run, ended="interrupted")
    nearest = nearest_known(run)
    findings = examine(run, health, nearest.value)
    return run, Examination(without_trials(run), Fact(health), nearest, findings)


def examine_run(run: Run) -> Examination:
    """The examination of a saved run, without the values around it."""
    nearest = nearest_known(run)
    findings = examine(run, None, nearest.value)
    return Examination(without_trials(run), Fact(reason=_SAVED), nearest, findings)


def examined_again(examination: Examination) -> Examination:
    """The examination with what follows from its run, the values around it, and the known host beside it."""
    run, nearest = derive_run(examination.run), examination.nearest.value
    state = run.link.under_load.value
    if nearest is not None and state is not None:
        differs = _differences(nearest.reference, run, state)
        nearest = Nearest(nearest.reference, not differs, differs)
    findings = examine(run, examination.health.value, nearest)
    known = {(each.code, each.subject): each for each in findings}
    stated = tuple(
        msgspec.structs.replace(each, status=known[each.code, each.subject].status)
        for each in examination.findings
        if (each.code, each.subject) in known
    )
    return msgspec.structs.replace(
        examination,
        run=run,
        nearest=examination.nearest if nearest is None else Fact(nearest),
        findings=stated if len(stated) == len(findings) else findings,
    )


def without_trials(run: Run) -> Run:
    bare = tuple(msgspec.structs.replace(row, trials=()) for row in run.measurements)
    return msgspec.structs.replace(run, measurements=bare)


def moved_bytes(run: Run) -> int:
    """The bytes of the timed trials. Preparation moved more, so this is a lower bound."""
    sides = [row for row in run.measurements if row.side != "sum"]
    return sum(row.moved_bytes * sum(trial.copies for trial in row.trials) for row in sides)


def _request(device: int | str, sizes: tuple[int, ...], memories: tuple[Memory, ...], budget_s: float) -> Request:
    return make_request(
        device,
        directions=("h2d", "d2h"),
        memories=memories,
        modes=("auto",),
        sizes=sizes,
        fresh=False,
        precision=DEFAULT_PRECISION,
        budget_s=budget_s,
        seed=None,
        trace=False,
    )


def _sizes(choice: Choice, index: int) -> tuple[int, ...]:
    """A small size, and the largest one for which there is enough memory."""
    if choice.runtime == "host":
        return (_SMALL,)
    for large in _LARGE[:-1]:
        try:
            check_memory(choice.engine, index, _MEMORIES, large, last_level_bytes())
        except UsageError:
            continue
        return (_SMALL, large)
    return (_SMALL,)


def _far_run(choice: Choice, run: Run, request: Request, report: OnProgress) -> Fact[Run]:
    """Pinned copies with their memory on the farthest NUMA node, if there is one besides the device's."""
    if run.runtime == "host":
        return Fact(reason="without a link no memory is far from it")
    if run.ended != "complete":
        return Fact(reason=f"the run was {run.ended}")
    node = farthest_node(run.placement.device_node)
    if node.value is None:
        return Fact(reason=node.reason)
    shorter = _request(run.device.index, (request.largest,), ("pinned",), request.budget_s * FAR_PART)
    try:
        return Fact(run_on(choice, run.device, shorter, on_progress=report, memory_node=node.value))
    except (PyxferError, MemoryError) as error:
        return Fact(reason=f"copies from NUMA node {node.value} failed: {error}")


def _far(near: Run, far: Fact[Run]) -> Fact[FarRates]:
    if far.value is None:
        return Fact(reason=far.reason)
    node, own = far.value.placement.memory_node, near.placement.device_node
    if node.value is None or own.value is None:
        return Fact(reason=node.reason or own.reason)
    nbytes = far.value.parameters.sizes_bytes[-1]
    return Fact(FarRates(own.value, node.value, nbytes, _pinned(near, nbytes), _pinned(far.value, nbytes)))


def _pinned(run: Run, nbytes: int) -> dict[str, float]:
    rows = [row for row in run.measurements if row.memory == "pinned" and row.nbytes == nbytes]
    return {row.side: row.gbps for row in rows if row.gbps is not None}
