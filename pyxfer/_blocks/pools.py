"""Pools of blocks: the memory of arrays cut into blocks, and page-locked memory with a list of free blocks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from pyxfer._blocks.mover import Pool
from pyxfer._document.printing import ShortRepr
from pyxfer._upload.api import shared_uploader
from pyxfer._upload.arrays import MAX_BYTES, Source, dtype_to_send, may_be_of_a_file, source_of, strides_of, type_name
from pyxfer._upload.device_arrays import KDL_CUDA
from pyxfer._upload.pinning import empty_pinned
from pyxfer._upload.targets import device_source_of, framework_of
from pyxfer.errors import UsageError
from pyxfer.units import format_size, size_of, whole_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from pyxfer._upload.uploader import Uploader

_IMMUTABLE = {"jax": "JAX", "tensorflow": "TensorFlow"}


class Rows(NamedTuple):
    """Memory whose rows, along the first axis, are contiguous."""

    address: int
    number: int
    nbytes: int
    """Of a row."""
    stride: int
    keep: Any
    stream: int | None = None
    """The current stream of the framework; None if it has none, or if the memory is on the host."""
    readonly: bool = False
    is_locked: bool = False
    """Known to be page-locked. A `BlockPool` is, and what it gives must not refer to it: its memory ends with it."""


def gpu_of(x: Any) -> int | None:
    """The index of the GPU that an array is on; None for the host."""
    kind: Any = type(x)
    if kind is np.ndarray or kind is BlockPool:
        return None
    if framework_of(kind) == "torch":
        index: int = x.get_device()
        return None if index < 0 else index
    try:
        where, index = x.__dlpack_device__()
    except Exception:  # noqa: BLE001 - libraries raise what they like
        return None
    return int(index) if where == KDL_CUDA else None


def rows_of(x: Any, name: str, uploader: Uploader, gpu: int | None, *, written: bool) -> Rows:
    """The rows of an array of any framework."""
    kind: Any = type(x)
    if kind is BlockPool:
        own: Rows = x._rows()
        return own
    framework = framework_of(kind)
    if written and framework in _IMMUTABLE:
        raise UsageError(
            f"{name}: arrays of {_IMMUTABLE[framework]} do not change: copy the blocks to a torch.Tensor, a "
            f"cupy.ndarray or host memory"
        )
    try:
        found = _rows_of_kind(x, kind, framework, uploader, gpu)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    if written and found.readonly:
        raise UsageError(f"{name} is read-only: give a writable array")
    return found


def _rows_of_kind(x: Any, kind: Any, framework: str | None, uploader: Uploader, gpu: int | None) -> Rows:
    if kind is np.ndarray and not x.dtype.hasobject and not may_be_of_a_file(x):
        flags = x.flags
        return _rows(
            x.__array_interface__["data"][0], x.shape, None if flags.c_contiguous else x.strides, x.itemsize, x
        )._replace(readonly=not flags.writeable)
    if framework == "torch":
        if x.is_neg() or x.is_conj() or x.is_sparse or x.is_nested:
            raise UsageError(f"this {type_name(kind)} does not hold its items as they are: give an ordinary tensor")
        itemsize = x.element_size()
        strides = None if x.is_contiguous() else tuple([itemsize * step for step in x.stride()])
        stream = None if gpu is None else uploader._target("torch").stream()
        return _rows(x.data_ptr(), tuple(x.shape), strides, itemsize, x)._replace(stream=stream)
    if gpu is None:
        return _rows_of_source(source_of(x))
    # JAX and TensorFlow wait for the work that makes the array, because their streams are hidden.
    found = device_source_of(x, uploader.engine, uploader.device, uploader._target, itself=framework not in _IMMUTABLE)
    itemsize = 2 if isinstance(found.dtype, str) else found.dtype.itemsize
    return _rows(found.address, found.shape, None, itemsize, (found.keep, x))._replace(stream=found.stream)


def _rows_of_source(source: Source) -> Rows:
    made = _rows(source.address, source.shape, source.strides, source.itemsize, source.keep)
    return made._replace(readonly=source.readonly)


def _rows(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int, keep: Any) -> Rows:
    """`strides` are in bytes; None if the array is in C order."""
    if not shape:
        raise UsageError("this array has no axis to cut into blocks: give one with a first axis of blocks")
    items = 1
    for extent in shape[1:]:
        items *= extent
    nbytes = items * itemsize
    stride = nbytes
    if strides is not None and 0 not in shape:
        inner = tuple([itemsize * step for step in strides_of(shape[1:])])
        fits = all(extent == 1 or a == b for extent, a, b in zip(shape[1:], strides[1:], inner, strict=True))
        if not fits or (shape[0] > 1 and strides[0] < nbytes):
            raise UsageError("the blocks of this array are not contiguous: give an array in C order")
        stride = strides[0] if shape[0] > 1 else nbytes
    return Rows(address, shape[0], nbytes, stride, keep)


def pool_of(rows: Rows, name: str, uploader: Uploader, block_bytes: int) -> Pool:
    """The blocks of an array. Blocks are its rows, or parts of its contiguous memory."""
    address, count, nbytes, stride, keep, *_ = rows
    if nbytes != block_bytes:
        if stride != nbytes:
            raise UsageError(
                f"{name} has rows of {nbytes} bytes with gaps between them, which cannot be cut into blocks of "
                f"{block_bytes} bytes: give an array in C order"
            )
        count, rest = divmod(count * nbytes, block_bytes)
        if rest:
            raise UsageError(
                f"{name} has {format_size(rows.number * nbytes)}, which is not a multiple of blocks of {block_bytes} "
                "bytes"
            )
        stride = block_bytes
    if rows.is_locked or not count:
        return Pool(address, count, stride, "pinned", keep)
    if not address:
        raise UsageError(f"{name} has no memory: perhaps it was freed")
    kind = uploader.engine.memory_of(address, (count - 1) * stride + block_bytes, uploader.device)
    if kind == "partly":
        raise UsageError(f"{name} is page-locked in part only: page-lock all of it, see pyxfer.pin")
    return Pool(address, count, stride, kind, keep)


class BlockPool(ShortRepr):
    """Page-locked memory of equal blocks, with a list of free ones. Any thread may use it.

    `array` has a row for each block. `copy_blocks` takes the pool or its array.

    Args:
        blocks: Number of blocks.
        block_bytes: Bytes of a block, or text such as "64KiB".
        dtype: Type of the items of `array`.
        device: Index, UUID or PCI address of the GPU, or "host".

    Raises:
        UsageError: a number is not valid, or a block does not hold a whole number of items.
        CudaMemoryError: page-locked memory ran out.

    """

    def __init__(self, blocks: int, block_bytes: str | int, dtype: DTypeLike = np.uint8, device: int | str = 0) -> None:
        self.blocks = whole_of(blocks, "blocks", 1, MAX_BYTES, "a number of blocks")
        self.block_bytes = size_of(block_bytes, "block_bytes")
        try:
            items = np.dtype(dtype)
        except TypeError as error:
            raise UsageError(f"dtype {dtype!r:.80}: {error}: give one of NumPy's") from error
        try:
            dtype_to_send(items)
        except UsageError as error:
            raise UsageError(f"a pool has no items of dtype {items}: give one of numbers, such as np.uint8") from error
        itemsize = items.itemsize
        if not itemsize or self.block_bytes % itemsize:
            raise UsageError(
                f"blocks of {self.block_bytes} bytes do not hold a whole number of {items}: give another dtype"
            )
        if self.blocks * self.block_bytes > MAX_BYTES:
            raise UsageError(f"{self.blocks} blocks of {self.block_bytes} bytes are larger than any address space")
        uploader = shared_uploader(device)
        shape = self.blocks, self.block_bytes // itemsize
        self._array: NDArray[Any] | None = empty_pinned(uploader.engine, shape, dtype, uploader.device)
        self._made = Rows(
            self._array.__array_interface__["data"][0],
            self.blocks,
            self.block_bytes,
            self.block_bytes,
            self._array,
            is_locked=True,
        )
        self._turn = threading.Lock()
        self._is_free = np.ones(self.blocks, np.bool_)
        # The next free block is the last one here, so that blocks that are given one after the other are neighbours.
        self._free = np.arange(self.blocks - 1, -1, -1, dtype=np.int64)
        self._left = self.blocks

    def _summary(self) -> str:
        state = "closed" if self._array is None else f"{self._left} free"
        return f"{self.blocks} blocks of {format_size(self.block_bytes)}: {state}"

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._array is None

    @property
    def array(self) -> NDArray[Any]:
        """The memory as an array with a row for each block. It exists until the last view of it is gone."""
        if self._array is None:
            raise UsageError(_CLOSED)
        return self._array

    @property
    def free_blocks(self) -> int:
        """How many blocks are free."""
        return self._left

    def allocate(self, count: int) -> NDArray[np.int64]:
        """Take free blocks, and return their indices.

        Raises:
            UsageError: fewer blocks are free; none is taken.

        """
        wanted = whole_of(count, "count", 0, MAX_BYTES, "a number of blocks")
        with self._turn:
            self._require_open()
            if wanted > self._left:
                raise UsageError(
                    f"{wanted} blocks are wanted and {self._left} of {self.blocks} are free: free some, or make a "
                    f"larger pool"
                )
            self._left -= wanted
            taken: NDArray[np.int64] = self._free[self._left : self._left + wanted][::-1].copy()
            self._is_free[taken] = False
            return taken

    def free(self, indices: Any) -> None:
        """Give blocks back. Copies from or to them must have ended.

        Raises:
            UsageError: a block does not exist, is free already, or is named twice; none is given back.

        """
        given = host_indices(indices, "indices")
        with self._turn:
            self._require_open()
            if not given.size:
                return
            in_order = np.sort(given)
            for wrong in (in_order[0], in_order[-1]):
                if not 0 <= wrong < self.blocks:
                    raise UsageError(f"block {wrong} is not in this pool, which has the blocks 0 to {self.blocks - 1}")
            if self._is_free[given].any():
                raise UsageError(f"block {given[self._is_free[given]][0]} is free already: free each block once")
            if (np.diff(in_order) == 0).any():
                raise UsageError("indices names a block twice: free each block once")
            self._is_free[given] = True
            self._free[self._left : self._left + given.size] = given[::-1]
            self._left += given.size

    def close(self) -> None:
        """Refuse later use. The memory is released with the last view of `array`. Copies must have ended."""
        with self._turn:
            self._array = None
            self._made = self._made._replace(keep=None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a BlockPool cannot be copied or pickled: a copy would give the same blocks again")

    def __enter__(self) -> BlockPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._array is None:
            raise UsageError(_CLOSED)

    def _rows(self) -> Rows:
        made = self._made
        if made.keep is None:
            raise UsageError(_CLOSED)
        return made


_CLOSED = "this BlockPool is closed: make a new one"


def host_indices(x: Any, name: str) -> NDArray[np.int64]:
    """Indices on the host, as an array of int64 with one dimension."""
    if type(x) is np.ndarray and x.dtype == np.int64 and x.ndim == 1 and x.flags.c_contiguous:
        return x
    try:
        array = np.asarray(x)
    except Exception as error:  # libraries raise what they like
        raise UsageError(f"{name}: {error}") from error
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{name} has the dtype {array.dtype}: give whole numbers, such as an array of int64")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise UsageError(f"{name} holds {array.max()}, more than a pool has blocks: give indices inside the pool")
    if array.ndim != 1:
        raise UsageError(f"{name} has {array.ndim} dimensions: give a list or an array of one dimension")
    return np.ascontiguousarray(array, np.int64)
