"""Runs: any file is a run or an error, impossible figures are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from explain_samples import make_explain_run
from hypothesis import example, given
from hypothesis import strategies as st
from samples import make_run

from pyxfer._document import codec, runs
from pyxfer._document.runs import Run
from pyxfer.errors import DocumentError

ENCODED = codec.encode(make_run())


def altered(**fields: Any) -> bytes:
    return codec.seal(json.dumps({**json.loads(ENCODED), **fields}).encode())


def refused(data: bytes) -> str:
    with pytest.raises(DocumentError) as refusal:
        codec.decode(Run, data, "'run.json'")
    return str(refusal.value)


def attempt(data: bytes) -> Run | str:
    try:
        return codec.decode(Run, data, "'run.json'")
    except DocumentError as refusal:
        return str(refusal)


# --- hostile content -------------------------------------------------------------------------------------------------


@given(st.binary() | st.text().map(str.encode))
@example(b'"\\ud800"')
@example(b'{"schema_version": 123456789012345678901234567890}')
def test_any_bytes_are_a_run_or_a_document_error(data: bytes) -> None:
    assert refused(data).startswith("'run.json'")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(ENCODED))), JSON)
def test_any_json_in_any_field_is_a_run_or_a_document_error(field: str, value: object) -> None:
    outcome = attempt(altered(**{field: value}))
    if isinstance(outcome, Run):
        assert codec.decode(Run, codec.encode(outcome)) == outcome
    else:
        assert outcome.startswith("'run.json'")


@given(st.integers(0, len(ENCODED) - 1), st.integers(0, 255))
def test_one_damaged_byte_is_a_run_or_a_document_error(position: int, byte: int) -> None:
    damaged = bytearray(ENCODED)
    damaged[position] = byte
    outcome = attempt(bytes(damaged))
    assert isinstance(outcome, Run) or outcome.startswith("'run.json'")


def test_strings_of_a_document_are_not_interpreted() -> None:
    run = codec.decode(Run, codec.encode(make_run(ended="failed", failure="{0.__class__} %s $(id) ${HOME}")))
    assert run.failure == "{0.__class__} %s $(id) ${HOME}"


# --- impossible figures ----------------------------------------------------------------------------------------------

EXPLAINED = json.loads(codec.encode(make_explain_run()))


def forged(name: str, **fields: Any) -> bytes:
    """An explain run with altered fields in the `dma` or `breakdown` of the explained row."""
    document = json.loads(json.dumps(EXPLAINED))
    (row,) = [row for row in document["measurements"] if row["route"] == document["parameters"]["explained"]]
    row[name]["value"].update(fields)
    return codec.seal(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("breakdown", {"elapsed_s": 1.0}, "the parts of a breakdown sum to its elapsed_s; 0.0369016 s is not 1 s"),
        ("breakdown", {"parts": []}, "the parts of a breakdown sum to its elapsed_s; 0 s is not"),
        ("breakdown", {"parts": [{"name": "gaps", "seconds": -1.0}]}, "seconds of a traced trial is zero or above"),
        ("breakdown", {"trials": 0}, "a traced row has at least one trial; got 0"),
        ("breakdown", {"left_out": -1}, "left_out of a traced trial is zero or above"),
        ("breakdown", {"faults": -1.0}, "faults of a traced trial is zero or above"),
        ("breakdown", {"wall_s": -1.0}, "wall_s of a traced trial is zero or above"),
        ("dma", {"seconds": {"value": -1e-3, "reason": None}}, "seconds of a traced trial is zero or above"),
        ("dma", {"nbytes": -1}, "nbytes of a traced trial is zero or above"),
        ("dma", {"copies": -1.0}, "copies of a traced trial is zero or above"),
        ("dma", {"trials": 0}, "a traced row has at least one trial; got 0"),
    ],
)
def test_impossible_figures_of_traced_trials_are_refused(name: str, fields: dict[str, Any], words: str) -> None:
    assert words in refused(forged(name, **fields))


def test_a_huge_number_of_bytes_is_refused() -> None:
    assert "has a number beyond all that pyxfer writes" in refused(forged("dma", nbytes=10**400))
    assert codec.decode(Run, forged("dma", trials=2**63 - 1)).measurements


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_figures_of_traced_trials_are_finite(seconds: float) -> None:
    with pytest.raises(ValueError, match="and finite; got"):
        runs.Part("gaps", seconds)


def test_an_explain_run_without_its_route_is_refused() -> None:
    parameters = {**EXPLAINED["parameters"], "explained": "tf.other"}
    text = refused(codec.seal(json.dumps({**EXPLAINED, "parameters": parameters}).encode()))
    assert text.startswith("'run.json': parameters.explained is 'tf.other'")


def test_an_explain_run_without_measurements_is_loaded() -> None:
    run = make_explain_run(measurements=(), ended="interrupted")
    assert codec.decode(Run, codec.encode(run)) == run
