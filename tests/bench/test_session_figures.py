from __future__ import annotations

from pathlib import Path

from session_figures import session_page
from xfer_samples import row_of, session

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_pytest_prints_in_a_terminal_of_80_columns() -> None:
    lines = session_page(session(row_of(), row_of("tests/test_b.py::test_other", None))).splitlines()
    assert lines[0] == lines[-1] == "```"
    assert lines[1] == "--------------------- pyxfer: host memory, not a PCIe link ---------------------"
    assert lines[2].split() == ["test", "dir", "size", "GB/s", "+-", "of", "ceiling", "verdict"]
    assert max(map(len, lines)) <= 80


def test_the_guide_shows_the_code_of_the_summarised_tests() -> None:
    _, _, body = (ROOT / "bench" / "pytest_example.py").read_text().partition('"""\n\n')
    assert f"```python\n{body}```" in (ROOT / "docs" / "pytest.md").read_text()
