"""The public functions. They share one uploader for each device in the process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from pyxfer._machine.engine import is_host
from pyxfer._upload import pinning
from pyxfer._upload.device_arrays import KDL_CUDA
from pyxfer._upload.uploader import ON_HOST, Uploader, device_of
from pyxfer.native import HOST

if TYPE_CHECKING:
    import cupy
    import jax
    import tensorflow
    import torch
    from numpy.typing import DTypeLike, NDArray

    from pyxfer._document.runs import FrameworkName
    from pyxfer._upload.pending import Upload
    from pyxfer._upload.prefetch import Prefetch


# By the caller's name of the device, and by runtime and index. Changed without a lock, by operations that cannot be
# interrupted: if two threads make the same uploader, one of the two is dropped unused.
_by_name: dict[int | str, Uploader] = {}
_by_index: dict[tuple[str, int], Uploader] = {}


@overload
def upload(
    x: NDArray[Any],
    to: Literal["torch"],
    device: int | str = 0,
    block: Literal[True] = True,
    *,
    dtype: Any = None,
    layout: Any = None,
) -> torch.Tensor: ...
@overload
def upload(
    x: NDArray[Any],
    to: Literal["tensorflow"],
    device: int | str = 0,
    block: Literal[True] = True,
    *,
    dtype: Any = None,
    layout: Any = None,
) -> tensorflow.Tensor: ...
@overload
def upload(
    x: NDArray[Any],
    to: Literal["jax"],
    device: int | str = 0,
    block: Literal[True] = True,
    *,
    dtype: Any = None,
    layout: Any = None,
) -> jax.Array: ...
@overload
def upload(
    x: NDArray[Any],
    to: Literal["cupy"],
    device: int | str = 0,
    block: Literal[True] = True,
    *,
    dtype: Any = None,
    layout: Any = None,
) -> cupy.ndarray: ...
@overload
def upload(
    x: Any,
    to: FrameworkName,
    device: int | str = 0,
    block: Literal[True] = True,
    *,
    dtype: Any = None,
    layout: Any = None,
) -> Any: ...
@overload
def upload(
    x: Any, to: FrameworkName, device: int | str = 0, *, block: Literal[False], dtype: Any = None, layout: Any = None
) -> Upload: ...
@overload
def upload(
    x: Any, to: FrameworkName, device: int | str = 0, block: bool = True, *, dtype: Any = None, layout: Any = None
) -> Any: ...


def upload(
    x: Any, to: FrameworkName, device: int | str = 0, block: bool = True, *, dtype: Any = None, layout: Any = None
) -> Any:
    """Upload an array, or a structure of arrays, from host memory. Returns arrays of a framework on the device.

    After the call `x` may be changed or dropped, and work that is queued on the framework's current stream sees the
    complete array. The first upload to a device starts threads and page-locks memory, which the whole process shares;
    an `Uploader` has its own. Without a GPU arrays stay in host memory, with a `FallbackWarning`.

    With `dtype` or `layout` an array is converted on the way. A cast that shrinks it is done on the host if that is
    faster, as measured; other casts, and permutations, are done on the device, behind each piece that has arrived.
    Numbers are rounded to the nearest, as by NumPy, and NaN and infinities stay what they are.

    Args:
        x: A NumPy array, a buffer, a tensor on the CPU that supports DLPack, or a tuple, list, dict, dataclass or named
            tuple of these, which comes back as the same structure.
        to: The framework: "torch", "tensorflow", "jax" or "cupy".
        device: Index, UUID or PCI address of the GPU, or "host".
        block: False returns an `Upload` at once, and `x` must not change until that is done.
        dtype: The type of the numbers on the device, such as "float32" or "bfloat16". Floating-point numbers do not
            become integers. For a structure, one for all arrays or a structure with one, or None, for each.
        layout: The axes of the source, an arrow, and the axes of the result, such as "NHWC->NCHW"; likewise.

    Raises:
        UsageError: the framework or an array is refused; the message says what to do.
        CudaMemoryError: the device is out of memory.
        ForkedError: this process was forked from one that has uploaded.
    """
    return shared_uploader(device).upload(x, to, block, dtype=dtype, layout=layout)


def download(y: Any, out: Any = None) -> Any:
    """Copy a framework's array on a device to `out`, or to a new NumPy array, and return that.

    The memory of a large new array is used again for later ones when the array and all its views are gone. A view keeps
    all of it. NumPy's `resize` in place refuses such an array, which does not own its memory.

    Raises:
        UsageError: `y` is not on a device, or does not fit into `out`; the message says what to do.
        MemoryError: there is no memory for a new array.
        ForkedError: this process was forked from one that has uploaded.
    """
    if out is None:
        for uploader in tuple(_by_index.values()):  # asking an array for its device takes 2 us
            if (made := uploader._download_at_once(y)) is not None:
                return made
    return shared_uploader(device_name_of(y))._download(y, out)


def prefetch(
    batches: Iterable[Any],
    to: FrameworkName,
    depth: int = 2,
    device: int | str = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
) -> Prefetch[Any, Any]:
    """Iterate over batches as a framework's arrays on the device, uploaded while the loop works on earlier ones.

    A thread draws and uploads the batches. If it raises, the error comes out in place of that batch. The iterator ends
    early on `close()`, on leaving `with`, or when it is dropped.

    Args:
        batches: Any iterable of arrays or structures of arrays, as `upload` takes them: a DataLoader, a
            tf.data.Dataset, a generator.
        to: The framework: "torch", "tensorflow", "jax" or "cupy".
        depth: Number of batches to upload ahead. At most two more are on the device, unless the loop keeps more.
        device: Index, UUID or PCI address of the GPU, or "host".
        dtype: That of `upload`, for each batch.
        layout: That of `upload`, for each batch.

    Raises:
        UsageError: the framework is refused, `batches` is text or a dict, or `depth` is not a whole number of at least
            1.
    """
    return shared_uploader(device)._prefetch(batches, to, depth, dtype, layout)


def empty_pinned(shape: int | Iterable[int], dtype: DTypeLike | None = None, device: int | str = 0) -> NDArray[Any]:
    """Make an array like `np.empty` in page-locked memory, which is freed with the last view of the array.

    Raises:
        UsageError: the shape is not valid, or arrays of that dtype cannot be sent.
        CudaMemoryError: page-locked memory ran out.
    """
    uploader = shared_uploader(device)
    return pinning.empty_pinned(uploader.engine, shape, dtype, uploader.device)


def pin(x: NDArray[Any], device: int | str = 0) -> NDArray[Any]:
    """Page-lock the memory of an array until the last view of the returned array is gone.

    The returned array has the same memory, shape and strides as `x`.

    Raises:
        UsageError: `x` is not an array, or its memory cannot be locked; the message says what to do.
        CudaMemoryError: no more memory can be page-locked.
    """
    uploader = shared_uploader(device)
    return pinning.pin(uploader.engine, x, uploader.device)


def shared_uploader(device: int | str, stacklevel: int = 4, advice: str = ON_HOST) -> Uploader:
    """The shared uploader of a device. It allocates at its first use, and exists until the process ends.

    `stacklevel` is that of the warning without a GPU, which is for the line of the user's call; `advice` ends it.
    """
    found = _by_name.get(device) if isinstance(device, (int, str)) else None
    if found is not None:
        return found
    engine, index = device_of(device, stacklevel=stacklevel, advice=advice)
    new = Uploader(HOST if is_host(engine) else index)
    found = _by_name[device] = _by_index.setdefault((engine.RUNTIME, index), new)
    return found


def device_name_of(y: Any) -> int | str:
    """The device that an array names, unchecked: the download checks the array."""
    try:
        kind, index = y.__dlpack_device__()
    except Exception:  # noqa: BLE001 - libraries raise what they like
        kind, index = None, 0
    if kind == KDL_CUDA:
        return int(index)
    return HOST if HOST in _by_name else 0
