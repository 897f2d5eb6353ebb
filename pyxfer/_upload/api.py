"""Uploads and downloads in one call: by an uploader a device, which the whole process shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from pyxfer._machine.engine import is_host
from pyxfer._upload import pinning
from pyxfer._upload import pinning as pinned
from pyxfer._upload.device_arrays import KDL_CUDA
from pyxfer._upload.uploader import Uploader, device_of
from pyxfer.native import HOST

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pyxfer._upload.pending import Upload
    from pyxfer._upload.prefetch import Prefetch


# Changed without a lock, by operations that cannot be interrupted; of two that were made at once one is dropped unused.
_asked: dict[int | str, Uploader] = {}
_made: dict[tuple[str, int], Uploader] = {}


@overload
def upload(x: Any, to: str, device: int | str = 0, block: Literal[True] = True) -> Any: ...
@overload
def upload(x: Any, to: str, device: int | str = 0, *, block: Literal[False]) -> Upload: ...
@overload
def upload(x: Any, to: str, device: int | str = 0, block: bool = True) -> Any: ...


def upload(x: Any, to: str, device: int | str = 0, block: bool = True) -> Any:
    """An array in host memory as one of a framework, `"torch"`, `"tensorflow"`, `"jax"` or `"cupy"`, on the device.

    `x` is a NumPy array, a buffer, or a tensor on the CPU that speaks DLPack; of a structure of them it is the same
    structure of the framework's arrays. When it returns `x` may be changed or dropped, and what the framework's current
    stream is given later finds the array whole. Without `block` it returns an `Upload` at once, whose `result()` it is;
    `x` must then stay as it is until that is done.

    The first upload to a device makes the threads and the page-locked memory that all of the process share; an
    `Uploader` has its own. Without a GPU arrays stay in host memory, which is warned of.

    Raises:
        UsageError: the framework, or an array, is refused; says what to do.
        CudaMemoryError: the device has not enough memory.
        ForkedError: this process was forked from one that has uploaded.

    """
    return _uploader(device).upload(x, to, block)


def download(y: Any, out: Any = None) -> Any:
    """The contents of a framework's array on a device, in a new NumPy array or in `out`, which is returned.

    Raises:
        UsageError: `y` is not on a device, or does not fit into `out`; says what to do.
        ForkedError: this process was forked from one that has uploaded.

    """
    return _uploader(_place_of(y)).download(y, out)


def prefetch(batches: Iterable[Any], to: str, depth: int = 2, device: int | str = 0) -> Prefetch[Any, Any]:
    """The batches as a framework's arrays on the device, in order, uploaded while the loop is at work on those before.

    A batch is an array, or any structure of arrays. A thread draws `depth` of them ahead and uploads them; what that
    raises comes out where its batch would have come. `close()`, `with`, or to drop it, ends it early. At most
    `depth` + 2 batches are on the device, unless the loop keeps more.

    Raises:
        UsageError: the framework is refused, or `depth` is not a whole number from 1 on.

    """
    return _uploader(device).prefetch(batches, to, depth)


def empty_pinned(shape: int | Iterable[int], dtype: DTypeLike | None = None, device: int | str = 0) -> NDArray[Any]:
    """An array like that of `np.empty`, page-locked and on pages of its own; it is freed with the last view of it.

    Raises:
        UsageError: there is no array of that shape, or none of that dtype is sent.
        CudaMemoryError: page-locked memory ran out.

    """
    place = _uploader(device)
    return pinned.empty_pinned(place.engine, shape, dtype, place.device)


def pin(x: NDArray[Any], device: int | str = 0) -> NDArray[Any]:
    """The same memory as an array, page-locked where it lies until the last view of what is returned is gone.

    Raises:
        UsageError: it is no array, or its memory cannot be locked where it lies; says what to do.
        CudaMemoryError: no more memory can be page-locked.

    """
    place = _uploader(device)
    return pinning.pin(place.engine, x, place.device)


def _uploader(device: int | str) -> Uploader:
    """That of the process for a device; it has nothing before it is used, and ends with the process."""
    found = _asked.get(device) if isinstance(device, (int, str)) else None
    if found is not None:
        return found
    engine, index = device_of(device, stacklevel=4)
    made = Uploader(HOST if is_host(engine) else index)
    found = _asked[device] = _made.setdefault((engine.RUNTIME, index), made)
    return found


def _place_of(y: Any) -> int | str:
    """Where an array says that it lies; what is wrong with it is said by the download."""
    try:
        kind, index = y.__dlpack_device__()
    except Exception:  # noqa: BLE001 - libraries raise what they like
        kind, index = None, 0
    if kind == KDL_CUDA:
        return int(index)
    return HOST if HOST in _asked else 0
