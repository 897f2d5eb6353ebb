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
    container: Any = None
    """The container in which `step` is a key, an index or a field."""
    is_field: bool = False

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
        found = [(_Place(key, place, tree), value) for key, value in tree.items()]
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        found = [(_Place(name, place, tree, True), item) for name, item in zip(tree._fields, tree, strict=True)]
    elif isinstance(tree, (list, tuple)):
        found = [(_Place(index, place, tree), item) for index, item in enumerate(tree)]
    elif is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree) if hasattr(tree, field.name)]  # one with init=False may be unset
        found = [(_Place(name, place, tree, True), getattr(tree, name)) for name in names]
    else:
        if isinstance(tree, Iterable) and not isinstance(tree, (str, type, Enum)):  # its arrays would stay on the host
            raise UsageError(
                f"{place}: pyxfer does not look for arrays in this {type_name(type(tree))}: make it a list, tuple, "
                f"dict or dataclass"
            )
        return None
    place.check_depth(tree)
    return found


def _rebuilt(tree: Any, children: _Children, values: list[Any]) -> Any:
    if isinstance(tree, tuple):
        if all(value is child for value, (_, child) in zip(values, children, strict=True)):
            return tree  # such as time.struct_time, which cannot be made from its items
        # without the type's constructor, whose arguments may differ from the items
        made = tuple.__new__(type(tree), values)
        if hasattr(tree, "__dict__"):
            vars(made).update(vars(tree))
        return made
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


def _quoted(key: object) -> str:
    if not isinstance(key, str):
        return reprlib.repr(key)
    escaped = repr(f'"{key}')[2:-1]  # with a double quote in the text, repr always uses single quotes around it
    return '"' + escaped.replace('"', r"\"").replace(r"\'", "'") + '"'
