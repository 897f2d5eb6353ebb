"""The installed frameworks, and the limits of their tests."""

from __future__ import annotations

import importlib.util

import pytest

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
