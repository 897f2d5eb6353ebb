"""Flows on devices that hang, fail or are lost, late gates, Ctrl-C, and other threads."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing
from typing import Any, Literal

import pytest
from native.link_flows import HOST, Flows, durations_s

from pyxfer.errors import CudaError, DeviceLostError, DeviceTimeoutError
from pyxfer.native import Engine
from pyxfer.native._host import testing

NBYTES = 1 << 16
FOREVER_S = 1e5
LONG_S = 60.0
GATES = ("kernel", "host")


pytestmark = pytest.mark.usefixtures("protected_memory")


@pytest.fixture
def flows(engine: Engine) -> Any:
    testing.set_device_count(2)
    with Flows(engine) as made:
        yield made
    assert engine.take_cleanup_failures() == []


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
    pair = flows.copy(HOST, 0, NBYTES), flows.copy(HOST, 1, NBYTES)
    sender = interrupting(copies_began)
    with pytest.raises(KeyboardInterrupt):
        flows.run(*pair, seconds=LONG_S, gate=gate)
    sender.join()
    assert [len(stamps.end_ns) for stamps in flows.run(*pair)] == [4, 4]  # they can be used again


def test_ctrl_c_ends_flows_on_a_stuck_device(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, NBYTES)
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
        flows.run(flows.copy(HOST, 0, NBYTES), seconds=0.5)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    (copies,) = handled
    assert testing.calls()["cudaMemcpyAsync"] > copies  # it ran on after the signal


@pytest.mark.threads
def test_another_thread_is_not_interrupted(flows: Flows) -> None:
    flow, found = flows.copy(HOST, 0, NBYTES), []
    running = threading.Thread(target=lambda: found.extend(flows.run(flow, seconds=0.2)))
    running.start()
    running.join()
    assert len(found) == 1


@pytest.mark.parametrize("gate", GATES)
def test_a_device_that_hangs_is_a_timeout(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    pair = flows.copy(HOST, 0, NBYTES), flows.copy(HOST, 1, NBYTES)
    testing.stall("cudaMemcpyAsync", 3, FOREVER_S)
    with pytest.raises(DeviceTimeoutError, match=r"within 0.1 s"):
        flows.engine.run_flows(pair, LONG_S, 0.1, gate)
    testing.release_stalls()
    flows.engine.synchronize(0)
    flows.engine.synchronize(1)


@pytest.mark.parametrize("gate", GATES)
def test_a_device_that_is_lost_ends_all_flows(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    pair = flows.copy(HOST, 0, NBYTES), flows.copy(HOST, 1, NBYTES)

    def lose() -> None:
        until(copies_began)
        testing.lose_device(719)

    losing = threading.Thread(target=lose)
    losing.start()
    with pytest.raises(DeviceLostError) as caught:
        flows.run(*pair, seconds=LONG_S, gate=gate)
    losing.join()
    assert caught.value.code == 719
    testing.reset()
    testing.set_device_count(2)
    assert flows.engine.take_cleanup_failures() != []  # events of the clocks


def test_the_first_of_several_faults_is_raised_and_the_flows_can_be_used_again(flows: Flows) -> None:
    many = [flows.copy(HOST, device, NBYTES) for device in (0, 1, 0, 1)]
    testing.fail("cudaMemcpyAsync", 12, 1)
    with pytest.raises(CudaError) as caught:
        flows.run(*many, seconds=LONG_S)
    assert (caught.value.code, caught.value.call) == (1, "cudaMemcpyAsync")
    assert [len(stamps.end_ns) for stamps in flows.run(*many)] == [4] * 4


@pytest.mark.parametrize("gate", GATES)
def test_a_fault_while_the_gate_is_closed_opens_it(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    pair = flows.copy(HOST, 0, NBYTES), flows.copy(HOST, 1, NBYTES)
    flows.run(*pair)
    for call in ("cudaMemcpyAsync", "cuLaunchKernel" if gate == "kernel" else "cuStreamWaitEvent"):
        testing.reset()
        testing.set_device_count(2)
        testing.fail(call, 1, 1)
        with pytest.raises(CudaError, match=call):
            flows.run(*pair, gate=gate, gate_timeout_s=LONG_S)
        assert flows.engine.take_cleanup_failures() == []  # the streams were drained


@pytest.mark.parametrize("gate", GATES)
def test_a_late_gate_is_reported(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    flow = flows.copy(HOST, 0, NBYTES)
    assert [stamps.late for stamps in flows.run(flow, gate=gate)] == [False]
    before = testing.calls()["cudaSetDevice"]
    flows.run(flow, gate=gate)
    late = []
    # One of these calls is made by the thread of the flow, before its items are queued.
    for nth in range(1, testing.calls()["cudaSetDevice"] - before + 1):
        testing.stall("cudaSetDevice", nth, 0.1)
        late += [stamps.late for stamps in flows.run(flow, gate=gate, gate_timeout_s=0.02)]
    assert any(late)
    assert [stamps.late for stamps in flows.run(flow, gate=gate)] == [False]


def test_the_clocks_are_compared_again_at_the_end(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, NBYTES, depth=1)
    (good,) = flows.run(flow)
    first, last = good.begin_ns[0], good.end_ns[-1]
    now = time.monotonic_ns()
    assert now - LONG_S * 1e9 < first < last < now + good.clock_error_ns
    assert 0 < good.clock_error_ns < 1e9 * LONG_S
    assert durations_s(good)[0] > 0


@pytest.mark.threads
def test_flows_and_kernels_of_a_run_cannot_be_closed(flows: Flows) -> None:
    flow, kernels = flows.copy(HOST, 0, NBYTES), flows.kernels(0)
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
    pair = [flows.copy(HOST, 0, NBYTES) for _ in range(2)]
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
        chase = flows.chase(1, 0, NBYTES, 8)
        flows.run(flows.copy(0, 1, NBYTES, engine="sm"), chase, seconds=0.05)
        assert testing.end_capture(other.handle) == 0


def test_items_that_found_an_empty_queue_do_not_count_the_gap(flows: Flows) -> None:
    testing.model_link(NBYTES / 1e-3, 0, 0, 0)
    # An item takes 1 ms; the third is issued late.
    testing.stall("cuEventQuery", 40, 0.2)
    (stamps,) = flows.run(flows.copy(HOST, 0, NBYTES, depth=2), seconds=0.5)
    gaps_s = (stamps.begin_ns[1:] - stamps.end_ns[:-1]) / 1e9
    longest = int(gaps_s.argmax(axis=0))
    assert gaps_s[longest] > 0.1
    assert durations_s(stamps)[longest + 1] < gaps_s[longest]
