"""Casts and permutations on the way to a device: what a caller asks for, and where each is done.

A cast that shrinks what crosses is done in the ring's copy to its slots, if that is faster on this host than to cast on
the device. A cast that does not shrink it, and every permutation, is done by a kernel behind each piece that has
crossed. Without a kernel the host does both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import (
    BFLOAT16,
    dtype_name,
    dtype_to_send,
    is_array,
    itemsize_of,
    name_of,
    source_of,
    strides_of,
    type_name,
)
from pyxfer._upload.device_arrays import ScratchPool
from pyxfer._upload.movers import RingMover
from pyxfer._upload.trees import RefusedArrayError, children_of
from pyxfer.errors import CudaMemoryError, KernelsUnavailableError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._upload.arrays import Dtype, Source
    from pyxfer._upload.movers import Mover, Ticket
    from pyxfer._upload.targets import Target
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Conversion

# Of one kernel: csrc/convert/kernels.hpp.
_MAX_AXES = 6
MAX_REORDERED_ITEMS = 1 << 32
# H200: a kernel adds 12 us to an upload of any size, and one core casts and sends 32 KiB in the same time.
MAX_ON_HOST_BYTES = 32 << 10
# An array is cast where one of the nearest of these sizes was faster: the next larger one, or the last.
_TRIAL_BYTES = (256 << 10, 1 << 20, 4 << 20, 16 << 20)
_ROUNDS = 7

# Of arrays of one dtype and shape, with one wish.
_MAX_PLANNED = 256

_BYTE = np.dtype(np.uint8)


class Wanted:
    """The dtype of an array on the device, and the source's axes in the order of the result's."""

    def __init__(self, dtype: Dtype | None, layout: tuple[str, str] | None) -> None:
        self.dtype, self.layout = dtype, layout

    def axes_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.layout is None:
            return tuple(range(len(shape)))
        before, after = self.layout
        if len(before) != len(shape):
            raise UsageError(
                f'layout "{before}->{after}" names {len(before)} axes, and the array has {len(shape)}: its shape is '
                f"{shape}"
            )
        return tuple(before.index(axis) for axis in after)


def wanted_by(tree: Any, dtype: Any, layout: Any) -> list[Wanted | None] | None:
    """What is wanted of each array of a structure, in order; None if nothing is."""
    if dtype is None and layout is None:
        return None
    dtypes = [None if each is None else _dtype_of(each) for each in _spread(tree, dtype, "dtype")]
    layouts = [None if each is None else _layout_of(each) for each in _spread(tree, layout, "layout")]
    found = [
        None if kind is None and order is None else Wanted(kind, order)
        for kind, order in zip(dtypes, layouts, strict=True)
    ]
    return found if any(found) else None


def require_wishes(dtype: Any, layout: Any) -> None:
    """Refuse what no array can get."""
    for given, parse in ((dtype, _dtype_of), (layout, _layout_of)):
        for each in _leaves(given):
            if each is not None:
                parse(each)


def _leaves(given: Any) -> Iterator[Any]:
    below = _children(given)
    if below is None:
        yield given
        return
    for each in below.values():
        yield from _leaves(each)


def _spread(tree: Any, given: Any, name: str) -> Iterator[Any]:
    """One of each array of a structure. `given` is one for all, or a structure as the tree."""
    below = _children(given)
    if is_array(tree):
        if below is not None:
            raise UsageError(f"{name} is a {type_name(type(given))} where the source has one array: give one {name}")
        yield given
        return
    children = _children(tree) or {}
    if below is None:
        for child in children.values():
            yield from _spread(child, given, name)
        return
    if len(below) == len(children) and not isinstance(given, dict):
        below = dict(zip(children, below.values(), strict=True))
    odd = next((repr(step) for step in (*below, *children) if (step in below) != (step in children)), None)
    if odd is not None:
        raise UsageError(
            f"{name} does not have the structure of the source, where {odd:.40} differs: give one {name} for all "
            f"arrays, or the structure of the source with one, or None, for each"
        )
    for step, child in children.items():
        yield from _spread(child, below[step], name)


def _children(tree: Any) -> dict[Any, Any] | None:
    """The children of a container by what each is called in it; None if it is not a container."""
    found = children_of(tree)
    return None if found is None else dict(zip(found.steps, found.values, strict=True))


def _dtype_of(given: Any) -> Dtype:
    name = dtype_name(given)
    if name == BFLOAT16:
        return BFLOAT16
    try:
        dtype = given if isinstance(given, np.dtype) else np.dtype(name)
        return dtype_to_send(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # UsageError is a ValueError
        raise UsageError(
            f"{_quoted(given)} is not a type of numbers that arrays on a GPU have: give one such as "
            f'"float32" or "bfloat16"'
        ) from error


def _quoted(given: Any) -> str:
    """In one line, and short."""
    return f"{' '.join(repr(given).split()):.60}"


def _layout_of(given: Any) -> tuple[str, str]:
    before, arrow, after = given.replace(" ", "").partition("->") if isinstance(given, str) else ("", "", "")
    if not arrow or not before.isalpha() or len(set(before)) != len(before) or sorted(before) != sorted(after):
        raise UsageError(
            f"{_quoted(given)} is not a layout: give the axes of the source, an arrow and the axes of the result, each "
            f'letter once on both sides, such as "NHWC->NCHW"'
        )
    return before, after


class Plan:
    """The result on the device of what is wanted of one array. `conversion` is None if its items are only copied."""

    def __init__(self, shape: tuple[int, ...], dtype: Dtype, conversion: Conversion | None) -> None:
        self.shape, self.dtype, self.conversion = shape, dtype, conversion


class Converter:
    """Converts arrays on the way to one device, by what it has measured. Any thread may call it."""

    def __init__(self, engine: Engine, device: int, kept_bytes: int | None) -> None:
        self._engine, self._device = engine, device
        self.scratch = ScratchPool(engine, device, kept_bytes)
        """Memory for what kernels read, for frameworks that do not allocate themselves."""
        self.has_kernels = not is_host(engine)
        """False when the driver has refused them: then the host does all."""
        self.max_on_host_bytes = MAX_ON_HOST_BYTES
        """Of an array and its result that the host converts in any case."""
        self._host_is_faster: dict[tuple[str, str, int], bool] = {}
        self._prepared: set[tuple[str, str]] = set()
        self._planned: dict[Any, Plan] = {}

    def upload(self, mover: Mover, target: Target, arrays: list[Any], place: int, wanted: Wanted) -> Any:
        """Upload one of the arrays."""
        try:
            source, plan = self._planned_to(target, source_of(arrays[place]), wanted, mover)
            if plan.conversion is not None:
                return self._send(mover, target, source, plan, plan.conversion)
            address, finish = target.empty(plan.shape, plan.dtype)
            arrived = mover.upload(source, address, target.stream())
            made = finish()
            arrived()
            return made
        except UsageError as error:
            raise RefusedArrayError(place, error) from error

    def upload_plain(self, mover: RingMover, target: Target, x: NDArray[Any], dtype: Any, layout: Any) -> Any:
        """The short way of one contiguous array of NumPy's; None if it cannot be taken."""
        try:
            key = (x.dtype, x.shape, dtype, layout)
            found = self._planned.get(key)
        except TypeError:  # a structure
            return None
        try:
            if found is None:
                found = self._planned_for(mover, x, dtype, layout)
                if len(self._planned) >= _MAX_PLANNED:
                    self._planned.clear()
                self._planned[key] = found
            return None if found.conversion is None else self._send(mover, target, x, found, found.conversion)
        except UsageError:  # the usual way says where the array is
            return None

    def _planned_for(self, mover: RingMover, x: NDArray[Any], dtype: Any, layout: Any) -> Plan:
        wanted = wanted_by(x, dtype, layout)
        if wanted is None or wanted[0] is None:
            return Plan(x.shape, x.dtype, None)
        source, plan = self.plan(source_of(x), wanted[0], mover)
        # Else the host permutes.
        is_as_given = source.shape == x.shape and source.strides == x.strides
        return plan if is_as_given else Plan(plan.shape, plan.dtype, None)

    def _send(
        self, mover: Mover, target: Target, source: Source | NDArray[Any], plan: Plan, conversion: Conversion
    ) -> Any:
        finish = scratch = made = None
        try:
            address, finish = target.empty(plan.shape, plan.dtype)
            crossed, scratch = self._memory_to_cross(target, conversion, source.nbytes, address)
            arrived = mover.upload_converted(source, conversion, crossed, address, target.stream())
            made = finish()
            arrived()
            return made
        finally:
            del finish, scratch, made  # the traceback of an error would keep the memory

    def prepared(
        self, mover: Mover, target: Target, arrays: list[Any], place: int, wanted: Wanted
    ) -> tuple[Callable[[int | None], Ticket], Callable[[], Any], Any]:
        """What starts the upload of one of the arrays, what makes the framework's array, and what to keep meanwhile."""
        try:
            source, plan = self._planned_to(target, source_of(arrays[place]), wanted, mover)
            address, finish = target.empty(plan.shape, plan.dtype)
        except UsageError as error:
            raise RefusedArrayError(place, error) from error
        if plan.conversion is None:
            return partial(mover.start, source, address), finish, source.keep
        crossed, scratch = self._memory_to_cross(target, plan.conversion, source.nbytes, address)
        start = partial(mover.start_converted, source, plan.conversion, crossed, address)
        return start, finish, (source.keep, scratch)

    def _memory_to_cross(self, target: Target, conversion: Conversion, nbytes: int, address: int) -> tuple[int, Any]:
        """Memory on the device for what a kernel reads, and what keeps it; else that of the result."""
        if not conversion.has_kernel:
            return address, None
        crossing_bytes = conversion.crossing_bytes(nbytes)
        if target.allocates:
            return target.empty((crossing_bytes,), _BYTE)
        lent = self.scratch.lend(crossing_bytes)
        return lent.address, lent

    def plan(self, source: Source, wanted: Wanted, mover: Mover) -> tuple[Source, Plan]:
        """How an array is converted, and what is read: if the host permutes, in the order of the result.

        Refuses types and shapes that do not fit.
        """
        before, after = source.dtype, source.dtype if wanted.dtype is None else wanted.dtype
        axes = wanted.axes_of(source.shape)
        _require_cast(before, after)
        shape = tuple(source.shape[axis] for axis in axes)
        extents, strides = _order(source.shape, axes)
        on_device = (
            self.has_kernels
            and max(1, math.prod(source.shape)) * max(itemsize_of(before), itemsize_of(after)) > self.max_on_host_bytes
            and isinstance(mover, RingMover)
            and getattr(before, "kind", "f") != "c"  # kernels have no such items
            and len(extents) <= _MAX_AXES
            and (not extents or math.prod(source.shape) < MAX_REORDERED_ITEMS)
        )
        if not on_device:
            source = source._replace(shape=shape, strides=tuple(source.strides[axis] for axis in axes))
            extents, strides = (), ()
        casts = name_of(before) != name_of(after)
        if not casts and not extents:
            return source, Plan(shape, after, None)
        try:
            on_host = casts and (not on_device or self._casts_on_host(mover, source, before, after))
            conversion = self._conversion(before, after, on_host, extents, strides)
            if isinstance(mover, RingMover) and conversion.has_kernel:
                self._prepare(mover, conversion, after if on_host else before, after)
        except KernelsUnavailableError:
            self.has_kernels = False
            return self.plan(source, wanted, mover)
        return source, Plan(shape, after, conversion)

    def _planned_to(self, target: Target, source: Source, wanted: Wanted, mover: Mover) -> tuple[Source, Plan]:
        """The same for a framework, which may not have the dtype that is wanted."""
        if wanted.dtype is not None:
            try:
                target.require_dtype(wanted.dtype)
            except UsageError as error:
                why = " without jax_enable_x64" if "jax_enable_x64" in str(error) else ""
                raise UsageError(
                    f"{target.title} has no {name_of(wanted.dtype)}{why}: give another dtype, such as float32"
                ) from error
        return self.plan(source, wanted, mover)

    def _prepare(self, mover: RingMover, conversion: Conversion, crossing: Dtype, after: Dtype) -> None:
        """Make the kernel now: a transfer that has begun could not be planned anew."""
        key = name_of(crossing), name_of(after)
        if key not in self._prepared:
            mover.ring.prepare(conversion)
            self._prepared.add(key)

    def _conversion(
        self, before: Dtype, after: Dtype, on_host: bool, extents: Sequence[int] = (), strides: Sequence[int] = ()
    ) -> Conversion:
        return self._engine.Conversion(name_of(before), name_of(after), on_host, extents, strides)

    def _casts_on_host(self, mover: Mover, source: Source, before: Dtype, after: Dtype) -> bool:
        if itemsize_of(after) >= itemsize_of(before):
            return False
        if not isinstance(mover, RingMover):
            return True
        nbytes = next((size for size in _TRIAL_BYTES if source.nbytes <= size), _TRIAL_BYTES[-1])
        key = name_of(before), name_of(after), nbytes
        if key not in self._host_is_faster:
            self._host_is_faster[key] = self._measured(mover, before, after, nbytes)
        return self._host_is_faster[key]

    def _measured(self, mover: RingMover, before: Dtype, after: Dtype, nbytes: int) -> bool:
        """Whether ones in ordinary memory arrive sooner if the host casts them, by the medians of turns."""
        ones = np.ones(nbytes // itemsize_of(before), f"u{itemsize_of(before)}")
        try:
            crossed = self._engine.DeviceBuffer(nbytes, self._device)
            result = self._engine.DeviceBuffer(ones.size * itemsize_of(after), self._device)
        except CudaMemoryError:
            return True  # it needs less memory on the device
        taken: dict[bool, list[float]] = {True: [], False: []}
        with_kernel = self._conversion(before, after, False)
        ways = {True: (self._conversion(before, after, True), result.address), False: (with_kernel, crossed.address)}
        try:
            for _ in range(_ROUNDS + 1):  # the first one wakes threads, and makes kernels
                for on_host, (conversion, to) in ways.items():
                    begin = time.perf_counter()
                    mover.upload_converted(ones, conversion, to, result.address, None)()
                    taken[on_host].append(time.perf_counter() - begin)
        finally:
            crossed.close()
            result.close()
        return bool(np.median(taken[True][1:]) <= np.median(taken[False][1:]))


def _require_cast(before: Dtype, after: Dtype) -> None:
    kinds = ["f" if isinstance(dtype, str) else dtype.kind for dtype in (before, after)]
    if name_of(before) == name_of(after):
        return
    if "c" in kinds:
        advice = "convert x before, or send x.real" if kinds[0] == "c" else "convert x before"
        raise UsageError(f"{name_of(before)} does not become {name_of(after)} on the way: {advice}")
    if kinds[0] == "f" and kinds[1] in "iu":
        raise UsageError(
            f"{name_of(before)} does not become {name_of(after)} on the way, because processors and devices differ in "
            f"what becomes of numbers out of range: convert x before the upload, or the uploaded array on the device"
        )


def _order(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and distances in the result, in items, of the axes of a source in C order; none if no item moves.

    Axes that stay neighbours are one.
    """
    kept = [axis for axis in axes if shape[axis] != 1]
    if 0 in shape or kept == sorted(kept):
        return (), ()
    distances = dict(zip(kept, strides_of(tuple(shape[axis] for axis in kept)), strict=True))
    merged: list[list[int]] = []
    for axis in sorted(kept):
        extent, distance = shape[axis], distances[axis]
        if merged and merged[-1][1] == extent * distance:
            merged[-1] = [merged[-1][0] * extent, distance]
        else:
            merged.append([extent, distance])
    return tuple(extent for extent, _ in merged), tuple(distance for _, distance in merged)
