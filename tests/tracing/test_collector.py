"""The collector and the recorder of single trials, on the host runtime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from pyxfer._trace.collector import Collector, TrialRecorder
from pyxfer._trace.records import RECORD, CopyWay, Kind, MemoryKind
from pyxfer._trace.traced_trials import tracing
from pyxfer.errors import CudaError
from pyxfer.native import Engine
from pyxfer.native._host import testing

NBYTES = 1 << 20


def copy_once(engine: Engine, memory: str = "pinned") -> None:
    with (
        closing(engine.HostBuffer(NBYTES, memory)) as host,
        closing(engine.DeviceBuffer(NBYTES)) as device,
        closing(engine.Copier(0)) as copier,
    ):
        copier.drained(engine.Lane("h2d", host.address, device.address, NBYTES, NBYTES, 1), 0)


@pytest.mark.parametrize(("memory", "kind"), [("pinned", MemoryKind.PINNED), ("pageable", MemoryKind.PAGEABLE)])
def test_a_copy_is_recorded_with_times_on_the_hosts_clock(engine: Engine, memory: str, kind: MemoryKind) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        collector.take()
        begun = time.perf_counter_ns()
        copy_once(engine, memory)
        ended = time.perf_counter_ns()
        capture = collector.take()
    assert capture.records.dtype == RECORD
    (copy,) = capture.of(Kind.COPY)
    assert (copy["nbytes"], copy["way"], copy["source"], copy["target"]) == (
        NBYTES,
        CopyWay.H2D,
        kind,
        MemoryKind.DEVICE,
    )
    slack = capture.clock.error_ns
    assert begun - slack <= copy["start_ns"] < copy["end_ns"] <= ended + slack
    calls = [call for call in capture.of(Kind.CALL) if call["correlation"] == copy["correlation"]]
    assert {capture.name(call) for call in calls} >= {"cudaMemcpy"}
    assert not any(capture.dropped.values())


def test_a_collector_stops_when_its_block_raises(engine: Engine) -> None:
    with closing(Collector(engine)) as collector:
        with pytest.raises(ZeroDivisionError), collector.running():
            raise ZeroDivisionError
        copy_once(engine)
        assert len(collector.take().of(Kind.COPY)) == 0
        with collector.running():
            copy_once(engine)
            assert len(collector.take().of(Kind.COPY)) == 1


def test_without_a_collector_there_is_a_reason(engine: Engine) -> None:
    testing.other_subscriber(True)
    with tracing(engine, 0) as (recorder, found):
        assert recorder is None
        assert (found.reason or "").startswith("trace: unavailable: ")
        assert "another profiler" in (found.reason or "")


def test_tracing_can_be_repeated(engine: Engine) -> None:
    for _ in range(2):
        with tracing(engine, 0) as (recorder, found):
            assert recorder is not None
            assert found.value is not None


@pytest.fixture
def recorder(engine: Engine) -> Iterator[TrialRecorder]:
    with (
        closing(Collector(engine)) as collector,
        collector.running(),
        closing(TrialRecorder(engine, collector, 0)) as made,
    ):
        yield made


def test_work_before_begin_is_in_no_capture(engine: Engine, recorder: TrialRecorder) -> None:
    copy_once(engine)
    recorder.begin()
    copy_once(engine)
    capture = recorder.take()
    assert capture.of(Kind.COPY)["nbytes"].tolist() == [NBYTES]
    assert {capture.name(call) for call in capture.of(Kind.CALL)} >= {"cudaMemcpy"}


def test_the_recorders_copy_is_in_no_capture(recorder: TrialRecorder) -> None:
    recorder.begin()
    assert not len(recorder.take().of(Kind.COPY))


def test_a_closed_recorder_leaves_no_memory(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        with closing(TrialRecorder(engine, collector, 0)):
            assert testing.allocated()
        assert not testing.allocated()


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithFlags"])
def test_a_failed_allocation_frees_the_others(engine: Engine, call: str) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        testing.fail(call, 1, 2)
        with pytest.raises(CudaError):
            TrialRecorder(engine, collector, 0)
        assert not testing.allocated()
