"""One option saves in every verb: --export-FORMAT FILE. The earlier names stay valid and are not in the help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from baseline.store.making import make_baseline
from in_process import Command
from samples import make_run

from pyxfer._baseline.store import open_store
from pyxfer._cli.failures import NotKeptError
from pyxfer._cli.output import Outlet
from pyxfer._document import codec
from pyxfer._document.baselines import Comparison
from pyxfer.errors import UsageError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "store.db")
    monkeypatch.setenv("PYXFER_STORE", path)
    with open_store(path) as opened:
        opened.add_baseline(make_baseline())
    return path


@pytest.fixture
def saved(tmp_path: Path) -> str:
    make_run().save(tmp_path / "run.json")
    return str(tmp_path / "run.json")


SAVING = [
    ("info",),
    ("list",),
    ("list", "routes"),
    ("doctor", "SAVED"),
    ("compare", "SAVED", "SAVED"),
    ("history", "--host", "node-7"),
    ("baseline", "list"),
    ("baseline", "show", "default", "--host", "node-7"),
]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("verb", SAVING, ids=" ".join)
def test_every_verb_saves_json_beside_its_page(
    command: Command, tmp_path: Path, saved: str, verb: tuple[str, ...]
) -> None:
    arguments = [saved if word == "SAVED" else word for word in verb]
    result = command(*arguments, "--export-json", str(tmp_path / "out.json"))
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert not result.stdout.startswith("{")
    assert json.loads((tmp_path / "out.json").read_bytes())
    assert json.loads(command(*arguments, "--export-json", "-").stdout)


HELP = ["info", "list", "tune", "doctor", "compare", "history", "baseline list", "baseline show", "baseline check"]


@pytest.mark.parametrize("verb", HELP)
def test_earlier_names_are_not_in_the_help(command: Command, verb: str) -> None:
    text = command(*verb.split(), "--help").stdout
    assert "--export-json FILE" in text
    assert not [name for name in (" --json", "--format", "--output") if name in text]


def test_earlier_names_stay_valid(command: Command, tmp_path: Path, saved: str) -> None:
    by_form = command("compare", saved, saved, "--format", "json").stdout
    assert codec.decode(Comparison, by_form.encode())
    command("compare", saved, saved, "--format", "json", "-o", str(tmp_path / "old.json"))
    command("compare", saved, saved, "--export-json", str(tmp_path / "new.json"))
    assert (tmp_path / "old.json").read_text() == (tmp_path / "new.json").read_text() == by_form
    assert "findings" in json.loads(command("doctor", saved, "--json").stdout)


def test_one_call_saves_several_formats(command: Command, tmp_path: Path, saved: str) -> None:
    options = ("--export-json", str(tmp_path / "it.json"), "--export-md", str(tmp_path / "it.md"))
    assert command("compare", saved, saved, *options).returncode == 0
    assert codec.load(Comparison, tmp_path / "it.json")
    assert "**AMBIGUOUS" in (tmp_path / "it.md").read_text()
    options = ("--export-json", str(tmp_path / "it"), "--export-md", str(tmp_path / "it"))
    assert command("compare", saved, saved, *options).returncode == 2


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make the folder first"):
        Outlet({"json": str(tmp_path / "no" / "it.json")})


def test_two_exports_to_stdout_are_refused() -> None:
    with pytest.raises(UsageError, match="only one export can go to stdout"):
        Outlet({"json": "-", "md": "/dev/stdout"})


def test_a_file_that_is_lost_at_the_end_keeps_the_page_and_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outlet = Outlet({"json": "/dev/full", "md": str(tmp_path / "it.md")})
    with pytest.raises(NotKeptError, match="/dev/full"):
        outlet.deliver({"json": lambda: "{}", "md": lambda: "# it"}, lambda page: page.line("the page"))
    assert (tmp_path / "it.md").read_text() == "# it"
    assert capsys.readouterr().out == "the page\n"
