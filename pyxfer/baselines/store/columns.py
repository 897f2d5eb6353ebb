"""Columns that keep any text: PostgreSQL has no null character, and no database takes half of a surrogate pair."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator

from pyxfer.errors import StoreError

# Twelve of these may stand for one character, and an index of PostgreSQL takes 2,704 bytes.
_TO_ESCAPE = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|[0-9a-f]{4})")

FROM_A_BACKUP = "check the disk, and take the store from a backup"

Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only by its own INTEGER


def escape(text: str) -> str:
    """Reversible, and equal for equal texts: a backslash doubled, what no database keeps as its code."""
    return _TO_ESCAPE.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPED.sub(lambda found: "\\" if found[1] == "\\" else chr(int(found[1], 16)), text)


class AnyText(TypeDecorator[str]):
    """Text that comes back exactly as it was given."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """As it is stored."""
        return None if value is None else escape(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """As it was given."""
        if value is not None and not isinstance(value, str):
            raise StoreError(f"the store is damaged: it has {type(value).__name__} where text is; {FROM_A_BACKUP}")
        return None if value is None else unescape(value)


class NoText(str):
    """What stands where text was stored and is none: it can be shown, and told from text."""


class TextOrNot(AnyText):
    """The same text, for a reader who has to name the row that has none."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """As it was given, or that it is no text."""
        if isinstance(value, bytes):
            return NoText(value.decode(errors="backslashreplace"))
        return super().process_result_value(value, dialect)
