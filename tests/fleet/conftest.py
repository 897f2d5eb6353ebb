"""Fixtures of the tests of fleets."""

from __future__ import annotations

import pytest
from in_process import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process: for pages and refusals, which need neither signals nor streams of their own."""
    for name in ("NO_COLOR", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Command(capsys)
