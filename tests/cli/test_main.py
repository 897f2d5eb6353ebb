from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from command_line import environment, pyxfer
from typer.testing import CliRunner

from pyxfer._cli.main import app

VERBS = ("ceiling", "compare", "doctor", "history", "info", "list", "show", "tune")


def test_the_version_is_that_of_the_package() -> None:
    result = pyxfer("--version")
    assert result.stdout == f"pyxfer {metadata.version('pyxfer')}\n"
    assert result.returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert f"Example:\n    pyxfer {verb}" in result.stdout


def test_the_help_names_every_verb_and_every_exit_code() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    assert [verb for verb in VERBS if f"\n  {verb} " not in text] == []
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["ceiling", "--colour"], "No such option"),
        (["ceiling", "--seed", "x"], "--seed"),
        (["show"], "Missing argument"),
    ],
)
def test_usage_errors_exit_with_2(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_shell_completion_works() -> None:
    result = pyxfer("ceiling", _PYXFER_COMPLETE="complete_bash", COMP_WORDS="pyxfer s", COMP_CWORD="1")
    assert result.stdout.split() == ["show"]
