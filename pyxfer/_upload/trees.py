"""Arrays in nested tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from pyxfer._upload.arrays import is_array, type_name
from pyxfer.errors import UsageError

MAX_DEPTH = 100


def map_arrays(tree: Any, send: Callable[[Any], Any], name: str = "batch") -> Any:
    """Copy a structure, with each array replaced by the result of `send`. Types and order stay the same.

    None, text, numbers and other single objects are not changed.
    """
    return _mapped(tree, send, _Place(name))


def send_arrays(tree: Any, send: Callable[[Any], Any], name: str) -> Any:
    """`map_arrays` of a structure that must have an array, so that nothing that the user took for one is returned."""
    sent = 0

    def send_and_count(array: Any) -> Any:
        nonlocal sent
        sent += 1
        return send(array)

    mapped = map_arrays(tree, send_and_count, name)
    if not sent:
        raise UsageError(
            f"{name}: this {type_name(type(tree))} contains no array: np.asarray() makes one of numbers, "
            "np.load() one of a file"
        )
    return mapped


@dataclass(eq=False, slots=True)
class _Place:
    """A place in a structure. Its text is made only for errors."""

    step: Any
    above: _Place | None = None
    is_field: bool = False
    container: Any = None
    """The container in which `step` is a key, an index or a field."""

    def __str__(self) -> str:
        if self.above is None:
            return str(self.step)
        return f"{self.above}.{self.step}" if self.is_field else f"{self.above}[{_quoted(self.step)}]"

    def into(self, container: Any, step: Any, *, is_field: bool = False) -> _Place:
        return _Place(step, self, is_field, container)

    def check_depth(self, container: Any) -> None:
        """Refuse a container that contains itself, or that is nested too deep for recursion."""
        depth, place = 1, self
        while place.above is not None:
            if place.container is container:
                raise UsageError(f"{self} is {place.above} again: a structure must not contain itself")
            depth, place = depth + 1, place.above
        if depth > MAX_DEPTH:
            raise UsageError(f"{place} is nested more than {MAX_DEPTH} deep: flatten it")


_Children = Sequence[tuple[_Place, Any]]


def _mapped(tree: Any, send: Callable[[Any], Any], place: _Place) -> Any:
    if is_array(tree):
        try:
            return send(tree)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
    children = _children(tree, place)
    if children is None:
        return tree
    values = [_mapped(child, send, below) for below, child in children]
    return _rebuilt(tree, children, values)


def _children(tree: Any, place: _Place) -> _Children | None:
    """The children of a container with their places; None if `tree` is not a container."""
    if isinstance(tree, dict):
        found = [(place.into(tree, key), value) for key, value in tree.items()]
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        found = [(place.into(tree, name, is_field=True), item) for name, item in zip(tree._fields, tree, strict=True)]
    elif isinstance(tree, (list, tuple)):
        found = [(place.into(tree, index), item) for index, item in enumerate(tree)]
    elif is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree) if hasattr(tree, field.name)]  # one with init=False may be unset
        found = [(place.into(tree, name, is_field=True), getattr(tree, name)) for name in names]
    else:
        _require_single(tree, place)
        return None
    place.check_depth(tree)
    return found


def _rebuilt(tree: Any, children: _Children, values: list[Any]) -> Any:
    if isinstance(tree, tuple):
        if all(value is child for value, (_, child) in zip(values, children, strict=True)):
            return tree  # such as time.struct_time, which cannot be made from its items
        return _tuple_like(tree, values)
    new: Any = copy.copy(tree)
    if isinstance(tree, list):
        new[:] = values
        return new
    for (place, _), value in zip(children, values, strict=True):
        if place.is_field:
            object.__setattr__(new, place.step, value)  # also works if frozen
        else:
            new[place.step] = value
    return new


def _tuple_like(tree: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same type, made without the type's constructor, whose arguments may differ from the items."""
    new = tuple.__new__(type(tree), values)
    if hasattr(tree, "__dict__"):
        vars(new).update(vars(tree))
    return new


def _require_single(leaf: Any, place: _Place) -> None:
    """Refuse an unknown container: its arrays would silently stay on the host."""
    if isinstance(leaf, Iterable) and not isinstance(leaf, (str, type, Enum)):
        raise UsageError(
            f"{place}: pyxfer does not look for arrays in this {type_name(type(leaf))}: make it a list, tuple, dict or "
            f"dataclass"
        )


def _quoted(key: object) -> str:
    if not isinstance(key, str):
        return reprlib.repr(key)
    escaped = repr(f'"{key}')[2:-1]  # with a double quote in the text, repr always uses single quotes around it
    return '"' + escaped.replace('"', r"\"").replace(r"\'", "'") + '"'
