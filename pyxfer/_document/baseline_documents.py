"""Baseline documents: a baseline with its runs in one file, saved whole or not at all, and read with care.

`python -m pyxfer._document.baseline_documents` prints the JSON Schema of a baseline.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import msgspec

from pyxfer._document import documents, json_text
from pyxfer._document.baselines import BASELINE_SCHEMA_VERSION, Baseline
from pyxfer._document.files import Path, read_whole, write_whole
from pyxfer._document.runs import SCHEMA_VERSION, Run
from pyxfer.errors import DocumentError

MOST_RUNS = 1000


def encode(baseline: Baseline) -> bytes:
    """The document as JSON that a person can read too."""
    return documents.on_fewer_lines(json_text.to_json(baseline)) + b"\n"


def decode(data: bytes, source: str = "this document") -> Baseline:
    """The baseline in these bytes; `DocumentError`, which names the source, says why there is none."""
    document = json_text.from_json(data, source, "baseline", BASELINE_SCHEMA_VERSION)
    runs = document.get("runs")
    if document.get("kind") != "baseline" or not isinstance(runs, list):
        raise DocumentError(f"{source} is not a pyxfer baseline; name a file that pyxfer baseline export wrote")
    if not 1 <= len(runs) <= MOST_RUNS:
        raise DocumentError(f"{source} has {len(runs)} runs, and a baseline has 1 to {MOST_RUNS}; export it again")
    # Each of them is of the version of the pyxfer that measured it.
    read = tuple(_run(run, f"run {number} of {source}") for number, run in enumerate(runs, start=1))
    baseline = json_text.converted({**document, "runs": []}, Baseline, source, "baseline")
    return msgspec.structs.replace(baseline, runs=read)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a baseline, which `docs/baseline.schema.json` holds."""
    return json_text.described(Baseline, "pyxfer baseline", "docs/baseline.schema.json")


def save(baseline: Baseline, path: Path) -> None:
    """Write it to a file, whole or not at all; a file that was there stays as it was if anything fails."""
    write_whole(path, encode(baseline))


def load(path: Path) -> Baseline:
    """The baseline in a file; `DocumentError` says why there is none."""
    return decode(read_whole(path), repr(os.fspath(path)))


def _run(document: object, source: str) -> Run:
    return documents.from_document(json_text.checked(document, source, "run", SCHEMA_VERSION), source)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
