"""Fixtures of the tests on a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from route_checks import import_or_skip

from pyxfer._document.runs import FrameworkName


@pytest.fixture
def torch() -> Any:
    module: Any = import_or_skip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    return module


@pytest.fixture
def cupy() -> Any:
    return import_or_skip("cupy")


@pytest.fixture(params=["torch", "tensorflow", "jax", "cupy"])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FrameworkName:
    """Each installed framework, configured not to reserve all device memory."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module: Any = import_or_skip(request.param)
    if request.param == "tensorflow":
        for gpu in module.config.list_physical_devices("GPU"):
            with contextlib.suppress(RuntimeError):  # TensorFlow has started already
                module.config.experimental.set_memory_growth(gpu, True)
    name: FrameworkName = request.param
    return name
