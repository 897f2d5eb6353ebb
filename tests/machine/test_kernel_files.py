from __future__ import annotations

from pathlib import Path

import pytest

from pyxfer._machine.sysfs import format_cpu_list, parse_cpu_list, read_cpu_list, read_int, read_text


def test_missing_file_is_a_reason_with_its_path(tmp_path: Path) -> None:
    assert read_text(tmp_path / "no").reason == f"{tmp_path}/no cannot be read: No such file or directory"


def test_folder_in_place_of_a_file_is_a_reason(tmp_path: Path) -> None:
    assert read_text(tmp_path).reason == f"{tmp_path} cannot be read: Is a directory"


def test_empty_file_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    assert read_text(tmp_path / "empty").reason == f"{tmp_path}/empty is empty"


def test_bytes_that_are_no_text_do_not_raise(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"ab\xff\0")
    assert read_text(tmp_path / "odd").value == "ab\N{REPLACEMENT CHARACTER}"


def test_words_where_a_number_belongs_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("many\n")
    assert read_int(tmp_path / "n").reason == f"{tmp_path}/n holds 'many', which is not a number"


def test_words_where_cpus_belong_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("all\n")
    assert read_cpu_list(tmp_path / "n").reason == f"{tmp_path}/n holds 'all', which is not a list of CPUs"


@pytest.mark.parametrize("text", ["0", "0-3", "0-3,8", "1,3,5-6", ""])
def test_cpu_lists_are_written_as_they_were_read(text: str) -> None:
    assert format_cpu_list(parse_cpu_list(text)) == text


def test_cpu_list_spans_its_ranges() -> None:
    assert parse_cpu_list("0-2, 7") == {0, 1, 2, 7}
