"""Three framework calls, and the three timers that `timers.py` puts them under.

A library is imported when its call is made or its timer runs, so that one that is missing costs only its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

import msgspec
import numpy as np

import pyxfer
from pyxfer.errors import MeasurementError

NBYTES = 64 << 20
EMPTY = "empty callable"
REPEATS = 30
WARM_UPS = 3

Timer = Literal["torch", "cupyx", "pyxfer"]
Samples = list[float]


class Call(msgspec.Struct, frozen=True):
    """One framework call, and the stream it works on."""

    name: str
    run: Callable[[], object]
    stream: Any
    nbytes: int = NBYTES


def torch_to() -> Call:
    """Pageable memory through `Tensor.to`."""
    torch = _torch()
    source, stream = torch.randint(0, 256, (NBYTES,), dtype=torch.uint8), torch.cuda.current_stream()

    def run() -> None:
        source.to("cuda")
        stream.synchronize()

    return Call("torch to", run, stream)


def torch_pinned() -> Call:
    """Pinned memory through `copy_`, which returns before the copy is done."""
    torch = _torch()
    source = torch.randint(0, 256, (NBYTES,), dtype=torch.uint8).pin_memory()
    destination, stream = torch.empty_like(source, device="cuda"), torch.cuda.current_stream()

    def run() -> None:
        destination.copy_(source, non_blocking=True)
        stream.synchronize()

    return Call("torch pinned", run, stream)


def cupy_asarray() -> Call:
    """Pageable memory through `cupy.asarray`."""
    cupy = import_module("cupy")
    source = np.random.default_rng(1).integers(0, 256, NBYTES, dtype=np.uint8)
    stream = cupy.cuda.get_current_stream()

    def run() -> None:
        cupy.asarray(source)
        stream.synchronize()

    return Call("cupy asarray", run, stream)


def empty() -> Call:
    """Nothing, on the stream of the first library that is here: what a timer reads for itself."""
    try:
        stream = _torch().cuda.current_stream()
    except ImportError:
        stream = import_module("cupy").cuda.get_current_stream()
    return Call(EMPTY, lambda: None, stream, nbytes=1)


def _torch() -> Any:
    torch = import_module("torch")
    if not torch.cuda.is_available():
        raise ImportError("this torch sees no GPU")
    return torch


CALLS: dict[str, Callable[[], Call]] = {
    "torch to": torch_to,
    "torch pinned": torch_pinned,
    "cupy asarray": cupy_asarray,
    EMPTY: empty,
}

# --- the timers ------------------------------------------------------------------------------------------------------


def time_torch(call: Call) -> Samples:
    """Seconds a call of each block that torch's timer ran."""
    torch_timer = import_module("torch.utils.benchmark").Timer
    found = torch_timer("run()", globals={"run": call.run}).blocked_autorange(min_run_time=0.5)
    return [float(sample) for sample in found.times]


def time_cupyx(call: Call) -> Samples:
    """Seconds between cupyx's two events, one a repeat."""
    found = import_module("cupyx.profiler").benchmark(call.run, n_repeat=REPEATS, n_warmup=WARM_UPS)
    return [float(sample) for sample in found.gpu_times[0]]


def time_pyxfer(call: Call) -> Samples:
    """Seconds between pyxfer's two events, one a trial.

    Without `nbytes`, so that no ceiling runs between the calls: the other timers leave the caches to the call too.
    """
    found = pyxfer.measure(call.run, stream=call.stream, budget_s=0.5)
    samples = [trial.elapsed_s for trial in found.trials if trial.invalid is None]
    if not samples:
        raise MeasurementError(found.rate.reason or "no valid trial")
    return samples


TIMERS: dict[Timer, Callable[[Call], Samples]] = {"torch": time_torch, "cupyx": time_cupyx, "pyxfer": time_pyxfer}
