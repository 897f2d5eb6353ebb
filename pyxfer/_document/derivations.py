"""Refuses documents whose figures do not follow from each other.

For each kind one function of a higher package computes the figures that follow from the others. Whoever reads a
document compares these with what it says. The functions are those that made the figures, so no rule is written twice.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from pyxfer._document.checks import TOLERANCE
from pyxfer._document.machines import Fact
from pyxfer.errors import DocumentError, PyxferError

T = TypeVar("T")

MIN_DIFFERENCE = 1e-12
"""Differences of nearly equal numbers are rounded as these are."""

Difference = tuple[str, object, object]
"""The path of a field, what the document says, and what follows from its other fields."""


def derived(document: T) -> T:
    """The document with what follows, by the function that its class names. It is in a package above this one."""
    module, _, name = vars(type(document))["DERIVED_BY"].partition(":")
    found: T = getattr(importlib.import_module(module), name)(document)
    return found


def check_derived(document: object, source: str) -> None:
    try:
        follows = derived(document)
    except DocumentError as error:
        raise DocumentError(f"{source}: {error}") from error
    except (ArithmeticError, LookupError, PyxferError, ValueError) as error:
        raise DocumentError(
            f"{source} has fields that do not fit together, so it was changed after pyxfer wrote it: "
            f"measure again. {error}"
        ) from error
    for path, found, expected in differences(document, follows):
        raise DocumentError(
            f"{source}: {path} is {_shown(found)}, but its other fields give {_shown(expected)}, so it was changed "
            "after pyxfer wrote it: measure again."
        )


def differences(found: Any, expected: Any, path: str = "") -> Iterator[Difference]:
    """The fields in which two documents of one kind differ by more than rounding."""
    if found is expected:
        return
    if isinstance(expected, Fact) and isinstance(found, Fact):
        # A reason says why there is no value. The document has it from the measurement.
        yield from differences(found.value, expected.value, f"{path}.value")
    elif isinstance(expected, msgspec.Struct) and type(found) is type(expected):
        for name in expected.__struct_fields__:
            where = f"{path}.{name}" if path else name
            yield from differences(getattr(found, name), getattr(expected, name), where)
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)) and len(found) == len(expected):
        for place, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, f"{path}[{place}]")
    elif isinstance(expected, dict) and isinstance(found, dict) and found.keys() == expected.keys():
        for key in expected:
            yield from differences(found[key], expected[key], f"{path}[{key!r:.40}]")
    elif not _alike(found, expected):
        yield path, found, expected


def _alike(found: object, expected: object) -> bool:
    if isinstance(found, float) and isinstance(expected, (int, float)):
        return math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=MIN_DIFFERENCE)
    return found == expected


def _shown(value: object) -> str:
    if isinstance(value, (float, int, bool)) or value is None:
        return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{len(value)} long" if isinstance(value, (list, tuple, dict)) else f"{value!r:.60}"
