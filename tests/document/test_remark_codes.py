"""The codes of remarks are a closed set."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import pyxfer
from pyxfer._document.remark_codes import REMARKS, Severity, severity_of
from pyxfer._document.runs import INFLATED
from pyxfer._document.watches import FIRST_STEPS

SOURCES = sorted(Path(pyxfer.__file__).parent.rglob("*.py"))
NAMED = {"INFLATED": INFLATED, "FIRST_STEPS": FIRST_STEPS}


def codes_in(path: Path) -> set[str]:
    """The code of each remark that a source makes."""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    made = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "Remark"]
    found = set()
    for call in made:
        code = call.args[0] if call.args else next(each.value for each in call.keywords if each.arg == "code")
        found.add(str(code.value) if isinstance(code, ast.Constant) else NAMED[ast.unparse(code).rpartition(".")[2]])
    return found


def test_the_set_has_the_codes_of_the_sources_and_no_others() -> None:
    assert set().union(*map(codes_in, SOURCES)) == set(REMARKS)


@pytest.mark.parametrize("code", REMARKS)
def test_a_code_has_a_severity_and_a_meaning_in_one_sentence(code: str) -> None:
    assert REMARKS[code].severity in get_args(Severity)
    assert REMARKS[code].meaning.endswith(".")
    assert code == code.lower().replace(" ", "-")


def test_a_code_of_a_later_pyxfer_is_a_doubt() -> None:
    assert severity_of("later") == "doubt"
