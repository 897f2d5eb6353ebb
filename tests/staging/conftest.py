"""What holds for every test of staging."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from staging.feeding import SOON_S, threads


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for each in threads():
        each.join(SOON_S)
    assert threads() == []
