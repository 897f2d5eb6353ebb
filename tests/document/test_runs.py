"""Runs and watches: any file is one or an error, and impossible figures are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from explain_samples import make_explain_run
from hostile import numbers, with_number
from hypothesis import example, given
from hypothesis import strategies as st
from samples import make_run
from watch_samples import make_stalled, make_watched

from pyxfer._document import codec
from pyxfer._document.runs import Run
from pyxfer._document.watches import Watched
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
        ("breakdown", {"parts": [{"name": "gaps", "seconds": -1.0}]}, ".breakdown.value.parts[0].seconds`"),
        ("breakdown", {"trials": 0}, ".breakdown.value.trials`"),
        ("breakdown", {"left_out": -1}, ".breakdown.value.left_out`"),
        ("breakdown", {"faults": -1.0}, ".breakdown.value.faults`"),
        ("breakdown", {"wall_s": -1.0}, ".breakdown.value.wall_s`"),
        ("dma", {"nbytes": -1}, ".dma.value.nbytes`"),
        ("dma", {"copies": -1.0}, ".dma.value.copies`"),
        ("dma", {"trials": 0}, ".dma.value.trials`"),
    ],
)
def test_impossible_figures_of_traced_trials_are_refused(name: str, fields: dict[str, Any], words: str) -> None:
    assert words in refused(forged(name, **fields))


def test_an_explain_run_without_measurements_is_loaded() -> None:
    run = make_explain_run(measurements=(), ended="interrupted")
    assert codec.decode(Run, codec.encode(run)) == run


# --- watches ---------------------------------------------------------------------------------------------------------


WATCHED = json.loads(codec.encode(make_watched()))
STALLED = json.loads(codec.encode(make_stalled()))
NUMBERS = list(numbers(STALLED))


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        *((STALLED, ("steps", name), -1) for name in ("watched", "skipped", "failed", "unclosed")),
        *((STALLED, ("steps", "slow", name), -1.0) for name in ("more_s", "longest_s")),
        *[(STALLED, ("steps", "slow", "count"), 0), (STALLED, ("steps", "slow", "share"), 1.5)],
        *((WATCHED, (*place, "host_s"), -0.001) for place in (("parts",), ("steps", "each", 0, "parts"))),
        *[(WATCHED, ("parts", "period_s"), -1.0), (WATCHED, ("window_s",), -1)],
        *((WATCHED, ("ranges", 0, name), -1) for name in ("count", "seconds", "share", "busy_s")),
        *((WATCHED, ("ranges", 0, name), -1) for name in ("h2d_bytes", "d2h_bytes")),
    ],
)
def test_an_impossible_figure_of_a_watch_is_refused(document: Any, path: tuple[str | int, ...], value: float) -> None:
    with pytest.raises(DocumentError, match=rf"'watch.json' is not a pyxfer watch: .*{path[-1]}`"):
        codec.decode(Watched, with_number(document, json.dumps(path), value), "'watch.json'")


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_a_watch_with_any_number_is_refused_or_printed(place: str, number: float) -> None:
    data = with_number(STALLED, place, number)
    try:
        watched = codec.decode(Watched, data)
    except DocumentError:
        return
    assert watched.text(80)
    assert watched.to_markdown()
