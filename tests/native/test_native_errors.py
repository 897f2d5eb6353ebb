"""Errors of the engine: their types and texts, the refusal of wrong arguments, and the choice of the engine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from native.scenarios import CHUNK, HOST, NBYTES, Flows, lanes

from pyxfer.errors import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    KernelsUnavailableError,
)
from pyxfer.native import Engine, choose, load
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


def forget(engine: Engine, memory: str, offset: int, nbytes: int) -> None:
    with closing(engine.HostBuffer(NBYTES, memory)) as buffer:
        buffer.forget(offset, nbytes)


def copy_in_mode(engine: Engine, mode: str) -> None:
    with lanes(engine) as (h2d, _, _), closing(engine.Copier(0)) as copier:
        copier.gated(mode, h2d, 1, 0, 0)


def download(engine: Engine, address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with closing(engine.DeviceBuffer(NBYTES)) as memory, closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)) as ring:
        ring.download(address, itemsize, shape, strides, memory.address, None)


def make_flow(of: Engine, **changed: Any) -> None:
    with Flows(of) as flows:
        source, destination = flows.memory(HOST, NBYTES), flows.memory(0, NBYTES)
        sides = {"source": source, "destination": destination, "destination_device": 0}
        of.Flow(**{"device": 0, "engine": "ce", "nbytes": NBYTES, **sides, **changed})


def make_cycle(engine: Engine, stride: int) -> None:
    with Flows(engine) as flows:
        engine.make_cycle(flows.memory(HOST, NBYTES), NBYTES, stride, 1, HOST)


def run_flow(engine: Engine, *settings: Any, times: int = 1) -> None:
    with Flows(engine) as flows:
        engine.run_flows([flows.copy(HOST, 0, NBYTES)] * times, *settings)


# One of each kind of check in the engine; csrc/tests has the limits themselves.
REFUSED: dict[str, tuple[type[Exception], Callable[[Engine], object]]] = {
    "more host memory than there is": (MemoryError, lambda engine: engine.HostBuffer(1 << 60, "registered")),
    "more pinned memory than there is": (CudaMemoryError, lambda engine: engine.HostBuffer(1 << 60, "pinned")),
    "more device memory than there is": (CudaMemoryError, lambda engine: engine.DeviceBuffer(1 << 60)),
    "an unknown memory": (ValueError, lambda engine: engine.HostBuffer(NBYTES, "cardboard")),
    "no memory": (ValueError, lambda engine: engine.HostBuffer(0, "pinned")),
    "pages behind a buffer": (IndexError, lambda engine: forget(engine, "pageable", NBYTES, 1)),
    "very many pages": (IndexError, lambda engine: forget(engine, "pageable", 4096, 2**64 - 1)),
    "pages that are locked": (ValueError, lambda engine: forget(engine, "pinned", 0, 4096)),
    "an unknown direction": (ValueError, lambda engine: engine.Lane("sideways", 1, 1, 1, 1, 1)),
    "a lane without slots": (ValueError, lambda engine: engine.Lane("h2d", 1, 1, 1, 1, 0)),
    "an unknown mode": (ValueError, lambda engine: copy_in_mode(engine, "teleport")),
    "an unknown fill": (ValueError, lambda engine: engine.Ring(0, 2, CHUNK, 2, "fast", 0)),
    "a chunk below zero": (ValueError, lambda engine: engine.Ring(0, 2, -1, 2, "plain", 0)),
    "one slot": (ValueError, lambda engine: engine.Ring(0, 2, CHUNK, 1, "plain", 0)),
    "an extent below zero": (ValueError, lambda engine: download(engine, 4096, 4, (-3,), (4,))),
    "more extents than strides": (ValueError, lambda engine: download(engine, 4096, 4, (3, 4), (4,))),
    "an array of very many bytes": (ValueError, lambda engine: download(engine, 4096, 4, (1 << 40, 1 << 40), (0, 0))),
    "no address": (ValueError, lambda engine: download(engine, 0, 4, (3,), (4,))),
    "items that overlap": (ValueError, lambda engine: download(engine, 4096, 4, (3,), (0,))),
    "an unknown kind of record": (ValueError, lambda engine: engine.Tracer([], ["copys"], 1 << 20)),
    "no room for records": (ValueError, lambda engine: engine.Tracer([], ["copies"], 0)),
    "an unknown engine": (ValueError, lambda engine: make_flow(engine, engine="dma")),
    "a flow without a source": (ValueError, lambda engine: make_flow(engine, source=0)),
    "an endless pace": (ValueError, lambda engine: make_flow(engine, pace_bytes_per_s=float("inf"))),
    "a kernel without kernels": (ValueError, lambda engine: make_flow(engine, engine="sm")),
    "a cycle of odd strides": (ValueError, lambda engine: make_cycle(engine, 12)),
    "no flow": (ValueError, lambda engine: engine.run_flows([], 0.0, 1.0)),
    "one flow twice": (ValueError, lambda engine: run_flow(engine, 0.0, 1.0, times=2)),
    "a negative time": (ValueError, lambda engine: run_flow(engine, -1.0, 1.0)),
    "an unknown gate": (ValueError, lambda engine: run_flow(engine, 0.0, 1.0, "door")),
}


@pytest.mark.parametrize(("kind", "call"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_argument_is_refused(engine: Engine, kind: type[Exception], call: Callable[[Engine], object]) -> None:
    with pytest.raises(kind):
        call(engine)
    assert testing.allocated() == []


def test_a_closed_ring(engine: Engine) -> None:
    with closing(engine.DeviceBuffer(1)) as memory:
        ring = engine.Ring(0, 2, CHUNK, 2, "plain", 0)
        ring.close()
        ring.close()
        with pytest.raises(RuntimeError):
            ring.download(memory.address, 1, (), (), memory.address, None)


def test_a_closed_tracer(engine: Engine) -> None:
    tracer = engine.Tracer([], ["copies"], 1 << 20)
    tracer.close()
    tracer.close()
    with pytest.raises(RuntimeError):
        tracer.start()


@pytest.mark.parametrize("closed", ["flow", "kernels"])
def test_runs_of_what_is_closed(engine: Engine, closed: str) -> None:
    with Flows(engine) as flows:
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


# --- the choice of the engine -----------------------------------------------------------------------------------------


def test_both_engines_have_their_runtime() -> None:
    assert (load("cuda").RUNTIME, load("host").RUNTIME) == ("cuda", "host")


def test_a_usable_gpu_is_chosen(as_gpu: Engine) -> None:
    choice = choose()
    assert (choice.engine, choice.runtime, choice.reason) == (as_gpu, "cuda", "")


def test_the_host_can_be_chosen_explicitly() -> None:
    choice = choose("host")
    assert (choice.engine, choice.runtime, choice.reason) == (load("host"), "host", "")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (35, "No NVIDIA driver answers here: install one (525 or later)"),
        (100, "check nvidia-smi, CUDA_VISIBLE_DEVICES"),
    ],
)
def test_without_a_usable_gpu_the_host_is_chosen_with_the_reason(as_gpu: Engine, code: int, advice: str) -> None:
    testing.set_no_driver(code)
    choice = choose()
    assert choice.runtime == "host"
    assert choice.reason.startswith("No usable GPU: ")
    assert advice in choice.reason
    assert "\n" not in choice.reason


def test_an_old_driver_is_named_in_the_reason(as_gpu: Engine) -> None:
    testing.fail("cudaGetDeviceCount", 1, 35)
    assert re.search(r"speaks CUDA 1\d\.\d and pyxfer needs 12\.0: install driver 525 or later", choose().reason)


@pytest.mark.parametrize("device", [0, "host"])
@pytest.mark.parametrize("code", [35, 100])
def test_a_required_gpu_that_is_missing_raises(as_gpu: Engine, code: int, device: int | str) -> None:
    testing.set_no_driver(code)
    with pytest.raises(CudaUnavailableError) as caught:
        choose(device, require_gpu=True)
    assert caught.value.code == code
    assert str(caught.value) == f"No usable GPU: {caught.value.hint}"
    assert "insufficient" not in str(caught.value)
    assert caught.value.hint


def test_other_errors_of_a_gpu_are_raised(as_gpu: Engine) -> None:
    testing.fail("cudaGetDeviceCount", 1, 802)
    with pytest.raises(CudaError, match=r"cudaErrorSystemNotReady \(802\).*nvidia-fabricmanager"):
        choose()


def test_importing_loads_no_engine_and_makes_no_call() -> None:
    script = (
        "import sys, pyxfer, pyxfer.native\n"
        "assert not [name for name in sys.modules if name in ('pyxfer.native._cuda', 'pyxfer.native._host')]\n"
        "pyxfer.native.load('host')\n"
        "assert sys.modules['pyxfer.native._host'].testing.calls() == {}\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_host_runtime_is_named_as_host_memory(engine: Engine) -> None:
    properties = engine.device_properties(0)
    assert properties.name == "host memory, not a PCIe link"
    assert properties.pci is None
    assert re.fullmatch(r"GPU(-[0-9a-f]{4,12}){5}", properties.uuid)


def test_driver_calls_are_found_by_name(engine: Engine) -> None:
    assert engine.driver_has("cuEventRecord", 12000)
    assert not engine.driver_has("cuTeleport", 12000)


def test_a_failed_look_up_finds_no_driver_call(engine: Engine) -> None:
    engine.memory_info(0)
    testing.fail("cudaGetDriverEntryPointByVersion", 1, 1)
    assert not engine.driver_has("cuEventRecord", 12000)
    engine.synchronize(0)  # the failed look-up has left no error
