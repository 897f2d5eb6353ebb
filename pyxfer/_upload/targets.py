"""The frameworks: how each allocates arrays for uploads, and exports arrays for downloads.

PyTorch and CuPy allocate the memory themselves. TensorFlow and JAX take pyxfer's memory by DLPack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import (
    DLPACK_TYPES,
    NO_NUMBERS,
    call_exporter,
    itemsize_of,
    name_of,
    read_capsule,
    strides_of,
    type_name,
)
from pyxfer._upload.device_arrays import KDL_CPU, KDL_CUDA, DeviceArray, FrameworkMemory
from pyxfer.errors import INSTALL, CudaMemoryError, UsageError

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from pyxfer._upload.arrays import Dtype, Source
    from pyxfer._upload.device_arrays import DevicePool
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Ring

    Part: TypeAlias = tuple[tuple[int, ...], Dtype, int]
    """Shape, dtype and offset of an array in a block."""
    Run: TypeAlias = tuple[tuple[int, ...], Dtype, int, int, int]
    """Neighbours in a block: shape and dtype of each, the first offset, the distance, how many."""
    EmptyArray: TypeAlias = tuple[int, Callable[[], Any]]
    """The address of memory to fill in C order, and a function that makes the framework's array when it is filled."""
    PlainArray: TypeAlias = tuple[int, tuple[int, ...], Dtype]
    """The address, shape and dtype of an array in C order."""


_LEGACY_DEFAULT = 1  # DLPack's number of the legacy default stream
_BYTE = np.dtype(np.uint8)


class OnDevice:
    """An array in C order on a device, and the stream after whose earlier work it may be read.

    `keep` keeps the memory alive.
    """

    def __init__(self, address: int, shape: tuple[int, ...], dtype: Dtype, stream: int | None, keep: Any) -> None:
        self.address, self.shape, self.dtype, self.stream, self.keep = address, shape, dtype, stream, keep


def device_source_of(
    y: Any, engine: Engine, device: int, target: Callable[[str], Target], *, itself: bool = False
) -> OnDevice:
    """The memory of an array on the device. Without `itself` it may be that of a copy in C order."""
    kind: Any = type(y)
    name = None if kind is DeviceArray else framework_of(kind)
    if name is None:
        capsule, stream = _export(y, engine)
    else:
        framework = target(name)
        stream = framework.stream()
        if plain := framework.plain(y):
            address, shape, dtype = plain
            return OnDevice(address, tuple(shape), dtype, stream, y)
        capsule = call_exporter(y, lambda: (framework.export_itself if itself else framework.export)(y))

    def require_device(y: Any, kind: int, index: int) -> None:
        if is_host(engine):
            if kind != KDL_CPU:
                raise UsageError(f"this {type_name(type(y))} is on a GPU, and this uploader has none")
        elif kind != KDL_CUDA:
            raise UsageError(f"this {type_name(type(y))} is not on a GPU: use it as it is")
        elif index != device:
            raise UsageError(
                f"this {type_name(type(y))} is on GPU {index}, and this uploader for GPU {device}: use one for GPU "
                f"{index}"
            )

    remedy = "filled: use load_tensors" if itself else "downloaded: view their bytes as uint8 first"
    found = read_capsule(y, capsule, require_device, remedy)
    if not _is_compact(found):
        raise UsageError(f"this {type_name(type(y))} is not in C order: make it contiguous on the device first")
    return OnDevice(found.address, found.shape, found.dtype, stream, capsule)


@cache
def framework_of(kind: type) -> str | None:
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    names = ("jax" if package == "jaxlib" else package for package in packages)
    return next((name for name in names if name in TARGETS), None)


def _export(y: Any, engine: Engine) -> tuple[Any, int | None]:
    """A capsule of an array of another library, and the stream that waits for its earlier work: 0, the legacy one."""
    if not hasattr(type(y), "__dlpack__"):
        raise UsageError(
            f"this {type_name(type(y))} is not an array on a device: give one array of upload, or a tensor"
        )
    if isinstance(y, DeviceArray) or is_host(engine):
        return call_exporter(y, y.__dlpack__), None
    return call_exporter(y, lambda: y.__dlpack__(stream=_LEGACY_DEFAULT)), 0


def _is_compact(source: Source) -> bool:
    if 0 in source.shape:
        return True
    step = source.itemsize
    for extent, stride in zip(reversed(source.shape), reversed(source.strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


class Target:
    """A framework's arrays on the device of a pool. Its constructor imports the framework."""

    title: ClassVar[str]
    module: ClassVar[str]
    allocates: ClassVar[bool] = False
    """Whether the framework allocates the memory, so that copies run on its stream."""
    takes_all: ClassVar[str] = ""
    """Advice in out-of-memory errors, for a framework that leaves no device memory to others."""

    def __init__(self, pool: DevicePool) -> None:
        self.pool = pool
        self.engine, self.device = pool.engine, pool.device

    def empty(self, shape: tuple[int, ...], dtype: Dtype) -> EmptyArray:
        self.require_dtype(dtype)
        array = self.own_array(shape, dtype)
        return array.address, lambda: self.taken(array)

    def empty_parts(self, nbytes: int, parts: Sequence[Part], memory: FrameworkMemory | None = None) -> EmptyArray:
        """The same for several arrays in one block, which each of them keeps. `memory` is one that is reserved."""
        return self.empty_runs(nbytes, list(_even_runs(parts)), memory)

    def empty_runs(self, nbytes: int, runs: Sequence[Run], memory: FrameworkMemory | None = None) -> EmptyArray:
        """The same for neighbours that are equally far apart."""
        block = self.own_array((nbytes,), _BYTE) if memory is None else DeviceArray(self.pool, (nbytes,), _BYTE, memory)
        return block.address, lambda: [self.taken(block.part(*part)) for part in _parts_of(runs)]

    def reserve(self, sizes: Sequence[int]) -> list[FrameworkMemory]:
        """Have the framework's allocator get the memory of blocks at once, and keep it when they are gone.

        A framework that does not allocate the arrays of uploads returns memory for each block, which no work uses any
        more; nothing if its allocator has none.
        """
        del sizes
        return []

    def require_dtype(self, dtype: Dtype) -> None:
        """Refuse a dtype that the framework does not have."""

    def taken(self, array: DeviceArray) -> Any:
        """The framework's array in memory of pyxfer's."""
        return array

    def is_plain(self, x: Any) -> bool:
        """Whether it is the framework's array on the host, contiguous and of a known dtype, with nothing special."""
        del x
        return False

    def as_array(self, x: Any) -> NDArray[Any] | None:
        """A plain array of the framework's as NumPy's, without a copy; None if that is not possible."""
        del x
        return None

    def upload_at_once(self, ring: Ring, x: Any) -> Any:
        """Upload a small array of NumPy's, or a plain one of the framework's, by one native call; None if it cannot."""
        if x.dtype not in DLPACK_TYPES or self.stream() is not None:
            return None
        self.require_dtype(x.dtype)
        array = self.own_array(x.shape, x.dtype)
        if not ring.upload_at_once(x, array.address, None):
            return None
        made = self.taken(array)  # while the copy runs
        ring.await_at_once()
        return made

    def stream(self) -> int | None:
        """The framework's current stream: copies wait for its earlier work, and its later work waits for copies.

        It is 0, the legacy default stream, unless the program has chosen one; None if the memory comes from pyxfer, so
        that no work of the framework can use it yet.
        """
        return None

    def plain(self, y: Any) -> PlainArray | None:
        """The memory of an array on the device that needs neither a capsule nor a copy; None if it may need one.

        Readers wait for the earlier work of `stream`.
        """
        return None

    def fetched(self, y: Any, max_bytes: int) -> NDArray[Any] | None:
        """A copy of a small array that the framework makes faster than it exports the array; None if it does not."""
        del y, max_bytes
        return None

    def export(self, y: Any) -> Any:
        """A DLPack capsule of the array, or of a copy in C order. Readers wait for the earlier work of `stream`."""
        return y.__dlpack__()

    def export_itself(self, y: Any) -> Any:
        """A DLPack capsule of the array as it lies."""
        return y.__dlpack__()

    def before_send(self) -> None:
        """Called before each batch of a prefetch is sent, in the thread that sends."""

    def after_take(self) -> None:
        """Called when the loop of a prefetch gets a batch, in the loop's thread."""

    def own_array(self, shape: tuple[int, ...], dtype: Dtype) -> DeviceArray:
        try:
            return DeviceArray(self.pool, shape, dtype)
        except CudaMemoryError as error:
            if not self.takes_all:
                raise
            raise CudaMemoryError(
                error.code, error.name, error.call, error.where, error.description, f"{self.takes_all} {error.hint}"
            ) from None

    def no_dtype(self, dtype: Dtype, advice: str) -> UsageError:
        return UsageError(f"{self.title} has no {name_of(dtype)}: {advice}")


def _rounded(nbytes: int) -> int:
    """As the allocators of PyTorch and CuPy do."""
    return -(-nbytes // 512) * 512


def _even_runs(parts: Sequence[Part]) -> Iterator[Run]:
    begin = 0
    while begin < len(parts):
        shape, dtype, first = parts[begin]
        step, end = 0, begin + 1
        while end < len(parts) and parts[end][:2] == (shape, dtype):
            distance = parts[end][2] - parts[end - 1][2]
            step = step or distance
            if distance != step:
                break
            end += 1
        yield shape, dtype, first, step, end - begin
        begin = end


def _parts_of(runs: Iterable[Run]) -> Iterator[Part]:
    for shape, dtype, first, step, count in runs:
        for place in range(count):
            yield shape, dtype, first + place * step


class Torch(Target):
    """Tensors that PyTorch allocates, filled on its current stream."""

    title, module, allocates = "PyTorch", "torch", True

    def __init__(self, pool: DevicePool) -> None:
        super().__init__(pool)
        self.torch = _imported(self, "torch.utils.dlpack")
        self._raw_stream: Callable[[int], int] | None = None
        kinds = {dtype: getattr(self.torch, name_of(dtype), None) for dtype in DLPACK_TYPES}
        self._kinds = {dtype: kind for dtype, kind in kinds.items() if kind is not None}
        self._dtypes = {kind: dtype for dtype, kind in self._kinds.items()}
        self._types = {self.torch.Tensor, self.torch.nn.Parameter}  # other classes may keep their items elsewhere
        if is_host(self.engine):
            self.place = self.torch.device("cpu")
            return
        # What Triton calls too: it makes no stream object, which takes 3 us.
        self._raw_stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None)
        self.place = self.torch.device("cuda", self.device)
        if not self.torch.cuda.is_available():
            raise UsageError(
                f"torch {self.torch.__version__} has no GPU to upload to: install a build with CUDA, see "
                f"https://pytorch.org/get-started/locally"
            )

    def require_dtype(self, dtype: Dtype) -> None:
        self._kind(dtype)

    def _kind(self, dtype: Dtype) -> Any:
        kind = self._kinds.get(dtype)
        if kind is None:
            raise self.no_dtype(dtype, "send it as another dtype, x.astype(...), or its bytes, x.view(np.uint8)")
        return kind

    def empty(self, shape: tuple[int, ...], dtype: Dtype) -> EmptyArray:
        if is_host(self.engine):  # the host runtime copies only to its own memory
            return super().empty(shape, dtype)
        tensor = self._empty(shape, self._kind(dtype))
        return tensor.data_ptr(), lambda: tensor

    def _empty(self, shape: tuple[int, ...], kind: Any) -> Any:
        # PyTorch takes twice as long to read the extents from a tuple; without any it needs the tuple.
        extents = shape or ((),)
        return self.torch.empty(*extents, dtype=kind, device=self.place)

    def reserve(self, sizes: Sequence[int]) -> list[FrameworkMemory]:
        if is_host(self.engine):
            return []
        try:  # in a tenth of the time of memory_reserved
            known = self.torch.cuda.memory_stats_as_nested_dict(self.device)
        except RuntimeError:  # the allocator is another library's
            return []
        free = known["reserved_bytes"]["all"]["current"] - known["allocated_bytes"]["all"]["current"] if known else 0
        missing = sum(map(_rounded, sizes)) - free
        if missing > 0:
            with suppress(self.torch.OutOfMemoryError):  # the arrays may still find room
                self.torch.empty(missing, dtype=self.torch.uint8, device=self.place)
        return []

    def taken(self, array: DeviceArray) -> Any:
        return self.torch.from_dlpack(array)

    def empty_runs(self, nbytes: int, runs: Sequence[Run], memory: FrameworkMemory | None = None) -> EmptyArray:
        del memory
        address, finish = self.empty((nbytes,), _BYTE)

        def views() -> list[Any]:
            block = finish()
            typed = {dtype: block.view(self._kind(dtype)) for dtype in {dtype for _, dtype, *_ in runs}}
            return [view for run in runs for view in self._views(typed[run[1]], *run)]

        return address, views

    def _views(self, block: Any, shape: tuple[int, ...], dtype: Dtype, first: int, step: int, count: int) -> list[Any]:
        """Not views for autograd: an operation in place on one array must not invalidate another."""
        distance, begin = step // itemsize_of(dtype), first // itemsize_of(dtype)
        strides = strides_of(shape)
        if shape and 0 < distance == shape[0] * strides[0]:
            together = block.as_strided((count * shape[0], *shape[1:]), strides, begin)
            # A third of the time of `unbind` and `data`.
            return list(self.torch.unsafe_split_with_sizes(together, [shape[0]] * count))
        return [view.data for view in block.as_strided((count, *shape), (distance, *strides), begin).unbind()]

    def upload_at_once(self, ring: Ring, x: Any) -> Any:
        if self._raw_stream is None:
            return None
        if not isinstance(x, np.ndarray):
            return self._send_tensor(ring, x, self._raw_stream(self.device))
        kind = self._kinds.get(x.dtype)
        if kind is None:
            return None
        tensor = self._empty(x.shape, kind)
        return tensor if ring.upload_at_once(x, tensor.data_ptr(), self._raw_stream(self.device)) else None

    def is_plain(self, x: Any) -> bool:
        if type(x) is not self.torch.Tensor or not x.is_cpu or x.layout is not self.torch.strided or x.is_nested:
            return False
        if x.dtype not in self._dtypes or not x.is_contiguous():
            return False
        return not (x.requires_grad or x.is_neg() or (x.is_complex() and x.is_conj()))

    def as_array(self, x: Any) -> NDArray[Any] | None:
        if not self.is_plain(x) or x.dtype == self.torch.bfloat16:
            return None
        try:
            array: NDArray[Any] = x.numpy()
        except RuntimeError:  # a tensor of torch.func without memory
            return None
        return array

    def _send_tensor(self, ring: Ring, x: Any, stream: int) -> Any:
        try:
            address = x.data_ptr()
        except RuntimeError:  # a tensor of torch.func without memory
            return None
        tensor = self.torch.empty_like(x, device=self.place)
        return tensor if ring.upload_at_once(address, x.nbytes, tensor.data_ptr(), stream) else None

    def stream(self) -> int | None:
        if self._raw_stream is not None:
            return self._raw_stream(self.device)
        if is_host(self.engine):
            return None
        return int(self.torch.cuda.current_stream(self.place).cuda_stream)

    def plain(self, y: Any) -> PlainArray | None:
        try:
            if (
                type(y) in self._types
                and y.dtype in self._dtypes
                and y.device == self.place
                and y.layout is self.torch.strided
                and y.is_contiguous()
                and not (y.is_neg() or (y.is_complex() and y.is_conj()))
            ):
                return y.data_ptr(), y.shape, self._dtypes[y.dtype]
        except RuntimeError:  # a nested tensor, or one of torch.func without memory
            pass
        return None

    def export(self, y: Any) -> Any:
        return self.torch.utils.dlpack.to_dlpack(y.detach().resolve_conj().resolve_neg().contiguous())

    def export_itself(self, y: Any) -> Any:
        if y.is_neg() or y.is_conj():
            raise UsageError("this torch.Tensor is a conjugated or negated view: give the tensor itself")
        return self.torch.utils.dlpack.to_dlpack(y.detach())


class Cupy(Target):
    """Arrays that CuPy allocates, filled on its current stream."""

    title, module, allocates = "CuPy", "cupy", True

    def __init__(self, pool: DevicePool) -> None:
        super().__init__(pool)
        self.cupy = _imported(self)
        if is_host(self.engine):
            raise UsageError("CuPy needs a GPU, and this uploader has none: use another framework")

    def require_dtype(self, dtype: Dtype) -> None:
        if isinstance(dtype, str):
            raise self.no_dtype(dtype, "send its bits, as uint16")

    def empty(self, shape: tuple[int, ...], dtype: Dtype) -> EmptyArray:
        self.require_dtype(dtype)
        with self.cupy.cuda.Device(self.device):
            array = self.cupy.empty(shape, dtype)
        return array.data.ptr, lambda: array

    def reserve(self, sizes: Sequence[int]) -> list[FrameworkMemory]:
        with self.cupy.cuda.Device(self.device), suppress(self.cupy.cuda.memory.OutOfMemoryError):
            missing = sum(map(_rounded, sizes)) - self.cupy.get_default_memory_pool().free_bytes()
            if missing > 0:
                self.cupy.cuda.alloc(missing)
        return []

    def empty_runs(self, nbytes: int, runs: Sequence[Run], memory: FrameworkMemory | None = None) -> EmptyArray:
        del memory
        address, finish = self.empty((nbytes,), _BYTE)

        def views() -> list[Any]:
            memory = finish().data
            return [self.cupy.ndarray(shape, dtype, memory + offset) for shape, dtype, offset in _parts_of(runs)]

        return address, views

    def upload_at_once(self, ring: Ring, x: Any) -> Any:
        cuda = self.cupy.cuda
        if x.dtype not in DLPACK_TYPES or cuda.runtime.getDevice() != self.device:
            return None
        array = self.cupy.empty(x.shape, x.dtype)
        return array if ring.upload_at_once(x, array.data.ptr, cuda.get_current_stream().ptr) else None

    def stream(self) -> int | None:
        cuda = self.cupy.cuda
        if cuda.runtime.getDevice() == self.device:  # changing the device takes 1 us
            return int(cuda.get_current_stream().ptr)
        with cuda.Device(self.device):
            return int(cuda.get_current_stream().ptr)

    def plain(self, y: Any) -> PlainArray | None:
        if type(y) is self.cupy.ndarray and y.dtype in DLPACK_TYPES and y.flags.c_contiguous:
            memory = y.data
            if memory.device_id == self.device:
                return memory.ptr, y.shape, y.dtype
        return None

    def export(self, y: Any) -> Any:
        with self.cupy.cuda.Device(self.device):
            return self.cupy.ascontiguousarray(y).reshape(y.shape).__dlpack__()


class Tensorflow(Target):
    """TensorFlow's tensors in pyxfer's memory."""

    title, module = "TensorFlow", "tensorflow"
    takes_all = (
        "TensorFlow takes nearly all memory of a GPU when it starts: call "
        "tf.config.experimental.set_memory_growth(gpu, True) before its first use."
    )

    def __init__(self, pool: DevicePool) -> None:
        super().__init__(pool)
        self._tf = _imported(self)
        if not is_host(self.engine) and not self._tf.config.list_logical_devices("GPU"):
            raise UsageError(
                f"TensorFlow {self._tf.__version__} sees no GPU: import it with TF_CPP_MIN_LOG_LEVEL=0 to see why"
            )

    def taken(self, array: DeviceArray) -> Any:
        # TensorFlow takes only capsules of version 0.
        return self._tf.experimental.dlpack.from_dlpack(array.__dlpack__())

    def reserve(self, sizes: Sequence[int]) -> list[FrameworkMemory]:
        if is_host(self.engine):
            return []
        try:
            with self._tf.init_scope(), self._tf.device(f"GPU:{self.device}"):
                blocks = [self._tf.raw_ops.Empty(shape=[nbytes], dtype=self._tf.uint8) for nbytes in sizes]
        except self._tf.errors.ResourceExhaustedError:
            return []
        self.engine.synchronize(self.device)  # earlier work may still use it
        return [FrameworkMemory(self._address(block), block) for block in blocks]

    def _address(self, block: Any) -> int:
        capsule = self._tf.experimental.dlpack.to_dlpack(block)
        return read_capsule(block, capsule, lambda *_: None, "read").address

    def fetched(self, y: Any, max_bytes: int) -> NDArray[Any] | None:
        try:  # a symbolic tensor or a variable has no count of elements
            if y._num_elements() * y.dtype.size > max_bytes or ":GPU:" not in y.device:
                return None
        except (AttributeError, TypeError):
            return None
        # TensorFlow keeps this memory for the next call.
        return np.array(y.numpy()) if np.dtype(y.dtype.as_numpy_dtype) in DLPACK_TYPES else None

    def export(self, y: Any) -> Any:
        """A capsule of the tensor, or of a variable's current value. Waits for the device: the streams are hidden."""
        tensor = self._tf.convert_to_tensor(y)
        if tensor.dtype.name in NO_NUMBERS:
            raise UsageError(f"a tensor of {tensor.dtype.name} does not hold numbers: use it as it is")
        capsule = self._tf.experimental.dlpack.to_dlpack(tensor)
        self.engine.synchronize(self.device)
        return capsule


_HALF = {"f": "float32", "i": "int32", "u": "uint32", "c": "complex64"}


class Jax(Target):
    """JAX's arrays in pyxfer's memory."""

    title, module = "JAX", "jax"
    takes_all = (
        "JAX takes three quarters of a GPU's memory when it starts: set XLA_PYTHON_CLIENT_PREALLOCATE=false before."
    )

    def __init__(self, pool: DevicePool) -> None:
        super().__init__(pool)
        self._jax = _imported(self, "jax.dlpack")
        # What `from_dlpack` calls, without the two thirds of its time that are Python.
        self._take: Callable[..., Any] | None = None
        self._platform = "cpu" if is_host(self.engine) else "cuda"
        with suppress(ImportError, AttributeError):
            self._backend = import_module("jax.extend.backend").get_backend
            self._take = import_module("jaxlib._jax").dlpack_managed_tensor_to_buffer
        if is_host(self.engine):
            return
        try:
            self._jax.local_devices(backend="gpu")
        except (RuntimeError, AssertionError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"JAX {self._jax.__version__} sees no GPU: {why}") from error

    def require_dtype(self, dtype: Dtype) -> None:
        kind = getattr(dtype, "kind", "f")
        most_bytes = 8 if kind == "c" else 4
        if itemsize_of(dtype) > most_bytes and not self._jax.config.jax_enable_x64:
            raise self.no_dtype(
                dtype,
                "without jax_enable_x64 it would convert the numbers to 32 bits. Call "
                f'jax.config.update("jax_enable_x64", True) first, or convert them to {_HALF.get(kind, "float32")}',
            )

    def taken(self, array: DeviceArray) -> Any:
        if self._take is not None:
            place = self._backend(self._platform).device_from_local_hardware_id(self.device)
            with suppress(TypeError):  # a version whose function takes other arguments
                return self._take(array.__dlpack__(), place, None)
            self._take = None
        return self._jax.dlpack.from_dlpack(array)

    def export(self, y: Any) -> Any:
        return y.block_until_ready().__dlpack__()


SHORT_NAMES = {"tf": "tensorflow", "pytorch": "torch"}
TARGETS: dict[str, type[Target]] = {kind.module: kind for kind in (Torch, Tensorflow, Jax, Cupy)}


def _imported(target: Target, part: str = "") -> Any:
    """The framework's module, with a part that is not imported with it."""
    try:
        module = import_module(target.module)
        if part:
            import_module(part)
        return module
    except (ImportError, OSError, RuntimeError) as error:  # incompatible jax and jaxlib raise RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name == target.module:
            raise UsageError(f"{target.title} is not installed: {INSTALL[target.module]}") from error
        why = str(error.__cause__ or error).strip().partition("\n")[0]
        raise UsageError(f"{target.title} is installed, but cannot be imported: {why}") from error
