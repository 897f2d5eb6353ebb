"""Encode, decode, save and load documents as JSON, and make their schemas.

The contents of a document are data: none of them is executed, opened or used as a format string.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Generic, TypeVar

import msgspec

from pyxfer._document import checks
from pyxfer._document.baselines import Baseline, Comparison, baseline_problems, comparison_problems
from pyxfer._document.blocks import Thresholds
from pyxfer._document.derivations import check_derived
from pyxfer._document.examinations import Examination, examination_problems
from pyxfer._document.files import Path, read_whole, write_whole
from pyxfer._document.fleets import Fleet, HostReport, fleet_problems, host_problems
from pyxfer._document.links import Links, links_problems
from pyxfer._document.offloads import OffloadPlan, plan_problems
from pyxfer._document.runs import Run, run_problems
from pyxfer._document.sessions import XferSession, session_problems
from pyxfer._document.watches import Watched, watch_problems
from pyxfer.errors import DocumentError, UsageError

T = TypeVar("T")
Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Kind(Generic[T]):
    """One kind of document. Its `kind` field has `name`, or of a run one of `also`.

    `problems` finds contents that the struct's types allow and pyxfer never writes.
    """

    name: str
    struct: type[T]
    phrase: str
    writer: str
    problems: Callable[[T], checks.Problems]
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in the schema and in errors, after "pyxfer"."""
        return "pytest session" if self.name == "pytest" else self.name

    @functools.cached_property  # to list the fields takes a third of the time to decode a small document
    def version(self) -> int:
        fields: Any = msgspec.structs.fields
        return next(int(each.default) for each in fields(self.struct) if each.name == "schema_version")


_RUNS = ("ceiling", "measure", "frameworks", "explain", "files", "blocks")
RUN = Kind("run", Run, "a run", "--export-json", run_problems, also=_RUNS)
WATCH = Kind("watch", Watched, "a watch", "pyxfer watch --export-json", watch_problems)
BASELINE = Kind("baseline", Baseline, "a baseline", "pyxfer baseline export", baseline_problems)
COMPARISON = Kind("comparison", Comparison, "a comparison", "pyxfer compare --export-json", comparison_problems)
EXAMINATION = Kind("examination", Examination, "an examination", "pyxfer doctor --export-json", examination_problems)
SESSION = Kind("pytest", XferSession, "a session of pytest", "pytest --xfer-json", session_problems)
LINKS = Kind("links", Links, "a run of links", "pyxfer links --export-json", links_problems)
HOST = Kind("host", HostReport, "the document of a host", "pyxfer fleet host --export-json", host_problems)
FLEET = Kind("fleet", Fleet, "a fleet", "pyxfer fleet judge --export-json", fleet_problems)
PLAN = Kind("plan", OffloadPlan, "a plan", "pyxfer plan --export-json", plan_problems)
KINDS: tuple[Kind[Any], ...] = (RUN, WATCH, BASELINE, COMPARISON, EXAMINATION, SESSION, LINKS, HOST, FLEET, PLAN)
_BY_STRUCT = {kind.struct: kind for kind in KINDS}


def encode(document: object) -> bytes:
    data = msgspec.json.format(to_sealed_json(document), indent=1)
    return _ONE_LINE.sub(lambda found: _LINE_END.sub(b" ", found.group()), data) + b"\n"


def to_sealed_json(document: object) -> bytes:
    """A document with its seal, without spaces and line ends."""
    return seal(to_bare_json(document))


def seal(data: bytes) -> bytes:
    """A JSON object whose last field is the digest of the others. It replaces a digest that is there."""
    document = msgspec.json.decode(data)
    document.pop(DIGEST, None)
    return msgspec.json.encode({**document, DIGEST: digest_of(document)})


DIGEST = "digest"
"""The field with the digest of all others."""


def digest_of(document: Json) -> str:
    """The digest of parsed JSON. The order of its fields does not matter."""
    return hashlib.sha256(msgspec.json.encode(document, order="deterministic")).hexdigest()


def decode(struct: type[T], data: bytes, source: str = "this document", *, recomputed: bool = True) -> T:
    """Decode a document, and refuse what pyxfer has not written. Errors begin with `source`.

    `recomputed`: also compare its figures with those that follow from its others, which takes most of the time.
    """
    kind: Kind[T] = _BY_STRUCT[struct]
    document = _parse(data, source, kind.title)
    decoded = _decode_json(kind, document, source)
    _check_seal(document, decoded, source)
    checks.refuse(source, kind.problems(decoded))
    if recomputed:
        check_derived(decoded, source)
    return decoded


def decode_unchecked(struct: type[T], data: bytes, source: str) -> T:
    """Decode without a look at the seal and at what follows from what. Only for documents that are saved anew."""
    kind: Kind[T] = _BY_STRUCT[struct]
    return _decode_json(kind, _parse(data, source, kind.title), source)


def _check_seal(document: Json, decoded: object, source: str) -> None:
    """Refuse a document that is not as pyxfer wrote it.

    Some tools write 1.0 as 1. The struct knows which of the two it is.
    """
    found = document.pop(DIGEST, None)
    if found is None:
        raise DocumentError(f"{source} has no digest, so it was changed after pyxfer wrote it: fetch it again.")
    try:
        is_own = found == digest_of(document) or found == digest_of(msgspec.json.decode(to_bare_json(decoded)))
    except OverflowError:  # an integer of more than 64 bits
        is_own = False
    if not is_own:
        raise DocumentError(
            f"{source} was changed after pyxfer wrote it (the digest is of other contents): fetch it again."
        )


def kind_of(data: bytes) -> Kind[Any]:
    """The kind that the `kind` field names. `RUN` for any other value, and for data that is not a document."""
    try:
        return _kind_named(msgspec.json.decode(data, type=_Head).kind) or RUN
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return RUN


class _Head(msgspec.Struct):
    kind: str = ""
    schema_version: int = 0


def _kind_named(name: object) -> Kind[Any] | None:
    return next((kind for kind in KINDS if kind.name == name), None)


def _decode_json(kind: Kind[T], document: Any, source: str) -> T:
    name = document.get("kind") if isinstance(document, dict) else None
    named = RUN if name in RUN.also else _kind_named(name)
    wanted = f"{kind.phrase}: name a file that {kind.writer} wrote."
    if named is not None and named is not kind:  # before the version, because each kind has versions of its own
        raise DocumentError(f"{source} is {named.phrase}, not {wanted}")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise DocumentError(
            f"{source} has no schema_version, so it is not a pyxfer {kind.title}: name a file that pyxfer saved."
        )
    if version > kind.version:
        raise DocumentError(
            f"{source} has schema_version {version}, and this pyxfer reads up to {kind.version}: upgrade pyxfer."
        )
    if named is None and kind is not RUN:  # the types of a run refuse any other value of its `kind` field
        raise DocumentError(f"{source} is not {wanted}")
    try:
        # Some keys are integers, which JSON has as strings.
        return msgspec.convert(_with_inner(document, source), kind.struct, str_keys=True)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise DocumentError(f"{source} is not a pyxfer {kind.title}: {error}.") from error


def _with_inner(document: Json, source: str) -> Json:
    """The document with its runs and links decoded, because they have versions of their own."""
    found: Json = {}
    kinds: dict[str, Kind[Any]] = {"run": RUN, "runs": RUN, "links": LINKS}
    for field, kind in kinds.items():
        value = document.get(field)
        if isinstance(value, dict):
            found[field] = _decode_json(kind, value, f"the {field} of {source}")
        elif isinstance(value, list):
            found[field] = [_decode_json(kind, each, f"{field}[{i}] of {source}") for i, each in enumerate(value)]
    return {**document, **found}


def _parse(data: bytes, source: str, title: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not data.strip():
            raise DocumentError(f"{source} is empty: the {title} was never written to it.") from error
        is_open = "truncated" in str(error) or data.rstrip()[-1:] != b"}"  # within a number it is malformed
        if is_open and data.lstrip()[:1] == b"{":
            raise DocumentError(
                f"{source} is cut short: fetch it again from where it came, or measure again."
            ) from error
        raise DocumentError(
            f"{source} is not JSON that pyxfer writes ({error}): name a file that pyxfer saved."
        ) from error


_LINE_END = re.compile(rb"\n\s*")


def to_json(value: object) -> bytes:
    return msgspec.json.format(to_bare_json(value), indent=1)


def to_bare_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a host or file name that is not UTF-8
        return msgspec.json.encode(_escape_surrogates(msgspec.to_builtins(value)))


# Innermost objects and arrays, of which a document has thousands, and steps.
_ONE_LINE = re.compile(rb'\{\s*"number":[^{}]*\{[^{}]*\}[^{}]*\}|[\[{]\n[^\[\]{}]*[\]}]')


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
    return [_escape_surrogates(item) for item in value] if isinstance(value, (list, tuple)) else value


def save(document: object, path: Path) -> None:
    write_whole(path, encode(document))


def load(path: Path) -> Any:
    """Read a document of any kind that pyxfer saved, also as .gz; its type is that of its kind, such as `Run`.

    Raises:
        DocumentError: it is not such a document, was made by a later pyxfer, or was changed since.
        UsageError: the file cannot be read.
    """
    return load_any(path, [kind.struct for kind in KINDS])


def load_any(path: Path, structs: Sequence[type[Any]]) -> Any:
    """Load a document as the one of these structs that its `kind` field names, or else as the first."""
    data = read_whole(path)
    struct = kind_of(data).struct
    return decode(struct if struct in structs else structs[0], data, repr(os.fspath(path)))


SCHEMA_PYTHON = (3, 11)
"""Before 3.11 `tuple[str, ...]` and `tuple[int, ...]` have the same name, so msgspec confuses their facts."""


UNSEALED: dict[str, type[Any]] = {"thresholds": Thresholds}
"""What other programs read and pyxfer does not: it has a schema and no digest."""


def schema(struct: type[Any]) -> Json:
    if sys.version_info < SCHEMA_PYTHON:
        raise UsageError("This Python is too old for JSON Schemas: run pyxfer schema with Python 3.11 or later.")
    made: Json = _dedented(msgspec.json.schema(struct))
    titles = {each: name for name, each in UNSEALED.items()}
    if struct not in titles:
        titles[struct] = _BY_STRUCT[struct].title
        fields = made["$defs"][struct.__name__]
        fields["properties"][DIGEST] = {"description": "SHA-256 of all other fields.", "type": "string"}
        fields["required"].append(DIGEST)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"pyxfer {titles[struct]}", **made}


def _dedented(value: Any) -> Any:
    """Remove the indentation of the source from descriptions; Python itself does so from 3.13 on."""
    if isinstance(value, dict):
        return {key: cleandoc(item) if key == "description" else _dedented(item) for key, item in value.items()}
    return [_dedented(item) for item in value] if isinstance(value, list) else value
