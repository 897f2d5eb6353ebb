"""What moving blocks costs other work: a kernel that copies memory of the GPU, alone and beside blocks that move."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pyxfer._blocks.plans import BlockPlan
from pyxfer._blocks.trials import BlockResources, draw_places, ways_of
from pyxfer._document.blocks import BlockDirection, BlockMethod
from pyxfer._document.machines import Fact
from pyxfer._document.runs import WorkBeside
from pyxfer._measure.sampler import FEWEST_ROUNDS
from pyxfer._measure.stats import ratio_share
from pyxfer.errors import CancelledError, CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

if TYPE_CHECKING:
    from pyxfer.native._cuda import Flow

# Both methods nearly fill the link with these.
BLOCK_BYTES, COUNT = 64 << 10, 512
METHODS: tuple[BlockMethod, ...] = ("kernel", "batch")
DIRECTIONS: tuple[BlockDirection, ...] = ("h2d", "d2h")
WORK_BYTES = 64 << 20
WORK_S = 0.02
ROUNDS = FEWEST_ROUNDS + 2
_PATIENCE_S = 30.0
_MULTIPROCESSORS = 16
"""cudaDevAttrMultiProcessorCount."""


def measure_beside(
    resources: BlockResources, plans: Sequence[BlockPlan], seed: int, work_bytes: int = WORK_BYTES
) -> Fact[tuple[WorkBeside, ...]]:
    """Time the work alone and beside each plan, in rounds of shuffled order."""
    engine, device = resources.engine, resources.device
    order = random.Random(seed)  # noqa: S311 - only the order of measurements
    try:
        kernels = engine.Kernels(device)
    except (CudaUnavailableError, DeviceLostError):
        raise
    except CudaError as error:
        return Fact(reason=f"the kernel that copies is not available: {error}")
    memory = engine.DeviceBuffer(2 * work_bytes, device)
    ends = {"destination": memory.address, "source": memory.address + work_bytes}
    here = {"device": device, "source_device": device, "destination_device": device}
    work = engine.Flow(engine="sm", nbytes=work_bytes, kernels=kernels, **ends, **here)
    alone: list[float] = []
    beside: dict[BlockPlan, list[float]] = {plan: [] for plan in plans}
    try:
        for _ in range(ROUNDS):
            cases: list[BlockPlan | None] = [None, *plans]
            order.shuffle(cases)
            for plan in cases:
                if resources.cancelled():
                    raise CancelledError("the measurement was asked to end")
                with _moving(resources, plan, seed):
                    (alone if plan is None else beside[plan]).append(_seconds(resources, work))
    except MeasurementError as error:
        return Fact(reason=str(error))
    finally:
        work.close()
        kernels.close()
        memory.close()
    blocks = min(resources.mover.kernel_blocks, engine.device_attribute(device, _MULTIPROCESSORS))
    return Fact(
        tuple(
            WorkBeside(
                plan.direction,
                plan.method,
                plan.block_bytes,
                plan.count,
                blocks if plan.method == "kernel" else 0,
                tuple(alone),
                tuple(times),
                ratio_share(times, alone),
            )
            for plan, times in beside.items()
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


def _seconds(resources: BlockResources, work: Flow) -> float:
    """The mean of all items of a stretch, by the device's clock."""
    (stamps,) = resources.engine.run_flows([work], WORK_S, _PATIENCE_S, "kernel", 0.0)
    if not stamps.begin_ns.size:
        raise MeasurementError("the kernel that copies has not run")
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
