"""The recorder of single trials, on the host runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pyxfer._trace.collector import Collector, TrialRecorder
from pyxfer._trace.records import Kind
from pyxfer.errors import CudaError
from pyxfer.native import Engine
from pyxfer.native._host import testing

NBYTES = 1 << 20


class Copying:
    """Blocking copies to the device."""

    def __init__(self, engine: Engine) -> None:
        self._held = engine.HostBuffer(NBYTES, "pinned"), engine.DeviceBuffer(NBYTES), engine.Copier(0)
        host, remote, self._copier = self._held
        self._lane = engine.Lane("h2d", host.address, remote.address, NBYTES, NBYTES, 1)

    def once(self) -> None:
        self._copier.drained(self._lane, 0)

    def close(self) -> None:
        for resource in reversed(self._held):
            resource.close()


@pytest.fixture
def copying(engine: Engine) -> Iterator[Copying]:
    with closing(Copying(engine)) as made:
        yield made


@pytest.fixture
def recorder(engine: Engine) -> Iterator[TrialRecorder]:
    with (
        closing(Collector(engine)) as collector,
        collector.running(),
        closing(TrialRecorder(engine, collector, 0)) as made,
    ):
        yield made


def test_work_before_begin_is_in_no_capture(recorder: TrialRecorder, copying: Copying) -> None:
    copying.once()
    recorder.begin()
    copying.once()
    capture = recorder.take()
    assert capture.of(Kind.COPY)["nbytes"].tolist() == [NBYTES]
    assert {capture.name(call) for call in capture.of(Kind.CALL)} >= {"cudaMemcpy"}


def test_the_recorders_copy_is_in_no_capture(recorder: TrialRecorder) -> None:
    recorder.begin()
    assert not len(recorder.take().of(Kind.COPY))


def test_begin_makes_a_copy(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        TrialRecorder(engine, collector, 0).begin()
        assert len(collector.take().of(Kind.COPY)) == 1


def test_a_closed_recorder_leaves_no_memory(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        with closing(TrialRecorder(engine, collector, 0)):
            assert testing.allocated()
        assert not testing.allocated()


def test_close_reports_a_failed_release_later(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        recorder = TrialRecorder(engine, collector, 0)
        testing.fail("cudaStreamDestroy", 1, 700)
        recorder.close()
    assert any("cudaStreamDestroy" in failure for failure in engine.take_cleanup_failures())


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithFlags"])
def test_a_failed_allocation_frees_the_others(engine: Engine, call: str) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        testing.fail(call, 1, 2)
        with pytest.raises(CudaError):
            TrialRecorder(engine, collector, 0)
        assert not testing.allocated()
