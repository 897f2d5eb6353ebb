"""The installed frameworks, one run of all of them over host memory, and the limits of their tests."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from frameworks.conftest import nothing_registered
from route_checks import import_or_skip
from upload.conftest import own_uploaders

import pyxfer
from pyxfer._document.runs import FrameworkName
from pyxfer._upload import api, uploader
from pyxfer.native import Choice, Engine

__all__ = ["framework", "nothing_registered", "over_host_memory", "own_uploaders", "whole_run"]

TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "cupy": "CuPy", "jax": "JAX"}
# No step of these routes takes a second, but the processor may be busy with something else.
PATIENCE_S = 60.0
# Every test of this folder waits for workers, some of them several times.
SLOW = pytest.mark.timeout(600)


def is_installed(framework: str) -> bool:
    """Whether it could be imported; an import here would leave its threads in the process of the tests."""
    return importlib.util.find_spec(framework) is not None


def needs(*frameworks: str) -> pytest.MarkDecorator:
    """Skip a test where one of them is not installed."""
    absent = [TITLES[name] for name in frameworks if not is_installed(name)]
    return pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


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


@pytest.fixture
def over_host_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The functions of the package send to host memory, as if that were a GPU."""
    made: dict[Any, uploader.Uploader] = {}
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "host", ""))
    monkeypatch.setattr(api, "_by_name", {})
    monkeypatch.setattr(api, "_by_index", made)
    yield
    gc.collect()
    for each in made.values():
        each.close()
