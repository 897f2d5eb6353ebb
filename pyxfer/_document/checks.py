"""Checks of limits, from which each kind of document has its own function `KIND_problems`.

What follows from other figures is computed again (`derivations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Annotated, TypeVar

import msgspec

from pyxfer.errors import DocumentError

T = TypeVar("T")
Amount = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Part = Annotated[float, msgspec.Meta(ge=0, le=1)]
Chance = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Problems = Iterator[tuple[str, str]]
"""The path of a field, such as `measurements[3].trials[0]`, and what is wrong with it."""
TOLERANCE = 1e-6
"""Relative. The figures are sums and quotients of doubles, which another machine may round differently."""


def refuse(source: str, problems: Problems) -> None:
    for field, problem in problems:
        raise DocumentError(f"{source}: {field} {problem}, so it was changed after pyxfer wrote it: measure again.")


def within(place: str, found: Problems) -> Problems:
    """The problems with the place of what has them before each field."""
    for field, problem in found:
        yield f"{place}.{field}" if field else place, problem


def of_each(place: str, items: Iterable[T], check: Callable[[T], Problems]) -> Problems:
    for i, item in enumerate(items):
        yield from within(f"{place}[{i}]", check(item))


def repeated(name: str, keys: Collection[Hashable]) -> Problems:
    if len(set(keys)) != len(keys):
        yield name, "has something twice"


def not_positive(*fields: tuple[str, float | None]) -> Problems:
    """The fields that are not above zero, or not finite."""
    for name, value in fields:
        if value is not None and not 0 < value < math.inf:
            yield name, f"is {value:g}"
