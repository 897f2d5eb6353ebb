"""Runs survive being saved, and whatever else a file holds is refused with a sentence."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from explain_samples import make_explain_run
from hypothesis import example, given
from hypothesis import strategies as st
from samples import (
    make_environment,
    make_run,
)

from pyxfer._document import documents, json_text, runs
from pyxfer._document.files import read_whole
from pyxfer._document.runs import SCHEMA_VERSION, Run
from pyxfer.errors import DocumentError, UsageError

SCHEMA = Path(__file__).parents[2] / "docs" / "run.schema.json"
ENCODED = documents.encode(make_run())


def altered(**fields: Any) -> bytes:
    return json.dumps({**json.loads(ENCODED), **fields}).encode()


def refused(data: bytes) -> str:
    with pytest.raises(DocumentError) as refusal:
        documents.decode(data, "'run.json'")
    return str(refusal.value)


def attempt(data: bytes) -> Run | str:
    try:
        return documents.decode(data, "'run.json'")
    except DocumentError as refusal:
        return str(refusal)


# --- bytes and files -------------------------------------------------------------------------------------------------


def test_a_saved_run_is_loaded_as_it_was(tmp_path: Path) -> None:
    documents.save(make_run(), tmp_path / "run.json")
    assert documents.load(tmp_path / "run.json") == make_run()
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_run_comes_through_json_byte_for_byte() -> None:
    assert documents.encode(documents.decode(ENCODED)) == ENCODED


def test_a_saved_run_is_indented_json_that_ends_in_a_newline() -> None:
    assert ENCODED.startswith(b'{\n "kind": "ceiling",\n')
    assert ENCODED.endswith(b"}\n")


def test_fields_of_a_later_release_of_the_same_version_are_passed_over() -> None:
    assert documents.decode(altered(mood="good")) == make_run()


def test_a_name_in_a_foreign_encoding_is_saved_legibly() -> None:
    run = make_run(environment=make_environment(host=b"caf\xe9".decode(errors="surrogateescape")))
    assert documents.decode(documents.encode(run)).environment.host == r"caf\udce9"


def test_a_run_that_cannot_be_saved_says_which_file_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no/run.json' cannot be written .*; make the folder first"):
        documents.save(make_run(), tmp_path / "no" / "run.json")


def test_a_file_that_is_not_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"there is no file .*run.json'; check the name"):
        documents.load(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "'run.json' is empty; the run was never written to it"),
        (b" \n", "'run.json' is empty"),
        (b"hello", "'run.json' is not JSON; name a file that pyxfer saved"),
        (b"\x89PNG\r\n\x1a\n", "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "has a number beyond all that pyxfer writes"),
        (b'{"a": [{"b": -' + b"9" * 400 + b"}]}", "has a number beyond all that pyxfer writes"),
        (b'{"schema_version": 9223372036854775808}', "has a number beyond all that pyxfer writes"),
        (b'{"schema_version": 9223372036854775807}', "upgrade pyxfer"),
        (b"[" * 100_000, "is nested deeper than anything that pyxfer writes"),
        (b'{"a": 1e999}', "has a number beyond all that pyxfer writes"),
        (b"[1, 2]", "'run.json' is JSON, but not a pyxfer run"),
        (b"null", "is JSON, but not a pyxfer run"),
        (b"{}", "'run.json' has no schema_version, so it is not a pyxfer run; name a file that pyxfer saved"),
        (b'{"schema_version": "1"}', "has a schema_version that no pyxfer writes"),
        (b'{"schema_version": true}', "has a schema_version that no pyxfer writes"),
        (b'{"schema_version": 0}', "has a schema_version that no pyxfer writes"),
        (b'{"schema_version": 1, "kind": "examination"}', "'run.json' is an examination, and not a run; name a file"),
        (b'{"schema_version": 1, "kind": "baseline"}', "'run.json' is a baseline, and not a run; name a file"),
        (b'{"schema_version": 1}', "'run.json' is not a pyxfer run: Object missing required field `kind`"),
    ],
)
def test_what_is_not_a_run_is_refused_by_name(data: bytes, sentence: str) -> None:
    assert sentence in refused(data)


@pytest.mark.parametrize("length", [1, 100, len(ENCODED) // 2, len(ENCODED) - 2])
def test_a_run_cut_short_is_told_from_one_that_never_was(length: int) -> None:
    assert refused(ENCODED[:length]) == ("'run.json' is cut short; fetch it again from where it came, or measure again")


def test_a_later_document_names_both_versions_and_the_upgrade() -> None:
    assert refused(altered(schema_version=7)) == (
        f"'run.json' has schema_version 7, and this pyxfer reads up to {SCHEMA_VERSION}; "
        "upgrade pyxfer (pip install --upgrade pyxfer)"
    )


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("duration_s", "long", "Expected `float`, got `str` - at `$.duration_s`"),
        ("ended", "badly", "Invalid enum value 'badly' - at `$.ended`"),
        ("placement", {"device_node": {}}, "a fact has a value, or a reason"),
        ("measurements", 5, "Expected `array`, got `int` - at `$.measurements`"),
    ],
)
def test_a_document_with_a_wrong_part_names_it(field: str, value: object, where: str) -> None:
    assert where in refused(altered(**{field: value}))


@given(st.binary() | st.text().map(str.encode))
@example(b'"\\ud800"')
@example(b'{"schema_version": 123456789012345678901234567890}')
def test_any_bytes_are_a_run_or_a_document_error(data: bytes) -> None:
    assert refused(data).startswith("'run.json' ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(ENCODED))), JSON)
def test_any_json_in_any_field_is_a_run_or_a_document_error(field: str, value: object) -> None:
    outcome = attempt(altered(**{field: value}))
    if isinstance(outcome, Run):
        assert documents.decode(documents.encode(outcome)) == outcome
    else:
        assert outcome.startswith("'run.json' ")


@given(st.integers(0, len(ENCODED) - 1), st.integers(0, 255))
def test_one_damaged_byte_is_a_run_or_a_document_error(position: int, byte: int) -> None:
    damaged = bytearray(ENCODED)
    damaged[position] = byte
    outcome = attempt(bytes(damaged))
    assert isinstance(outcome, Run) or outcome.startswith("'run.json' ")


def test_strings_of_a_document_stay_strings() -> None:
    run = documents.decode(documents.encode(make_run(failure="{0.__class__} %s $(id) ${HOME}")))
    assert run.failure == "{0.__class__} %s $(id) ${HOME}"


# --- older versions --------------------------------------------------------------------------------------------------


def test_an_older_document_is_upgraded_step_by_step() -> None:
    steps = {
        1: lambda document: {"seconds": document["s"]},
        2: lambda document: {"seconds": [document["seconds"]]},
    }
    upgraded = documents.upgrade({"schema_version": 1, "s": 5}, steps, newest=3)
    assert upgraded == {"schema_version": 3, "seconds": [5]}


def test_a_document_of_the_newest_version_is_left_alone() -> None:
    document = {"schema_version": SCHEMA_VERSION, "any": "thing"}
    assert documents.upgrade(document) == document


def test_there_is_a_step_from_every_older_version() -> None:
    assert set(documents.UPGRADES) == set(range(1, SCHEMA_VERSION))


RESULTS = Path(__file__).parents[2] / "bench" / "results"


@pytest.mark.parametrize("name", ["ceiling.json.gz", "frameworks.json.gz", "image_batch.json.gz", "shares.json.gz"])
def test_what_was_measured_before_records_were_kept_is_loaded_unchanged(name: str) -> None:
    if not RESULTS.is_dir():
        pytest.skip("the results are not beside the tests")
    document = json.loads(read_whole(RESULTS / name))
    assert document["schema_version"] < SCHEMA_VERSION
    run = documents.load(RESULTS / name)
    assert run.schema_version == SCHEMA_VERSION
    assert {each.dma.reason for each in run.measurements} == {"nobody traced it"}
    assert {each.breakdown.reason for each in run.measurements} == {"nobody traced it"}
    assert run.tracing.reason == "nobody traced it"
    kept = json.loads(documents.encode(run))
    for old, new in zip(document.pop("measurements"), kept.pop("measurements"), strict=True):
        assert {name: new[name] for name in old} == old
    untouched = set(document) - {"schema_version", "parameters", "workers"}
    assert {name: kept[name] for name in untouched} == {name: document[name] for name in untouched}


def test_a_run_with_records_and_parts_comes_through_json_and_is_valid_by_the_schema() -> None:
    run = make_explain_run()
    data = documents.encode(run)
    assert documents.decode(data) == run
    jsonschema.validate(json.loads(data), json.loads(SCHEMA.read_text()))


EXPLAINED = json.loads(documents.encode(make_explain_run()))


def forged(name: str, **fields: Any) -> bytes:
    """An explain run, of whose explained row the `dma` or `breakdown` is altered."""
    document = json.loads(json.dumps(EXPLAINED))
    (row,) = [each for each in document["measurements"] if each["route"] == document["parameters"]["explained"]]
    row[name]["value"].update(fields)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("breakdown", {"elapsed_s": 1.0}, "the parts of a breakdown sum to its elapsed_s; 0.0369016 s is not 1 s"),
        ("breakdown", {"parts": []}, "the parts of a breakdown sum to its elapsed_s; 0 s is not"),
        ("breakdown", {"parts": [{"name": "gaps", "seconds": -1.0}]}, "seconds of a traced trial is zero or above"),
        ("breakdown", {"trials": 0}, "what was traced has one trial at least; got 0"),
        ("breakdown", {"left_out": -1}, "left_out of a traced trial is zero or above"),
        ("breakdown", {"faults": -1.0}, "faults of a traced trial is zero or above"),
        ("breakdown", {"wall_s": -1.0}, "wall_s of a traced trial is zero or above"),
        ("dma", {"seconds": {"value": -1e-3, "reason": None}}, "seconds of a traced trial is zero or above"),
        ("dma", {"nbytes": -1}, "nbytes of a traced trial is zero or above"),
        ("dma", {"copies": -1.0}, "copies of a traced trial is zero or above"),
        ("dma", {"trials": 0}, "what was traced has one trial at least; got 0"),
    ],
)
def test_figures_of_traced_trials_that_cannot_be_are_refused(name: str, fields: dict[str, Any], words: str) -> None:
    assert words in refused(forged(name, **fields))


def test_a_huge_number_of_bytes_is_refused_as_no_figure_can_be_made_of_it() -> None:
    assert "has a number beyond all that pyxfer writes" in refused(forged("dma", nbytes=10**400))
    assert documents.decode(forged("dma", nbytes=2**63 - 1)).measurements


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_figures_of_traced_trials_are_finite(seconds: float) -> None:
    with pytest.raises(ValueError, match="and finite; got"):
        runs.Part("gaps", seconds)


def test_an_explain_run_without_its_route_is_refused() -> None:
    parameters = {**EXPLAINED["parameters"], "explained": "tf.other"}
    assert refused(json.dumps({**EXPLAINED, "parameters": parameters}).encode()) == (
        "'run.json' explains 'tf.other' and holds no measurement of it; explain it again"
    )


def test_an_explain_run_that_ended_before_it_had_anything_is_loaded() -> None:
    run = make_explain_run(measurements=(), ended="interrupted")
    assert documents.decode(documents.encode(run)) == run


# --- the schema ------------------------------------------------------------------------------------------------------


makes_schema = pytest.mark.skipif(
    sys.version_info < json_text.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


@makes_schema
def test_the_published_schema_is_up_to_date() -> None:
    current = json.loads(json.dumps(documents.schema()))
    assert json.loads(SCHEMA.read_text()) == current, "python -m pyxfer._document.documents > docs/run.schema.json"


@makes_schema
def test_the_schema_names_every_field_of_a_saved_run() -> None:
    schema = documents.schema()
    assert schema["$ref"] == "#/$defs/Run"
    assert set(schema["$defs"]["Run"]["properties"]) == set(json.loads(ENCODED))


def test_a_saved_run_is_valid_by_the_published_schema() -> None:
    jsonschema.validate(json.loads(ENCODED), json.loads(SCHEMA.read_text()))


def test_a_run_without_its_device_is_not_valid_by_the_published_schema() -> None:
    document = json.loads(ENCODED)
    del document["device"]
    with pytest.raises(jsonschema.ValidationError, match="'device' is a required property"):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))


@pytest.mark.skipif(sys.version_info >= json_text.SCHEMA_PYTHON, reason="this Python makes the schema")
def test_where_the_schema_cannot_be_made_its_place_is_named() -> None:
    with pytest.raises(UsageError, match=r"docs/run\.schema\.json holds it ready made"):
        documents.schema()


@makes_schema
def test_descriptions_in_the_schema_are_free_of_source_indentation() -> None:
    assert "\n    " not in documents.schema()["$defs"]["Measurement"]["description"]


def test_encoding_a_run_leaves_no_field_out() -> None:
    assert set(json.loads(ENCODED)) == {field.name for field in msgspec.structs.fields(make_run())}


def test_a_part_of_a_breakdown_stands_on_a_line_of_its_own() -> None:
    lines = [line.strip() for line in documents.encode(make_explain_run()).decode().splitlines()]
    assert '{ "name": "preparing", "seconds": 0.0248 },' in lines
