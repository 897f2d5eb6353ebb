"""Arrays in nested tuples, lists, dicts and dataclasses, and the small ones of them that cross together."""

from __future__ import annotations

import copy
import itertools
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pyxfer._upload.arrays import dtype_to_send, is_array, type_name
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from pyxfer._upload.targets import Target

    Group: TypeAlias = tuple[list[int], list[np.ndarray[Any, Any]] | None]

Result = TypeVar("Result")

MAX_DEPTH = 100


def map_arrays(tree: Any, send: Callable[[Any], Any], name: str = "batch") -> Any:
    """Copy a structure, with each array replaced by the result of `send`. Types and order stay the same.

    None, text, numbers and other single objects are not changed.
    """
    return _mapped(tree, send, _Place(name))


def send_arrays(tree: Any, send: Callable[[list[Any]], Iterable[Any]], name: str) -> Any:
    """`map_arrays` by one call for all arrays of a structure, which must have one.

    `send` names an array that it refuses by `RefusedArrayError`.
    """
    copied, arrays = arrays_of(tree, name)
    sent = iter(naming_refused(tree, lambda: send(arrays), name))
    return map_arrays(copied, lambda _: next(sent), name)


def arrays_of(tree: Any, name: str) -> tuple[Any, list[Any]]:
    """A copy of a structure, whose containers later changes do not reach, and its arrays in order.

    A structure without arrays is refused, so that nothing that the user took for one is returned.
    """
    arrays: list[Any] = []

    def note(array: Any) -> Any:
        arrays.append(array)
        return array

    copied = map_arrays(tree, note, name)
    if not arrays:
        raise UsageError(
            f"{name}: this {type_name(type(tree))} contains no array: np.asarray() makes one of numbers, "
            "np.load() one of a file"
        )
    return copied, arrays


class RefusedArrayError(Exception):
    """One of the arrays of a structure was refused."""

    def __init__(self, index: int, why: UsageError) -> None:
        super().__init__(str(why))
        self.index = index
        self.why = why


def naming_refused(tree: Any, call: Callable[[], Result], name: str) -> Result:
    """Call, and make a RefusedArrayError a UsageError with the place of its array."""
    try:
        return call()
    except RefusedArrayError as error:
        index, why = error.index, error.why
    try:  # outside of `except`, because a cycle of errors would keep the array
        raise _located(tree, index, why, name)
    finally:
        del why  # the frames of its traceback refer to this one


def _located(tree: Any, index: int, why: UsageError, name: str) -> UsageError:
    places = itertools.count()
    errors = [why]
    del why

    def find(array: Any) -> Any:
        if next(places) == index:
            raise errors.pop()
        return array

    try:
        map_arrays(tree, find, name)
    except UsageError as error:
        return error
    return errors.pop()


# --- small arrays that cross together --------------------------------------------------------------------------------

MIN_PACKED = 4
"""Fewer small arrays cross sooner one by one."""
_MAX_PACKED_BYTES = 256 << 10
"""Larger arrays go alone: their copies take longer than what surrounds them."""
_MAX_PACK_BYTES = 8 << 20
"""Of arrays in a block on the device, which exists as long as one of them."""


def groups_of(arrays: list[Any], target: Target) -> list[Group]:
    """The arrays in groups that cross in one copy: their numbers and, if there are several, the arrays of NumPy."""
    found: list[Group] = []
    sizes, dtypes = target.engine.plain_arrays(arrays)
    refused = {dtype for dtype in dtypes if not _can_be_packed(dtype, target)}
    if not refused and 0 <= min(sizes) <= max(sizes) <= _MAX_PACKED_BYTES and sum(sizes) <= _MAX_PACK_BYTES:
        return [(list(range(len(arrays))), arrays)]
    places: list[int] = []
    small: list[np.ndarray[Any, Any]] = []
    total = 0
    for place, (x, nbytes) in enumerate(zip(arrays, sizes, strict=True)):
        array: NDArray[Any] | None = x if nbytes >= 0 else target.as_array(x)
        size = nbytes if nbytes >= 0 or array is None else array.nbytes
        if array is None or size > _MAX_PACKED_BYTES or (refused and array.dtype in refused):
            found.append(([place], None))
            continue
        if total + size > _MAX_PACK_BYTES:
            found.append((places, small))
            places, small, total = [], [], 0
        places.append(place)
        small.append(array)
        total += size
    if len(places) >= MIN_PACKED:
        found.append((places, small))
    else:
        found.extend(([place], None) for place in places)
    return found


def _can_be_packed(dtype: np.dtype[Any], target: Target) -> bool:
    try:
        sent = dtype_to_send(dtype)
        target.require_dtype(sent)
    except UsageError:
        return False  # alone it is refused with its place
    return not isinstance(sent, str)


# --- places in a structure -------------------------------------------------------------------------------------------


class _Place:
    """A place in a structure. Its text is made only for errors.

    `container` is the one in which `step` is a key, an index or a field.
    """

    __slots__ = ("above", "container", "is_field", "step")

    def __init__(self, step: Any, above: _Place | None = None, container: Any = None, is_field: bool = False) -> None:
        self.step, self.above, self.container, self.is_field = step, above, container, is_field

    def __str__(self) -> str:
        if self.above is None:
            return str(self.step)
        return f"{self.above}.{self.step}" if self.is_field else f"{self.above}[{_quoted(self.step)}]"

    def check_depth(self, container: Any) -> None:
        """Refuse a container that contains itself, or that is nested too deep for recursion."""
        depth, place = 1, self
        while place.above is not None:
            if place.container is container:
                raise UsageError(f"{self} is {place.above} again: a structure must not contain itself")
            depth, place = depth + 1, place.above
        if depth > MAX_DEPTH:
            raise UsageError(f"{place} is nested more than {MAX_DEPTH} deep: flatten it")


class Children:
    """The children of a container, and what each is called in it."""

    __slots__ = ("are_fields", "steps", "values")

    def __init__(self, steps: list[Any], values: list[Any], are_fields: bool = False) -> None:
        self.steps, self.values, self.are_fields = steps, values, are_fields


def _mapped(tree: Any, send: Callable[[Any], Any], place: _Place) -> Any:
    if is_array(tree):
        return _sent(tree, send, place)
    children = _children(tree, place)
    if children is None:
        return tree
    values = []
    for step, child in zip(children.steps, children.values, strict=True):
        if type(child) is np.ndarray:  # a batch may have hundreds: an object for the place takes longer than the rest
            try:
                values.append(send(child))
                continue
            except UsageError as error:
                raise UsageError(f"{_Place(step, place, tree, children.are_fields)}: {error}") from error
        values.append(_mapped(child, send, _Place(step, place, tree, children.are_fields)))
    return _rebuilt(tree, children, values)


def _sent(array: Any, send: Callable[[Any], Any], place: _Place) -> Any:
    try:
        return send(array)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def children_of(tree: Any) -> Children | None:
    """The children of a dict, list, tuple, named tuple or dataclass; None if `tree` is another object."""
    if isinstance(tree, dict):
        return Children(list(tree), list(tree.values()))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return Children(list(tree._fields), list(tree), True)
    if isinstance(tree, (list, tuple)):
        return Children(list(range(len(tree))), list(tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree) if hasattr(tree, field.name)]  # one with init=False may be unset
        return Children(names, [getattr(tree, name) for name in names], True)
    return None


def _children(tree: Any, place: _Place) -> Children | None:
    """The same, for a container in which arrays are looked for. Others that may hold some are refused."""
    found = children_of(tree)
    if found is None:
        if isinstance(tree, (str, type, Enum)):
            return None
        if isinstance(tree, Iterable):  # its arrays would stay on the host
            raise UsageError(
                f"{place}: pyxfer does not look for arrays in this {type_name(type(tree))}: make it a list, tuple, "
                f"dict or dataclass"
            )
        if hasattr(type(tree), "shape") and hasattr(type(tree), "dtype"):  # such as TensorFlow's RaggedTensor
            raise UsageError(
                f"{place}: this {type_name(type(tree))} is not one array: send the arrays that it consists of, such as "
                f"values and indices"
            )
        if any(is_array(value) for value in getattr(tree, "__dict__", {}).values()):
            raise UsageError(
                f"{place}: pyxfer does not look for arrays in the attributes of this {type_name(type(tree))}: make it "
                f"a dict or a dataclass"
            )
        return None
    place.check_depth(tree)
    return found


def _rebuilt(tree: Any, children: Children, values: list[Any]) -> Any:
    if isinstance(tree, tuple):
        if all(value is child for value, child in zip(values, children.values, strict=True)):
            return tree  # such as time.struct_time, which cannot be made from its items
        try:  # without the type's constructor, whose arguments may differ from the items
            made = tuple.__new__(type(tree), values)
        except TypeError:  # a result of PyTorch, such as of max(dim=0)
            return type(tree)(values)
        if hasattr(tree, "__dict__"):
            vars(made).update(vars(tree))
        return made
    new: Any = copy.copy(tree)
    if isinstance(tree, list):
        new[:] = values
        return new
    for step, value in zip(children.steps, values, strict=True):
        if children.are_fields:
            object.__setattr__(new, step, value)  # also works if frozen
        else:
            new[step] = value
    return new


def _quoted(key: object) -> str:
    if not isinstance(key, str):
        return reprlib.repr(key)
    escaped = repr(f'"{key}')[2:-1]  # with a double quote in the text, repr always uses single quotes around it
    return '"' + escaped.replace('"', r"\"").replace(r"\'", "'") + '"'
