"""`pyxfer doctor`: a short run between two readings of the counters, its findings, and the known hosts."""

from __future__ import annotations

import msgspec

from pyxfer._ceiling.arena import check_memory
from pyxfer._ceiling.plans import DEFAULT_PRECISION, Request, limits_of, make_request
from pyxfer._ceiling.session import run_on
from pyxfer._doctor.examine import examine, nearest_known, without_trials
from pyxfer._document.examinations import Examination, FarRates
from pyxfer._document.machines import Device, Fact
from pyxfer._document.runs import Memory, Run
from pyxfer._machine import nvml as management
from pyxfer._machine.devices import find_device
from pyxfer._machine.health import read_counters, read_health
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.numa import farthest_node
from pyxfer._measure.sampler import OnProgress, SaveTo, silent
from pyxfer.errors import PyxferError, UsageError
from pyxfer.native import Choice, choose, is_host_name
from pyxfer.units import seconds_of

DEFAULT_BUDGET_S = 6.0
# Without a link the run only has to show that copies arrive whole.
HOST_BUDGET_S = 1.5
FAR_PART = 1 / 3

_SMALL = 16 << 20
_LARGE = (256 << 20, 64 << 20, _SMALL)
_MEMORIES: tuple[Memory, ...] = ("pageable", "pinned")
_NEAR_ONLY = "copies with memory on another node were left out"


def doctor(
    device: int | str = 0,
    *,
    budget: str | float = DEFAULT_BUDGET_S,
    require_gpu: bool = False,
    on_progress: OnProgress | None = None,
) -> Examination:
    """Measure for a few seconds, read the state of host and link, and report what is not as it should be.

    It needs no baseline: it compares the measurement with the computed peak of the link and with known hosts of the
    same kind. Without a GPU only the limits and settings of the host are examined.

    Args:
        device: Index, UUID or PCI address of the GPU, or "host" for host memory.
        budget: Time limit for measuring.
        require_gpu: Raise an error if no GPU is usable.
        on_progress: Called with the progress.

    Raises:
        UsageError: an argument is not valid; nothing was measured.
        CudaUnavailableError: a GPU is required and none is usable.
        CudaError: the device failed before anything was measured.
    """
    if is_host_name(device) and require_gpu:
        raise UsageError("The device is host memory, but a GPU is required: leave one of the two options out.")
    budget_s = seconds_of(budget, "budget")
    choice = choose(device, require_gpu)
    found = find_device(choice.engine, 0 if is_host_name(device) else device)
    return examine_device(choice, found, budget_s, on_progress or silent, device)[1]


def examine_device(
    choice: Choice,
    found: Device,
    budget_s: float,
    report: OnProgress,
    device: int | str | None = None,
    *,
    far: bool = True,
    complete: bool = False,
    save_to: SaveTo | None = None,
) -> tuple[Run, Examination]:
    """The run with its trials, and the examination. `device`: as the user named it; `far`: also far memory, if any.

    `complete`: also the largest size, if the budget is too short for it.
    """
    run_budget_s = min(budget_s, HOST_BUDGET_S) if choice.runtime == "host" else budget_s
    nvml, named = management.shared(), found.index if device is None else device
    request = _request(named, _sizes(choice, found.index), _MEMORIES, run_budget_s, complete=complete)
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


def moved_bytes(run: Run) -> int:
    """The bytes of the timed trials. Preparation moved more, so this is a lower bound."""
    sides = [row for row in run.measurements if row.side != "sum"]
    return sum(row.moved_bytes * sum(trial.copies for trial in row.trials) for row in sides)


def _request(
    device: int | str, sizes: tuple[int, ...], memories: tuple[Memory, ...], budget_s: float, *, complete: bool
) -> Request:
    return make_request(
        device,
        direction=("h2d", "d2h"),
        memory=memories,
        mode=("auto",),
        size=sizes,
        limits=limits_of(DEFAULT_PRECISION, budget_s, None, trace=False, complete=complete),
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
    budget_s, complete = request.limits.budget_s * FAR_PART, request.limits.complete
    shorter = _request(run.device.index, (request.largest,), ("pinned",), budget_s, complete=complete)
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
