"""What holds for every test of staging."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from staging.feeding import SOON_S, threads

from pyxfer.sampling import exclusive


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else tunes on this machine is no company for these tests."""
    monkeypatch.setattr(exclusive, "_shared_folder", lambda: tmp_path / "measuring")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for each in threads():
        each.join(SOON_S)
    assert threads() == []
