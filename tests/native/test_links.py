"""Flows: what they copy, their times on modelled links, devices that hang or are lost, Ctrl-C, and other threads."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing
from typing import Any, Literal

import pytest
from native.link_flows import HOST, Flows, durations_s, word_at

from pyxfer.errors import DeviceLostError, DeviceTimeoutError
from pyxfer.native import Engine
from pyxfer.native._host import testing

NBYTES = 1 << 20
RATE = 400e6  # slower than any memory
COPY_S = NBYTES / RATE
SMALL_BYTES = 1 << 16
STEP_S = 2e-8  # events have float milliseconds, and stamps whole nanoseconds
SEED = 5
FOREVER_S = 1e5
LONG_S = 60.0
GATES = ("kernel", "host")

pytestmark = pytest.mark.usefixtures("protected_memory")


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


# --- cycles and chases ---------------------------------------------------------------------------


def test_a_chase_takes_its_kernels_time(flows: Flows) -> None:
    """On the host runtime an instruction takes a nanosecond, which is two cycles, and a hop has four."""
    hops = (100, 200, 300)
    chases = [flows.chase(1, memory, NBYTES, each, depth=2) for memory, each in zip((HOST, 0, 1), hops, strict=True)]
    for stamps, each in zip(flows.run(*chases), hops, strict=True):
        assert stamps.kernel_ns.tolist() == [4 * each + 5] * 2
        assert stamps.cycles.tolist() == [2 * (4 * each + 3)] * 2
        assert stamps.multiprocessor.tolist() == [0, 0]


def test_a_chase_goes_through_the_multiprocessors_in_turn(flows: Flows) -> None:
    (stamps,) = flows.run(flows.chase(0, HOST, NBYTES, 10, depth=6, multiprocessor=-2))
    assert stamps.multiprocessor.tolist() == [0, 1, 2, 3, 0, 1]


# --- times on modelled links ---------------------------------------------------------------------


def test_flows_of_all_devices_begin_together(flows: Flows) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    found = flows.run(*(flows.copy(HOST, device, NBYTES) for device in range(8)))
    begins = [stamps.begin_ns[0] for stamps in found]
    # Their kernels see one flag at one time; the rest is the error between their clocks.
    errors = sum(sorted(stamps.clock_error_ns for stamps in found)[-2:])
    assert max(begins) - min(begins) <= errors + 2 * STEP_S * 1e9
    assert {stamps.gate for stamps in found} == {"kernel"}


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


# --- kernels and peers ---------------------------------------------------------------------------


def test_flows_without_kernels_have_a_host_function_as_gate(flows: Flows) -> None:
    plain = flows.copy(HOST, 0, NBYTES, with_kernels=False)
    found = flows.run(plain, flows.copy(HOST, 1, NBYTES))
    assert [stamps.gate for stamps in found] == ["host", "host"]
    assert "cuLaunchKernel" not in testing.calls()


def test_a_kernel_without_access_to_the_memory_of_a_peer_is_refused(flows: Flows) -> None:
    flow = flows.copy(1, 0, NBYTES, by=0, engine="sm", depth=1)
    flows.engine.disable_peer(0, 1)
    with pytest.raises(ValueError, match="enable_peer"):
        flows.run(flow)
    flows.engine.memory_info(0)  # the device was not lost: the kernel did not run
    flows.engine.enable_peer(0, 1)
    (stamps,) = flows.run(flow)
    assert len(stamps.end_ns) == 1


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


def test_a_device_has_a_link_of_its_own_speed(flows: Flows) -> None:
    testing.model_link(RATE, 0, RATE, 0)
    testing.model_link_of(1, RATE / 2, 0, RATE / 2, 0)
    found = flows.run(flows.copy(HOST, 0, NBYTES, depth=1), flows.copy(HOST, 1, NBYTES, depth=1))
    assert [durations_s(stamps)[0] for stamps in found] == pytest.approx([COPY_S, 2 * COPY_S], abs=STEP_S)


# --- trouble ---------------------------------------------------------------------------------------


def until(condition: Any) -> None:
    while not condition():
        time.sleep(0.001)


def interrupting(when: Any, number: int = signal.SIGINT) -> threading.Thread:
    """A thread that sends the main thread a signal."""

    def interrupt() -> None:
        until(when)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    started = threading.Thread(target=interrupt)
    started.start()
    return started


def copies_began() -> bool:
    return testing.calls().get("cudaMemcpyAsync", 0) > 8


@pytest.mark.parametrize("gate", GATES)
def test_ctrl_c_ends_running_flows(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    pair = flows.copy(HOST, 0, SMALL_BYTES), flows.copy(HOST, 1, SMALL_BYTES)
    sender = interrupting(copies_began)
    with pytest.raises(KeyboardInterrupt):
        flows.run(*pair, seconds=LONG_S, gate=gate)
    sender.join()
    assert [len(stamps.end_ns) for stamps in flows.run(*pair)] == [4, 4]  # they can be used again


def test_ctrl_c_ends_flows_on_a_stuck_device(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, SMALL_BYTES)
    testing.stall("cudaMemcpyAsync", 2, FOREVER_S)
    sender = interrupting(lambda: testing.calls().get("cudaMemcpyAsync", 0) >= 4)
    with pytest.raises(KeyboardInterrupt) as caught:
        flows.run(flow)
    sender.join()
    assert isinstance(caught.value.__cause__, DeviceTimeoutError)
    testing.release_stalls()
    flows.engine.synchronize(0)


def test_a_signal_handler_that_returns_does_not_end_flows(flows: Flows) -> None:
    handled = []
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(testing.calls()["cudaMemcpyAsync"]))
    try:
        sender = interrupting(copies_began, signal.SIGUSR1)
        flows.run(flows.copy(HOST, 0, SMALL_BYTES), seconds=0.5)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    (copies,) = handled
    assert testing.calls()["cudaMemcpyAsync"] > copies  # it ran on after the signal


@pytest.mark.threads
def test_another_thread_is_not_interrupted(flows: Flows) -> None:
    flow, found = flows.copy(HOST, 0, SMALL_BYTES), []
    running = threading.Thread(target=lambda: found.extend(flows.run(flow, seconds=0.2)))
    running.start()
    running.join()
    assert len(found) == 1


@pytest.mark.parametrize("gate", GATES)
def test_a_device_that_hangs_is_a_timeout(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    pair = flows.copy(HOST, 0, SMALL_BYTES), flows.copy(HOST, 1, SMALL_BYTES)
    testing.stall("cudaMemcpyAsync", 3, FOREVER_S)
    with pytest.raises(DeviceTimeoutError, match=r"within 0.1 s"):
        flows.engine.run_flows(pair, LONG_S, 0.1, gate)
    testing.release_stalls()
    flows.engine.synchronize(0)
    flows.engine.synchronize(1)


def test_the_clocks_are_compared_again_at_the_end(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, SMALL_BYTES, depth=1)
    (good,) = flows.run(flow)
    first, last = good.begin_ns[0], good.end_ns[-1]
    now = time.monotonic_ns()
    assert now - LONG_S * 1e9 < first < last < now + good.clock_error_ns
    assert 0 < good.clock_error_ns < 1e9 * LONG_S
    assert durations_s(good)[0] > 0


@pytest.mark.threads
def test_flows_and_kernels_of_a_run_cannot_be_closed(flows: Flows) -> None:
    flow, kernels = flows.copy(HOST, 0, SMALL_BYTES), flows.kernels(0)
    testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
    running = threading.Thread(target=flows.run, args=(flow,))
    running.start()
    until(lambda: testing.calls().get("cudaMemcpyAsync"))
    for owner in (flow, kernels):
        with pytest.raises(RuntimeError, match="a run uses"):
            owner.close()
    with pytest.raises(RuntimeError, match="another run"):
        flows.run(flow)
    testing.release_stalls()
    running.join()
    flow.close()
    kernels.close()


@pytest.mark.threads
def test_two_threads_run_flows_with_the_same_kernels(flows: Flows) -> None:
    pair = [flows.copy(HOST, 0, SMALL_BYTES) for _ in range(2)]
    found: list[Any] = []
    threads = [threading.Thread(target=lambda each=each: found.extend(flows.run(each, seconds=0.1))) for each in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [stamps.late for stamps in found] == [False, False]


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_flows_leave_a_capture_valid(flows: Flows, mode: str) -> None:
    with closing(flows.engine.Stream()) as other:
        testing.begin_capture(other.handle, mode)
        chase = flows.chase(1, 0, SMALL_BYTES, 8)
        flows.run(flows.copy(0, 1, SMALL_BYTES, engine="sm"), chase, seconds=0.05)
        assert testing.end_capture(other.handle) == 0
