from __future__ import annotations

import pickle
import re

import pytest
from native.scenarios import NBYTES

from pyxfer.errors import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
)
from pyxfer.native import Engine
from pyxfer.native._host import testing


def malloc_failing_with(engine: Engine, code: int) -> CudaError:
    testing.fail("cudaMalloc", 1, code)
    with pytest.raises(CudaError) as caught:
        engine.DeviceBuffer(NBYTES)
    return caught.value


@pytest.mark.parametrize(
    ("code", "kind", "name", "advice"),
    [
        (1, CudaError, "cudaErrorInvalidValue", ""),
        (2, CudaMemoryError, "cudaErrorMemoryAllocation", "ask for smaller sizes"),
        (3, CudaError, "cudaErrorInitializationError", 'multiprocessing\'s "spawn"'),
        (34, CudaUnavailableError, "cudaErrorStubLibrary", "LD_LIBRARY_PATH"),
        (35, CudaUnavailableError, "cudaErrorInsufficientDriver", "install driver 525 or later"),
        (36, CudaError, "cudaErrorCallRequiresNewerDriver", "update it, or choose another mode"),
        (46, CudaError, "cudaErrorDevicesUnavailable", "end the process that holds it"),
        (100, CudaUnavailableError, "cudaErrorNoDevice", "CUDA_VISIBLE_DEVICES"),
        (214, DeviceLostError, "cudaErrorECCUncorrectable", "Xid"),
        (700, DeviceLostError, "cudaErrorIllegalAddress", "only a new process"),
        (712, CudaError, "cudaErrorHostMemoryAlreadyRegistered", "use it as pinned memory"),
        (709, DeviceLostError, "cudaErrorContextIsDestroyed", "cudaDeviceReset"),
        (710, DeviceLostError, "cudaErrorAssert", "only a new process"),
        (719, DeviceLostError, "cudaErrorLaunchFailure", "only a new process"),
        (802, CudaError, "cudaErrorSystemNotReady", "nvidia-fabricmanager"),
        (803, CudaError, "cudaErrorSystemDriverMismatch", "reboot"),
        (999, DeviceLostError, "cudaErrorUnknown", "Xid"),
    ],
)
def test_a_code_has_a_type_a_name_and_a_hint(
    engine: Engine, code: int, kind: type[CudaError], name: str, advice: str
) -> None:
    error = malloc_failing_with(engine, code)
    assert type(error) is kind
    assert (error.code, error.name, error.call) == (code, name, "cudaMalloc")
    assert advice in error.hint
    sentence = f"cudaMalloc failed with {name} ({code}): {error.description}."
    start = "No usable GPU:" if kind is CudaUnavailableError else sentence
    assert str(error) == f"{start} {error.hint}".rstrip()


def test_an_error_has_its_place_in_the_sources(engine: Engine) -> None:
    assert re.fullmatch(r"csrc/cuda/memory\.cpp:\d+", malloc_failing_with(engine, 2).where)


def test_an_error_of_the_engine_can_be_pickled(engine: Engine) -> None:
    error = malloc_failing_with(engine, 2)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is CudaMemoryError
    assert (str(copied), copied.where) == (str(error), error.where)


def test_an_unknown_device_is_refused(engine: Engine) -> None:
    with pytest.raises(CudaError, match=r"cudaSetDevice failed with cudaErrorInvalidDevice \(101\)"):
        engine.DeviceBuffer(NBYTES, 7)


def test_without_a_driver_version_the_hint_is_to_install_one(engine: Engine) -> None:
    testing.fail("cudaDriverGetVersion", 1, 1)
    assert malloc_failing_with(engine, 35).hint.startswith("No NVIDIA driver answers here")


def test_an_unknown_code_of_the_driver_is_an_error(engine: Engine) -> None:
    testing.fail("cuEventCreate", 1, 4242)
    with pytest.raises(CudaError, match=r"cuEventCreate failed with CUDA_ERROR \(4242\): unknown driver error\."):
        engine.Bracket(0)


def test_a_failed_release_of_a_destructor_is_reported_once(engine: Engine) -> None:
    stream = engine.Stream()
    testing.fail("cudaStreamDestroy", 1, 700)
    del stream
    (note,) = engine.take_cleanup_failures()
    assert note.startswith("cudaStreamDestroy failed with cudaErrorIllegalAddress (700)")
    assert engine.take_cleanup_failures() == []
