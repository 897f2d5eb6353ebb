"""Wrong arguments of the engine's functions, each with the type of its error; csrc/tests has the limits themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from native.link_flows import HOST, Flows
from native.ring_arrays import CHUNK
from native.scenarios import NBYTES, lanes

from pyxfer.errors import CudaError, CudaMemoryError, KernelsUnavailableError
from pyxfer.native import Engine
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native._cuda import HostBuffer, Ring


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
