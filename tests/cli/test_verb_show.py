from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import in_terminal, shell
from document.test_codec import TEXTS
from in_process import Command
from marks import slow
from pages import full_run, printed
from samples import make_run
from typer.testing import CliRunner
from watch_samples import make_watched

from pyxfer._cli.main import app
from pyxfer._document import codec
from pyxfer._document.codec import Kind
from pyxfer._document.derivations import derived
from pyxfer._report.run import print_run
from pyxfer._report.watch import print_watch

RUN = derived("run", full_run())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    RUN.save(path)
    return path


def test_a_saved_run_is_printed_as_when_it_was_measured(saved: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(saved)])
    assert result.exit_code == 0
    assert result.stdout == printed(lambda page: print_run(RUN, page))


def test_sorted_by_rate_the_fastest_is_first(saved: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(saved), "--sort", "gbps"])
    table = result.stdout.partition("\nFits")[0]
    rows = [line for line in table.splitlines() if line.startswith("raw.") and "iB" in line]
    assert "both sum" in rows[0]
    assert "4 KiB" in rows[-1]


def test_a_saved_watch_is_printed_as_when_it_was_watched(tmp_path: Path) -> None:
    watched = make_watched()
    watched.save(tmp_path / "watch.json")
    result = CliRunner().invoke(app, ["show", str(tmp_path / "watch.json")])
    assert result.exit_code == 0
    assert result.stdout == printed(lambda page: print_watch(watched, page))


@pytest.mark.parametrize("kind", codec.KINDS, ids=lambda kind: kind.name)
def test_every_kind_is_shown(command: Command, tmp_path: Path, kind: Kind[Any]) -> None:
    (tmp_path / "it.json").write_bytes(TEXTS[kind.name])
    result = command("show", str(tmp_path / "it.json"))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize("pipe", ["cat {0}", slow("gzip -c {0}")])
def test_a_dash_reads_stdin(saved: Path, pipe: str) -> None:
    result = shell(f"pyxfer show - < <({pipe.format(saved)})")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == printed(lambda page: print_run(RUN, page))


def test_sort_is_refused_for_a_watch(command: Command, tmp_path: Path) -> None:
    make_watched().save(tmp_path / "watch.json")
    result = command("show", str(tmp_path / "watch.json"), "--sort", "gbps")
    assert result.returncode == 2
    assert "--sort" in result.stderr


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"{", "is cut short"),
        (b"[]", "not a pyxfer run"),
        (b"\x89PNG", "is not JSON"),
        (b'{"schema_version": 999}', "schema_version 999"),
    ],
)
def test_an_invalid_file_is_refused_with_2(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    result = CliRunner().invoke(app, ["show", str(tmp_path / "bad.json")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


def test_a_missing_file_is_refused_with_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "none.json" in result.stderr


def test_an_unknown_order_is_refused_with_2(saved: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(saved), "--sort", "colour"])
    assert result.exit_code == 2
    assert "choose one of size, gbps, route, direction, memory, mode" in result.stderr


def test_in_a_terminal_of_80_columns_it_is_coloured_and_no_line_is_longer(command: Command, saved: Path) -> None:
    code, text = in_terminal("show", str(saved))
    assert code == 0
    assert "\x1b[1m" in text
    plain = command("show", str(saved)).stdout
    assert [line for line in plain.splitlines() if "pinned" in line and len(line) > 80] == []


def test_with_no_color_a_terminal_is_sent_no_escape(saved: Path) -> None:
    code, text = in_terminal("show", str(saved), NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_hostile_file_sends_a_terminal_nothing_but_colour(tmp_path: Path) -> None:
    bell = "\x1b]0;owned\x07\x1b[2Jname"
    make_run(ended="failed", failure=bell).save(tmp_path / "run.json")
    _, text = in_terminal("show", str(tmp_path / "run.json"))
    assert "owned" not in text
    assert "\x1b[2J" not in text
    assert "Failed: name" in text
