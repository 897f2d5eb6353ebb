"""`pyxfer baseline list, show, remove, export, import`: what a user types, and reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from baseline.store.making import make_baseline, run_at
from command_line import in_terminal, pyxfer
from samples import make_run
from typer.testing import CliRunner

from pyxfer._baseline.store import open_store
from pyxfer._cli.main import app
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with two baselines of one name on two hosts, and one whose name attacks the terminal."""
    path = str(tmp_path / "store.db")
    monkeypatch.setenv("PYXFER_STORE", path)
    with open_store(path) as opened:
        for host in ("node-7", "node-8"):
            opened.add_baseline(make_baseline(host=host))
        slower = tuple(run_at(day, slower=1 + day / 100) for day in (1, 2, 3))
        opened.add_baseline(make_baseline("two\nlines \x1b[31m", labels={"slot\n": "<b>3"}, runs=slower))
    return path


def output_of(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["baseline", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.usefixtures("store")
def test_list_has_a_line_per_name_and_machine() -> None:
    lines = output_of("list").splitlines()
    assert lines[0].endswith(": 3")
    assert lines[1].split() == ["name", "host", "GPU", "made", "(UTC)", "runs", "id"]
    assert [line.split()[:2] for line in lines[2:]] == [
        ["default", "node-7"],
        ["two\\nlines", "\\x1b[31m"],
        ["default", "node-8"],
    ]


@pytest.mark.usefixtures("store")
def test_list_can_be_restricted_to_a_host() -> None:
    kept = json.loads(output_of("list", "--host", "node-8", "--export-json", "-"))["baselines"]
    assert [(each["fingerprint"]["host"], each["name"]) for each in kept] == [("node-8", "default")]
    assert "no baseline of the host 'node-9'" in output_of("list", "--host", "node-9")


@pytest.mark.slow
def test_pages_fit_a_terminal_and_are_printable(store: str) -> None:
    for arguments in (["list"], ["show", "two\nlines \x1b[31m"]):
        code, text = in_terminal("baseline", *arguments, "--store", store, NO_COLOR="1")
        assert code == 0
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80


@pytest.mark.usefixtures("store")
def test_show_has_processes_and_cells() -> None:
    text = output_of("show", "two\nlines \x1b[31m")
    assert "two\\nlines \\x1b[31m: node-7" in text
    assert "slot\\n  <b>3" in text
    assert text.count("2026-01-0") == 4, "when it was made, and each process"
    assert text.splitlines()[-1].split() == ["h2d:pinned:16MiB", "53.92", "53.39", "54.45", "3"]


@pytest.mark.usefixtures("store")
def test_an_ambiguous_name_needs_a_host_or_an_id() -> None:
    message = output_of("show", code=2)
    assert "2 machines have a baseline 'default': name one by its id, b-" in message
    assert "node-8, GPU-" in message
    assert "default: node-8" in output_of("show", "--host", "node-8")
    found = json.loads(output_of("show", "--host", "node-8", "--export-json", "-"))
    assert found["baseline"]["fingerprint"]["host"] == "node-8"
    assert "default: node-8" in output_of("show", found["id"])


@pytest.mark.usefixtures("store")
def test_the_own_host_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "node-8")
    assert "default: node-8" in output_of("show")


@pytest.mark.usefixtures("store")
def test_an_unknown_name_lists_the_known_names() -> None:
    assert "no baseline 'old'; it has 'default', 'two\\nlines" in output_of("show", "old", code=2)


@pytest.mark.usefixtures("store")
def test_remove_keeps_the_history() -> None:
    assert "removed the baseline 'default' of node-7" in output_of("remove", "default", "--host", "node-7")
    kept = json.loads(output_of("list", "--export-json", "-"))["baselines"]
    assert [each["name"] for each in kept] == ["two\nlines \x1b[31m", "default"]
    assert "no baseline 'default' of the host 'node-7'" in output_of("remove", "default", "--host", "node-7", code=2)
    history = CliRunner().invoke(app, ["history", "--host", "node-7"])
    assert "points: 6" in history.output


def test_a_run_cannot_be_imported(tmp_path: Path) -> None:
    make_run().save(tmp_path / "run.json")
    done = pyxfer("baseline", "import", str(tmp_path / "run.json"), "--store", str(tmp_path / "store.db"))
    assert done.returncode == 2
    assert "is a run, not a baseline" in done.stderr
    assert not (tmp_path / "store.db").exists()


@pytest.mark.usefixtures("store")
def test_an_export_can_be_imported_into_another_store(tmp_path: Path) -> None:
    file, other = str(tmp_path / "b.json"), str(tmp_path / "other.db")
    assert "3 runs, to " in output_of("export", "default", file, "--host", "node-7")
    assert "added 'default' of node-7 as b-" in output_of("import", file, "--store", other)
    assert "already has this baseline as b-" in output_of("import", file, "--store", other)
    assert output_of("list", "--store", other).splitlines()[0].endswith(": 1")


@pytest.mark.usefixtures("store")
def test_an_export_to_stdout_is_only_the_document() -> None:
    result = CliRunner().invoke(app, ["baseline", "export", "default", "-", "--host", "node-7"])
    assert codec.decode(Baseline, result.stdout.encode()) == make_baseline()


@pytest.mark.parametrize("verb", [["list"], ["show"], ["remove", "x"], ["export", "x", "-"]])
def test_a_missing_store_is_not_created(tmp_path: Path, verb: list[str]) -> None:
    path = tmp_path / "store.db"
    assert path.name in output_of(*verb, "--store", str(path), code=2)
    assert not path.exists()


def test_a_store_error_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no store")
    result = pyxfer("baseline", "list", PYXFER_STORE=str(other))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"pyxfer: '{other}' is not a pyxfer store")
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("store")
def test_an_exported_baseline_can_be_shown(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    make_baseline(labels={"slot": "3"}).save(file)
    result = CliRunner().invoke(app, ["show", str(file)])
    assert result.exit_code == 0, result.output
    assert "default: node-7" in result.output
    assert result.output.splitlines()[-1].split() == ["h2d:pinned:16MiB", "55.00", "55.00", "55.00", "3"]
    unsorted = CliRunner().invoke(app, ["show", str(file), "--sort", "gbps"])
    assert (unsorted.exit_code, unsorted.stdout) == (2, "")
    assert "--sort" in unsorted.output
