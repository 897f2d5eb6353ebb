"""An examination under way: a short run between two readings of the counters, and one from another NUMA node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from itertools import chain
from math import log

import msgspec

from pyxfer._ceiling.arena import check_memory
from pyxfer._ceiling.session import run_ways
from pyxfer._ceiling.ways import DEFAULT_PRECISION, Request, make_request
from pyxfer._doctor import host, link, speed
from pyxfer._doctor.case import Case, Findings, untold
from pyxfer._document import codec
from pyxfer._document.examinations import Examination, FarRates, Finding, Health, Nearest, Reference, Status
from pyxfer._document.runs import Fact, LinkState, Memory, Run
from pyxfer._machine import nvml as management
from pyxfer._machine.devices import find_device
from pyxfer._machine.health import read_counters, read_health
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.link import describe
from pyxfer._machine.numa import farthest_node
from pyxfer._machine.pci import carries_gbps
from pyxfer._measure.sampler import OnProgress, silent
from pyxfer.errors import DocumentError, PyxferError, UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import format_size

_FOLDER = "references"
_RUNS = ".run.json"


@cache
def references() -> tuple[Reference, ...]:
    """All that come with the package, by name."""
    files = (resources.files("pyxfer") / _FOLDER).iterdir()
    named = {file.name: file for file in files if file.name.endswith(".json") and not file.name.endswith(_RUNS)}
    return tuple(codec.decode_reference(named[name].read_bytes(), f"the reference {name}") for name in sorted(named))


def run_of(reference: Reference) -> Run:
    """The run that a reference's figures are of, without its single trials."""
    file = resources.files("pyxfer") / _FOLDER / reference.document
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DocumentError(
            f"the run {reference.document} of a known host cannot be read ({error.strerror}); install pyxfer again"
        ) from error
    return codec.decode(Run, data, reference.document)


def nearest_known(run: Run, known: tuple[Reference, ...] | None = None) -> Fact[Nearest]:
    """The known host most like this one: by its device, then by its link, then by its MaxPayload."""
    known = references() if known is None else known
    state = run.link.under_load.value or run.link.now.value
    if run.link.kind != "pcie" or state is None:
        reason = run.link.raw_peak_gbps.reason or run.link.under_load.reason or "the link is not known"
        return Fact(reason=f"no known host is like this one: {reason}")
    if not known:
        return Fact(reason="no known host came with this pyxfer")
    found = min(known, key=lambda reference: _distance(reference, run, state))
    differs = _differences(found, run, state)
    return Fact(Nearest(found, not differs, differs))


def _distance(reference: Reference, run: Run, state: LinkState) -> tuple[bool, float, bool]:
    ours, theirs = carries_gbps(state) or 1.0, carries_gbps(reference.link) or 1.0
    same_payload = reference.max_payload_bytes == run.link.max_payload_bytes.value
    return reference.device != run.device.name, abs(log(ours / theirs)), not same_payload


def _differences(reference: Reference, run: Run, state: LinkState) -> tuple[str, ...]:
    """Why the figures of the one are none of the other's, each as `here, there`."""
    payload = run.link.max_payload_bytes.value
    here = "unknown" if payload is None else format_size(payload)
    found = [
        (reference.device != run.device.name, f"device {run.device.name} here, {reference.device} there"),
        (reference.link != state, f"link {describe(state)} here, {describe(reference.link)} there"),
        (reference.max_payload_bytes != payload, f"MaxPayload {here} here, {reference.max_payload_bytes} B there"),
        (bool(run.device.mig.value or run.device.vgpu.value), "a part of a GPU here, a whole one there"),
        (bool(run.device.confidential.value), "copies are encrypted here, and were not there"),
    ]
    return tuple(text for is_so, text in found if is_so)


_ORDER: tuple[Status, ...] = ("wrong", "suspicious", "unknown", "fine")
_Rule = Callable[[Case], Findings]

_OF_THE_LINK: tuple[_Rule, ...] = (
    *(speed.ceilings, speed.known_host, speed.pageable),
    *(link.link, link.slot, link.path, link.payload, link.ordering),
    *(link.replays, link.link_errors),
    *(host.numa_memory, host.processors, host.far_memory),
    *(host.throttling, host.persistence, host.sharing, host.parts),
    *(host.device_memory, host.iommu, host.access_control),
)
_OF_THE_HOST: tuple[_Rule, ...] = (
    *(host.huge_pages, host.lock_limit, host.container),
    *(host.shared_memory, host.virtual_machine),
)


def examine(run: Run, health: Health | None = None, nearest: Nearest | None = None) -> tuple[Finding, ...]:
    """What is wrong, suspicious, unknown and fine, in this order; a run alone tells less than one with its health."""
    case = Case(run, health, nearest)
    rules = (speed.contents, *(_OF_THE_LINK if case.has_link else ()), *_OF_THE_HOST)
    found = [*_about_the_whole(case), *chain.from_iterable(rule(case) for rule in rules)]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.status)))


def _about_the_whole(case: Case) -> Iterator[Finding]:
    if not case.has_link:
        reason = case.run.runtime_reason or case.run.link.raw_peak_gbps.reason
        yield untold("link", "link", "a GPU behind a link", f"no link to examine: {reason}", "see pyxfer list")
    if case.run.ended != "complete":
        reason = case.run.failure or f"the run was {case.run.ended}"
        yield untold("measurement", "measurement", "a run that came to its end", reason, "measure again")
    if case.health is None:
        reason = "a saved run says nothing of error counters, limits and settings"
        yield untold("health", "health", "the machine itself", reason, "run pyxfer doctor on the host itself")


DEFAULT_BUDGET_S = 6.0
# Host memory says nothing of a link; a glance shows that copies arrive whole.
HOST_BUDGET_S = 1.5
FAR_PART = 1 / 3

_SMALL = 16 << 20
_LARGE = (256 << 20, 64 << 20, _SMALL)
_MEMORIES: tuple[Memory, ...] = ("pageable", "pinned")
_SAVED = "a saved run was examined, and not the machine"


def doctor(
    device: int | str = 0,
    *,
    budget_s: float = DEFAULT_BUDGET_S,
    require_gpu: bool = False,
    on_progress: OnProgress | None = None,
) -> Examination:
    """Measure for a few seconds, read what there is to read, and say what is not as it should be.

    No baseline is needed: a link has a peak that can be computed, and hosts of its kind have known figures. Without a
    GPU there is no link to examine, and what is left are the limits and settings of the host.

    Raises:
        UsageError: something asked for cannot be; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
        CudaError: the device failed before anything was measured.

    """
    if device == HOST and require_gpu:
        raise UsageError("The host's memory was asked for, and a GPU was required: leave one of the two out.")
    choice = choose(device, require_gpu)
    found = find_device(choice.engine, 0 if device == HOST else device)
    seconds = min(budget_s, HOST_BUDGET_S) if choice.runtime == "host" else budget_s
    nvml, report = management.shared(), on_progress or silent
    request = _request(device, _sizes(choice, found.index), _MEMORIES, seconds)
    before = read_counters(nvml, found)
    run = run_ways(request, device, require_gpu=require_gpu, on_progress=report)
    far_run = _far_run(run, request, device, report)
    moved = moved_bytes(run) + (moved_bytes(far_run.value) if far_run.value else 0)
    health = read_health(choice.engine, found, nvml, before, moved, _far(run, far_run))
    if far_run.value is not None and far_run.value.ended == "interrupted":
        run = msgspec.structs.replace(run, ended="interrupted")
    nearest = nearest_known(run)
    findings = examine(run, health, nearest.value)
    return Examination(without_trials(run), Fact(health), nearest, findings)


def examine_run(run: Run) -> Examination:
    """What a saved run says of its host."""
    nearest = nearest_known(run)
    findings = examine(run, None, nearest.value)
    return Examination(without_trials(run), Fact(reason=_SAVED), nearest, findings)


def without_trials(run: Run) -> Run:
    """The run with what its trials say together, and not the trials."""
    bare = tuple(msgspec.structs.replace(each, trials=()) for each in run.measurements)
    return msgspec.structs.replace(run, measurements=bare)


def moved_bytes(run: Run) -> int:
    """What has crossed in the timed trials; preparing them moved more, so errors are few a byte and never many."""
    sides = [each for each in run.measurements if each.side != "sum"]
    return sum(each.moved_bytes * sum(trial.copies for trial in each.trials) for each in sides)


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
    """The largest size for which there is room here, and a small one beside it."""
    if choice.runtime == "host":
        return (_SMALL,)
    for large in _LARGE[:-1]:
        try:
            check_memory(choice.engine, index, _MEMORIES, large, last_level_bytes().value or 0)
        except UsageError:
            continue
        return (_SMALL, large)
    return (_SMALL,)


def _far_run(run: Run, request: Request, device: int | str, report: OnProgress) -> Fact[Run]:
    """Pinned copies with their memory on the farthest NUMA node, where there is another than the device's."""
    if run.runtime == "host":
        return Fact(reason="without a link no memory is far from it")
    if run.ended != "complete":
        return Fact(reason=f"the run before was {run.ended}")
    node = farthest_node(run.placement.device_node)
    if node.value is None:
        return Fact(reason=node.reason)
    shorter = _request(device, (request.largest,), ("pinned",), request.budget_s * FAR_PART)
    try:
        return Fact(run_ways(shorter, device, require_gpu=True, on_progress=report, memory_node=node.value))
    except (PyxferError, MemoryError) as error:
        return Fact(reason=f"copies from NUMA node {node.value} failed: {error}")


def _far(near: Run, far: Fact[Run]) -> Fact[FarRates]:
    """Both nodes' figures side by side."""
    if far.value is None:
        return Fact(reason=far.reason)
    node, own = far.value.placement.memory_node, near.placement.device_node
    if node.value is None or own.value is None:
        return Fact(reason=node.reason or own.reason)
    nbytes = far.value.parameters.sizes_bytes[-1]
    return Fact(FarRates(own.value, node.value, nbytes, _pinned(near, nbytes), _pinned(far.value, nbytes)))


def _pinned(run: Run, nbytes: int) -> dict[str, float]:
    rows = [each for each in run.measurements if each.memory == "pinned" and each.nbytes == nbytes]
    return {each.side: each.gbps for each in rows if each.gbps is not None}
