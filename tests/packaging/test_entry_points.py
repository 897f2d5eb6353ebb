"""What other programs find pyxfer by."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import pytest


def test_pytest_finds_the_plugin() -> None:
    try:
        found = distribution("pyxfer").entry_points
    except PackageNotFoundError:
        pytest.skip("pyxfer is used from its source, and nothing is installed that could be found")
    (plugin,) = [each for each in found if each.group == "pytest11"]
    assert (plugin.name, plugin.value) == ("pyxfer", "pyxfer.pytest_plugin")
    assert callable(plugin.load().pytest_addoption)
