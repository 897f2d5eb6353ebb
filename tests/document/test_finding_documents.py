"""Examinations survive being saved, and whatever else a file holds is refused with a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from doctor.cases import h200, health

from pyxfer._doctor.session import examine, examine_run, nearest_known, without_trials
from pyxfer._document import finding_documents, json_text
from pyxfer._document.examinations import EXAMINATION_SCHEMA_VERSION, Examination
from pyxfer._document.runs import SCHEMA_VERSION, Fact
from pyxfer.errors import DocumentError

SCHEMA = Path(__file__).parents[2] / "docs" / "doctor.schema.json"
RUN = h200()
LIVE = Examination(
    without_trials(RUN), Fact(health()), nearest_known(RUN), examine(RUN, health(), nearest_known(RUN).value)
)
SAVED = examine_run(RUN)
ENCODED = finding_documents.encode(LIVE)

makes_schema = pytest.mark.skipif(
    sys.version_info < json_text.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


def altered(**fields: Any) -> bytes:
    return json.dumps({**json.loads(ENCODED), **fields}).encode()


@pytest.mark.parametrize("examination", [LIVE, SAVED], ids=["of a host", "of a saved run"])
def test_a_saved_examination_is_loaded_as_it_was(examination: Examination, tmp_path: Path) -> None:
    examination.save(tmp_path / "host.json")
    assert Examination.load(tmp_path / "host.json") == examination


def test_status_and_version_can_be_read_by_any_program() -> None:
    document = json.loads(ENCODED)
    assert (document["kind"], document["schema_version"]) == ("examination", EXAMINATION_SCHEMA_VERSION)
    assert {finding["status"] for finding in document["findings"]} <= {"fine", "unknown"}


@makes_schema
def test_the_published_schema_is_the_one_of_this_version() -> None:
    if not SCHEMA.exists():
        pytest.skip("the documentation is not beside the tests")
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(finding_documents.schema())), (
        "python -m pyxfer._document.finding_documents > docs/doctor.schema.json"
    )


@makes_schema
@pytest.mark.parametrize("examination", [LIVE, SAVED], ids=["of a host", "of a saved run"])
def test_an_examination_fits_the_schema(examination: Examination) -> None:
    jsonschema.validate(json.loads(finding_documents.encode(examination)), finding_documents.schema())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"{", "is cut short"),
        (b"[1]", "not a pyxfer examination"),
        (altered(schema_version=EXAMINATION_SCHEMA_VERSION + 1), "upgrade pyxfer"),
        (altered(kind="watch"), "not what pyxfer doctor --json wrote"),
        (altered(findings=[{"code": 1}]), "is not a pyxfer examination"),
        (altered(run=3), "is not a pyxfer examination"),
        (altered(run={"schema_version": SCHEMA_VERSION + 1}), f"a run of schema_version {SCHEMA_VERSION + 1}"),
        (altered(run={"schema_version": "3"}), "is not a pyxfer examination"),
    ],
)
def test_what_is_no_examination_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DocumentError, match=r"'host\.json'") as refusal:
        finding_documents.decode(data, "'host.json'")
    assert words in str(refusal.value)


def test_an_examination_of_an_earlier_run_stays_readable() -> None:
    run = {**json.loads(ENCODED)["run"], "schema_version": 1}
    assert finding_documents.decode(altered(run=run)).run.schema_version == SCHEMA_VERSION


def test_the_worst_of_all_findings_is_what_a_host_is() -> None:
    def worst(*statuses: Any) -> str:
        findings = tuple(msgspec.structs.replace(LIVE.findings[0], status=status) for status in statuses)
        return msgspec.structs.replace(LIVE, findings=findings).worst

    assert worst("fine", "unknown") == "fine"
    assert worst("fine", "suspicious", "unknown") == "suspicious"
    assert worst("suspicious", "wrong") == "wrong"
