"""Baseline documents: their schema, and that they survive being written and read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from baseline.store.making import make_baseline, run_at

from pyxfer import Baseline, DocumentError, UsageError
from pyxfer._document import baseline_documents, json_text

SCHEMA = Path(__file__).parents[2] / "docs" / "baseline.schema.json"

makes_schema = pytest.mark.skipif(
    sys.version_info < json_text.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


@makes_schema
def test_the_published_schema_is_current() -> None:
    current = json.loads(json.dumps(baseline_documents.schema()))
    assert json.loads(SCHEMA.read_text()) == current, (
        "python -m pyxfer._document.baseline_documents > docs/baseline.schema.json"
    )


def test_a_baseline_fits_its_schema() -> None:
    document = json.loads(baseline_documents.encode(make_baseline(labels={"slot": "3"})))
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_a_baseline_is_read_as_it_was_saved(tmp_path: Path) -> None:
    baseline = make_baseline(name="\u0000 <b>", labels={"a\nb": "c"})
    baseline.save(tmp_path / "b.json")
    assert Baseline.load(tmp_path / "b.json") == baseline


def test_a_trial_stands_on_a_line_of_its_own() -> None:
    lines = baseline_documents.encode(make_baseline(runs=(run_at(),))).decode().splitlines()
    assert sum('"elapsed_s"' in line and line.strip().startswith("{") for line in lines) == 8


def test_a_run_of_an_earlier_version_in_it_is_read() -> None:
    document = json.loads(baseline_documents.encode(make_baseline()))
    document["runs"][0]["schema_version"] = 1
    assert baseline_documents.decode(json.dumps(document).encode()) == make_baseline()


def test_a_file_that_is_not_there_and_one_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="there is no file"):
        Baseline.load(tmp_path / "none.json")
    with pytest.raises(UsageError, match="make the folder first"):
        make_baseline().save(tmp_path / "none" / "b.json")
