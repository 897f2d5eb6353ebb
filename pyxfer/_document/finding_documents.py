"""Examinations and references as documents: saved whole or not at all, and read with care.

`python -m pyxfer._document.finding_documents` prints the JSON Schema of an examination.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyxfer._document import json_text
from pyxfer._document.documents import upgrade
from pyxfer._document.examinations import EXAMINATION_SCHEMA_VERSION, REFERENCE_SCHEMA_VERSION, Examination, Reference
from pyxfer._document.files import Path, read_whole, write_whole
from pyxfer._document.runs import SCHEMA_VERSION
from pyxfer.errors import DocumentError


def encode(examination: Examination) -> bytes:
    """The document as JSON that a person can read too."""
    return json_text.to_json(examination) + b"\n"


def decode(data: bytes, source: str = "this document") -> Examination:
    """The examination in these bytes; `DocumentError`, which names the source, says why there is none."""
    document = json_text.from_json(data, source, "examination", EXAMINATION_SCHEMA_VERSION)
    if document.get("kind") != "examination":
        raise DocumentError(f"{source} is not what pyxfer doctor --json wrote; pyxfer.Run.load reads a run")
    whole = {**document, "run": _newest(document.get("run"), source)}
    return json_text.converted(whole, Examination, source, "examination")


def _newest(run: Any, source: str) -> Any:
    """The run inside as one of today's; what is no run is left to be refused."""
    version = run.get("schema_version") if isinstance(run, dict) else None
    if type(version) is not int or version < 1:
        return run
    if version > SCHEMA_VERSION:
        raise DocumentError(
            f"{source} holds a run of schema_version {version}, and this pyxfer reads up to {SCHEMA_VERSION}; "
            "upgrade pyxfer (pip install --upgrade pyxfer)"
        )
    return upgrade(run)


def decode_reference(data: bytes, source: str) -> Reference:
    """The reference in these bytes; `DocumentError` says why there is none."""
    document = json_text.from_json(data, source, "reference", REFERENCE_SCHEMA_VERSION)
    return json_text.converted(document, Reference, source, "reference")


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a saved examination, which `docs/doctor.schema.json` holds."""
    return json_text.described(Examination, "pyxfer examination", "docs/doctor.schema.json")


def save(examination: Examination, path: Path) -> None:
    """Write it to a file, whole or not at all; a file that was there stays as it was if anything fails."""
    write_whole(path, encode(examination))


def load(path: Path) -> Examination:
    """The examination in a file; `DocumentError` says why there is none."""
    return decode(read_whole(path), repr(os.fspath(path)))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
