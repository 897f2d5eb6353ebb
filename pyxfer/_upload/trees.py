"""Arrays inside of tuples, lists, dicts and dataclasses, as batches have them."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from pyxfer._upload.arrays import called, is_array
from pyxfer.errors import UsageError

DEEPEST = 100


def map_arrays(tree: Any, send: Callable[[Any], Any], name: str = "batch") -> Any:
    """The same structure, of the same types and in the same order, with each array replaced by what `send` makes of it.

    None, text, numbers and other single objects stay what they are.

    Raises:
        UsageError: an array that `send` refuses, or a structure that cannot be walked; names the place in it.

    """
    return _mapped(tree, send, _Place(name))


def arrays_of(tree: Any, name: str = "batch") -> list[tuple[str, Any]]:
    """Every array in a structure, with its place there, such as `batch["images"][1]`."""
    return [(str(place), array) for place, array in _walk(tree, _Place(name))]


@dataclass(eq=False, slots=True)
class _Place:
    """A place in a structure; its text is needed in errors alone."""

    step: Any
    above: _Place | None = None
    is_field: bool = False
    container: Any = None
    """In which the step is taken."""

    def __str__(self) -> str:
        if self.above is None:
            return str(self.step)
        return f"{self.above}.{self.step}" if self.is_field else f"{self.above}[{_quoted(self.step)}]"

    def into(self, container: Any, step: Any, *, is_field: bool = False) -> _Place:
        return _Place(step, self, is_field, container)

    def check_way(self, container: Any) -> None:
        """Refuse to walk in circles, and deeper than recursion may go."""
        depth, place = 1, self
        while place.above is not None:
            if place.container is container:
                raise UsageError(f"{self} is {place.above} again: a structure that contains itself has no end")
            depth, place = depth + 1, place.above
        if depth > DEEPEST:
            raise UsageError(f"{place} is nested more than {DEEPEST} deep: flatten it")


_Children = Sequence[tuple[_Place, Any]]


def _mapped(tree: Any, send: Callable[[Any], Any], place: _Place) -> Any:
    if is_array(tree):
        return _sent(tree, send, place)
    children = _children(tree, place)
    if children is None:
        return tree
    values = [_mapped(child, send, below) for below, child in children]
    return _rebuilt(tree, children, values)


def _sent(array: Any, send: Callable[[Any], Any], place: _Place) -> Any:
    try:
        return send(array)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def _walk(tree: Any, place: _Place) -> Iterator[tuple[_Place, Any]]:
    if is_array(tree):
        yield place, tree
        return
    for below, child in _children(tree, place) or ():
        yield from _walk(child, below)


def _children(tree: Any, place: _Place) -> _Children | None:
    """What a container contains, with its places; None of what is no container."""
    if isinstance(tree, dict):
        found = [(place.into(tree, key), value) for key, value in tree.items()]
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        found = [(place.into(tree, name, is_field=True), each) for name, each in zip(tree._fields, tree, strict=True)]
    elif isinstance(tree, (list, tuple)):
        found = [(place.into(tree, index), each) for index, each in enumerate(tree)]
    elif is_dataclass(tree) and not isinstance(tree, type):
        names = [each.name for each in fields(tree) if hasattr(tree, each.name)]  # with init=False one may be missing
        found = [(place.into(tree, name, is_field=True), getattr(tree, name)) for name in names]
    else:
        _require_single(tree, place)
        return None
    place.check_way(tree)
    return found


def _rebuilt(tree: Any, children: _Children, values: list[Any]) -> Any:
    if isinstance(tree, tuple):
        if all(value is child for value, (_, child) in zip(values, children, strict=True)):
            return tree  # nothing can change it, and the system's own kinds of tuples cannot be made anew
        return _tuple_like(tree, values)
    made: Any = copy.copy(tree)
    if isinstance(tree, list):
        made[:] = values
        return made
    for (place, _), value in zip(children, values, strict=True):
        if place.is_field:
            object.__setattr__(made, place.step, value)  # a frozen one too
        else:
            made[place.step] = value
    return made


def _tuple_like(tree: tuple[Any, ...], values: list[Any]) -> tuple[Any, ...]:
    """Past the type's own constructor, which may want something else than its items."""
    made = tuple.__new__(type(tree), values)
    if hasattr(tree, "__dict__"):
        vars(made).update(vars(tree))
    return made


def _require_single(leaf: Any, place: _Place) -> None:
    """Arrays in a container that is not known would stay where they are, without a word."""
    if isinstance(leaf, Iterable) and not isinstance(leaf, (str, type, Enum)):
        raise UsageError(
            f"{place}: this {called(type(leaf))} may hold arrays and is not looked into: make it a list, a tuple, a "
            f"dict or a dataclass"
        )


def _quoted(key: object) -> str:
    if not isinstance(key, str):
        return reprlib.repr(key)
    inside = repr(f'"{key}')[2:-1]  # with a double quote in it, Python writes it in single ones
    return '"' + inside.replace('"', r"\"").replace(r"\'", "'") + '"'
