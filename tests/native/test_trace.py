"""The tracer, on the host runtime, which implements CUPTI."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from native.scenarios import NBYTES, lanes
from numpy.typing import NDArray

from pyxfer._trace.records import RECORD, CopyWay, Flag, Kind, MemoryKind
from pyxfer.errors import TraceUnavailableError
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Taken, Tracer

CAPACITY_BYTES = 1 << 20

# In a separate process, because a fork would copy the locks of the tests' threads.
FORKED = """
import os, sys
from pyxfer.errors import ForkedError
from pyxfer.native import load
engine = load("host")
tracer = engine.Tracer([], engine.trace_kinds, 1 << 20)
tracer.start()
child = os.fork()
if child == 0:
    try:
        tracer.{use}()
    except ForkedError as error:
        print(error, flush=True)
        del tracer
        os._exit(7)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
engine.DeviceBuffer(4096).close()
tracer.stop()
assert len(tracer.take().records) > 0
sys.exit(code)
"""


@pytest.fixture
def tracer(engine: Engine) -> Iterator[Tracer]:
    with closing(engine.Tracer([], engine.trace_kinds, CAPACITY_BYTES)) as made:
        yield made


@contextmanager
def running(tracer: Tracer) -> Iterator[None]:
    tracer.start()
    try:
        yield
    finally:
        tracer.stop()


def of(taken: Taken, kind: Kind) -> NDArray[Any]:
    found: NDArray[Any] = taken.records[taken.records["kind"] == kind]
    return found


def names_of(taken: Taken, kind: Kind) -> list[str]:
    return [taken.names[number] for number in of(taken, kind)["name"]]


def copied(engine: Engine, tracer: Tracer, memory: str, mode: str = "async") -> Taken:
    """The records of one copy in each direction."""
    with lanes(engine, memory) as (h2d, d2h, _), closing(engine.Copier(0)) as copier:
        with running(tracer):
            copier.on_stream(mode, h2d, 0)
            copier.on_stream(mode, d2h, 0)
        return tracer.take()


def test_the_table_has_the_documented_columns(tracer: Tracer) -> None:
    assert tracer.take().records.dtype == RECORD


def test_the_library_is_the_host_runtime(tracer: Tracer) -> None:
    assert tracer.library == "the host runtime"
    assert tracer.version >= 18


def test_the_kinds_of_records_have_words(engine: Engine) -> None:
    assert engine.trace_kinds == ("copies", "sets", "kernels", "calls", "allocations", "marks", "overhead")
    assert len(engine.trace_kinds) == len(Kind)


def test_a_copy_each_way_is_recorded(engine: Engine, tracer: Tracer) -> None:
    copies = of(copied(engine, tracer, "pinned"), Kind.COPY)
    assert copies["way"].tolist() == [CopyWay.H2D, CopyWay.D2H]
    assert copies["nbytes"].tolist() == [NBYTES, NBYTES]
    assert copies["copies"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("memory", "kind"),
    [
        ("pinned", MemoryKind.PINNED),
        ("registered", MemoryKind.PINNED),
        ("write-combined", MemoryKind.PINNED),
        ("pageable", MemoryKind.PAGEABLE),
    ],
)
def test_a_copy_has_its_memories(engine: Engine, tracer: Tracer, memory: str, kind: MemoryKind) -> None:
    h2d, d2h = of(copied(engine, tracer, memory), Kind.COPY)
    assert (h2d["source"], h2d["target"]) == (kind, MemoryKind.DEVICE)
    assert (d2h["source"], d2h["target"]) == (MemoryKind.DEVICE, kind)


@pytest.mark.parametrize(("mode", "flags"), [("async", Flag.ASYNCHRONOUS), ("memcpy", 0)])
def test_a_copy_has_a_flag_if_it_is_asynchronous(engine: Engine, tracer: Tracer, mode: str, flags: int) -> None:
    with lanes(engine) as (h2d, _, _), closing(engine.Copier(0)) as copier, running(tracer):
        copier.drained(h2d, 0) if mode == "memcpy" else copier.on_stream(mode, h2d, 0)
    assert of(tracer.take(), Kind.COPY)["flags"].tolist() == [flags]


def test_times_are_on_the_hosts_clock(engine: Engine, tracer: Tracer) -> None:
    before_ns = time.perf_counter_ns()
    taken = copied(engine, tracer, "pinned")
    after_ns = time.perf_counter_ns()
    for record in of(taken, Kind.COPY):
        assert before_ns - taken.clock_error_ns <= record["start_ns"] < record["end_ns"]
        assert record["end_ns"] <= after_ns + taken.clock_error_ns
    assert 0 <= taken.clock_error_ns < 30e9
    assert 0 <= taken.clock_drift_ns < 30e9


def test_a_copy_takes_the_modelled_time(engine: Engine, tracer: Tracer) -> None:
    testing.model_link(0, 0.02, 0, 0.01)
    taken = copied(engine, tracer, "pinned")
    h2d, d2h = of(taken, Kind.COPY)
    # The device's clock has another rate than the host's: converted by two readings of both clocks.
    for copy, modelled_ns in ((h2d, 20e6), (d2h, 10e6)):
        found_ns = copy["end_ns"] - copy["start_ns"]
        assert found_ns == pytest.approx(modelled_ns, rel=1e-4, abs=2 * taken.clock_error_ns)


def test_a_copy_has_the_correlation_of_its_calls(engine: Engine, tracer: Tracer) -> None:
    taken = copied(engine, tracer, "pageable")
    calls = of(taken, Kind.CALL)
    for copy in of(taken, Kind.COPY):
        behind = calls[calls["correlation"] == copy["correlation"]]
        assert sorted(taken.names[call["name"]] for call in behind) == ["cuMemcpyAsync", "cudaMemcpyAsync"]
        assert sorted(behind["flags"].tolist()) == [0, Flag.RUNTIME]
        assert (behind["start_ns"] <= copy["start_ns"]).all()
        assert behind["thread"].tolist() == [threading.get_native_id()] * 2


def test_queries_are_not_recorded(engine: Engine, tracer: Tracer) -> None:
    with running(tracer):
        engine.memory_info(0)
        engine.synchronize(0)
    assert set(names_of(tracer.take(), Kind.CALL)) == {"cudaDeviceSynchronize", "cuCtxSynchronize"}


def test_a_failed_call_has_its_code(engine: Engine, tracer: Tracer) -> None:
    testing.fail("cudaMalloc", 1, 2)
    with running(tracer), pytest.raises(MemoryError):
        engine.DeviceBuffer(NBYTES)
    assert set(of(tracer.take(), Kind.CALL)["result"].tolist()) == {2}


def test_a_batch_has_its_number_of_copies(engine: Engine, tracer: Tracer) -> None:
    with lanes(engine) as (h2d, _, _), closing(engine.Copier(0)) as copier, running(tracer):
        copier.gated("batch", h2d, 4, 0, 0)
    (batch,) = of(tracer.take(), Kind.COPY)
    assert (batch["copies"], batch["nbytes"]) == (4, 4 * NBYTES)


def test_allocations_and_releases_are_recorded(engine: Engine, tracer: Tracer) -> None:
    with running(tracer):
        engine.HostBuffer(NBYTES, "pinned").close()
        engine.DeviceBuffer(2 * NBYTES).close()
    found = of(tracer.take(), Kind.ALLOCATION)
    assert found["target"].tolist() == [MemoryKind.PINNED] * 2 + [MemoryKind.DEVICE] * 2
    assert found["nbytes"].tolist() == [NBYTES] * 2 + [2 * NBYTES] * 2
    assert found["flags"].tolist() == [0, Flag.FREED] * 2


def test_a_kernel_has_its_time_and_its_name(engine: Engine, tracer: Tracer) -> None:
    with closing(engine.Stream()) as stream:
        with running(tracer):
            testing.kernel("_Z9transposePfi", 0.01, stream.handle)
            engine.synchronize(0)
        taken = tracer.take()
    (kernel,) = of(taken, Kind.KERNEL)
    assert taken.names[kernel["name"]] == "transpose(float*, int)"
    found_ns = kernel["end_ns"] - kernel["start_ns"]
    assert found_ns == pytest.approx(10e6, rel=1e-3, abs=2 * taken.clock_error_ns)


def test_both_ends_of_a_range_have_one_correlation(tracer: Tracer) -> None:
    with running(tracer):
        testing.mark("decode", True)
        testing.mark("decode", False)
    taken = tracer.take()
    begin, end = of(taken, Kind.MARK)
    assert begin["correlation"] == end["correlation"]
    assert (begin["flags"], end["flags"]) == (Flag.BEGIN, Flag.END)
    assert taken.names[begin["name"]] == "decode"


def test_only_the_selected_kinds_are_recorded(engine: Engine) -> None:
    with closing(engine.Tracer([], ["copies"], CAPACITY_BYTES)) as tracer:
        assert set(copied(engine, tracer, "pinned").records["kind"].tolist()) == {Kind.COPY}


def test_records_are_taken_once(engine: Engine, tracer: Tracer) -> None:
    assert len(copied(engine, tracer, "pinned").records) > 0
    again = tracer.take()
    assert len(again.records) == 0
    assert again.names == [""]


def test_the_table_outlives_the_tracer(engine: Engine) -> None:
    with closing(engine.Tracer([], ["copies"], CAPACITY_BYTES)) as tracer:
        records = copied(engine, tracer, "pinned").records
    assert records["nbytes"].tolist() == [NBYTES, NBYTES]


def test_nothing_is_recorded_outside_of_the_window(engine: Engine, tracer: Tracer) -> None:
    copied(engine, tracer, "pinned")
    engine.DeviceBuffer(NBYTES).close()
    assert len(tracer.take().records) == 0


def test_records_beyond_the_capacity_are_counted(engine: Engine) -> None:
    with closing(engine.Tracer([], ["copies"], 3 * RECORD.itemsize)) as tracer:
        with lanes(engine) as (h2d, _, _), closing(engine.Copier(0)) as copier, running(tracer):
            copier.gated("async", h2d, 8, 0, 0)
        taken = tracer.take()
    assert len(taken.records) == 3
    assert taken.dropped == {"copies": 5}


def test_records_that_the_library_lost_are_counted(tracer: Tracer) -> None:
    with running(tracer):
        testing.lose_records(12)
    assert tracer.take().dropped == {"unknown": 12}


def test_offset_and_drift_of_the_clock_are_corrected(engine: Engine, tracer: Tracer) -> None:
    testing.skew_clock(-(10**12), 300_000)
    before_ns = time.perf_counter_ns()
    taken = copied(engine, tracer, "pinned")
    after_ns = time.perf_counter_ns()
    times = np.concatenate([taken.records["start_ns"], taken.records["end_ns"]])
    slack_ns = 10_000 + taken.clock_error_ns
    assert before_ns - slack_ns <= times.min()
    assert times.max() <= after_ns + slack_ns


def test_a_changed_clock_is_drift(tracer: Tracer) -> None:
    with running(tracer):
        testing.skew_clock(10**12, 0)
    assert tracer.take().clock_drift_ns == pytest.approx(10**12, abs=30e9)


def test_a_tracer_does_not_start_beside_another_profiler(tracer: Tracer) -> None:
    testing.other_subscriber(True)
    with pytest.raises(TraceUnavailableError, match=r"another profiler is active in this process .*end it first"):
        tracer.start()
    testing.other_subscriber(False)
    with running(tracer):
        pass


@pytest.mark.parametrize(
    ("code", "words"),
    [(35, "NVreg_RestrictProfilingToAdminUsers=0"), (15, "older than this library"), (999, "CUPTI_ERROR_UNKNOWN")],
)
def test_a_refusal_has_a_hint(tracer: Tracer, code: int, words: str) -> None:
    testing.refuse_activity(code)
    with pytest.raises(TraceUnavailableError, match=words):
        tracer.start()


def test_a_kind_unknown_to_the_library_is_left_out(engine: Engine, tracer: Tracer) -> None:
    testing.refuse_kind(49, 21)
    taken = copied(engine, tracer, "pinned")
    assert tracer.refused == {"allocations": "cuptiActivityEnable failed with CUPTI_ERROR_INVALID_KIND (21)"}
    assert len(of(taken, Kind.COPY)) == 2


def test_a_second_tracer_is_refused(engine: Engine, tracer: Tracer) -> None:
    second = engine.Tracer([], ["copies"], CAPACITY_BYTES)
    with running(tracer), pytest.raises(TraceUnavailableError, match="pyxfer is already tracing"):
        second.start()
    second.close()


def test_a_closed_tracer_is_not_started_again(engine: Engine) -> None:
    tracer = engine.Tracer([], ["copies"], CAPACITY_BYTES)
    tracer.close()
    tracer.close()
    with pytest.raises(RuntimeError, match="the tracer is closed"):
        tracer.start()


def test_wrong_arguments_are_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match='unknown kind "copys"; known are copies, sets'):
        engine.Tracer([], ["copys"], CAPACITY_BYTES)
    with pytest.raises(ValueError, match="room for at least one record, 64 bytes"):
        engine.Tracer([], ["copies"], 0)


@pytest.mark.threads
def test_threads_may_copy_and_take_simultaneously(engine: Engine, tracer: Tracer) -> None:
    found: list[int] = []

    def copy_and_take() -> None:
        with lanes(engine) as (h2d, _, _), closing(engine.Copier(0)) as copier:
            for _ in range(50):
                copier.on_stream("async", h2d, 0)
                found.append(len(of(tracer.take(), Kind.COPY)))

    with running(tracer):
        threads = [threading.Thread(target=copy_and_take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(found) + len(of(tracer.take(), Kind.COPY)) == 150


@pytest.mark.parametrize("use", ["start", "stop", "take"])
def test_a_forked_child_does_not_stop_the_parents_tracer(use: str) -> None:
    script = [sys.executable, "-c", FORKED.format(use=use)]
    result = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 7, result.stderr
    assert 'multiprocessing.get_context("spawn")' in result.stdout
