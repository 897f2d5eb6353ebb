"""Documents of pytest sessions: saved whole or not at all, read with care.

`python -m pyxfer._document.xfer_documents` prints the JSON Schema of a session.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from pyxfer._document import json_text
from pyxfer._document.files import Path, read_whole, write_whole
from pyxfer._document.runs import Ending, Parameters, Placement, Run, unknown
from pyxfer._document.sessions import XFER_SCHEMA_VERSION, Tested, XferSession
from pyxfer.errors import DocumentError

_TRIAL = re.compile(rb'\{\s*"round":[^{}]*\}')
_NOT_TAKEN = "a test runs where pytest runs it"


def encode(session: XferSession) -> bytes:
    """The document as JSON that a person can read too, a trial on a line of its own."""
    return json_text.on_one_line(json_text.to_json(session), _TRIAL) + b"\n"


def decode(data: bytes, source: str = "this document") -> XferSession:
    """The session in these bytes; `DocumentError`, which names the source, says why there is none."""
    document = json_text.from_json(data, source, "pytest session", XFER_SCHEMA_VERSION)
    if document.get("kind") != "pytest":
        raise DocumentError(f"{source} is not what pytest --xfer-save or --xfer-json has written, but of another kind")
    session = json_text.converted(document, XferSession, source, "pytest session")
    if any(not 0 <= result.place < len(session.places) for result in session.tests):
        raise DocumentError(f"{source} has a test whose place it does not have, so it was not written by pyxfer")
    return session


def save(session: XferSession, path: Path) -> None:
    """Write it to a file, whole or not at all; a file that was there stays as it was if anything fails."""
    write_whole(path, encode(session))


def load(path: Path) -> XferSession:
    """The session in a file; `DocumentError` says why there is none."""
    return decode(read_whole(path), repr(os.fspath(path)))


def runs(session: XferSession) -> tuple[Run, ...]:
    """A run for each place, which is what runs are compared by; its routes are node ids."""
    return tuple(_run(session, number) for number in range(len(session.places)))


def _run(session: XferSession, number: int) -> Run:
    place = session.places[number]
    results = [result for result in session.tests if result.place == number]
    ended: Ending = session.ended
    return Run(
        kind="measure",
        ended=ended,
        runtime=place.runtime,
        runtime_reason=place.runtime_reason,
        parameters=_parameters(str(place.device.index), results),
        device=place.device,
        link=place.link,
        placement=Placement(unknown(_NOT_TAKEN), unknown(_NOT_TAKEN), unknown(_NOT_TAKEN), unknown(_NOT_TAKEN)),
        environment=place.environment,
        measurements=tuple(result.measurement for result in results),
    )


def _parameters(device: str, results: list[Tested]) -> Parameters:
    rows = [result.measurement for result in results]
    return Parameters(
        device=device,
        directions=tuple(dict.fromkeys(row.direction for row in rows)),
        memories=(),
        modes=tuple(dict.fromkeys(row.mode for row in rows)),
        sizes_bytes=tuple(sorted({row.nbytes for row in rows})),
        fresh=False,
        precision=max((result.precision for result in results), default=0.0),
        budget_s=max((result.budget_s for result in results), default=0.0),
        seed=0,
        min_rounds=1,
    )


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a saved session, which `docs/xfer.schema.json` holds."""
    return json_text.described(XferSession, "pyxfer pytest session", "docs/xfer.schema.json")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
