"""Where a download comes from: an array on the device, of a framework or of pyxfer's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyxfer.errors import PyxferError, UsageError
from pyxfer.machine.engine import is_host
from pyxfer.staging.device_arrays import KDL_CPU, KDL_CUDA, DeviceArray
from pyxfer.staging.dlpack import called, described
from pyxfer.staging.dtypes import dtype_of_dlpack
from pyxfer.staging.targets import TARGETS, Target

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.staging.dtypes import Dtype

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
