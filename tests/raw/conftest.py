"""Whoever else measures on this machine is no company for these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyxfer.sampling import exclusive


@pytest.fixture(autouse=True, scope="session")
def meeting_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where processes that measure find each other, for this test run alone."""
    folder = tmp_path_factory.mktemp("measuring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exclusive, "_shared_folder", lambda: folder)
        yield folder
