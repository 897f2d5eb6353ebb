"""Structs as JSON that a person can read too, and read back with a sentence for whatever is wrong with it."""

from __future__ import annotations

import re
import sys
from inspect import cleandoc
from typing import Any, TypeVar

import msgspec

from pyxfer.errors import DocumentError, UsageError

T = TypeVar("T")

KINDS = {
    "watch": "a watch",
    "examination": "an examination",
    "pytest": "a session of pytest",
    "baseline": "a baseline",
    "comparison": "a comparison",
}
"""What documents other than runs are called, by the kind that they name."""
SCHEMA_PYTHON = (3, 11)
"""Before, `tuple[str, ...]` and `tuple[int, ...]` bear one name, and msgspec cannot tell the facts of them apart."""

_BEYOND = "a number beyond all that pyxfer writes"
_MOST_NUMBER = 2**63 - 1
# Floats are written with fewer digits, so hardly any document has to be looked through.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_LINE_END = re.compile(rb"\n\s*")


def to_json(document: object) -> bytes:
    """Indented, without a newline at its end."""
    return msgspec.json.format(to_bare_json(document), indent=1)


def to_bare_json(document: object) -> bytes:
    """As short as it can be."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:  # a host or file name in a foreign encoding; losing the document to it would be worse
        return msgspec.json.encode(_unicode(msgspec.to_builtins(document)))


def on_one_line(data: bytes, pattern: re.Pattern[bytes]) -> bytes:
    """Indented JSON with each thing that the pattern finds on a line of its own.

    It is for what there are thousands of, such as trials, which nobody reads one number a line.
    """
    return pattern.sub(lambda found: _LINE_END.sub(b" ", found.group()), data)


def from_json(data: bytes, source: str, what: str, newest: int) -> dict[str, Any]:
    """The document in these bytes, of a version up to `newest`; `what` it should be is said where it is not."""
    return checked(_parsed(data, source, what), source, what, newest)


def checked(document: Any, source: str, what: str, newest: int) -> dict[str, Any]:
    """What was read, if it is an object of a version up to `newest`."""
    if not isinstance(document, dict):
        raise DocumentError(f"{source} is JSON, but not a pyxfer {what}; name a file that pyxfer saved")
    version = document.get("schema_version")
    if version is None:
        raise DocumentError(
            f"{source} has no schema_version, so it is not a pyxfer {what}; name a file that pyxfer saved"
        )
    if type(version) is not int or version < 1:
        raise DocumentError(f"{source} has a schema_version that no pyxfer writes; name a file that pyxfer saved")
    if version > newest:
        raise DocumentError(
            f"{source} has schema_version {version}, and this pyxfer reads up to {newest}; "
            "upgrade pyxfer (pip install --upgrade pyxfer)"
        )
    return document


def converted(document: Any, kind: type[T], source: str, what: str) -> T:
    """Parsed JSON as a struct; `what` it should be is said where it does not fit."""
    try:
        return msgspec.convert(document, kind, str_keys=True)  # JSON has no other keys, and some of ours are integers
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(f"{source} is not a pyxfer {what}: {error}") from error


def kind_of(data: bytes) -> str:
    """The kind that the document in these bytes names; empty where it names none, or is none."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""


def described(document: type[msgspec.Struct], title: str, place: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document, which lies ready made in `place`."""
    if sys.version_info < SCHEMA_PYTHON:
        raise UsageError(f"the JSON Schema is made with Python 3.11 or later; {place} holds it ready made")
    schema: dict[str, Any] = _dedented(msgspec.json.schema(document))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def _parsed(data: bytes, source: str, what: str) -> Any:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not data.strip():
            raise DocumentError(f"{source} is empty; the {what} was never written to it") from error
        if "truncated" in str(error) and data.lstrip()[:1] == b"{":
            raise DocumentError(
                f"{source} is cut short; fetch it again from where it came, or measure again"
            ) from error
        raise DocumentError(f"{source} {_why_unreadable(error)}; name a file that pyxfer saved") from error
    if _LONG_NUMBER.search(data) and _has_huge_integer(document):
        raise DocumentError(f"{source} has {_BEYOND}; name a file that pyxfer saved")
    return document


def _why_unreadable(error: Exception) -> str:
    """What JSON allows and no document of pyxfer has, told apart from what is not JSON."""
    if isinstance(error, RecursionError):
        return "is nested deeper than anything that pyxfer writes"
    if "surrogate" in str(error):
        return "has half of a character, which is no text"
    return f"has {_BEYOND}" if "out of range" in str(error) else "is not JSON"


def _has_huge_integer(document: Any) -> bool:
    """Whether a whole number in it is more than 64 bits hold: no figure can be made of it."""
    rest = [document]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, int) and not -_MOST_NUMBER <= value <= _MOST_NUMBER:
            return True
    return False


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, (list, tuple)) else value


def _dedented(value: Any) -> Any:
    """Descriptions without the source's indentation, which Python keeps up to 3.12 and drops from 3.13 on."""
    if isinstance(value, dict):
        return {key: cleandoc(item) if key == "description" else _dedented(item) for key, item in value.items()}
    return [_dedented(item) for item in value] if isinstance(value, list) else value
