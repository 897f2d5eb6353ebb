"""Errors of the engine: their types and texts, and the refusal of wrong arguments."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from native.scenarios import CHUNK, HOST, NBYTES, Flows, lanes

from pyxfer.errors import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    KernelsUnavailableError,
)
from pyxfer.native import Engine
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native._cuda import HostBuffer, Ring


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


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (MemoryError, (1 << 60, "pageable")),
        (MemoryError, (1 << 60, "registered")),
        (CudaMemoryError, (1 << 60, "pinned")),
        (ValueError, (NBYTES, "cardboard")),
        (ValueError, (0, "pinned")),
    ],
)
def test_host_memory(engine: Engine, kind: type[Exception], arguments: tuple[int, str]) -> None:
    with pytest.raises(kind):
        engine.HostBuffer(*arguments)


def test_device_memory(engine: Engine) -> None:
    with pytest.raises(CudaMemoryError):
        engine.DeviceBuffer(1 << 60)


@pytest.mark.parametrize(
    ("kind", "memory", "offset", "nbytes"),
    [
        (IndexError, "pageable", 0, NBYTES + 1),
        (IndexError, "pageable", NBYTES, 1),
        (IndexError, "pageable", 4096, 2**64 - 1),
        (ValueError, "pinned", 0, 4096),
        (ValueError, "registered", 0, 4096),
        (ValueError, "write-combined", 0, 4096),
    ],
)
def test_pages_to_forget(engine: Engine, kind: type[Exception], memory: str, offset: int, nbytes: int) -> None:
    buffer: HostBuffer
    with closing(engine.HostBuffer(NBYTES, memory)) as buffer, pytest.raises(kind):
        buffer.forget(offset, nbytes)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sideways", 1, 1, 1, 1, 1),
        ("h2d", 0, 1, 1, 1, 1),
        ("h2d", 1, 1, 0, 1, 1),
        ("h2d", 1, 1, 1, 1, 0),
        ("h2d", 1, 1, 8, 4, 2),
    ],
)
def test_lanes(engine: Engine, arguments: tuple[str, int, int, int, int, int]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        engine.Lane(*arguments)


def test_modes(engine: Engine) -> None:
    with lanes(engine) as (h2d, _, _), closing(engine.Copier(0)) as copier, pytest.raises(ValueError, match="teleport"):
        copier.gated("teleport", h2d, 1, 0, 0)


@pytest.mark.parametrize(
    "settings",
    [
        (0, CHUNK, 2, "plain", 0),
        (2, -1, 2, "plain", 0),
        (2, 5000, 2, "plain", 0),
        (2, CHUNK, 1, "plain", 0),
        (2, CHUNK, 2, "fast", 0),
        (2, CHUNK, 2, "plain", 10**6 + 1),
    ],
)
def test_settings_of_a_ring(engine: Engine, settings: tuple[int, int, int, str, int]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        engine.Ring(0, *settings)


@pytest.mark.parametrize(
    "array",
    [
        (4096, 0, (3,), (4,)),
        (4096, 4, (-3,), (4,)),
        (4096, 4, (3, 4), (4,)),
        (4096, 4, (1 << 40, 1 << 40), (0, 0)),
        (4096, 4, (2,), (-8192,)),
        (0, 4, (3,), (4,)),
        (4096, 4, (3,), (0,)),
    ],
)
def test_arrays(engine: Engine, array: tuple[int, int, tuple[int, ...], tuple[int, ...]]) -> None:
    ring: Ring
    with (
        closing(engine.DeviceBuffer(NBYTES)) as memory,
        closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)) as ring,
        pytest.raises(ValueError),  # noqa: PT011
    ):
        ring.download(*array, memory.address, None)


def test_a_closed_ring(engine: Engine) -> None:
    with closing(engine.DeviceBuffer(1)) as memory:
        ring = engine.Ring(0, 2, CHUNK, 2, "plain", 0)
        ring.close()
        ring.close()
        with pytest.raises(RuntimeError):
            ring.download(memory.address, 1, (), (), memory.address, None)


@pytest.mark.parametrize(("kinds", "capacity_bytes"), [(["copys"], 1 << 20), (["copies"], 0), ([], 1 << 20)])
def test_tracers(engine: Engine, kinds: list[str], capacity_bytes: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        engine.Tracer([], kinds, capacity_bytes)


def test_a_closed_tracer(engine: Engine) -> None:
    tracer = engine.Tracer([], ["copies"], 1 << 20)
    tracer.close()
    tracer.close()
    with pytest.raises(RuntimeError):
        tracer.start()


@pytest.fixture
def flows(engine: Engine) -> Any:
    testing.set_device_count(2)
    with Flows(engine) as made:
        yield made


@pytest.mark.parametrize(
    "changed",
    [
        {"engine": "dma"},
        {"depth": 0},
        {"depth": 257},
        {"nbytes": 0},
        {"source": 0},
        {"destination": 0},
        {"pace_bytes_per_s": -1.0},
        {"pace_bytes_per_s": float("inf")},
        {"destination_device": HOST},
        {"source_device": 0},
        {"engine": "sm"},
        {"engine": "sm", "kernels": 0, "nbytes": NBYTES - 8},
        {"engine": "chase", "hops": 5},
        {"engine": "chase", "kernels": 0, "hops": 0},
        {"engine": "chase", "kernels": 1, "hops": 4},
        {"engine": "chase", "kernels": 0, "hops": 4, "multiprocessor": -3},
    ],
)
def test_flows(flows: Flows, changed: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {
        "device": 0,
        "engine": "ce",
        "destination": flows.memory(0, NBYTES),
        "source": flows.memory(HOST, NBYTES),
        "nbytes": NBYTES,
        "destination_device": 0,
        **changed,
    }
    if "kernels" in changed:
        wanted["kernels"] = flows.kernels(changed["kernels"])
    with pytest.raises(ValueError):  # noqa: PT011
        flows.engine.Flow(**wanted)


@pytest.mark.parametrize("stride", [0, 4, 12, NBYTES])
def test_cycles(flows: Flows, stride: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        flows.engine.make_cycle(flows.memory(HOST, NBYTES), NBYTES, stride, 1, HOST)


RUNS: dict[str, Callable[[Engine, Any], object]] = {
    "no flow": lambda engine, _: engine.run_flows([], 0.0, 1.0),
    "one flow twice": lambda engine, flow: engine.run_flows([flow, flow], 0.0, 1.0),
    "a negative time": lambda engine, flow: engine.run_flows([flow], -1.0, 1.0),
    "no deadline": lambda engine, flow: engine.run_flows([flow], 0.0, 0.0),
    "an unknown gate": lambda engine, flow: engine.run_flows([flow], 0.0, 1.0, "door"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_runs_of_flows(flows: Flows, run: Callable[[Engine, Any], object]) -> None:
    flow = flows.copy(HOST, 0, NBYTES)
    with pytest.raises(ValueError):  # noqa: PT011
        run(flows.engine, flow)


@pytest.mark.parametrize("closed", ["flow", "kernels"])
def test_runs_of_what_is_closed(flows: Flows, closed: str) -> None:
    flow = flows.copy(HOST, 0, NBYTES)
    (flow if closed == "flow" else flows.kernels(0)).close()
    with pytest.raises(ValueError, match="closed"):
        flows.run(flow)


@pytest.mark.parametrize("code", [200, 209, 218, 221, 222, 223, 300])
def test_kernels_that_the_driver_does_not_make(engine: Engine, code: int) -> None:
    testing.fail("cuModuleLoadData", 1, code)
    with pytest.raises(KernelsUnavailableError) as caught:
        engine.Kernels(0)
    assert (caught.value.code, caught.value.call) == (code, "cuModuleLoadData")


def test_peer_access(engine: Engine) -> None:
    testing.set_device_count(2)
    testing.refuse_peer(0, 1, True)
    assert (engine.can_access_peer(0, 1), engine.can_access_peer(1, 0)) == (False, True)
    with pytest.raises(CudaError) as caught:
        engine.enable_peer(0, 1)
    assert (caught.value.code, caught.value.call) == (217, "cudaDeviceEnablePeerAccess")


def test_attributes(engine: Engine) -> None:
    testing.set_device_count(2)
    testing.set_attribute_of(1, 18, 1)
    assert [engine.device_attribute(device, 18) for device in (0, 1)] == [0, 1]
    with pytest.raises(CudaError, match="cudaDeviceGetAttribute"):
        engine.device_attribute(0, 255)
