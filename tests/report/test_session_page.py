from __future__ import annotations

import io
from pathlib import Path

from command_line import pyxfer
from xfer_samples import row_of, session

from pyxfer._document.sessions import XferSession
from pyxfer._report.layout import Page
from pyxfer._report.session import print_session


def page_of(session: XferSession, columns: int | None = None) -> str:
    stream = io.StringIO()
    print_session(session, Page(stream, columns))
    return stream.getvalue()


def test_a_session_is_printed_as_by_pytest() -> None:
    lines = page_of(session(row_of(), row_of("tests/test_a.py::test_other", None)), 80).splitlines()
    assert lines[:2] == [
        "pyxfer: host memory, not a PCIe link",
        "test        dir   size  GB/s   +-  of ceiling  verdict",
    ]
    assert lines[2].split()[:4] == ["test_copy", "h2d", "1", "MiB"]
    assert max(map(len, lines)) <= 80


def test_the_command_shows_a_saved_session(tmp_path: Path) -> None:
    session().save(tmp_path / "main.json")
    result = pyxfer("show", str(tmp_path / "main.json"))
    assert result.returncode == 0, result.stderr
    assert "test_copy  h2d" in result.stdout
    assert pyxfer("show", "--sort", "gbps", str(tmp_path / "main.json")).returncode == 2
