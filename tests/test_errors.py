from __future__ import annotations

import inspect
import pickle

import pytest

from pyxfer import errors
from pyxfer.errors import (
    CleanupWarning,
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DeviceTimeoutError,
    DocumentError,
    FallbackWarning,
    ForkedError,
    MeasurementError,
    PyxferError,
    UsageError,
)

CUDA_ERRORS = (CudaError, CudaUnavailableError, CudaMemoryError, DeviceLostError)
ARGUMENTS = (
    2,
    "cudaErrorMemoryAllocation",
    "cudaMalloc",
    "csrc/cuda/memory.cpp:14",
    "out of memory",
    "Free some.",
)


def test_every_error_is_a_pyxfer_error() -> None:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert len(found) > 10
    assert [kind for kind in found if not issubclass(kind, (PyxferError, CleanupWarning, FallbackWarning))] == []


@pytest.mark.parametrize(
    ("error", "also"),
    [
        (UsageError, ValueError),
        (DocumentError, ValueError),
        (MeasurementError, RuntimeError),
        (DeviceTimeoutError, TimeoutError),
        (ForkedError, RuntimeError),
        (CudaError, RuntimeError),
        (CudaMemoryError, MemoryError),
        (CleanupWarning, ResourceWarning),
        (FallbackWarning, RuntimeWarning),
    ],
)
def test_errors_derive_from_builtin_ones(error: type[Exception], also: type[Exception]) -> None:
    assert issubclass(error, also)


@pytest.mark.parametrize("kind", CUDA_ERRORS)
def test_a_cuda_error_has_its_fields_and_a_message(kind: type[CudaError]) -> None:
    error = kind(*ARGUMENTS)
    start = "cudaMalloc failed with cudaErrorMemoryAllocation (2): out of memory."
    assert str(error) == f"{'No usable GPU:' if kind is CudaUnavailableError else start} Free some."
    assert (error.code, error.name, error.call, error.where, error.description, error.hint) == ARGUMENTS


def test_a_cuda_error_may_have_no_hint() -> None:
    assert str(CudaError(*ARGUMENTS[:5], "")).endswith("out of memory.")


@pytest.mark.parametrize("kind", CUDA_ERRORS)
def test_a_cuda_error_can_be_pickled(kind: type[CudaError]) -> None:
    error = kind(*ARGUMENTS)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is kind
    assert (str(copied), vars(copied)) == (str(error), vars(error))
