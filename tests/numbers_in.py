"""Saved documents with one number changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

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
    """The document with another number at a path."""
    changed = copy.deepcopy(document)
    *above, last = json.loads(place)
    inside = changed
    for key in above:
        inside = inside[key]
    inside[last] = number
    return json.dumps(changed).encode()
