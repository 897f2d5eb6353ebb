"""All kinds of documents: round trips, versions, schemas, and errors for other files."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from baseline.store.making import make_baseline, run_at
from baseline_samples import make_processes, make_sample, slow_pinned
from doctor.cases import h200, health
from explain_samples import make_explain_run
from fleet_samples import make_fleet, make_host
from framework_samples import make_image_batch_run
from link_samples import make_links
from samples import make_environment, make_run
from watch_samples import TURNS, make_stalled, make_unseen, make_watched
from xfer_samples import row_of, session

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._doctor.session import examine, examine_run, nearest_known, without_trials
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline, Comparison
from pyxfer._document.codec import KINDS, Kind
from pyxfer._document.examinations import Examination
from pyxfer._document.runs import SCHEMA_VERSION, Fact, Run
from pyxfer._document.sessions import XferSession
from pyxfer._document.watches import Watched
from pyxfer.errors import DocumentError, UsageError

HOST = h200()
NEAREST = nearest_known(HOST)
SAMPLES: dict[str, list[Any]] = {
    "run": [make_run(), make_explain_run(), make_image_batch_run()],
    "watch": [make_watched(), make_unseen(), make_stalled()],
    "baseline": [make_baseline(name="\u0000 <b>", labels={"a\nb": "c"}), make_baseline(runs=(run_at(),))],
    "comparison": [
        compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3))),
        compare_samples(make_sample("A"), Sample("B", make_processes(3, 2, memories=("pinned",)))),
    ],
    "examination": [
        Examination(without_trials(HOST), Fact(health()), NEAREST, examine(HOST, health(), NEAREST.value)),
        examine_run(HOST),
    ],
    "pytest": [session(row_of(), row_of("tests/test_b.py::test_other", None))],
}
SAMPLES["links"] = [make_links(groups=("together", "latency", "small")), make_links(1, groups=("local",))]
SAMPLES["host"] = [make_host(), make_host("\u0000 <b>", {"h2d:gpu0:pinned:256MiB": None}, environment=None)]
SAMPLES["fleet"] = [make_fleet()]
TEXTS = {name: codec.encode(documents[0]) for name, documents in SAMPLES.items()}
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
    codec.save(document, tmp_path / "it.json")
    assert codec.load(type(document), tmp_path / "it.json") == document
    assert codec.load(type(document), str(tmp_path / "it.json")) == document
    assert os.listdir(tmp_path) == ["it.json"]


@pytest.mark.parametrize("struct", [Run, Watched, Baseline, Comparison, Examination, XferSession])
def test_structs_save_and_load_themselves(struct: Any, tmp_path: Path) -> None:
    (document,) = (documents[0] for documents in SAMPLES.values() if type(documents[0]) is struct)
    document.save(tmp_path / "it.json")
    assert struct.load(tmp_path / "it.json") == document
    assert (tmp_path / "it.json").read_bytes() == codec.encode(document)


@each_sample
def test_encoding_a_decoded_document_gives_the_same_bytes(document: Any) -> None:
    data = codec.encode(document)
    assert codec.encode(codec.decode(type(document), data)) == data


@each_sample
def test_a_file_is_indented_json_with_all_fields(document: Any) -> None:
    data = codec.encode(document)
    assert data.startswith(b'{\n "')
    assert data.endswith(b"}\n")
    assert list(json.loads(data)) == [*(field.name for field in msgspec.structs.fields(document)), codec.DIGEST]


@each_kind
def test_unknown_fields_are_ignored(kind: Kind[Any]) -> None:
    assert codec.decode(kind.struct, altered(kind.name, mood="good")) == SAMPLES[kind.name][0]


@each_kind
def test_a_file_has_its_kind_and_version(kind: Kind[Any]) -> None:
    document = json.loads(TEXTS[kind.name])
    assert document["kind"] == ("ceiling" if kind is codec.RUN else kind.name)
    assert document["schema_version"] == kind.version


@pytest.mark.parametrize(
    ("document", "start", "count"),
    [
        (make_run(), b'{ "round":', sum(len(row.trials) for row in make_run().measurements)),
        (make_explain_run(), b'{ "name": "preparing", "seconds": 0.0248 }', 1),
        (make_baseline(runs=(run_at(),)), b'{ "round":', 8),
        (SAMPLES["pytest"][0], b'{ "round": 0', 4),
        (SAMPLES["links"][1], b'{ "round": 0', 2),
        (make_watched(), b'{ "number":', TURNS),
    ],
    ids=["trials", "parts", "trials of a baseline", "trials of a test", "trials of links", "steps"],
)
def test_trials_parts_and_steps_are_on_one_line_each(document: Any, start: bytes, count: int) -> None:
    lines = [line.strip() for line in codec.encode(document).splitlines()]
    assert sum(line.startswith(start) and line.rstrip(b",").endswith(b"}") for line in lines) == count


def test_a_name_that_is_not_utf_8_is_escaped() -> None:
    run = make_run(environment=make_environment(host=b"caf\xe9".decode(errors="surrogateescape")))
    assert codec.decode(Run, codec.encode(run)).environment.host == r"caf\udce9"
    foreign = session(row_of("tests/test_b.py::test_\udc80[<b>&]"))
    assert codec.decode(XferSession, codec.encode(foreign)).tests[0].test == "tests/test_b.py::test_\\udc80[<b>&]"
    assert b"udce9" in codec.encode(make_watched(decode="caf\udce9"))


# --- files -----------------------------------------------------------------------------------------------------------


@each_kind
def test_a_missing_file_is_named(kind: Kind[Any], tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"it\.json"):
        codec.load(kind.struct, tmp_path / "it.json")


@each_kind
def test_save_into_a_missing_folder_is_refused(kind: Kind[Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no/it\.json"):
        codec.save(SAMPLES[kind.name][0], tmp_path / "no" / "it.json")


@each_kind
def test_an_empty_path_is_refused(kind: Kind[Any]) -> None:
    with pytest.raises(UsageError, match=rf"^the path is empty; name a file, such as {kind.name}.json$"):
        codec.save(SAMPLES[kind.name][0], "")
    with pytest.raises(DocumentError, match=rf"^the path is empty; name a file, such as {kind.name}.json$"):
        codec.load(kind.struct, "")


@each_kind
def test_load_any_chooses_the_struct_by_the_kind(kind: Kind[Any], tmp_path: Path) -> None:
    (tmp_path / "it.json").write_bytes(TEXTS[kind.name])
    structs = tuple(known.struct for known in KINDS)
    assert codec.load_any(tmp_path / "it.json", structs) == SAMPLES[kind.name][0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"kind": "watchx", "schema_version": 1}', "has the kind 'watchx', which no document has; "),
        ('{"groups": [], "schema_version": 1}', "has no kind; "),
    ],
    ids=["edited", "history"],
)
def test_load_any_names_the_known_kinds(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text(text)
    with pytest.raises(DocumentError, match=f"{why}name a file with a run, a watch or a baseline"):
        codec.load_any(tmp_path / "it.json", (Run, Watched, Baseline))


def test_load_any_refuses_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "it.json").write_bytes(TEXTS["watch"])
    with pytest.raises(DocumentError, match=r"it\.json' is a watch, and not a run; name a file"):
        codec.load_any(tmp_path / "it.json", (Run, Examination))


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"{}", b'{"kind": 3}', b'{"kind": "x"}', b'{"kind": "ceiling"}'])
def test_data_without_a_known_kind_is_a_run(data: bytes) -> None:
    assert codec.kind_of(data) is codec.RUN


# --- errors ----------------------------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "'it.json' is empty; the {} was never written to it"),
        (b" \n", "'it.json' is empty"),
        (b"{", "'it.json' is cut short; fetch it again from where it came, or measure again"),
        (b"hello", "'it.json' is not JSON; name a file that pyxfer saved"),
        (b"\x89PNG\r\n\x1a\n", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "has a number beyond all that pyxfer writes"),
        (b'{"a": [{"b": -' + b"9" * 400 + b"}]}", "has a number beyond all that pyxfer writes"),
        (b'{"schema_version": 9223372036854775808}', "has a number beyond all that pyxfer writes"),
        (b'{"schema_version": 9223372036854775807}', "upgrade pyxfer"),
        (b'{"a": 1e999}', "has a number beyond all that pyxfer writes"),
        (b"[" * 100_000, "is nested deeper than anything that pyxfer writes"),
        (b"[1, 2]", "'it.json' is JSON, but not a pyxfer {}"),
        (b"null", "is JSON, but not a pyxfer {}"),
        (b"{}", "'it.json' has no schema_version, so it is not a pyxfer {}; name a file that pyxfer saved"),
        (b'{"schema_version": "1"}', "has a schema_version that no pyxfer writes"),
        (b'{"schema_version": true}', "has a schema_version that no pyxfer writes"),
        (b'{"schema_version": 0}', "has a schema_version that no pyxfer writes"),
    ],
)
def test_data_that_is_not_a_document_is_refused(kind: Kind[Any], data: bytes, words: str) -> None:
    text = refused(kind, data)
    assert text.startswith("'it.json' ")
    assert words.format(kind.title) in text


@each_kind
def test_a_truncated_document_is_refused(kind: Kind[Any]) -> None:
    whole = TEXTS[kind.name]
    for length in (1, 100, len(whole) // 2, len(whole) - 2):
        assert "is cut short" in refused(kind, whole[:length])


@each_kind
def test_a_document_of_a_later_version_is_refused(kind: Kind[Any]) -> None:
    assert refused(kind, altered(kind.name, schema_version=kind.version + 1)) == (
        f"'it.json' has schema_version {kind.version + 1}, and this pyxfer reads up to {kind.version}; "
        "upgrade pyxfer (pip install --upgrade pyxfer)"
    )


@each_kind
def test_a_document_of_another_kind_is_refused(kind: Kind[Any]) -> None:
    for other in KINDS:
        if other is not kind:
            for version in (1, other.version, 99):
                data = altered(other.name, schema_version=version)
                what = f"is {other.phrase}, and not {kind.phrase}; name a file that {kind.writer} wrote"
                assert refused(kind, data) == f"'it.json' {what}"


@each_kind
def test_an_unknown_kind_of_a_later_version_asks_for_an_upgrade(kind: Kind[Any]) -> None:
    assert "upgrade pyxfer" in refused(kind, altered(kind.name, kind="later", schema_version=99))


@each_kind
@pytest.mark.parametrize("value", ["x", 3, [], None])
def test_a_document_of_an_unknown_kind_is_refused(kind: Kind[Any], value: object) -> None:
    why = "is not a pyxfer run: " if kind is codec.RUN else f"is not {kind.phrase}; name a file"
    assert why in refused(kind, altered(kind.name, kind=value))


@makes_schema
@each_kind
def test_a_document_without_a_required_field_is_refused(kind: Kind[Any]) -> None:
    document = json.loads(TEXTS[kind.name])
    del document[REQUIRED[kind.name]]
    assert refused(kind, json.dumps(document).encode()) == (
        f"'it.json' is not a pyxfer {kind.title}: Object missing required field `{REQUIRED[kind.name]}`"
    )


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("host", {"began_at": "yesterday"}, "is not a pyxfer host: Expected `str` matching regex"),
        ("fleet", {"judged_at": "2026-01-01"}, "at `$.judged_at`"),
        ("run", {"duration_s": "long"}, "is not a pyxfer run: Expected `float`, got `str` - at `$.duration_s`"),
        ("run", {"ended": "badly"}, "Invalid enum value 'badly' - at `$.ended`"),
        ("run", {"placement": {"device_node": {}}}, "a fact has a value, or a reason"),
        ("run", {"measurements": 5}, "Expected `array`, got `int` - at `$.measurements`"),
        ("watch", {"window_s": "long"}, "is not a pyxfer watch: Expected `float`"),
        ("baseline", {"runs": None}, "is not a pyxfer baseline: Expected `array`, got `null` - at `$.runs`"),
        ("baseline", {"runs": []}, "has 0 runs, and a baseline has 1 to 1000"),
        ("baseline", {"runs": [3]}, "run 1 of 'it.json' is JSON, but not a pyxfer run"),
        ("baseline", {"runs": [{}]}, "run 1 of 'it.json' has no schema_version"),
        ("baseline", {"runs": [{"schema_version": 1, "kind": "watch"}]}, "run 1 of 'it.json' is a watch, and not a"),
        ("baseline", {"runs": [3] * 1001}, "has 1001 runs, and a baseline has 1 to 1000"),
        ("comparison", {"cells": [1]}, "is not a pyxfer comparison: Expected `object`"),
        ("examination", {"findings": [{"code": 1}]}, "is not a pyxfer examination"),
        ("examination", {"run": 3}, "is not a pyxfer examination: Expected `object`, got `int` - at `$.run`"),
        ("examination", {"run": {"schema_version": SCHEMA_VERSION + 1}}, f"schema_version {SCHEMA_VERSION + 1}, and"),
        ("examination", {"run": {"schema_version": "3"}}, "the run of 'it.json' has a schema_version that no pyxfer"),
        ("pytest", {"tests": [1]}, "is not a pyxfer pytest session: Expected `object`"),
        ("pytest", {"places": []}, "has a test whose place it does not have"),
    ],
)
def test_a_document_with_a_wrong_field_is_refused(name: str, fields: dict[str, Any], words: str) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == name)
    text = refused(kind, altered(name, **fields))
    assert words in text
    assert "'it.json'" in text


# --- the next version ------------------------------------------------------------------------------------------------


class Second(msgspec.Struct):
    """Version 2 of an example, which has nanoseconds instead of seconds."""

    ns: int
    kind: str = "example"
    schema_version: int = 2


def upgraded(document: dict[str, Any], source: str) -> dict[str, Any]:
    """The first upgrade: what a kind whose version is raised has as `prepare`, or calls there."""
    if document["schema_version"] == 1:
        return {"ns": round(document["s"] * 1e9), "schema_version": 2}
    return document


def test_a_raised_version_upgrades_documents_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("example", Second, 2, "example", "an example", "a test", prepare=upgraded)
    monkeypatch.setattr(codec, "KINDS", (*KINDS, kind))
    by_struct: dict[type[Any], Kind[Any]] = {**codec._BY_STRUCT, Second: kind}
    monkeypatch.setattr(codec, "_BY_STRUCT", by_struct)
    first = codec.seal(b'{"kind": "example", "schema_version": 1, "s": 0.5}')
    assert codec.decode(Second, first, recomputed=False) == Second(500_000_000)
    assert codec.decode(Second, codec.encode(Second(7)), recomputed=False) == Second(7)


@each_kind
def test_the_first_release_has_one_version_of_each_kind(kind: Kind[Any]) -> None:
    assert kind.version == 1


# --- schemas ---------------------------------------------------------------------------------------------------------


@makes_schema
@each_sample
def test_a_saved_document_is_valid(document: Any) -> None:
    (kind,) = (kind for kind in KINDS if kind.struct is type(document))
    jsonschema.validate(json.loads(codec.encode(document)), codec.schema(kind.struct))


@makes_schema
@each_kind
def test_a_document_without_a_required_field_is_not_valid(kind: Kind[Any]) -> None:
    document = json.loads(TEXTS[kind.name])
    del document[REQUIRED[kind.name]]
    with pytest.raises(jsonschema.ValidationError, match=f"'{REQUIRED[kind.name]}' is a required property"):
        jsonschema.validate(document, codec.schema(kind.struct))


@makes_schema
@each_kind
def test_the_schema_has_all_fields(kind: Kind[Any]) -> None:
    schema = codec.schema(kind.struct)
    assert schema["$ref"] == f"#/$defs/{kind.struct.__name__}"
    assert set(schema["$defs"][kind.struct.__name__]["properties"]) == set(json.loads(TEXTS[kind.name]))


@makes_schema
@each_kind
def test_descriptions_in_the_schema_are_not_indented(kind: Kind[Any]) -> None:
    assert "\\n    " not in json.dumps(codec.schema(kind.struct))


@pytest.mark.skipif(sys.version_info >= codec.SCHEMA_PYTHON, reason="this Python makes the schema")
def test_an_old_python_is_refused() -> None:
    with pytest.raises(UsageError, match=r"3\.11"):
        codec.schema(codec.RUN.struct)


# --- JSON text -------------------------------------------------------------------------------------------------------

TRIAL = re.compile(rb'\{\s*"round":[^{}]*\}')


class Shelf(msgspec.Struct):
    books: dict[int, str]
    below: Shelf | None = None


def test_matches_of_a_pattern_are_put_on_one_line() -> None:
    document = {"trials": [{"round": 0, "seconds": 1.5}, {"round": 1, "seconds": 2.5}], "device": {"name": "a b"}}
    written = codec.on_one_line(json.dumps(document, indent=1).encode(), TRIAL)
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


def test_convert_accepts_numbers_as_keys() -> None:
    assert codec.convert({"books": {"3": "c"}}, Shelf, "'shelf.json'", "shelf") == Shelf({3: "c"})


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "Object missing required field `books`"),
        ({"books": {"c": "c"}}, "Expected `int`, got `str` - at `key` in `$.books`"),
        ([], "Expected `object`, got `array`"),
    ],
)
def test_convert_refuses_other_types(document: Any, why: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        codec.convert(document, Shelf, "'shelf.json'", "shelf")
    assert str(refusal.value) == f"'shelf.json' is not a pyxfer shelf: {why}"


def test_convert_refuses_deep_nesting() -> None:
    document: dict[str, Any] = {"books": {}}
    for _ in range(100_000):
        document = {"books": {}, "below": document}
    with pytest.raises(DocumentError, match=r"^'shelf\.json' is not a pyxfer shelf: maximum recursion"):
        codec.convert(document, Shelf, "'shelf.json'", "shelf")
