"""Documents changed on purpose: hostile text in every field, and every number in turn."""

from __future__ import annotations

import copy
import functools
import json
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

import msgspec

from pyxfer._document import codec

T = TypeVar("T")
_hints_of = functools.cache(typing.get_type_hints)


def with_text(document: T, text: str) -> T:
    """The document with `text` before every string that is not one of a fixed set of words."""
    return typing.cast(T, _changed(document, type(document), text))


def _changed(value: Any, hint: Any, text: str) -> Any:
    if _is_fixed(hint):
        return value
    if isinstance(value, str):
        return text + value
    if isinstance(value, tuple):
        own = typing.get_args(hint)
        return tuple(_changed(item, own[0] if own else Any, text) for item in value)
    if isinstance(value, dict):
        own = typing.get_args(hint)
        return {key: _changed(item, own[1] if own else Any, text) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        hints = _hints_of(type(value))
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        # A fact has the type of its value from where it stands.
        of = next((arg for part in (hint, *typing.get_args(hint)) for arg in typing.get_args(part)), Any)
        changed = {
            name: _changed(item, of if isinstance(hints.get(name), TypeVar) else hints.get(name, Any), text)
            for name, item in fields.items()
        }
        return msgspec.structs.replace(value, **changed)
    return value


def _is_fixed(hint: Any) -> bool:
    """Whether only certain words are allowed."""
    if typing.get_origin(hint) is Literal:
        return True
    return not isinstance(hint, type) and any(map(_is_fixed, typing.get_args(hint)))


# The items of a list are alike, so that few of them suffice.
_MAX_ITEMS = 2


def numbers(document: Any, place: tuple[str | int, ...] = ()) -> Iterator[str]:
    """The paths of all numbers in a document, as JSON."""
    inside = document if isinstance(document, dict) else {}
    if isinstance(document, list):
        inside = dict(enumerate(document[:_MAX_ITEMS]))
    for key, value in inside.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield json.dumps([*place, key])
        yield from numbers(value, (*place, key))


def with_number(document: Any, place: str, number: float) -> bytes:
    """The document with another number at a path, and its seal."""
    changed = copy.deepcopy(document)
    *above, last = json.loads(place)
    inside = changed
    for key in above:
        inside = inside[key]
    inside[last] = number
    return codec.seal(json.dumps(changed).encode())
