from __future__ import annotations

import inspect

import pytest
from in_process import Command

from pyxfer import units
from pyxfer._ceiling import session
from pyxfer._cli import measure


@pytest.mark.parametrize(
    "arguments",
    [
        ("--precision", "0.5"),
        ("ceiling", "--precision", "0.5"),
        ("frameworks", "--precision", "0.5"),
        ("explain", "torch.to", "--precision", "0.5"),
        ("baseline", "check", "--tolerance", "0.5"),
        ("compare", "a.json", "b.json", "--tolerance", "0.5"),
        ("compare", "a.json", "b.json", "--fail-on", "slower:0.5"),
    ],
)
def test_every_share_of_the_command_line_is_checked(command: Command, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.returncode == 2
    assert "'0.5' means 50%: write 0.5% or 50%." in " ".join(result.stderr.split())


def test_the_defaults_are_those_of_the_python_function() -> None:
    typed = {name: parameter.default for name, parameter in inspect.signature(measure.ceiling).parameters.items()}
    called = {name: parameter.default for name, parameter in inspect.signature(session.ceiling).parameters.items()}
    assert typed["device"] == str(called["device"])
    assert typed["directions"].split(",") == list(called["directions"])
    assert typed["memories"].split(",") == list(called["memories"])
    assert typed["modes"].split(",") == list(called["modes"])
    assert typed["sizes"] == called["sizes"]
    assert typed["fresh"] == called["fresh"]
    assert typed["seed"] == called["seed"]
    assert units.parse_ratio(typed["precision"]) == called["precision"]
    assert units.parse_duration(typed["budget"]) == called["budget_s"]
