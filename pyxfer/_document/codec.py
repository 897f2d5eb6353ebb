"""Encode, decode, save and load documents as JSON, and make their schemas.

The contents of a document are data: none of them is executed, opened or used as a format string.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Generic, TypeVar

import msgspec

from pyxfer._document.baselines import BASELINE_SCHEMA_VERSION, COMPARISON_SCHEMA_VERSION, Baseline, Comparison
from pyxfer._document.checks import (
    check_comparison,
    check_run,
    check_watch,
    machine_problems,
    refuse,
    row_problems,
    within,
)
from pyxfer._document.derivations import check_derived
from pyxfer._document.examinations import EXAMINATION_SCHEMA_VERSION, REFERENCE_SCHEMA_VERSION, Examination, Reference
from pyxfer._document.files import Path, read_whole, write_whole
from pyxfer._document.fleet_checks import check_fleet, check_host
from pyxfer._document.fleets import FLEET_SCHEMA_VERSION, HOST_SCHEMA_VERSION, Fleet, HostReport
from pyxfer._document.link_checks import check_links
from pyxfer._document.links import LINKS_SCHEMA_VERSION, Links
from pyxfer._document.runs import SCHEMA_VERSION, Run
from pyxfer._document.sessions import XFER_SCHEMA_VERSION, XferSession
from pyxfer._document.watches import WATCH_SCHEMA_VERSION, Watched
from pyxfer.errors import DocumentError, UsageError

T = TypeVar("T")
Json = dict[str, Any]

# --- the kinds -------------------------------------------------------------------------------------------------------


def _unchanged(document: Json, source: str) -> Json:
    return document


def _accept(document: object, source: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class Kind(Generic[T]):
    """One kind of document.

    Attributes:
        name: Value of its `kind` field; "run" for runs, whose field has one of `also`.
        struct: Type that it is decoded into.
        version: Newest `schema_version`.
        title: Its name in the schema and in errors, after "pyxfer".
        phrase: The title with an article, for errors about a file of another kind.
        writer: What writes such a file.
        prepare: Called with the parsed JSON before its conversion: replaces the runs inside a document, which have
            separate versions, by structs. It is also the place of a later version's upgrade of earlier documents.
        check: Raises `DocumentError` for contents that the struct's types allow and pyxfer never writes.
        one_line: Matches the objects that the file has on one line each, because it has thousands of them.

    """

    name: str
    struct: type[T]
    version: int
    title: str
    phrase: str
    writer: str
    prepare: Callable[[Json, str], Json] = _unchanged
    check: Callable[[T, str], None] = _accept
    one_line: re.Pattern[bytes] | None = None
    also: tuple[str, ...] = ()


MOST_RUNS = 1000
"""The most runs in one baseline."""


def _check_run(run: Run, source: str) -> None:
    check_run(run, source)
    name = run.parameters.explained
    ended_early = run.ended != "complete" and not run.measurements
    if run.kind == "explain" and not ended_early and all(row.route != name for row in run.measurements):
        raise DocumentError(f"{source} explains {name!r} and holds no measurement of it; explain it again")


def _check_baseline(baseline: Baseline, source: str) -> None:
    for number, each in enumerate(baseline.processes, start=1):
        _BY_STRUCT[type(each)].check(each, f"run {number} of {source}")


def _check_examination(examination: Examination, source: str) -> None:
    _check_run(examination.run, f"the run of {source}")
    if examination.links is not None:
        check_links(examination.links, f"the links of {source}")


def _decode_runs_of_baseline(document: Json, source: str) -> Json:
    runs, links = document.get("runs"), document.get("links", [])
    if not isinstance(runs, list) or not isinstance(links, list):
        return document
    if not 1 <= len(runs) + len(links) <= MOST_RUNS:
        count = len(runs) + len(links)
        raise DocumentError(f"{source} has {count} runs, and a baseline has 1 to {MOST_RUNS}; export it again")
    if runs and links:
        raise DocumentError(f"{source} has runs of one link beside runs of links, and a baseline has one kind of them")
    return {**document, "runs": _decode_each(RUN, runs, source), "links": _decode_each(LINKS, links, source)}


def _decode_each(kind: Kind[T], documents: list[Any], source: str) -> list[T]:
    return [_decode_json(kind, each, f"run {number} of {source}") for number, each in enumerate(documents, start=1)]


def _decode_runs_of_examination(document: Json, source: str) -> Json:
    kinds: dict[str, Kind[Any]] = {"run": RUN, "links": LINKS}
    held = {name: kind for name, kind in kinds.items() if isinstance(document.get(name), dict)}
    found = {name: _decode_json(kind, document[name], f"the {name} of {source}") for name, kind in held.items()}
    return {**document, **found}


def _check_places(session: XferSession, source: str) -> None:
    if any(not 0 <= result.place < len(session.places) for result in session.tests):
        raise DocumentError(f"{source} has a test whose place it does not have, so it was not written by pyxfer")
    for number, place in enumerate(session.places):
        refuse(source, machine_problems(place.device, place.link, f"places[{number}]."))
    for number, result in enumerate(session.tests):
        link = session.places[result.place].link
        rows = {"measurement": result.measurement, "ceiling.value": result.ceiling.value}
        for name, row in rows.items():
            if row is not None:
                refuse(source, within(f"tests[{number}].{name}", row_problems(row, link)))


_TRIAL = re.compile(rb'\{\s*"round":[^{}]*\}')
_TRIAL_OR_PART = re.compile(rb'\{\s*("round":|"name": "[a-z ]*",\s*"seconds":)[^{}]*\}')
_STEP_OR_SPANS = re.compile(
    rb'\{\s*"number":[^{}]*\{[^{}]*\}[^{}]*\}|"(spans|over_time|h2d|d2h|kernels_s|copies_s)": \[[^{}"]*\]'
)
_NUMBERS_OR_CELL = re.compile(rb'"(values|samples|slower|faster|hosts)": \[[-+0-9.eE,\sunl]*\]|"cell": \{[^{}]*\}')

RUN = Kind(
    name="run",
    struct=Run,
    version=SCHEMA_VERSION,
    title="run",
    phrase="a run",
    writer="--export-json",
    check=_check_run,
    one_line=_TRIAL_OR_PART,
    also=("ceiling", "measure", "frameworks", "explain"),
)
WATCH = Kind(
    name="watch",
    struct=Watched,
    version=WATCH_SCHEMA_VERSION,
    title="watch",
    phrase="a watch",
    writer="pyxfer watch --export-json",
    check=check_watch,
    one_line=_STEP_OR_SPANS,
)
BASELINE = Kind(
    name="baseline",
    struct=Baseline,
    version=BASELINE_SCHEMA_VERSION,
    title="baseline",
    phrase="a baseline",
    writer="pyxfer baseline export",
    prepare=_decode_runs_of_baseline,
    check=_check_baseline,
    one_line=_TRIAL_OR_PART,
)
COMPARISON = Kind(
    name="comparison",
    struct=Comparison,
    version=COMPARISON_SCHEMA_VERSION,
    title="comparison",
    phrase="a comparison",
    writer="pyxfer compare --export-json",
    check=check_comparison,
)
EXAMINATION = Kind(
    name="examination",
    struct=Examination,
    version=EXAMINATION_SCHEMA_VERSION,
    title="examination",
    phrase="an examination",
    writer="pyxfer doctor --export-json",
    one_line=_TRIAL,
    prepare=_decode_runs_of_examination,
    check=_check_examination,
)
SESSION = Kind(
    name="pytest",
    struct=XferSession,
    version=XFER_SCHEMA_VERSION,
    title="pytest session",
    phrase="a session of pytest",
    writer="pytest --xfer-save or --xfer-json",
    check=_check_places,
    one_line=_TRIAL,
)
LINKS = Kind(
    name="links",
    struct=Links,
    version=LINKS_SCHEMA_VERSION,
    title="links",
    phrase="a run of links",
    writer="pyxfer links --export-json",
    check=check_links,
    one_line=_TRIAL,
)
HOST = Kind(
    name="host",
    struct=HostReport,
    version=HOST_SCHEMA_VERSION,
    title="host",
    phrase="the document of a host",
    writer="pyxfer fleet host --export-json",
    check=check_host,
    one_line=_NUMBERS_OR_CELL,
)
FLEET = Kind(
    name="fleet",
    struct=Fleet,
    version=FLEET_SCHEMA_VERSION,
    title="fleet",
    phrase="a fleet",
    writer="pyxfer fleet judge --export-json",
    check=check_fleet,
    one_line=_NUMBERS_OR_CELL,
)
KINDS: tuple[Kind[Any], ...] = (RUN, WATCH, BASELINE, COMPARISON, EXAMINATION, SESSION, LINKS, HOST, FLEET)
_BY_STRUCT = {kind.struct: kind for kind in KINDS}


# --- encode and decode -----------------------------------------------------------------------------------------------


def encode(document: object) -> bytes:
    """The bytes of a document's file: indented JSON with its seal, which ends in a newline."""
    kind = _BY_STRUCT[type(document)]
    data = msgspec.json.format(to_sealed_json(document), indent=1)
    return (on_one_line(data, kind.one_line) if kind.one_line else data) + b"\n"


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
    """Decode a document.

    `recomputed`: also compare its figures with those that follow from its others, which takes most of the time.
    """
    kind: Kind[T] = _BY_STRUCT[struct]
    document = _parse(data, source, kind.title)
    decoded = _decode_json(kind, document, source)
    _check_seal(document, decoded, source)
    kind.check(decoded, source)
    if recomputed:
        check_derived(kind.name, decoded, source)
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
        raise DocumentError(f"{source} has no digest, so it was changed after pyxfer wrote it; fetch it again")
    if found != digest_of(document) and found != digest_of(msgspec.json.decode(to_bare_json(decoded))):
        raise DocumentError(
            f"{source} was changed after pyxfer wrote it: its digest is of other contents; fetch it again"
        )


def decode_reference(data: bytes, source: str) -> Reference:
    """Decode a known host's figures, which come with the package and have no `kind` field."""
    document = _parse(data, source, "reference")
    _check_version(document, source, "reference", REFERENCE_SCHEMA_VERSION)
    decoded = convert(document, Reference, source, "reference")
    _check_seal(document, decoded, source)
    return decoded


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
    refusal = f"{kind.phrase}; name a file that {kind.writer} wrote"
    if named is not None and named is not kind:  # before the version, because each kind has versions of its own
        raise DocumentError(f"{source} is {named.phrase}, and not {refusal}")
    _check_version(document, source, kind.title, kind.version)
    if named is None and kind is not RUN:  # the types of a run refuse any other value of its `kind` field
        raise DocumentError(f"{source} is not {refusal}")
    return convert(kind.prepare(document, source), kind.struct, source, kind.title)


def convert(document: Any, struct: type[T], source: str, title: str) -> T:
    """Convert parsed JSON to a struct."""
    try:
        return msgspec.convert(document, struct, str_keys=True)  # some keys are integers, which JSON has as strings
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(f"{source} is not a pyxfer {title}: {error}") from error


def _check_version(document: Any, source: str, title: str, newest: int) -> None:
    if not isinstance(document, dict):
        raise DocumentError(f"{source} is JSON, but not a pyxfer {title}; name a file that pyxfer saved")
    version = document.get("schema_version")
    if version is None:
        raise DocumentError(
            f"{source} has no schema_version, so it is not a pyxfer {title}; name a file that pyxfer saved"
        )
    if type(version) is not int or version < 1:
        raise DocumentError(f"{source} has a schema_version that no pyxfer writes; name a file that pyxfer saved")
    if version > newest:
        raise DocumentError(
            f"{source} has schema_version {version}, and this pyxfer reads up to {newest}; "
            "upgrade pyxfer (pip install --upgrade pyxfer)"
        )


_TOO_LARGE = "a number beyond all that pyxfer writes"
_LARGEST_INTEGER = 2**63 - 1
# pyxfer writes no integer with 19 digits, so hardly any document is searched for one that is too large.
_ANY_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19


def _parse(data: bytes, source: str, title: str) -> Any:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not data.strip():
            raise DocumentError(f"{source} is empty; the {title} was never written to it") from error
        if "truncated" in str(error) and data.lstrip()[:1] == b"{":
            raise DocumentError(
                f"{source} is cut short; fetch it again from where it came, or measure again"
            ) from error
        raise DocumentError(f"{source} {_parse_failure(error)}; name a file that pyxfer saved") from error
    if _LONG_NUMBER in data.translate(_ANY_DIGIT) and _has_huge_integer(document):
        raise DocumentError(f"{source} has {_TOO_LARGE}; name a file that pyxfer saved")
    return document


def _parse_failure(error: Exception) -> str:
    """Why the parser failed: three cases are valid JSON that msgspec or Python cannot represent."""
    if isinstance(error, RecursionError):
        return "is nested deeper than anything that pyxfer writes"
    if "surrogate" in str(error):
        return "has half of a surrogate pair, which is not valid text"
    return f"has {_TOO_LARGE}" if "out of range" in str(error) else "is not JSON"


def _has_huge_integer(document: Any) -> bool:
    """Whether any integer exceeds 64 bits: converting it to a float may fail."""
    rest = [document]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, int) and not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
            return True
    return False


# --- JSON text -------------------------------------------------------------------------------------------------------


_LINE_END = re.compile(rb"\n\s*")


def to_json(value: object) -> bytes:
    """Indented JSON without a newline at its end."""
    return msgspec.json.format(to_bare_json(value), indent=1)


def to_bare_json(value: object) -> bytes:
    """JSON without spaces and line ends."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a host or file name that is not UTF-8
        return msgspec.json.encode(_escape_surrogates(msgspec.to_builtins(value)))


def on_one_line(data: bytes, pattern: re.Pattern[bytes]) -> bytes:
    """Indented JSON with each match of the pattern on one line."""
    return pattern.sub(lambda found: _LINE_END.sub(b" ", found.group()), data)


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
    return [_escape_surrogates(item) for item in value] if isinstance(value, (list, tuple)) else value


# --- files -----------------------------------------------------------------------------------------------------------


def save(document: object, path: Path) -> None:
    """Write a document's file completely or not at all: if it fails, an existing file stays as it was."""
    if not os.fspath(path):
        raise UsageError(_empty_path(_BY_STRUCT[type(document)]))
    write_whole(path, encode(document))


def load(struct: type[T], path: Path) -> T:
    """Load a document of a known kind."""
    return decode(struct, _read(path, _BY_STRUCT[struct]), repr(os.fspath(path)))


def load_any(path: Path, structs: Sequence[type[Any]]) -> Any:
    """Load a document as the one of these structs that its `kind` field names."""
    data = _read(path, _BY_STRUCT[structs[0]])
    struct = kind_of(data).struct
    _refuse_unknown_kind(data, [_BY_STRUCT[each] for each in structs], repr(os.fspath(path)))
    return decode(struct if struct in structs else structs[0], data, repr(os.fspath(path)))


def _refuse_unknown_kind(data: bytes, kinds: Sequence[Kind[Any]], source: str) -> None:
    """Refuse what pyxfer has written that is no document, such as a history, and an edited `kind` field."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if head.kind in RUN.also or _kind_named(head.kind) or not 0 < head.schema_version <= max(k.version for k in kinds):
        return
    what = f"has the kind {head.kind[:40]!r}, which no document has" if head.kind else "has no kind"
    known = " or ".join([", ".join(kind.phrase for kind in kinds[:-1]), kinds[-1].phrase])
    raise DocumentError(f"{source} {what}; name a file with {known}")


def _read(path: Path, kind: Kind[Any]) -> bytes:
    if not os.fspath(path):
        raise DocumentError(_empty_path(kind))
    return read_whole(path)


def _empty_path(kind: Kind[Any]) -> str:
    return f"the path is empty; name a file, such as {kind.name}.json"


# --- schemas ---------------------------------------------------------------------------------------------------------


SCHEMA_PYTHON = (3, 11)
"""Before 3.11 `tuple[str, ...]` and `tuple[int, ...]` have the same name, so msgspec confuses their facts."""


def schema(struct: type[Any]) -> Json:
    """The JSON Schema (2020-12) of a kind of document."""
    kind = _BY_STRUCT[struct]
    if sys.version_info < SCHEMA_PYTHON:
        raise UsageError("This Python is too old for JSON Schemas: run pyxfer schema with Python 3.11 or later.")
    made: Json = _dedented(msgspec.json.schema(kind.struct))
    fields = made["$defs"][kind.struct.__name__]
    fields["properties"][DIGEST] = {"description": "SHA-256 of all other fields.", "type": "string"}
    fields["required"].append(DIGEST)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"pyxfer {kind.title}", **made}


def _dedented(value: Any) -> Any:
    """Remove the indentation of the source from descriptions; Python itself does so from 3.13 on."""
    if isinstance(value, dict):
        return {key: cleandoc(item) if key == "description" else _dedented(item) for key, item in value.items()}
    return [_dedented(item) for item in value] if isinstance(value, list) else value
