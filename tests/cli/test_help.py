"""Help pages, and the messages for a command line that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
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
        (("cieling",), "No such command 'cieling'. Did you mean 'ceiling'? See pyxfer --help"),
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
    assert "--help\n" in ended.stderr


@pytest.mark.parametrize("python", ["python", "python3.12", "/usr/bin/python3"])
def test_watch_starts_python_itself(command: Command, python: str) -> None:
    ended = command("watch", python, "train.py")
    assert ended.returncode == 2
    assert f"leave '{python}' out, as in pyxfer watch train.py" in ended.stderr
