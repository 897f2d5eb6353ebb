"""What all documents share: how they are written, and what is said of those that cannot be read."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from pyxfer._document.json_text import converted, on_one_line
from pyxfer.errors import DocumentError

TRIAL = re.compile(rb'\{\s*"round":[^{}]*\}')


class Shelf(msgspec.Struct):
    books: dict[int, str]
    below: Shelf | None = None


def test_what_a_pattern_finds_stands_on_one_line_and_the_rest_as_it_was() -> None:
    document = {"trials": [{"round": 0, "seconds": 1.5}, {"round": 1, "seconds": 2.5}], "device": {"name": "a b"}}
    written = on_one_line(json.dumps(document, indent=1).encode(), TRIAL)
    assert written.decode().splitlines() == [
        "{",
        ' "trials": [',
        '  { "round": 0, "seconds": 1.5 },',
        '  { "round": 1, "seconds": 2.5 }',
        " ],",
        ' "device": {',
        '  "name": "a b"',
        " }",
        "}",
    ]
    assert json.loads(written) == document


def test_parsed_json_becomes_a_struct_whose_keys_may_be_numbers() -> None:
    assert converted({"books": {"3": "c"}}, Shelf, "'shelf.json'", "shelf") == Shelf({3: "c"})


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "Object missing required field `books`"),
        ({"books": {"c": "c"}}, "Expected `int`, got `str` - at `key` in `$.books`"),
        ([], "Expected `object`, got `array`"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_source_and_what_it_should_be(document: Any, why: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        converted(document, Shelf, "'shelf.json'", "shelf")
    assert str(refusal.value) == f"'shelf.json' is not a pyxfer shelf: {why}"


def test_what_is_nested_too_deep_to_be_converted_is_refused_too() -> None:
    document: dict[str, Any] = {"books": {}}
    for _ in range(100_000):
        document = {"books": {}, "below": document}
    with pytest.raises(DocumentError, match=r"^'shelf\.json' is not a pyxfer shelf: maximum recursion"):
        converted(document, Shelf, "'shelf.json'", "shelf")
