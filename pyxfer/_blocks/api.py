"""`copy_blocks`: copies blocks between two pools, by the method that suits them."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyxfer._blocks.mover import LEGACY_STREAMS, MAX_PACKED_BYTES, BlockMover
from pyxfer._blocks.pools import BlockPool, gpu_of, host_indices, pool_of, rows_of
from pyxfer._machine.engine import is_host
from pyxfer._upload.api import device_name_of, shared_uploader
from pyxfer._upload.arrays import type_name
from pyxfer._upload.native_calls import native_call
from pyxfer._upload.targets import device_source_of, framework_of
from pyxfer.errors import CudaMemoryError, MeasurementError, UsageError
from pyxfer.native import HOST
from pyxfer.units import size_of, word_of

if TYPE_CHECKING:
    from pyxfer._blocks.choice import Choices
    from pyxfer._blocks.mover import Indices, Kind, Pool
    from pyxfer._document.blocks import BlockDirection, BlockMethod
    from pyxfer._upload.targets import OnDevice
    from pyxfer._upload.uploader import Uploader
    from pyxfer.native._cuda import BlockPair

MAX_CAPTURED = 256
"""Indices on the host that a CUDA graph can hold: the kernel's launch brings them with it."""
_METHODS: tuple[Literal["auto"] | BlockMethod, ...] = ("auto", "loop", "batch", "strided", "kernel", "packed")
_BATCH_BYTES = 256 << 10
_HANDLES = 1 << 64
_WITHOUT_GPU = "Both pools are in host memory, where destination[...] = source[...] copies blocks."


def copy_blocks(
    source: Any,
    destination: Any,
    source_indices: Any,
    destination_indices: Any,
    block_bytes: str | int | None = None,
    stream: Any = None,
    method: Literal["auto", "loop", "batch", "strided", "kernel", "packed"] = "auto",
    block: bool = True,
) -> None:
    """Copy block `source_indices[k]` of one pool to block `destination_indices[k]` of another, for every k.

    A pool is an array of a framework on a GPU, an array or tensor in host memory of any kind, or a `BlockPool`. At
    least one of the two is on a GPU. Only the named blocks are written. The copies are ordered with the other work of
    `stream`.

    Args:
        source: The pool to read.
        destination: The pool to write. Arrays of JAX and TensorFlow cannot be written.
        source_indices: Whole numbers on the host, or an int64 array on the GPU for the method "kernel".
        destination_indices: The same, as many, on the same side, and no block twice.
        block_bytes: Bytes of a block, or text such as "16KiB"; None is a row of the array, along its first axis.
        stream: A stream of PyTorch or CuPy, or a handle; None is the framework's current stream.
        method: "loop", "batch", "strided", "kernel" or "packed"; "auto" chooses by size, number and memory.
        block: False returns when the copies are queued: page-locked memory must then exist until `stream` has done
            them. Copies to ordinary memory, and of arrays of JAX and TensorFlow, are complete when the call returns.

    Raises:
        UsageError: a pool, an index or the method is refused, before anything is copied; the message says what to do.
        CudaMemoryError: device memory or page-locked memory ran out.
        DeviceLostError: the device failed, in this or in earlier work.
        ForkedError: this process was forked from one that has used CUDA.
    """
    if block_bytes is not None and type(block_bytes) not in (int, str):
        block_bytes = size_of(block_bytes, "block_bytes")
    if type(block) is not bool:
        raise UsageError(f"block is {block!r:.40}: give True or False")
    key = (id(source), id(destination), block_bytes)
    known = _prepared.get(key)
    if (
        known is not None
        and method == "auto"
        and _move_again(known, source, destination, source_indices, destination_indices, stream, block)
    ):
        return
    pools, lists = (source, destination), (source_indices, destination_indices)
    _copy(key, pools, lists, block_bytes, stream, method, block)


def _copy(
    key: tuple[int, int, Any],
    pools: tuple[Any, Any],
    given: tuple[Any, Any],
    block_bytes: str | int | None,
    stream: Any,
    method: str,
    block: bool,
) -> None:
    if native_call.exit_begun:
        raise UsageError("Python is exiting, so no blocks can be copied")
    wanted = method if method in _METHODS else word_of(method, _METHODS, "method")
    source, destination = pools
    gpus = gpu_of(source), gpu_of(destination)
    shared = _shared_for(gpus, destination)
    uploader, mover = shared.uploader, shared.mover
    rows = rows_of(source, "source", uploader, gpus[0], written=False)
    to_rows = rows_of(destination, "destination", uploader, gpus[1], written=True)
    nbytes = _block_bytes_of(block_bytes, rows.nbytes, to_rows.nbytes)
    pool = pool_of(rows, "source", uploader, nbytes)
    to_pool = pool_of(to_rows, "destination", uploader, nbytes)
    if pool.kind != "device" != to_pool.kind and pool.blocks and to_pool.blocks:
        raise UsageError("both pools are in host memory: copy with destination[...] = source[...]")
    on = _stream_of(stream) if stream is not None else _current_stream(mover, rows.stream, to_rows.stream)
    if any(gpu_of(indices) is not None for indices in given):
        _copy_given(shared, (pool, to_pool), given, nbytes, on, wanted, block)
        return
    lists = host_indices(given[0], "source_indices"), host_indices(given[1], "destination_indices")
    may_matter = lists[0].size > MAX_CAPTURED or "pageable" in (pool.kind, to_pool.kind)
    captured = on is not None and may_matter and mover.captures(on)
    call = _Call(pool, to_pool, lists, nbytes, on, captured)
    chosen = _chosen(shared, wanted, call)
    mover.move(chosen, pool, to_pool, *lists, nbytes, on, wait=block or on is None)
    if wanted == "auto" and chosen == "kernel":
        _prepare(key, pools, call, shared, gpus)


# --- the short way ---------------------------------------------------------------------------------------------------


class _Prepared:
    """A pair of pools between which the kernel has copied: Python takes longer than the copy of few blocks does.

    `counts`: of how many blocks the kernel is the fastest way.
    """

    def __init__(
        self,
        source: weakref.ref[Any],
        destination: weakref.ref[Any],
        forms: tuple[object, object],
        pair: BlockPair,
        stream: Callable[[], int | None],
        counts: set[int],
    ) -> None:
        self.source, self.destination, self.forms = source, destination, forms
        self.pair, self.stream, self.counts = pair, stream, counts

    def is_of(self, source: Any, destination: Any, forms: tuple[object, object]) -> bool:
        return self.source() is source and self.destination() is destination and self.forms == forms


# By the identities of the two objects and what was given as block_bytes. An entry goes with the first of the two.
_prepared: dict[tuple[int, int, Any], _Prepared] = {}


def _nothing() -> None:
    return None


def _prepare(
    key: tuple[int, int, Any], pools: tuple[Any, Any], call: _Call, shared: _Shared, gpus: tuple[int | None, int | None]
) -> None:
    forms = _form_of(pools[0]), _form_of(pools[1])
    if None in forms:
        return
    known = _prepared.get(key)
    if known is not None and known.is_of(*pools, forms):
        known.counts.add(call.lists[0].size)
        return
    kinds: tuple[Any, Any] = (type(pools[0]), type(pools[1]))
    framework = framework_of(kinds[0] if gpus[1] is None else kinds[1])
    if None not in gpus and framework_of(kinds[0]) != framework:
        return
    stream = _nothing if framework is None or gpus == (None, None) else shared.uploader._target(framework).stream

    def forget(_: object) -> None:
        _prepared.pop(key, None)

    _prepared[key] = _Prepared(
        weakref.ref(pools[0], forget),
        weakref.ref(pools[1], forget),
        forms,
        shared.mover.pair(call.source, call.destination, call.block_bytes),
        stream,
        {call.lists[0].size},
    )


def _form_of(x: Any) -> object:
    """What changes when an array gets other memory or is cut otherwise, in place; None if nothing quick shows it."""
    kind: Any = type(x)
    if kind is np.ndarray:  # with weak references NumPy refuses to give it other memory
        return x.flags.writeable, x.shape, x.strides, x.dtype
    if kind is BlockPool:
        return x.is_closed
    framework = framework_of(kind)
    if framework == "torch":
        return x.data_ptr(), x.shape, x.stride(), x.dtype
    return (x.data.ptr, x.shape, x.strides, x.dtype) if framework == "cupy" else None


def _move_again(
    known: _Prepared,
    source: Any,
    destination: Any,
    source_indices: Any,
    destination_indices: Any,
    stream: Any,
    block: bool,
) -> bool:
    """Copy blocks by one native call. False if the usual way is needed, which also says what is wrong."""
    both_are_arrays = type(source_indices) is type(destination_indices) is np.ndarray
    if not both_are_arrays or source_indices.size not in known.counts:
        return False
    if source_indices.size > MAX_CAPTURED and source_indices[-1] - source_indices[0] == source_indices.size - 1:
        return False  # they may all be neighbours
    if not known.is_of(source, destination, (_form_of(source), _form_of(destination))):
        return False
    on = known.stream() if stream is None else _stream_of(stream)
    with native_call() as allowed:
        if not allowed:
            return False
        try:
            known.pair.move(source_indices, destination_indices, on, block or on is None)
        except IndexError as error:  # of an earlier copy with indices on the device
            raise UsageError(str(error)) from error
        except (TypeError, ValueError):  # indices of another type, or what the usual way refuses
            return False
    return True


class _Shared:
    """What the copies of one device have in common. `choices` is empty until they are needed."""

    def __init__(self, uploader: Uploader) -> None:
        self.uploader = uploader
        self.mover = BlockMover(uploader.engine, uploader.device)
        self.choices: list[Choices | None] = []


class _Call:
    def __init__(
        self,
        source: Pool,
        destination: Pool,
        lists: tuple[Indices, Indices],
        block_bytes: int,
        stream: int | None,
        captured: bool,
    ) -> None:
        self.source, self.destination, self.lists = source, destination, lists
        self.block_bytes, self.stream, self.captured = block_bytes, stream, captured

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        return self.source.kind, self.destination.kind


# Changed without a lock, as the shared uploaders are: if two threads make the same one, one of the two is dropped.
_shared: dict[int | str, _Shared] = {}


def _shared_for(gpus: tuple[int | None, int | None], destination: Any) -> _Shared:
    first, second = gpus
    if first is not None and second is not None and first != second:
        raise UsageError(f"source is on GPU {first} and destination on GPU {second}: copy through host memory")
    name: int | str | None = first if first is not None else second
    if name is None:
        name = device_name_of(destination)
    found = _shared.get(name)
    if found is None:
        uploader = shared_uploader(name, stacklevel=6, advice=_WITHOUT_GPU)
        found = _shared.setdefault(HOST if is_host(uploader.engine) else name, _Shared(uploader))
        _shared[name] = found
    return found


def _block_bytes_of(given: str | int | None, source_bytes: int, destination_bytes: int) -> int:
    if given is not None:
        return given if type(given) is int and given > 0 else size_of(given, "block_bytes")
    if source_bytes != destination_bytes:
        raise UsageError(
            f"a block of source has {source_bytes} bytes and one of destination {destination_bytes}: give arrays whose "
            f"rows have the same size, or block_bytes"
        )
    if not source_bytes:
        raise UsageError("the blocks of these pools have no bytes: give block_bytes, or arrays with items in a row")
    return source_bytes


def _stream_of(stream: Any) -> int:
    """The driver's handle of a stream."""
    if type(stream) is int:
        if not 0 <= stream < _HANDLES:
            raise UsageError(f"{stream} is not the handle of a stream: give a stream of PyTorch or CuPy, or its handle")
        return stream
    for name in ("cuda_stream", "ptr"):  # PyTorch, CuPy
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    if isinstance(stream, np.integer):
        return _stream_of(int(stream))
    raise UsageError(f"{type_name(type(stream))} is not a stream: give one of PyTorch or CuPy, or a handle")


def _current_stream(mover: BlockMover, source: int | None, destination: int | None) -> int | None:
    if source is None or destination is None:
        return source if destination is None else destination
    if source != destination:  # of two frameworks
        mover.wait(source)
    return destination


# --- the method ------------------------------------------------------------------------------------------------------


def _chosen(shared: _Shared, method: Literal["auto"] | BlockMethod, call: _Call) -> BlockMethod:
    """The method to use: possible for this call, or UsageError."""
    mover = shared.mover
    possible = mover.methods(call.source, call.destination, call.block_bytes)
    if call.captured and "pageable" in call.kinds:
        raise UsageError(
            "copies of ordinary memory cannot be part of a CUDA graph, into which the stream is being captured: "
            "page-lock it, see pyxfer.pin, or copy before the capture"
        )
    if method == "auto":
        return _fastest_method(shared, possible, call)
    if method not in possible:
        raise UsageError(f'the method "{method}" is not possible: {_why_not(mover, method, call)}')
    return method


def _fastest_method(shared: _Shared, possible: tuple[BlockMethod, ...], call: _Call) -> BlockMethod:
    if "packed" in possible and "pageable" in call.kinds:
        return "packed"
    count, runs = call.lists[0].size, _runs_in(call)
    if runs == 1 and count * call.block_bytes >= _BATCH_BYTES:  # one copy takes many neighbours the fastest
        return "loop"
    refused = {"packed", "strided"}
    if call.captured:
        refused |= {"batch"} if count <= MAX_CAPTURED else {"batch", "kernel"}
    if call.stream in LEGACY_STREAMS:
        refused |= {"batch"}
    allowed = tuple(method for method in possible if method not in refused)
    if "pageable" not in call.kinds and (choices := _choices_of(shared, call)) is not None:
        direction: BlockDirection = "d2h" if call.source.kind == "device" else "h2d"
        found = choices.method_for(direction, "pinned", call.block_bytes, count, runs=runs, possible=allowed)
        if found is not None:
            return found
    usual: tuple[BlockMethod, ...] = ("kernel", "batch") if call.block_bytes < _BATCH_BYTES else ("batch", "loop")
    return next((method for method in usual if method in allowed), "loop")


def _choices_of(shared: _Shared, call: _Call) -> Choices | None:
    """What was measured on this GPU; None without one, between two pools on it, and if a capture forbids to measure."""
    if is_host(shared.uploader.engine) or call.kinds == ("device", "device"):
        return None
    known = shared.choices
    if not known and not (call.stream is not None and shared.mover.captures(call.stream)):
        from pyxfer._blocks.calibration import choices_for

        known.append(None)  # if it fails, it is not tried again
        with suppress(CudaMemoryError, MeasurementError):
            known[0] = choices_for(shared.uploader.engine, shared.uploader.device, shared.mover)
    return known[0] if known else None


def _runs_in(call: _Call) -> int:
    """How many copies are left when neighbours are merged."""
    source, destination = call.lists
    merges = call.source.stride == call.destination.stride == call.block_bytes
    if not merges or source.size != destination.size:  # the mover refuses lists of two sizes
        return source.size
    return 1 + int(np.count_nonzero((np.diff(source) != 1) | (np.diff(destination) != 1)))


def _why_not(mover: BlockMover, method: str, call: _Call) -> str:
    if method == "batch" and not mover.has_batch:
        return "this driver has no call for many copies, which came with CUDA 12.8"
    if method in ("kernel", "packed") and mover.no_kernel:
        return f"the driver makes no kernels here: {mover.no_kernel}"
    if method != "packed" and "pageable" in call.kinds:
        return 'one of the pools is ordinary memory: page-lock it, see pyxfer.pin, or give "packed"'
    if method == "packed" and call.kinds == ("device", "device"):
        return "both pools are on the device"
    if method == "packed" and call.block_bytes > MAX_PACKED_BYTES:
        return "blocks of more than 64 MiB are not packed"
    return (
        "a kernel copies words of 16 bytes, so blocks, strides and addresses have to be multiples of 16: give another "
        "method"
    )


# --- indices on the device -------------------------------------------------------------------------------------------


def _copy_given(
    shared: _Shared,
    pools: tuple[Pool, Pool],
    lists: tuple[Any, Any],
    block_bytes: int,
    stream: int | None,
    method: str,
    block: bool,
) -> None:
    uploader, mover = shared.uploader, shared.mover
    if method not in ("auto", "kernel"):
        raise UsageError(f'with indices on the device the method is "kernel", not "{method}": give them on the host')
    found = [
        _given_indices(x, name, uploader)
        for x, name in zip(lists, ("source_indices", "destination_indices"), strict=True)
    ]
    count = found[0].shape[0]
    if found[1].shape[0] != count:
        raise UsageError(
            f"there are {count} source_indices and {found[1].shape[0]} destination_indices: give one for each block"
        )
    call = _Call(*pools, (np.empty(0, np.int64),) * 2, block_bytes, stream, captured=False)
    _chosen(shared, "kernel", call)  # raises if it is not possible
    if not count:
        return
    captured = stream is not None and mover.captures(stream)
    mover.move_given(*pools, found[0].address, found[1].address, count, block_bytes, stream)
    if (block or stream is None) and not captured:
        mover.wait(stream)


def _given_indices(x: Any, name: str, uploader: Uploader) -> OnDevice:
    gpu = gpu_of(x)
    if gpu is None:
        raise UsageError(f"{name} is on the host and the other indices on the device: give both on the same side")
    if gpu != uploader.device:
        raise UsageError(f"{name} is on GPU {gpu} and the pools on GPU {uploader.device}: give indices on that one")
    try:
        found = device_source_of(x, uploader.engine, uploader.device, uploader._target)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    if found.dtype != np.int64 or len(found.shape) != 1:
        raise UsageError(f"{name} on the device has to be int64 with one dimension: convert it first")
    return found


# --- the end of the process ------------------------------------------------------------------------------------------


def _at_exit() -> None:
    for shared in _shared.values():
        shared.mover.end()


def _forget() -> None:
    _shared.clear()
    _prepared.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_forget)
