from __future__ import annotations

import inspect

from pyxfer import units
from pyxfer._ceiling import session
from pyxfer._cli import measure


def test_the_defaults_are_those_of_the_python_function() -> None:
    typed = {name: parameter.default for name, parameter in inspect.signature(measure.ceiling).parameters.items()}
    called = {name: parameter.default for name, parameter in inspect.signature(session.ceiling).parameters.items()}
    assert typed["device"] == str(called["device"])
    assert typed["direction"].split(",") == list(called["directions"])
    assert typed["memory"].split(",") == list(called["memories"])
    assert typed["mode"].split(",") == list(called["modes"])
    assert typed["sizes"] == called["sizes"]
    assert typed["fresh"] == called["fresh"]
    assert typed["seed"] == called["seed"]
    assert units.parse_ratio(typed["precision"]) == called["precision"]
    assert units.parse_duration(typed["budget"]) == called["budget_s"]
