from __future__ import annotations

import pytest
from xfer_samples import row_of

from pyxfer._document.runs import Remark
from pyxfer._document.sessions import Judged
from pyxfer._report.prose import folded
from pyxfer._report.session import notes, table_lines

LONG = "tests/test_copies.py::TestEverything::test_that_has_a_very_long_name_indeed[float32-channels_last-"


def texts(*tests: object, words: dict[str, str] | None = None, width: int = 80) -> list[str]:
    return [line for line, _ in table_lines(tests, words or {}, width)]  # type: ignore[arg-type]


def test_names_omit_a_common_file() -> None:
    slow = row_of("tests/test_a.py::test_b", 0.5, judged=Judged("too slow"), nbytes=1536)
    assert texts(row_of(), slow) == [
        "test       dir      size   GB/s   +-  of ceiling  verdict",
        "test_copy  h2d     1 MiB   2.00  1 %     100.0 %  fine",
        "test_b     h2d  1.536 KB  0.500  1 %      25.0 %  too slow",
    ]


def test_without_limits_and_comparison_there_is_no_verdict_column() -> None:
    assert texts(row_of(judged=Judged()))[0].endswith("of ceiling")


def test_a_comparison_follows_the_verdict() -> None:
    row = texts(row_of(), words={"tests/test_a.py::test_copy": "7.2 % slower"})[1]
    assert row.endswith("fine, 7.2 % slower")


def test_names_of_several_files_have_the_file() -> None:
    rows = texts(row_of("tests/a/test_a.py::test_copy"), row_of("tests/b/test_b.py::test_copy"))
    assert [row.split()[0] for row in rows[1:]] == ["test_a.py::test_copy", "test_b.py::test_copy"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_long_names_are_shortened_in_the_middle(width: int) -> None:
    tests = [row_of(f"{LONG}{size}]", judged=Judged("unsure")) for size in ("1MiB", "256MiB")]
    rows = texts(*tests, words={test.test: "12.5 % slower" for test in tests}, width=width)
    assert all(len(row) <= max(width, 80) for row in rows)
    names = [row.split()[0] for row in rows[1:]]
    assert all(name.startswith("TestE") and "..." in name and name.endswith("MiB]") for name in names)
    assert len(set(names)) == len(names)


def test_names_are_printable() -> None:
    (row,) = texts(row_of("test_a.py::test_\x1b[31mred\x1b[0m\u202e\n"))[1:]
    assert row.startswith("test_red ")
    assert row.isprintable()


def test_equal_remarks_share_one_note() -> None:
    texts_below = notes([row_of("a.py::test_1", None, remarks=()), row_of("a.py::test_2"), row_of("a.py::test_3")])
    assert texts_below == ["test_1: no bandwidth: the bandwidth cannot be", "test_2, test_3: the time drifted"]
    assert "-" in texts(row_of("a.py::test_1", None, judged=Judged()))[1]
    assert texts(row_of("a.py::test_1", None, judged=Judged()))[1].endswith("no result")


def test_missed_precision_is_one_note() -> None:
    unstable = (Remark("unstable", "the median is known within 2 %, not 0.5 %", "--xfer-budget=4s"),)
    tests = [row_of(f"a.py::test_{number}", remarks=unstable) for number in range(4)]
    (note,) = notes(tests)
    assert note.startswith("test_0, test_1 and 2 more: precision (+-) not reached")


def test_paragraphs_are_folded_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = folded("word " * 40).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("  ") for line in lines[1:])
