"""All kinds of documents: round trips, versions, schemas, and errors for other files."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from blocks_samples import make_blocks_run
from document_samples import SAMPLES, TEXTS
from samples import make_environment, make_run
from watch_samples import make_watched
from xfer_samples import row_of, session

from pyxfer._blocks.choice import thresholds_of
from pyxfer._document import codec
from pyxfer._document.codec import KINDS, Kind
from pyxfer._document.examinations import Examination
from pyxfer._document.runs import Run
from pyxfer._document.sessions import XferSession
from pyxfer.errors import DocumentError, UsageError

REQUIRED = {
    "run": "device",
    "watch": "verdict",
    "baseline": "fingerprint",
    "comparison": "cells",
    "examination": "findings",
    "pytest": "places",
    "links": "devices",
    "host": "cells",
    "fleet": "cohorts",
    "plan": "verdict",
}

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
each_sample = pytest.mark.parametrize(
    "document", [document for documents in SAMPLES.values() for document in documents], ids=lambda it: type(it).__name__
)
makes_schema = pytest.mark.skipif(
    sys.version_info < codec.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


def altered(name: str, **fields: Any) -> bytes:
    return codec.seal(json.dumps({**json.loads(TEXTS[name]), **fields}).encode())


def refused(kind: Kind[Any], data: bytes) -> str:
    with pytest.raises(DocumentError) as refusal:
        codec.decode(kind.struct, data, "'it.json'")
    return str(refusal.value)


# --- round trips -----------------------------------------------------------------------------------------------------


def test_each_kind_has_a_sample() -> None:
    assert {kind.name for kind in KINDS} == set(SAMPLES)
    assert all(type(document) is kind.struct for kind in KINDS for document in SAMPLES[kind.name])


@each_sample
def test_a_saved_document_loads_equal(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    document.save(path)
    assert os.listdir(tmp_path) == ["it.json"]
    assert type(document).load(str(path)) == document
    data = path.read_bytes()
    assert codec.encode(codec.decode(type(document), data)) == data
    assert (data[:4], data[-2:]) == (b'{\n "', b"}\n")
    assert list(json.loads(data)) == [*(field.name for field in msgspec.structs.fields(document)), codec.DIGEST]


@each_kind
def test_a_document_is_compressed_if_the_name_ends_in_gz(kind: Kind[Any], tmp_path: Path) -> None:
    document = SAMPLES[kind.name][0]
    document.save(tmp_path / "packed.json.gz")
    assert gzip.decompress((tmp_path / "packed.json.gz").read_bytes()) == TEXTS[kind.name]
    (tmp_path / "packed.json.gz").rename(tmp_path / "any.json")
    assert kind.struct.load(tmp_path / "any.json") == document


@each_kind
def test_unknown_fields_are_ignored(kind: Kind[Any]) -> None:
    assert codec.decode(kind.struct, altered(kind.name, mood="good")) == SAMPLES[kind.name][0]


@pytest.mark.parametrize(
    ("document", "start", "count"),
    [
        (make_run(), b'{ "round":', sum(len(row.trials) for row in make_run().measurements)),
        (make_watched(), b'{ "number": 3', 1),
    ],
    ids=["trials", "steps"],
)
def test_trials_and_steps_are_on_one_line_each(document: Any, start: bytes, count: int) -> None:
    lines = [line.strip() for line in codec.encode(document).splitlines()]
    assert sum(line.startswith(start) and line.rstrip(b",").endswith(b"}") for line in lines) == count


def test_a_name_that_is_not_utf_8_is_escaped() -> None:
    run = make_run(environment=make_environment(host=b"caf\xe9".decode(errors="surrogateescape")))
    assert codec.decode(Run, codec.encode(run)).environment.host == r"caf\udce9"
    foreign = session(row_of("tests/test_b.py::test_\udc80[<b>&]"))
    assert codec.decode(XferSession, codec.encode(foreign)).tests[0].test == "tests/test_b.py::test_\\udc80[<b>&]"
    assert b"udce9" in codec.encode(make_watched(decode="caf\udce9"))


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TEXTS["watch"], r"it\.json' is a watch, not a run: name a file"),
        (b'{"kind": "watchx", "schema_version": 1}', "Invalid enum value 'watchx'"),
        (b'{"groups": [], "schema_version": 1}', "missing required field `kind`"),
    ],
    ids=["another kind", "edited", "history"],
)
def test_load_any_refuses_other_kinds(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_bytes(data)
    with pytest.raises(DocumentError, match=why):
        codec.load_any(tmp_path / "it.json", (Run, Examination))


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"{}", b'{"kind": 3}', b'{"kind": "x"}', b'{"kind": "ceiling"}'])
def test_data_without_a_known_kind_is_a_run(data: bytes) -> None:
    assert codec.kind_of(data) is codec.RUN


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "is cut short"),
        *(
            (data, "is not JSON")
            for data in (b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xfe", b'{"a": "\xff"}', b'{"a": NaN}')
        ),
        *((b'{"a": ' + number + b"}", "is not JSON") for number in (b"9" * 5000, b"1e999")),
        (b'{"schema_version": 9223372036854775807}', "upgrade pyxfer"),
        (b"[" * 100_000, "is not JSON"),
        *((data, "has no schema_version") for data in (b"[1, 2]", b"null", b"{}", b'{"schema_version": "1"}')),
        *((b'{"schema_version": ' + data + b"}", "has no schema_version") for data in (b"true", b"0")),
    ],
)
def test_data_that_is_not_a_document_is_refused(data: bytes, words: str) -> None:
    text = refused(codec.RUN, data)
    assert text.startswith("'it.json' ")
    assert words in text


@each_kind
def test_a_truncated_document_is_refused(kind: Kind[Any]) -> None:
    whole = TEXTS[kind.name]
    for length in (1, 100, len(whole) // 2, len(whole) - 2):
        assert "is cut short" in refused(kind, whole[:length])


@each_kind
def test_a_document_of_another_version_or_kind_is_refused(kind: Kind[Any]) -> None:
    assert kind.version == 1
    assert "has schema_version 2, and this pyxfer reads up to 1" in refused(kind, altered(kind.name, schema_version=2))
    assert "upgrade pyxfer" in refused(kind, altered(kind.name, kind="later", schema_version=99))
    for other in KINDS:
        if other is not kind:
            for version in (1, 99):
                words = f"'it.json' is {other.phrase}, not {kind.phrase}: name a file that {kind.writer} wrote."
                assert refused(kind, altered(other.name, schema_version=version)) == words
    why = "is not a pyxfer run: " if kind is codec.RUN else f"is not {kind.phrase}: name a file"
    values: tuple[object, ...] = ("x", 3, [], None)
    for value in values:
        assert why in refused(kind, altered(kind.name, kind=value))


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("host", {"began_at": "yesterday"}, "is not a pyxfer host: Expected `str` matching regex"),
        ("run", {"duration_s": "long"}, "is not a pyxfer run: Expected `float`, got `str` - at `$.duration_s`"),
        ("run", {"placement": {"device_node": {}}}, "a fact has a value, or a reason"),
        ("baseline", {"runs": []}, "runs are 0"),
        ("baseline", {"runs": [3]}, "runs[0] of 'it.json' has no schema_version"),
        ("baseline", {"runs": [{"schema_version": 1, "kind": "watch"}]}, "runs[0] of 'it.json' is a watch, not a run"),
        ("examination", {"run": 3}, "is not a pyxfer examination: Expected `object`, got `int` - at `$.run`"),
        ("examination", {"run": {"schema_version": 2}}, "the run of 'it.json' has schema_version 2"),
        ("pytest", {"places": []}, "tests[0].place is none of the places"),
    ],
)
def test_a_document_with_a_wrong_field_is_refused(name: str, fields: dict[str, Any], words: str) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == name)
    text = refused(kind, altered(name, **fields))
    assert words in text
    assert "'it.json'" in text


# --- schemas ---------------------------------------------------------------------------------------------------------


@makes_schema
@each_kind
def test_the_schema_fits_the_documents(kind: Kind[Any]) -> None:
    schema, data = codec.schema(kind.struct), json.loads(TEXTS[kind.name])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(data)
    assert schema["$ref"] == f"#/$defs/{kind.struct.__name__}"
    assert set(schema["$defs"][kind.struct.__name__]["properties"]) == set(data)
    assert "\\n    " not in json.dumps(schema)
    missing = REQUIRED[kind.name]
    del data[missing]
    with pytest.raises(jsonschema.ValidationError, match=f"'{missing}' is a required property"):
        validator.validate(data)
    assert f"missing required field `{missing}`" in refused(kind, json.dumps(data).encode())


@makes_schema
def test_the_schema_of_thresholds_fits_them_and_has_no_digest() -> None:
    schema = codec.schema(codec.UNSEALED["thresholds"])
    jsonschema.Draft202012Validator(schema).validate(json.loads(codec.to_json(thresholds_of(make_blocks_run()))))
    assert schema["title"] == "pyxfer thresholds"
    assert codec.DIGEST not in schema["$defs"]["Thresholds"]["properties"]


@pytest.mark.skipif(sys.version_info >= codec.SCHEMA_PYTHON, reason="this Python makes the schema")
def test_an_old_python_is_refused() -> None:
    with pytest.raises(UsageError, match=r"3\.11"):
        codec.schema(codec.RUN.struct)
