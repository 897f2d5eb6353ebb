"""Rings, flows and the tracer from Python: what they return, Ctrl-C and other threads; and the text of the kernels."""

from __future__ import annotations

import functools
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from native import scenarios
from native.scenarios import CHUNK, FOREVER_S, HOST, Flows, contents_of, durations_s, filled, lanes, place
from watch.copying import in_threads

from pyxfer._trace.records import RECORD, Kind
from pyxfer.errors import CudaUnavailableError, TraceUnavailableError
from pyxfer.native import Engine, load
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Taken, Tracer


NBYTES = 1 << 20
SMALL_BYTES = 1 << 16
LONG_S = 60.0
GATES = ("kernel", "host")


@pytest.fixture
def flows(engine: Engine, protected_memory: None) -> Any:
    testing.set_device_count(8)
    with Flows(engine) as made:
        yield made
    assert engine.take_cleanup_failures() == []


def test_a_chase_takes_its_kernels_time(flows: Flows) -> None:
    """On the host runtime an instruction takes a nanosecond, which is two cycles, and a hop has four."""
    hops = (100, 200, 300)
    chases = [flows.chase(1, memory, NBYTES, each, depth=2) for memory, each in zip((HOST, 0, 1), hops, strict=True)]
    for stamps, each in zip(flows.run(*chases), hops, strict=True):
        assert stamps.kernel_ns.tolist() == [4 * each + 5] * 2
        assert stamps.cycles.tolist() == [2 * (4 * each + 3)] * 2
        assert stamps.multiprocessor.tolist() == [0, 0]


def interrupting(when: Any, number: int = signal.SIGINT) -> threading.Thread:
    """A thread that sends the main thread a signal."""

    def interrupt() -> None:
        while not when():
            time.sleep(0.001)
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
def test_two_threads_run_flows_with_the_same_kernels(flows: Flows) -> None:
    pair = [flows.copy(HOST, 0, SMALL_BYTES) for _ in range(2)]
    found: list[Any] = []
    in_threads(*(lambda each=each: found.extend(flows.run(each, seconds=0.1)) for each in pair))
    assert [stamps.late for stamps in found] == [False, False]


SOURCE = Path(__file__).parents[2] / "csrc/links/kernel_text.cpp"
# Every generation that ptxas 12.9 knows from the text's own target on.
ARCHITECTURES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121)


@pytest.fixture(scope="module")
def ptxas() -> Path:
    try:
        found = Path(str(distribution("nvidia-cuda-nvcc-cu12").locate_file("nvidia/cuda_nvcc/bin/ptxas")))
    except PackageNotFoundError:
        pytest.skip("NVIDIA's wheel with ptxas is not installed: pip install 'pyxfer[dev]'")
    if not found.exists():
        pytest.skip("NVIDIA's wheel has no ptxas for this processor")
    return found


@pytest.fixture(scope="module")
def text() -> str:
    if not SOURCE.exists():
        pytest.skip("the sources are not beside the tests")
    return SOURCE.read_text().partition('R"(')[2].partition(')";')[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_text_is_assembled(ptxas: Path, text: str, tmp_path: Path, architecture: int) -> None:
    (tmp_path / "kernels.ptx").write_text(text)
    made = subprocess.run(
        [ptxas, f"-arch=sm_{architecture}", "-v", "-o", tmp_path / "kernels.cubin", tmp_path / "kernels.ptx"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr.count("0 bytes spill stores, 0 bytes spill loads") == text.count(".visible .entry")
    assert (tmp_path / "kernels.cubin").stat().st_size > 0


def test_the_clocks_are_compared_again_at_the_end(flows: Flows) -> None:
    flow = flows.copy(HOST, 0, SMALL_BYTES, depth=1)
    (good,) = flows.run(flow)
    first, last = good.begin_ns[0], good.end_ns[-1]
    now = time.monotonic_ns()
    assert now - LONG_S * 1e9 < first < last < now + good.clock_error_ns
    assert 0 < good.clock_error_ns < 1e9 * LONG_S
    assert durations_s(good)[0] > 0


# --- rings ------------------------------------------------------------------------------------------------------------


def test_a_ring_has_its_settings(engine: Engine) -> None:
    with closing(engine.Ring(0, 3, 8192, 4, "streaming", 7)) as ring:
        assert (ring.device, ring.threads, ring.chunk_bytes, ring.slots, ring.spin_us) == (0, 3, 8192, 4, 7)
        assert [ring.threads_for(nbytes) for nbytes in (0, 8192, 4 * 8192, 4 * 8192 + 1, 10**6)] == [1, 1, 1, 3, 3]
        assert ring.fill == "streaming"
        assert ring.fill_kernel in {"sse2", "avx2", "avx512", "stnp"}
        assert ring.pinned_bytes == 8192 * 4
        assert ring.pinned_bytes in [nbytes for kind, _, nbytes in testing.allocated() if kind == "pinned"]


@pytest.fixture
def stuck(engine: Engine) -> Any:
    """A ring, device memory and an array for an upload, whose first copy waits."""
    with closing(engine.DeviceBuffer(SMALL_BYTES)) as memory, closing(engine.Ring(0, 2, CHUNK, 2, "plain", 0)) as ring:
        testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
        yield ring, memory, filled((SMALL_BYTES,), "u1")
        testing.release_stalls()
    engine.take_cleanup_failures()


def is_stuck() -> bool:
    return testing.calls().get("cudaMemcpyAsync", 0) > 0


@pytest.mark.parametrize("direction", ["upload", "download"])
def test_ctrl_c_ends_a_transfer_on_a_stuck_device(stuck: Any, direction: str) -> None:
    ring, memory, array = stuck
    sender = interrupting(is_stuck)
    transfer = functools.partial(ring.upload, wait=True) if direction == "upload" else ring.download
    with pytest.raises(KeyboardInterrupt):
        transfer(*place(array), memory.address, stream=None)
    sender.join()


def test_a_signal_handler_that_returns_does_not_end_a_transfer(stuck: Any) -> None:
    ring, memory, array = stuck
    before = signal.signal(signal.SIGUSR1, lambda *_: testing.release_stalls())
    try:
        sender = interrupting(is_stuck, signal.SIGUSR1)
        ring.upload(*place(array), memory.address, None, True)  # ends because the handler released it
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert contents_of(memory).tobytes() == array.tobytes()


@pytest.mark.threads
def test_dropping_a_stuck_ring_does_not_block_other_threads(engine: Engine) -> None:
    array = filled((CHUNK,), "u1")
    with closing(engine.DeviceBuffer(CHUNK)) as memory, closing(engine.Stream()) as stream:
        rings = [engine.Ring(0, 2, CHUNK, 2, "plain", 0)]
        testing.stall("cudaMemcpyAsync", 1, FOREVER_S)
        rings[0].upload(*place(array), memory.address, stream.handle, False)
        dropping = threading.Thread(target=rings.clear)
        dropping.start()
        for _ in range(100):  # would block until the device continues
            time.sleep(0.001)
        assert dropping.is_alive()
        testing.release_stalls()
        dropping.join()


CAPACITY_BYTES = 1 << 20


@pytest.fixture
def tracer(engine: Engine) -> Iterator[Tracer]:
    with closing(engine.Tracer([], engine.trace_kinds, CAPACITY_BYTES)) as made:
        yield made


def copied(engine: Engine, tracer: Tracer) -> Taken:
    """The records of one copy in each direction."""
    with lanes(engine) as (h2d, d2h, _), closing(engine.Copier(0)) as copier:
        tracer.start()
        copier.on_stream("async", h2d, 0)
        copier.on_stream("async", d2h, 0)
        tracer.stop()
        return tracer.take()


def test_the_table_has_the_documented_columns(tracer: Tracer) -> None:
    assert tracer.take().records.dtype == RECORD


def test_the_kinds_of_records_have_words(engine: Engine) -> None:
    assert engine.trace_kinds == ("copies", "sets", "kernels", "calls", "allocations", "marks", "overhead")
    assert len(engine.trace_kinds) == len(Kind)


def test_the_table_outlives_the_tracer(engine: Engine) -> None:
    with closing(engine.Tracer([], ["copies"], CAPACITY_BYTES)) as tracer:
        records = copied(engine, tracer).records
    assert records["nbytes"].tolist() == [scenarios.NBYTES] * 2


KINDS = ["copies"]


@pytest.fixture
def cupti() -> str:
    """The library of NVIDIA's wheel."""
    try:
        wheel = distribution("nvidia-cuda-cupti-cu12")
    except PackageNotFoundError:
        pytest.skip("CUPTI is not installed (pip install nvidia-cuda-cupti-cu12)")
    return str(wheel.locate_file("nvidia/cuda_cupti/lib/libcupti.so.12"))


@pytest.fixture
def without_driver() -> None:
    try:
        load("cuda").device_count()
    except CudaUnavailableError:
        return
    pytest.skip("this machine has a GPU whose driver accepts the library")


def refusal(*libraries: str) -> str:
    with pytest.raises(TraceUnavailableError) as caught:
        load("cuda").Tracer(libraries, KINDS, CAPACITY_BYTES)
    return str(caught.value)


def test_a_missing_library_is_named() -> None:
    assert refusal("/nowhere/libcupti.so.12") == (
        "no CUPTI library can be used here: /nowhere/libcupti.so.12: cannot open shared object file: "
        "No such file or directory"
    )


def test_nvidias_library_is_opened_without_a_driver(cupti: str) -> None:
    with closing(load("cuda").Tracer(["/nowhere/libcupti.so.12", cupti], KINDS, CAPACITY_BYTES)) as tracer:
        assert tracer.library == cupti
        assert 18 <= tracer.version < 30
        assert len(tracer.take().records) == 0


@pytest.mark.usefixtures("without_driver")
def test_nvidias_library_is_refused_without_a_driver(cupti: str) -> None:
    with closing(load("cuda").Tracer([cupti], KINDS, CAPACITY_BYTES)) as tracer:
        for _ in range(2):
            with pytest.raises(TraceUnavailableError) as caught:
                tracer.start()
            assert str(caught.value) == (
                f"no CUPTI library can be used here: {cupti}: cuptiSubscribe failed with "
                "CUPTI_ERROR_NOT_INITIALIZED (15): there is no driver, or it is older than this library"
            )
