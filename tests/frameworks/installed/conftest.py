"""One run of every installed framework over host memory, shared by many tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.conftest import nothing_registered
from frameworks.installed.available import PATIENCE_S
from route_checks import import_or_skip
from upload.conftest import own_uploaders

import pyxfer
from pyxfer._document.runs import FrameworkName

__all__ = ["framework", "nothing_registered", "own_uploaders", "whole_run"]


@pytest.fixture(params=["torch", "tensorflow", "jax"])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FrameworkName:
    """Each framework that is installed."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    import_or_skip(request.param)
    name: FrameworkName = request.param
    return name


@pytest.fixture(scope="session")
def whole_run(meeting_place: Path) -> pyxfer.Run:
    """What every framework makes of an array below, well within and beyond 32 MiB."""
    del meeting_place
    return pyxfer.frameworks(device="host", size="1MiB,16MiB,48MiB", budget=4.0, seed=1, patience=PATIENCE_S)
