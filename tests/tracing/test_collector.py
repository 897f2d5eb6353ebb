"""The collector, on the host runtime."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from pyxfer._trace.collector import Collector
from pyxfer._trace.phase import tracing
from pyxfer._trace.records import RECORD, CopyWay, Kind, MemoryKind
from pyxfer.errors import TraceUnavailableError
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


def test_records_are_taken_once(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        copy_once(engine)
        assert len(collector.take().of(Kind.COPY)) == 1
        assert len(collector.take().of(Kind.COPY)) == 0


def test_a_collector_names_its_library(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running() as found:
        assert found.library == "the host runtime"
        assert found.version > 0


def test_a_collector_stops_when_its_block_raises(engine: Engine) -> None:
    with closing(Collector(engine)) as collector:
        with pytest.raises(ZeroDivisionError), collector.running():
            raise ZeroDivisionError
        copy_once(engine)
        assert len(collector.take().of(Kind.COPY)) == 0
        with collector.running():
            copy_once(engine)
            assert len(collector.take().of(Kind.COPY)) == 1


def test_a_collector_cannot_start_beside_another_profiler(engine: Engine) -> None:
    testing.other_subscriber(True)
    with closing(Collector(engine)) as collector, pytest.raises(TraceUnavailableError, match="another profiler"):
        collector.start()


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
