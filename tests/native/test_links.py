"""Flows: what they copy, their times on modelled links, and what is refused."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from native.link_flows import HOST, Flows, durations_s, word_at, words_at

from pyxfer.errors import CudaError, DeviceLostError, KernelsUnavailableError
from pyxfer.native import Engine
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native._cuda import FlowStamps

NBYTES = 1 << 20
RATE = 400e6  # slower than any memory
COPY_S = NBYTES / RATE
STEP_S = 2e-8  # events have float milliseconds, and stamps whole nanoseconds
SEED = 5


@pytest.fixture
def flows(engine: Engine) -> Any:
    testing.set_device_count(8)
    with Flows(engine) as made:
        yield made
    assert engine.take_cleanup_failures() == []


# --- contents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_word", ["ce", "sm"])
@pytest.mark.parametrize(("source", "destination", "by"), [(HOST, 0, 0), (0, HOST, 0), (0, 1, 0), (0, 1, 1), (1, 1, 1)])
def test_a_copy_is_complete_and_stays_in_its_place(
    flows: Flows, engine_word: Literal["ce", "sm"], source: int, destination: int, by: int
) -> None:
    engine = flows.engine
    around = 4096
    at_source, room = flows.memory(source, NBYTES), flows.memory(destination, NBYTES + 2 * around)
    for device, address, nbytes, seed in ((source, at_source, NBYTES, SEED), (destination, room, around, 8)):
        write(engine, device, address, nbytes, seed)
    write(engine, destination, room + around, NBYTES, 9)
    write(engine, destination, room + around + NBYTES, around, 8)
    flow = flows.copy(
        source, destination, NBYTES, by=by, engine=engine_word, source=at_source, destination=room + around, depth=1
    )
    (stamps,) = flows.run(flow)
    assert len(stamps.end_ns) == 1
    assert first_wrong(engine, destination, room + around, NBYTES, SEED) is None
    assert first_wrong(engine, destination, room, around, 8) is None
    assert first_wrong(engine, destination, room + around + NBYTES, around, 8) is None


def write(engine: Engine, device: int, address: int, nbytes: int, seed: int) -> None:
    if device == HOST:
        engine.fill(address, nbytes, seed)
    else:
        engine.fill_device(device, address, nbytes, seed)


def first_wrong(engine: Engine, device: int, address: int, nbytes: int, seed: int) -> int | None:
    if device == HOST:
        return engine.first_unlike(address, nbytes, seed)
    return engine.first_wrong_at(device, address, nbytes, seed)


def test_a_wrong_byte_behind_the_scratch_memory_is_found(flows: Flows) -> None:
    nbytes = (9 << 20) + 123
    address = flows.memory(1, nbytes)
    flows.engine.fill_device(1, address, nbytes, SEED)
    assert flows.engine.first_wrong_at(1, address, nbytes, SEED) is None
    assert flows.engine.first_unlike(address, nbytes, SEED) is None  # the same pattern as of `fill`
    words = (9 << 20) // 8
    word_at(address + 8 * words)[0] ^= np.uint64(1 << 24)
    assert flows.engine.first_wrong_at(1, address, nbytes, SEED) == 8 * words + 3


# --- cycles and chases ---------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "nbytes", "stride"), [(HOST, 4096, 8), (1, 5 << 20, 4096), (0, 10_000, 64)])
def test_a_cycle_leads_through_every_place(flows: Flows, device: int, nbytes: int, stride: int) -> None:
    address = flows.memory(device, nbytes)
    places = flows.engine.make_cycle(address, nbytes, stride, SEED, device)
    assert places == nbytes // stride
    step = stride // 8
    pointers = words_at(address, places * step)[::step]
    seen, at = [], address
    for _ in range(places):
        seen.append(at)
        at = int(pointers[(at - address) // stride])
    assert at == address
    assert sorted(seen) == list(range(address, address + places * stride, stride))
    assert seen != sorted(seen)


def test_cycles_of_one_seed_are_equal(flows: Flows) -> None:
    address = flows.memory(HOST, 4096)
    made = []
    for seed in (1, 1, 2):
        flows.engine.make_cycle(address, 4096, 8, seed, HOST)
        made.append(words_at(address, 512).tolist())
    assert made[0] == made[1] != made[2]


def test_a_chase_takes_its_kernels_time(flows: Flows) -> None:
    """On the host runtime an instruction takes a nanosecond, which is two cycles, and a hop has four."""
    hops = (100, 200, 300)
    chases = [flows.chase(1, memory, NBYTES, each, depth=2) for memory, each in zip((HOST, 0, 1), hops, strict=True)]
    for stamps, each in zip(flows.run(*chases), hops, strict=True):
        assert stamps.kernel_ns.tolist() == [4 * each + 5] * 2
        assert stamps.cycles.tolist() == [2 * (4 * each + 3)] * 2
        assert stamps.multiprocessor.tolist() == [0, 0]


def test_a_chase_runs_on_the_wanted_multiprocessor(flows: Flows) -> None:
    chases = [flows.chase(0, HOST, NBYTES, 10, depth=1, multiprocessor=each) for each in (0, 2, 3, 4)]
    found = flows.run(*chases)
    assert [stamps.multiprocessor.tolist() for stamps in found] == [[0], [2], [3], [-1]]
    assert [stamps.kernel_ns.tolist() for stamps in found] == [[45], [45], [45], [0]]


def test_a_chase_goes_through_the_multiprocessors_in_turn(flows: Flows) -> None:
    (stamps,) = flows.run(flows.chase(0, HOST, NBYTES, 10, depth=6, multiprocessor=-2))
    assert stamps.multiprocessor.tolist() == [0, 1, 2, 3, 0, 1]


# --- times on modelled links ---------------------------------------------------------------------


def assert_each_takes(stamps: FlowStamps, seconds: float) -> None:
    """An item takes longer by the time of its call if a busy machine let the queue run dry."""
    assert float(np.min(durations_s(stamps))) == pytest.approx(seconds, abs=STEP_S)


@pytest.mark.parametrize("engine_word", ["ce", "sm"])
def test_items_follow_each_other_at_the_rate_of_the_link(flows: Flows, engine_word: Literal["ce", "sm"]) -> None:
    testing.model_link(RATE, 0, RATE / 2, 0)
    up = flows.copy(HOST, 0, NBYTES, engine=engine_word)
    down = flows.copy(0, HOST, NBYTES, engine=engine_word)
    for flow, copy_s in ((up, COPY_S), (down, 2 * COPY_S)):
        (stamps,) = flows.run(flow, seconds=0.05)
        while len(stamps.end_ns) <= 4:  # a busy machine adds nothing to the first items in this time
            (stamps,) = flows.run(flow, seconds=0.05)
        assert_each_takes(stamps, copy_s)
        assert (stamps.begin_ns[1:] >= stamps.end_ns[:-1]).all()
        assert not stamps.late


def test_flows_of_all_devices_begin_together(flows: Flows) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    found = flows.run(*(flows.copy(HOST, device, NBYTES) for device in range(8)))
    begins = [stamps.begin_ns[0] for stamps in found]
    # Their kernels see one flag at one time; the rest is the error between their clocks.
    errors = sum(sorted(stamps.clock_error_ns for stamps in found)[-2:])
    assert max(begins) - min(begins) <= errors + 2 * STEP_S * 1e9
    assert {stamps.gate for stamps in found} == {"kernel"}


def test_a_device_has_a_link_of_its_own_speed(flows: Flows) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    testing.model_link_of(1, RATE / 2, 0, RATE / 2, 0)
    found = flows.run(flows.copy(HOST, 0, NBYTES, depth=1), flows.copy(HOST, 1, NBYTES, depth=1))
    assert [durations_s(stamps)[0] for stamps in found] == pytest.approx([COPY_S, 2 * COPY_S], abs=STEP_S)


def test_a_pair_is_fast_only_with_peer_access(flows: Flows) -> None:
    testing.model_link(RATE / 4, 0, RATE / 2, 0)
    testing.model_pair(0, 1, RATE)
    flow = flows.copy(0, 1, NBYTES, depth=1)
    taken = []
    for access in (False, True, False):
        (flows.engine.enable_peer if access else flows.engine.disable_peer)(1, 0)
        taken += durations_s(flows.run(flow, gate_timeout_s=1 if access else 0)[0]).tolist()
    assert taken[1] == pytest.approx(COPY_S, abs=STEP_S)
    # Their calls wait until the stream is idle, and the item begins before.
    assert min(taken[0], taken[2]) >= 4 * COPY_S - STEP_S


def test_a_local_copy_has_the_pair_of_a_device_with_itself(flows: Flows) -> None:
    testing.model_pair(2, 2, RATE)
    (stamps,) = flows.run(flows.copy(2, 2, NBYTES, depth=1))
    assert durations_s(stamps) == pytest.approx([COPY_S], abs=STEP_S)


def test_a_paced_flow_leaves_the_link_idle_in_between(flows: Flows) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    (stamps,) = flows.run(flows.copy(HOST, 0, NBYTES, pace_bytes_per_s=RATE / 4), seconds=0.1)
    assert (durations_s(stamps) >= COPY_S - STEP_S).all()
    # Item n is not issued before n times this after the opening.
    assert len(stamps.end_ns) <= 0.1 / (4 * COPY_S) + 1


# --- kernels and peers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (200, ""),
        (209, ""),
        (218, ""),
        (221, "libnvidia-ptxjitcompiler.so.1"),
        (222, ""),
        (223, "CUDA_DISABLE_PTX_JIT"),
        (300, ""),
    ],
)
def test_kernels_that_the_driver_does_not_make_are_unavailable(engine: Engine, code: int, advice: str) -> None:
    testing.fail("cuModuleLoadData", 1, code)
    with pytest.raises(KernelsUnavailableError) as caught:
        engine.Kernels(0)
    assert (caught.value.code, caught.value.call) == (code, "cuModuleLoadData")
    assert advice in caught.value.hint


def test_a_module_without_a_function_is_unloaded(engine: Engine) -> None:
    testing.fail("cuModuleGetFunction", 2, 500)
    with pytest.raises(CudaError, match="cuModuleGetFunction"):
        engine.Kernels(0)
    assert testing.allocated() == []


def test_kernels_say_how_long_they_took_to_load(flows: Flows) -> None:
    testing.stall("cuModuleLoadData", 1, 0.05)
    assert flows.kernels(0).load_s >= 0.05


def test_flows_without_kernels_have_a_host_function_as_gate(flows: Flows) -> None:
    plain = flows.copy(HOST, 0, NBYTES, with_kernels=False)
    found = flows.run(plain, flows.copy(HOST, 1, NBYTES))
    assert [stamps.gate for stamps in found] == ["host", "host"]
    assert "cuLaunchKernel" not in testing.calls()


def test_peer_access_is_refused_by_the_driver(flows: Flows) -> None:
    testing.refuse_peer(0, 1, True)
    assert not flows.engine.can_access_peer(0, 1)
    assert flows.engine.can_access_peer(1, 0)
    with pytest.raises(CudaError) as caught:
        flows.engine.enable_peer(0, 1)
    assert (caught.value.code, caught.value.call) == (217, "cudaDeviceEnablePeerAccess")
    assert "go through the host" in caught.value.hint


def test_a_kernel_without_access_to_the_memory_of_a_peer_is_refused(flows: Flows) -> None:
    flow = flows.copy(1, 0, NBYTES, by=0, engine="sm", depth=1)
    flows.engine.disable_peer(0, 1)
    with pytest.raises(ValueError, match="enable_peer"):
        flows.run(flow)
    flows.engine.memory_info(0)  # the device was not lost: the kernel did not run
    flows.engine.enable_peer(0, 1)
    (stamps,) = flows.run(flow)
    assert len(stamps.end_ns) == 1


def test_attributes_are_those_of_a_device(flows: Flows) -> None:
    testing.set_attribute_of(1, 18, 1)
    assert [flows.engine.device_attribute(device, 18) for device in (0, 1)] == [0, 1]
    with pytest.raises(CudaError, match="cudaDeviceGetAttribute"):
        flows.engine.device_attribute(0, 255)


def test_a_kernel_may_read_pageable_memory_through_the_page_tables(flows: Flows) -> None:
    engine = flows.engine
    pageable = flows.enter_context(closing_host(engine, "pageable"))
    with pytest.raises(ValueError, match="page-locked"):
        flows.copy(HOST, 0, NBYTES, engine="sm", source=pageable.address)
    testing.set_attribute(88, 1)
    engine.fill(pageable.address, NBYTES, SEED)
    target = flows.memory(0, NBYTES)
    flows.run(flows.copy(HOST, 0, NBYTES, engine="sm", source=pageable.address, destination=target))
    assert engine.first_wrong_at(0, target, NBYTES, SEED) is None
    with pytest.raises(ValueError, match="page-locked"):
        flows.copy(HOST, 0, NBYTES, engine="ce", source=pageable.address)


def closing_host(engine: Engine, memory: str) -> Any:
    return closing(engine.HostBuffer(NBYTES, memory))


@pytest.mark.parametrize("memory", ["pinned", "registered", "write-combined"])
def test_all_page_locked_memory_is_used(flows: Flows, memory: str) -> None:
    held = flows.enter_context(closing_host(flows.engine, memory))
    flows.engine.fill(held.address, NBYTES, SEED)
    target = flows.memory(0, NBYTES)
    flows.run(flows.copy(HOST, 0, NBYTES, engine="sm", source=held.address, destination=target))
    assert flows.engine.first_wrong_at(0, target, NBYTES, SEED) is None


# --- what is refused -----------------------------------------------------------------------------


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
        {"engine": "chase", "hops": 5},
    ],
)
def test_an_invalid_flow_is_refused(flows: Flows, changed: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {
        "device": 0,
        "engine": "ce",
        "destination": flows.memory(0, NBYTES),
        "source": flows.memory(HOST, NBYTES),
        "nbytes": NBYTES,
        "destination_device": 0,
    }
    with pytest.raises(ValueError, match=r"flow|engine|copy|chase"):
        flows.engine.Flow(**(wanted | changed))


@pytest.mark.parametrize("changed", [{"hops": 0}, {"hops": 4, "kernels": 1}, {"hops": 4, "multiprocessor": -3}])
def test_an_invalid_chase_is_refused(flows: Flows, changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"hop|kernels|multiprocessor"):
        flows.engine.Flow(
            device=0,
            engine="chase",
            destination=0,
            source=flows.memory(HOST, NBYTES),
            nbytes=NBYTES,
            hops=changed["hops"],
            multiprocessor=changed.get("multiprocessor", -1),
            kernels=flows.kernels(changed.get("kernels", 0)),
        )


def test_a_kernel_needs_whole_words(flows: Flows) -> None:
    for nbytes, offset in ((NBYTES - 8, 0), (NBYTES - 16, 8)):
        with pytest.raises(ValueError, match="multiples of 16"):
            flows.copy(HOST, 0, nbytes, engine="sm", source=flows.memory(HOST, NBYTES) + offset)


@pytest.mark.parametrize("stride", [0, 4, 12, NBYTES])
def test_an_invalid_cycle_is_refused(flows: Flows, stride: int) -> None:
    with pytest.raises(ValueError, match="cycle"):
        flows.engine.make_cycle(flows.memory(HOST, NBYTES), NBYTES, stride, 1, HOST)


def test_an_invalid_run_is_refused(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, NBYTES)
    for given, seconds, deadline_s in (([], 0.0, 1.0), ([flow, flow], 0.0, 1.0), ([flow], -1.0, 1.0), ([flow], 0, 0)):
        with pytest.raises(ValueError, match="run"):
            flows.engine.run_flows(given, seconds, deadline_s)
    with pytest.raises(ValueError, match="gate"):
        flows.engine.run_flows([flow], 0.0, 1.0, "door")  # type: ignore[arg-type]
    flow.close()
    with pytest.raises(ValueError, match="closed"):
        flows.run(flow)


def test_kernels_are_those_of_the_flows_device_and_open(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, NBYTES)
    flows.kernels(0).close()
    with pytest.raises(ValueError, match="closed"):
        flows.run(flow)


def test_a_pointer_out_of_the_memory_loses_the_device(flows: Flows) -> None:
    address = flows.memory(HOST, 4096)
    flows.engine.make_cycle(address, 4096, 64, SEED, HOST)
    word_at(address)[0] = address + 4096
    chase = flows.chase(0, HOST, 4096, 64, source=address)
    with pytest.raises(DeviceLostError) as caught:
        flows.run(chase)
    assert caught.value.code == 700
    testing.reset()
    testing.set_device_count(8)
    assert flows.engine.take_cleanup_failures() != []  # events of the clocks
