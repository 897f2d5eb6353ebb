"""An examination under way: a short run between two readings of the counters, and one from another NUMA node."""

from __future__ import annotations

import msgspec

from pyxfer.errors import PyxferError, UsageError
from pyxfer.examining.examine import examine
from pyxfer.examining.known import nearest_known
from pyxfer.machine import nvml as management
from pyxfer.machine.caches import last_level_bytes
from pyxfer.machine.devices import find_device
from pyxfer.machine.health import read_health
from pyxfer.machine.link_errors import read_counters
from pyxfer.machine.numa import farthest_node
from pyxfer.model import Fact, Memory, Run
from pyxfer.model_findings import Examination, FarRates
from pyxfer.native import HOST, Choice, choose
from pyxfer.raw.arena import check_room
from pyxfer.raw.request import DEFAULT_PRECISION, Request, make_request
from pyxfer.raw.session import run_ways
from pyxfer.sampling.progress import OnProgress, silent

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
            check_room(choice.engine, index, _MEMORIES, large, last_level_bytes().value or 0)
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
