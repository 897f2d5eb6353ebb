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
    "csrc/cuda/device_buffer.cpp:14",
    "out of memory",
    "Free some.",
)


def test_every_error_is_one_of_pyxfers() -> None:
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]
    assert len(found) > 10
    assert [each for each in found if not issubclass(each, (PyxferError, CleanupWarning, FallbackWarning))] == []


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
def test_an_error_can_be_caught_as_the_usual_one_of_its_kind(error: type[Exception], also: type[Exception]) -> None:
    assert issubclass(error, also)


@pytest.mark.parametrize("kind", CUDA_ERRORS)
def test_a_cuda_error_says_what_happened_with_what_and_what_to_do(kind: type[CudaError]) -> None:
    error = kind(*ARGUMENTS)
    assert str(error) == "cudaMalloc failed with cudaErrorMemoryAllocation (2): out of memory. Free some."
    assert (error.code, error.name, error.call, error.where, error.description, error.hint) == ARGUMENTS


def test_without_advice_the_sentence_ends_there() -> None:
    assert str(CudaError(*ARGUMENTS[:5], "")).endswith("out of memory.")


@pytest.mark.parametrize("kind", CUDA_ERRORS)
def test_a_cuda_error_goes_whole_through_a_pickle(kind: type[CudaError]) -> None:
    error = kind(*ARGUMENTS)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is kind
    assert (str(copied), vars(copied)) == (str(error), vars(error))
