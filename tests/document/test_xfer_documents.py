"""Documents of pytest sessions: round trips, and files that somebody made."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from xfer_samples import row_of, session

from pyxfer._document import json_text, xfer_documents
from pyxfer._document.sessions import XFER_SCHEMA_VERSION, XferSession
from pyxfer.errors import DocumentError, UsageError

SCHEMA = Path(__file__).parents[2] / "docs" / "xfer.schema.json"
SAMPLE = session(row_of(), row_of("tests/test_b.py::test_\udc80[<b>&]", None))
ENCODED = xfer_documents.encode(SAMPLE)

makes_schema = pytest.mark.skipif(
    sys.version_info < json_text.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


def altered(**changes: Any) -> bytes:
    return json.dumps({**json.loads(ENCODED), **changes}).encode()


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    whole = session(row_of(), row_of("tests/test_b.py::test_other", None))
    whole.save(tmp_path / "main.json")
    assert XferSession.load(tmp_path / "main.json") == whole


def test_names_in_a_foreign_encoding_are_kept_readable() -> None:
    assert xfer_documents.decode(ENCODED).tests[1].test == "tests/test_b.py::test_\\udc80[<b>&]"


def test_a_trial_has_a_line_of_its_own() -> None:
    assert sum(b'"round": 0' in line and line.rstrip(b",").endswith(b"}") for line in ENCODED.splitlines()) == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (ENCODED[: len(ENCODED) // 2], "is cut short"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "not a pyxfer pytest session"),
        (b"{}", "has no schema_version"),
        (altered(schema_version=0), "has a schema_version that no pyxfer writes"),
        (altered(schema_version=XFER_SCHEMA_VERSION + 1), "upgrade pyxfer"),
        (altered(kind="ceiling"), "but of another kind"),
        (altered(tests=[1]), "is not a pyxfer pytest session: Expected `object`"),
        (altered(places=[]), "has a test whose place it does not have"),
        (b"[" * 100_000, "is nested deeper than anything that pyxfer writes"),
    ],
)
def test_what_is_no_session_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        xfer_documents.decode(data, "'saved.json'")
    assert "'saved.json'" in str(caught.value)


def test_a_folder_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make the folder first"):
        SAMPLE.save(tmp_path / "no" / "main.json")


def test_each_place_is_a_run_whose_routes_are_the_tests() -> None:
    (run,) = xfer_documents.runs(SAMPLE)
    assert (run.kind, run.runtime, run.ended) == ("measure", "host", "complete")
    assert [row.route for row in run.measurements] == [test.test for test in SAMPLE.tests]
    assert (run.parameters.sizes_bytes, run.parameters.directions) == ((1 << 20,), ("h2d",))


@makes_schema
def test_the_published_schema_is_up_to_date() -> None:
    current = json.loads(json.dumps(xfer_documents.schema()))
    assert json.loads(SCHEMA.read_text()) == current, (
        "python -m pyxfer._document.xfer_documents > docs/xfer.schema.json"
    )


def test_saved_sessions_are_valid_by_the_published_schema() -> None:
    jsonschema.validate(json.loads(ENCODED), json.loads(SCHEMA.read_text()))
