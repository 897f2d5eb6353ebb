"""Marks for the cases of parametrized tests."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: object) -> Any:
    """A case that is left out of a quick run, because other cases of the test show the same behaviour."""
    return pytest.param(*values, marks=pytest.mark.slow)
