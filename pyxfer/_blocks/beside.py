"""What moving blocks costs other work: a kernel that copies memory of the GPU, and one that computes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._blocks.plans import BlockPlan
from pyxfer._blocks.trials import BlockResources, draw_places, ways_of
from pyxfer._document.blocks import BlockDirection, BlockMethod
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Work, WorkBeside
from pyxfer._measure.sampler import FEWEST_ROUNDS
from pyxfer._measure.stats import ratio_share
from pyxfer.errors import CancelledError, CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

if TYPE_CHECKING:
    from pyxfer.native._cuda import Flow, Kernels

# Both methods nearly fill the link with these.
BLOCK_BYTES, COUNT = 64 << 10, 512
METHODS: tuple[BlockMethod, ...] = ("kernel", "batch")
DIRECTIONS: tuple[BlockDirection, ...] = ("h2d", "d2h")
WORKS: tuple[Work, ...] = ("copy", "compute")
WORK_BYTES = 64 << 20
# Of each multiprocessor, which holds 2048 at most: with several shares, none waits long for the last block of another.
THREADS = 8 * 2048
COMPUTE_ROUNDS = 256
WORK_S = 0.01
ROUNDS = FEWEST_ROUNDS
_PATIENCE_S = 30.0
_MULTIPROCESSORS = 16
"""cudaDevAttrMultiProcessorCount."""


def measure_beside(resources: BlockResources, plans: Sequence[BlockPlan], seed: int) -> Fact[tuple[WorkBeside, ...]]:
    """Time each work alone and beside each plan, in rounds of shuffled order."""
    engine, device = resources.engine, resources.device
    seconds: dict[tuple[Work, BlockPlan | None], list[float]] = {
        (work, plan): [] for work in WORKS for plan in (None, *plans)
    }
    with ExitStack() as held:
        try:
            kernels = held.enter_context(closing(engine.Kernels(device)))
        except (CudaUnavailableError, DeviceLostError):
            raise
        except CudaError as error:
            return Fact(reason=f"the kernels of the other work are not available: {error}")
        flows = _flows(resources, kernels, held)
        try:
            _measure_rounds(resources, flows, seconds, seed)
        except MeasurementError as error:
            return Fact(reason=str(error))
    blocks = min(resources.mover.kernel_blocks, engine.device_attribute(device, _MULTIPROCESSORS))
    return Fact(
        tuple(
            WorkBeside(
                plan.direction,
                plan.method,
                plan.block_bytes,
                plan.count,
                blocks if plan.method == "kernel" else 0,
                tuple(seconds[work, None]),
                tuple(seconds[work, plan]),
                ratio_share(seconds[work, plan], seconds[work, None]),
                work,
            )
            for work in WORKS
            for plan in plans
        )
    )


def plans_beside(possible: Callable[[BlockPlan], bool], trial_bytes: int) -> list[BlockPlan]:
    """The kernel and the batch call in both directions, as far as they are possible."""
    count = min(COUNT, trial_bytes // BLOCK_BYTES)
    plans = [
        BlockPlan(direction, "pinned", method, "random", BLOCK_BYTES, count)
        for direction in DIRECTIONS
        for method in METHODS
    ]
    return list(filter(possible, plans))


def _flows(resources: BlockResources, kernels: Kernels, held: ExitStack) -> dict[Work, Flow]:
    """The work in the same memory, because no two of them run at the same time."""
    engine, device = resources.engine, resources.device
    result_bytes = 4 * THREADS * engine.device_attribute(device, _MULTIPROCESSORS)
    memory = held.enter_context(closing(engine.DeviceBuffer(max(2 * WORK_BYTES, result_bytes), device)))
    common: dict[str, Any] = {
        "device": device,
        "destination": memory.address,
        "destination_device": device,
        "kernels": kernels,
    }
    source = memory.address + WORK_BYTES
    copies = engine.Flow(engine="sm", source=source, nbytes=WORK_BYTES, source_device=device, **common)
    held.callback(copies.close)
    computes = engine.Flow(engine="compute", source=0, nbytes=result_bytes, rounds=COMPUTE_ROUNDS, **common)
    held.callback(computes.close)
    return {"copy": copies, "compute": computes}


def _measure_rounds(
    resources: BlockResources,
    flows: dict[Work, Flow],
    seconds: dict[tuple[Work, BlockPlan | None], list[float]],
    seed: int,
) -> None:
    order = random.Random(seed)  # noqa: S311 - only the order of measurements
    cases, works = list(dict.fromkeys(plan for _, plan in seconds)), list(flows)
    for _ in range(ROUNDS):
        order.shuffle(cases)
        for plan in cases:
            order.shuffle(works)
            if resources.cancelled():
                raise CancelledError("the measurement was asked to end")
            with _moving(resources, plan, seed):
                for work in works:
                    seconds[work, plan].append(_seconds(resources, flows[work]))


def _seconds(resources: BlockResources, work: Flow) -> float:
    """The mean of all items of a stretch, by the device's clock."""
    (stamps,) = resources.engine.run_flows([work], WORK_S, _PATIENCE_S, "kernel", 0.0)
    if not stamps.begin_ns.size:
        raise MeasurementError("the kernel of the other work has not run")
    return float(stamps.end_ns[-1] - stamps.begin_ns[0]) / stamps.begin_ns.size / 1e9


@contextmanager
def _moving(resources: BlockResources, plan: BlockPlan | None, seed: int) -> Iterator[None]:
    """Move blocks again and again from another thread."""
    if plan is None:
        yield
        return
    mover, (way,) = resources.mover, ways_of(plan, resources)
    places = draw_places(plan.order, way.source.blocks, plan.count, np.random.default_rng(seed))
    begun, ended = threading.Event(), threading.Event()
    faults: list[Exception] = []

    def move() -> None:
        try:
            while not ended.is_set():
                mover.move(plan.method, way.source, way.destination, *places, plan.block_bytes, None)
                begun.set()
                mover.wait()
        except Exception as error:  # noqa: BLE001 - raised in the thread that measures
            faults.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=move, name="pyxfer-moving", daemon=True)
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        ended.set()
        thread.join()
    if faults:
        raise faults[0]
