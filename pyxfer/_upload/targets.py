"""Where uploads go: a framework's own memory where it gives some to be filled, else pyxfer's, handed over by DLPack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import NO_NUMBERS, called, described, dtype_of_dlpack, itemsize_of, name_of
from pyxfer._upload.device_arrays import KDL_CPU, KDL_CUDA, DeviceArray
from pyxfer.errors import CudaMemoryError, PyxferError, UsageError

if TYPE_CHECKING:
    from pyxfer._upload.arrays import Dtype
    from pyxfer.native import Engine


_PARTS = {"jaxlib": "jax"}  # in which a framework defines its arrays
_LEGACY_DEFAULT = 1  # as DLPack counts streams


@dataclass(frozen=True, eq=False)
class DeviceSource:
    """Memory of the device that holds items in C order, which may be read behind what `stream` has been given."""

    address: int
    dtype: Dtype
    shape: tuple[int, ...]
    stream: int | None
    keep: Any = field(repr=False)


def device_source_of(y: Any, engine: Engine, device: int, target: Callable[[str], Target]) -> DeviceSource:
    """The memory of an array on the device; `target` gives the framework of a name.

    Raises:
        UsageError: it is no array, lies elsewhere, or holds what is not sent; says what to do.

    """
    name = _framework_of(type(y))
    if isinstance(y, DeviceArray) or name is None:
        capsule, stream = _asked(y, engine)
    else:
        used = target(name)
        capsule, stream = _lent(used, y, device), used.stream(device)
    found = described(y, capsule)
    _require_here(y, found.device, engine, device)
    dtype = dtype_of_dlpack(*found.type)
    if dtype is None:
        known = getattr(y, "dtype", f"DLPack's type {found.type}")
        raise UsageError(f"an array of {known} is of a type that is not passed on: view its bytes as uint8 first")
    if not _is_compact(found.shape, found.strides):
        raise UsageError(f"this {called(type(y))} does not lie in C order: make it contiguous on the device first")
    return DeviceSource(found.address, dtype, found.shape, stream, found.capsule)


def _framework_of(kind: type) -> str | None:
    """By where the class, or what it is derived from, was defined."""
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    names = (_PARTS.get(package, package) for package in packages)
    return next((name for name in names if name in TARGETS), None)


def _asked(y: Any, engine: Engine) -> tuple[Any, int | None]:
    """Of anything that speaks DLPack; what it has to wait for comes before the legacy default stream's later work."""
    if not hasattr(type(y), "__dlpack__"):
        raise UsageError(f"this {called(type(y))} is no array on a device: give what upload returned, or a tensor")
    if isinstance(y, DeviceArray) or is_host(engine):
        return _given(y, y.__dlpack__), None
    return _given(y, lambda: y.__dlpack__(stream=_LEGACY_DEFAULT)), 0


def _lent(target: Target, y: Any, device: int) -> Any:
    return _given(y, lambda: target.lent(y, device))


def _given(y: Any, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except PyxferError:
        raise
    except Exception as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"this {called(type(y))} does not give its memory away by DLPack: {why}") from error


def _require_here(y: Any, found: tuple[int, int], engine: Engine, device: int) -> None:
    kind, index = found
    if is_host(engine):
        if kind != KDL_CPU:
            raise UsageError(f"this {called(type(y))} lies on a GPU, and this uploader has none")
    elif kind != KDL_CUDA:
        raise UsageError(f"this {called(type(y))} does not lie on a GPU: use it as it is")
    elif index != device:
        raise UsageError(
            f"this {called(type(y))} lies on GPU {index} and this uploader is for GPU {device}: make one for that"
        )


def _is_compact(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


if TYPE_CHECKING:
    from typing import TypeAlias

    from pyxfer._upload.arrays import Dtype
    from pyxfer._upload.device_arrays import DevicePool
    from pyxfer.native import Engine

    Empty: TypeAlias = tuple[int, Callable[[], Any]]
    """Memory in C order to be filled, and what makes the framework's array of it once the bytes are there."""


class Target:
    """A library's arrays on the devices of one engine; the framework is imported when the target is made."""

    title: ClassVar[str]
    module: ClassVar[str]
    install: ClassVar[str]
    takes_all: ClassVar[str] = ""
    """What to do about a framework that leaves no device memory to others."""

    def __init__(self, engine: Engine, pool: DevicePool | None = None) -> None:
        self.engine = engine
        self.pool = pool

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        """Memory for an array.

        Raises:
            UsageError: the library has no such array there; says what to do.

        """
        array = self.own(shape, dtype, device)
        return array.address, lambda: array

    def stream(self, device: int) -> int | None:
        """The current stream, for those that have one: its earlier work comes first, and its later work waits.

        None where the memory is new to the library, and nothing was given to the device that could use it.
        """
        del device
        return None

    def lent(self, y: Any, device: int) -> Any:
        """A DLPack capsule for an array of the library's, in C order, that can be read behind `stream`."""
        del device
        return y.__dlpack__()

    def own(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> DeviceArray:
        """An array of pyxfer's memory.

        Raises:
            CudaMemoryError: the device has not enough; says so where it is the framework that took it.

        """
        try:
            return DeviceArray(self.engine, shape, dtype, device, self.pool)
        except CudaMemoryError as error:
            if not self.takes_all:
                raise
            raise CudaMemoryError(
                error.code, error.name, error.call, error.where, error.description, f"{self.takes_all} {error.hint}"
            ) from None

    def refuse(self, dtype: Dtype, advice: str) -> UsageError:
        """The error that says so."""
        return UsageError(f"{self.title} does not keep {name_of(dtype)}: {advice}")


class Torch(Target):
    """Tensors that PyTorch allocates, filled on its current stream."""

    title, module, install = "PyTorch", "torch", "pip install torch"

    def __init__(self, engine: Engine, pool: DevicePool | None = None) -> None:
        super().__init__(engine, pool)
        with _importing(self):
            import torch
            import torch.utils.dlpack
        self.torch: Any = torch
        if not is_host(engine) and not torch.cuda.is_available():
            raise UsageError(
                f"torch {torch.__version__} has no GPU to upload to: install a build with CUDA, see "
                f"https://pytorch.org/get-started/locally"
            )

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        """Of PyTorch's own allocator, where there is a GPU: the host runtime copies to memory of its own alone."""
        kind = getattr(self.torch, name_of(dtype), None)
        if kind is None:
            raise self.refuse(dtype, "send it as another dtype, x.astype(...), or its bytes, x.view(np.uint8)")
        if is_host(self.engine):
            array = self.own(shape, dtype, device)
            return array.address, lambda: self.torch.from_dlpack(array)
        tensor = self.torch.empty(shape, dtype=kind, device=self.torch.device("cuda", device))
        return tensor.data_ptr(), lambda: tensor

    def stream(self, device: int) -> int | None:
        """0 is the legacy default stream, and PyTorch's own where none was chosen."""
        if is_host(self.engine):
            return None
        return int(self.torch.cuda.current_stream(self.torch.device("cuda", device)).cuda_stream)

    def lent(self, y: Any, device: int) -> Any:
        """Made contiguous on the device, where it is not."""
        del device
        return self.torch.utils.dlpack.to_dlpack(y.detach().resolve_conj().resolve_neg().contiguous())


class Cupy(Target):
    """Arrays that CuPy allocates, filled on its current stream."""

    title, module, install = "CuPy", "cupy", "pip install cupy-cuda12x, or cupy-cuda13x for CUDA 13"

    def __init__(self, engine: Engine, pool: DevicePool | None = None) -> None:
        super().__init__(engine, pool)
        with _importing(self):
            import cupy
        self.cupy: Any = cupy
        if is_host(engine):
            raise UsageError("CuPy keeps its arrays on GPUs, and this uploader has none: use another framework")

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        """Of CuPy's own pool."""
        if isinstance(dtype, str):
            raise self.refuse(dtype, "send its bits, as uint16")
        with self.cupy.cuda.Device(device):
            array = self.cupy.empty(shape, dtype)
        return array.data.ptr, lambda: array

    def stream(self, device: int) -> int | None:
        """0 is the legacy default stream, and CuPy's own where none was chosen."""
        with self.cupy.cuda.Device(device):
            return int(self.cupy.cuda.get_current_stream().ptr)

    def lent(self, y: Any, device: int) -> Any:
        """Made contiguous on the device, where it is not."""
        with self.cupy.cuda.Device(device):
            return self.cupy.ascontiguousarray(y).reshape(y.shape).__dlpack__()


class Tensorflow(Target):
    """Tensors that TensorFlow makes of pyxfer's memory."""

    title, module, install = "TensorFlow", "tensorflow", "pip install 'tensorflow[and-cuda]'"
    takes_all = (
        "TensorFlow takes nearly all memory of a GPU when it starts: call "
        "tf.config.experimental.set_memory_growth(gpu, True) before its first use."
    )

    def __init__(self, engine: Engine, pool: DevicePool | None = None) -> None:
        super().__init__(engine, pool)
        with _importing(self):
            import tensorflow
        self._tf: Any = tensorflow
        if not is_host(engine) and not tensorflow.config.list_logical_devices("GPU"):
            raise UsageError(
                f"TensorFlow {tensorflow.__version__} sees no GPU to upload to: it says why when it is imported with "
                f"TF_CPP_MIN_LOG_LEVEL=0"
            )

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        """Of pyxfer's own; it takes capsules of version 0 alone, and has no word for streams."""
        array = self.own(shape, dtype, device)
        return array.address, lambda: self._tf.experimental.dlpack.from_dlpack(array.__dlpack__())

    def lent(self, y: Any, device: int) -> Any:
        """Its streams are hidden, so all of the device's work is waited for; of a variable it is the present value."""
        tensor = self._tf.convert_to_tensor(y)
        if tensor.dtype.name in NO_NUMBERS:
            raise UsageError(f"a tensor of {tensor.dtype.name} holds no numbers: use it as it is")
        capsule = self._tf.experimental.dlpack.to_dlpack(tensor)
        self.engine.synchronize(device)
        return capsule


class Jax(Target):
    """Arrays that JAX makes of pyxfer's memory."""

    title, module, install = "JAX", "jax", "pip install 'jax[cuda13]', or 'jax[cuda12]'"
    takes_all = (
        "JAX takes three quarters of a GPU's memory when it starts: set XLA_PYTHON_CLIENT_PREALLOCATE=false before."
    )

    def __init__(self, engine: Engine, pool: DevicePool | None = None) -> None:
        super().__init__(engine, pool)
        with _importing(self):
            import jax
            import jax.dlpack
        self._jax: Any = jax
        if not is_host(engine):
            self._require_gpu()

    def empty(self, shape: tuple[int, ...], dtype: Dtype, device: int) -> Empty:
        """Of pyxfer's own; JAX asks it for the capsule that it knows."""
        if not self._jax.config.jax_enable_x64 and itemsize_of(dtype) > (8 if _is_complex(dtype) else 4):
            raise self.refuse(
                dtype,
                "as it is set up, without 64 bits, it would make other numbers of it. Call "
                'jax.config.update("jax_enable_x64", True) first, or send it narrowed, such as x.astype(np.float32)',
            )
        array = self.own(shape, dtype, device)
        return array.address, lambda: self._jax.dlpack.from_dlpack(array)

    def lent(self, y: Any, device: int) -> Any:
        """Once it is ready."""
        del device
        return y.block_until_ready().__dlpack__()

    def _require_gpu(self) -> None:
        try:
            self._jax.local_devices(backend="gpu")
        except (RuntimeError, AssertionError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"JAX {self._jax.__version__} sees no GPU to upload to: {why}") from error


TARGETS: dict[str, type[Target]] = {kind.module: kind for kind in (Torch, Tensorflow, Jax, Cupy)}


def target_of(name: str, engine: Engine, pool: DevicePool | None = None) -> Target:
    """The framework of that name; memory of pyxfer's own comes from the pool.

    Raises:
        UsageError: it is none that is known, is not installed, or cannot use the engine's devices.

    """
    kind = TARGETS.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(map(repr, TARGETS))
        raise UsageError(f"{name!r} is nothing that arrays are uploaded to: give one of {known}")
    return kind(engine, pool)


@contextmanager
def _importing(target: Target) -> Iterator[None]:
    """Around an import, whose errors are about the installation."""
    try:
        yield
    except (ImportError, OSError, RuntimeError) as error:  # jax and jaxlib that do not fit raise RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name == target.module:
            raise UsageError(f"{target.title} is not installed: {target.install}") from error
        why = str(error.__cause__ or error).strip().partition("\n")[0]
        raise UsageError(f"{target.title} is installed and cannot be imported: {why}") from error


def _is_complex(dtype: Dtype) -> bool:
    return not isinstance(dtype, str) and dtype.kind == "c"
