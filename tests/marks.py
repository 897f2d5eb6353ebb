"""Cases of a test that are left out of a quick run."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: object) -> Any:
    """A case that shows again in another combination what the other cases of the test show."""
    return pytest.param(*values, marks=pytest.mark.slow)
