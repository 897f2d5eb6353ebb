from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyxfer._document.runs import Fact
from pyxfer._machine.sysfs import format_cpu_list, parse_cpu_list, read_cpu_list, read_int, read_text


def why(fact: Fact[Any]) -> str:
    assert fact.value is None
    return fact.reason or ""


def test_missing_file_gives_a_reason_with_its_path(tmp_path: Path) -> None:
    assert f"{tmp_path}/no" in why(read_text(tmp_path / "no"))
    assert "No such file or directory" in why(read_text(tmp_path / "no"))


def test_folder_gives_a_reason(tmp_path: Path) -> None:
    assert "Is a directory" in why(read_text(tmp_path))


def test_empty_file_gives_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    assert f"{tmp_path}/empty is empty" in why(read_text(tmp_path / "empty"))


def test_bytes_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"ab\xff\0")
    assert read_text(tmp_path / "odd").value == "ab\N{REPLACEMENT CHARACTER}"


def test_text_in_place_of_a_number_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("many\n")
    assert "'many'" in why(read_int(tmp_path / "n"))


def test_text_in_place_of_a_cpu_list_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("all\n")
    assert "'all'" in why(read_cpu_list(tmp_path / "n"))


@pytest.mark.parametrize("text", ["0", "0-3", "0-3,8", "1,3,5-6", ""])
def test_cpu_lists_are_parsed_and_formatted(text: str) -> None:
    assert format_cpu_list(parse_cpu_list(text)) == text


def test_cpu_list_includes_its_ranges() -> None:
    assert parse_cpu_list("0-2, 7") == {0, 1, 2, 7}
