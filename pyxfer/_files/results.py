"""The arrays that a load returns: allocated in blocks, made when their bytes have arrived, converted if asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._files.windows import ALIGNMENT
from pyxfer._upload.arrays import DLPACK_TYPES, dtype_name
from pyxfer._upload.targets import framework_of
from pyxfer.errors import INSTALL, UsageError

if TYPE_CHECKING:
    from pyxfer._files.formats import StoredArray
    from pyxfer._files.windows import Block
    from pyxfer._upload.arrays import Dtype
    from pyxfer._upload.device_arrays import FrameworkMemory
    from pyxfer._upload.targets import EmptyArray, Part, Target

_BYTE = np.dtype(np.uint8)
# Items of other types cross as bytes, and are viewed as what they are afterwards.
_SENT: dict[str, Dtype] = {dtype if isinstance(dtype, str) else dtype.name: dtype for dtype in DLPACK_TYPES}
_FLOATS = ("float", "bfloat")
_WIDE = "float64"
_TWO_IN_A_BYTE = "float4_e2m1fn"


class HostArrays:
    """NumPy's arrays in ordinary memory, in place of a framework's on a device."""

    title, module, allocates = "NumPy", "numpy", True

    def require_dtype(self, dtype: Dtype) -> None:
        try:
            _ArraysOfNumpy(np).dtype(str(dtype))
        except ImportError as error:
            raise UsageError(f"NumPy has no {dtype}: {INSTALL['ml_dtypes']}") from error

    def reserve(self, sizes: list[int]) -> list[FrameworkMemory]:
        del sizes
        return []

    def empty_parts(self, nbytes: int, parts: list[Part], memory: FrameworkMemory | None = None) -> EmptyArray:
        del memory
        block = np.empty(nbytes, _BYTE)

        def views() -> list[Any]:
            kinds = [_ArraysOfNumpy(np).dtype(str(dtype)) for _, dtype, _ in parts]
            return [
                np.ndarray(shape, kind, block, offset) for (shape, _, offset), kind in zip(parts, kinds, strict=True)
            ]

        return block.ctypes.data, views


class Results:
    """A framework's arrays of stored ones. `dtype` is the type to which floating-point arrays are converted."""

    def __init__(self, target: Target | HostArrays, dtype: Any) -> None:
        self._target = target
        kind = _LIBRARIES[target.module]
        self._library = kind(import_module(target.module))
        name = None if dtype is None else dtype_name(dtype)
        self._wanted = None if name is None else self._floating(name)
        self._making = nullcontext if name in (None, _WIDE) else self._library.with_wide_floats
        self._reserved: deque[FrameworkMemory] = deque()

    @property
    def driver_allocates(self) -> bool:
        """Whether each block is allocated by the driver, which is slow."""
        return not self._target.allocates

    def check(self, stored: StoredArray) -> None:
        """Refuse an array of a type that the framework does not have."""
        if stored.dtype in _SENT:
            with self._making() if stored.dtype == _WIDE else nullcontext():
                self._target.require_dtype(_SENT[stored.dtype])
        elif self._library.views_bytes:
            self._kind(stored.dtype)
        else:
            raise UsageError(f"{self._target.title} cannot view bytes as {stored.dtype}: leave it out by names")

    def reserve(self, blocks: Iterable[Block]) -> None:
        """Have the framework's allocator get the memory of all blocks, which are then allocated in this order."""
        self._reserved.extend(self._target.reserve([_bytes_of(block) for block in blocks]))

    def allocate(self, block: Block) -> Callable[[], dict[str, Any]]:
        """Allocate a block. The result makes its arrays, once the bytes have arrived."""
        parts = [(_shape_of(array), _SENT.get(array.dtype, _BYTE), offset) for array, offset in block.placed]
        memory = self._reserved.popleft() if self._reserved else None
        block.address, made = self._target.empty_parts(_bytes_of(block), parts, memory)
        stored = [array for array, _ in block.placed]
        names = [array.name for array in stored]
        if self._wanted is None and not any(each.fortran or each.dtype not in _SENT for each in stored):
            return lambda: dict(zip(names, made(), strict=True))

        def finished() -> dict[str, Any]:
            with self._making():
                return dict(zip(names, map(self._finished, stored, made()), strict=True))

        return finished

    def _finished(self, stored: StoredArray, array: Any) -> Any:
        if stored.dtype not in _SENT:
            array = self._library.viewed(array, self._kind(stored.dtype))
        if stored.fortran:
            array = self._library.reversed(array)
        if self._wanted is not None and stored.dtype.startswith(_FLOATS):
            array = self._library.converted(array, self._wanted)
        return array

    def _floating(self, name: str) -> Any:
        kind = self._kind(name, "give a dtype such as 'bfloat16'")
        if not name.startswith(_FLOATS):
            raise UsageError(f"{name} is not a type of floating-point numbers: give one such as 'bfloat16'")
        return kind

    def _kind(self, name: str, otherwise: str = "leave it out by names") -> Any:
        try:
            return self._library.dtype(name)
        except (AttributeError, TypeError, ImportError) as error:
            remedy = INSTALL["ml_dtypes"] if isinstance(error, ImportError) else otherwise
            raise UsageError(f"{self._target.title} has no {name}: {remedy}") from error


def _bytes_of(block: Block) -> int:
    """PyTorch views no block as items of eight bytes that ends within one."""
    return max(1, -(-block.nbytes // ALIGNMENT)) * ALIGNMENT


def as_sent(array: Any, stored: StoredArray) -> tuple[Any, tuple[int, ...], str]:
    """An array to be filled with a stored one, and the shape and dtype that it needs: bytes, if they cross as bytes."""
    if stored.dtype not in _SENT:
        kind: Any = type(array)
        module = framework_of(kind) or HostArrays.module
        library = _LIBRARIES[module](import_module(module))
        with suppress(AttributeError, TypeError, ImportError):  # of a library without this type
            if array.dtype == library.dtype(stored.dtype):
                return library.viewed(array, library.dtype(_BYTE.name)), _shape_of(stored), _BYTE.name
    return array, stored.shape, stored.dtype


def _shape_of(stored: StoredArray) -> tuple[int, ...]:
    if stored.dtype == _TWO_IN_A_BYTE:
        return (*stored.shape[:-1], stored.shape[-1] // 2)
    return stored.shape[::-1] if stored.fortran else stored.shape


# --- what each library does its own way ------------------------------------------------------------------------------


class _ArraysOfNumpy:
    views_bytes = True

    def __init__(self, library: Any) -> None:
        self.library = library

    def dtype(self, name: str) -> Any:
        """The library's type of that name; AttributeError, TypeError or ImportError if it has none."""
        if name == _TWO_IN_A_BYTE:
            raise TypeError(name)  # that of ml_dtypes takes a byte
        try:
            return np.dtype(name)
        except TypeError:
            return np.dtype(getattr(import_module("ml_dtypes"), name))

    def viewed(self, array: Any, kind: Any) -> Any:
        return array.view(kind)

    def reversed(self, array: Any) -> Any:
        return array.T

    def converted(self, array: Any, kind: Any) -> Any:
        return array.astype(kind)

    def with_wide_floats(self) -> AbstractContextManager[Any]:
        """In which the library has arrays of float64, to convert them."""
        return nullcontext()


class _ArraysOfTorch(_ArraysOfNumpy):
    def dtype(self, name: str) -> Any:
        found = getattr(self.library, f"{name}_x2" if name == _TWO_IN_A_BYTE else name)
        if not isinstance(found, self.library.dtype):
            raise TypeError(name)
        return found

    def reversed(self, array: Any) -> Any:
        return array.permute(*reversed(range(array.ndim)))

    def converted(self, array: Any, kind: Any) -> Any:
        return array.to(kind)


class _ArraysOfCupy(_ArraysOfNumpy):
    def dtype(self, name: str) -> Any:
        return np.dtype(name)


class _ArraysOfJax(_ArraysOfNumpy):
    def viewed(self, array: Any, kind: Any) -> Any:
        return self.library.lax.bitcast_convert_type(array, kind)

    def with_wide_floats(self) -> AbstractContextManager[Any]:
        # Older versions have it among their experiments only.
        owner = self.library if hasattr(self.library, "enable_x64") else import_module("jax.experimental")
        context: AbstractContextManager[Any] = owner.enable_x64(True)
        return context


class _ArraysOfTensorflow(_ArraysOfNumpy):
    views_bytes = False  # tf.bitcast does not take float8

    def dtype(self, name: str) -> Any:
        return self.library.as_dtype(name)

    def reversed(self, array: Any) -> Any:
        return self.library.transpose(array)

    def converted(self, array: Any, kind: Any) -> Any:
        return self.library.cast(array, kind)


_LIBRARIES: dict[str, type[_ArraysOfNumpy]] = {
    "numpy": _ArraysOfNumpy,
    "torch": _ArraysOfTorch,
    "cupy": _ArraysOfCupy,
    "jax": _ArraysOfJax,
    "tensorflow": _ArraysOfTensorflow,
}
