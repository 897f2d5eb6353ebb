"""What a CUDA call is by its name: whether it copies, waits for the device, or asks for memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.tracing.records import Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COPIES = ("cudaMemcpy", "cuMemcpy")
# These return before the copy is done, or copy what does not concern the host.
_UNWAITED = ("Async", "Batch", "Peer", "DtoD")
_MEMORY = (
    *("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister"),
    *("cuMemCreate", "cuMemRelease"),
)


def is_wait(name: str) -> bool:
    """Whether it returns when the device has done something."""
    return "Synchronize" in name


def is_blocking_copy(name: str) -> bool:
    """Whether it copies, and returns when that is done."""
    return name.startswith(_COPIES) and not any(word in name for word in _UNWAITED)


def is_allocation(name: str) -> bool:
    """Whether it asks the driver for memory or gives it back, which a pool's calls (...Async) rarely do."""
    return name.startswith(_MEMORY) and "Async" not in name


def named(calls: NDArray[Any], names: Sequence[str], test: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Which of these calls bear a name of that kind; every name is looked at once."""
    passed = np.fromiter((test(name) for name in names), np.bool_, len(names))
    chosen: NDArray[np.bool_] = passed[calls["name"]]
    return chosen


def outermost(calls: NDArray[Any]) -> NDArray[Any]:
    """One of each call, in the order of their beginning."""
    return calls.take(outermost_places(calls))


def outermost_places(calls: NDArray[Any]) -> NDArray[np.intp]:
    """Where a runtime call makes driver calls, they share its number, and it alone counts."""
    inner = (calls["flags"] & Flag.RUNTIME) == 0
    order = np.lexsort((calls["start_ns"], inner, calls["correlation"]))
    numbers = calls["correlation"][order]
    first = np.concatenate(([True], numbers[1:] != numbers[:-1])) if len(order) else np.empty(0, np.bool_)
    kept = np.sort(order[first | (numbers == 0)])
    return kept[np.argsort(calls["start_ns"][kept], kind="stable")]


def issuing(calls: NDArray[Any], of: NDArray[Any]) -> NDArray[np.int64]:
    """For each of the device's records the place of the call that asked for it, -1 where it was not recorded."""
    if not len(calls):
        return np.full(len(of), -1, np.int64)
    order = np.argsort(calls["correlation"], kind="stable")
    numbers = calls["correlation"][order]
    place = np.minimum(np.searchsorted(numbers, of["correlation"]), len(order) - 1)
    found = (numbers[place] == of["correlation"]) & (of["correlation"] != 0)
    return np.where(found, order[place], -1).astype(np.int64)
