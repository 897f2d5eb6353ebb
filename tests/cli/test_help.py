"""Help pages, and the messages for a command line that cannot be read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
import typer
from command_line import environment, pyxfer
from in_process import Command

from pyxfer._cli.main import app


def verbs(group: Any, *above: str) -> Iterator[tuple[str, ...]]:
    for name, found in group.commands.items():
        yield (*above, name)
        if hasattr(found, "commands"):
            yield from verbs(found, *above, name)


VERBS = list(verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("verb", [(), *VERBS], ids=" ".join)
def test_help_has_an_example_of_the_verb(command: Command, verb: tuple[str, ...]) -> None:
    text = command(*verb, "--help").stdout
    assert f"\n    {' '.join(('pyxfer', *verb))}" in text.partition("Example:")[2]


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("group", [(), ("baseline",), ("fleet",)], ids=" ".join)
def test_no_summary_of_a_verb_is_cut_off(
    command: Command, group: tuple[str, ...], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    listed = command(*group, "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == len([verb for verb in VERBS if verb[:-1] == group])
    assert all(line.endswith(".") and not line.endswith("..") for line in listed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nope",), "No such option: --nope"),
        (("ceilin",), "No such command 'ceilin'"),
        (("cieling",), "No such command 'cieling'. Did you mean 'ceiling'? See pyxfer --help."),
        (("ceiling", "--nope"), "No such option: --nope"),
        (("ceiling", "--device"), "Option '--device' requires an argument"),
        (("ceiling", "--seed", "x"), "Invalid value for '--seed'"),
        (("explain",), "Missing argument 'ROUTE'"),
        (("baseline", "sav"), "No such command 'sav'"),
    ],
)
def test_an_unreadable_command_line_has_one_line_as_every_error(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    ended = command(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"pyxfer: {message}")
    assert ended.stderr.count("\n") == 1
    assert "--help.\n" in ended.stderr


@pytest.mark.parametrize("python", ["python", "python3.12", "/usr/bin/python3"])
def test_watch_starts_python_itself(command: Command, python: str) -> None:
    ended = command("watch", python, "train.py")
    assert ended.returncode == 2
    assert f"leave '{python}' out, as in pyxfer watch train.py." in ended.stderr


def test_the_version_is_that_of_the_package() -> None:
    result = pyxfer("--version")
    assert (result.returncode, result.stdout) == (0, f"pyxfer {metadata.version('pyxfer')}\n")


def test_the_help_names_every_verb_and_every_exit_code(command: Command) -> None:
    text = command("--help").stdout
    assert [verb for verb in VERBS if len(verb) == 1 and f"\n  {verb[0]} " not in text] == []
    codes = " ".join(text.split()).partition("Exit codes: ")[2]
    assert [code for code in ("0 ", ", 1 ", ", 2 ", ", 3 ", ", 4 ", ", 130 ") if code not in codes] == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ceiling", "--help"]])
def test_help_and_version_load_neither_numpy_nor_the_engine(arguments: list[str]) -> None:
    script = (
        "import sys; sys.argv = ['pyxfer', *sys.argv[1:]]\n"
        "from pyxfer.__main__ import main\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if name in ('numpy', 'rich', 'pyxfer.native._cuda')])"
    )
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert result.stdout.endswith("[]\n"), result.stderr
