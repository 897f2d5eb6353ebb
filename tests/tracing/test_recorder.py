"""What a traced trial is given: records of its own, and a library that has room for them already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pyxfer._trace.collector import Collector, Taking
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
        """One of them."""
        self._copier.drained(self._lane, 0)

    def close(self) -> None:
        """Free its memory."""
        for each in reversed(self._held):
            each.close()


@pytest.fixture
def copying(engine: Engine) -> Iterator[Copying]:
    with closing(Copying(engine)) as made:
        yield made


@pytest.fixture
def taking(engine: Engine) -> Iterator[Taking]:
    with closing(Collector(engine)) as collector, collector.running(), closing(Taking(engine, collector, 0)) as made:
        yield made


def test_what_was_done_before_the_beginning_is_in_no_capture(taking: Taking, copying: Copying) -> None:
    copying.once()
    taking.begin()
    copying.once()
    capture = taking.take()
    assert capture.of(Kind.COPY)["nbytes"].tolist() == [NBYTES]
    assert {capture.name(call) for call in capture.of(Kind.CALL)} >= {"cudaMemcpy"}


def test_its_own_copy_is_in_none(taking: Taking) -> None:
    taking.begin()
    assert not len(taking.take().of(Kind.COPY))


def test_each_beginning_has_a_record_made_so_that_the_trial_s_is_not_the_first(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        Taking(engine, collector, 0).begin()
        assert len(collector.take().of(Kind.COPY)) == 1


def test_it_leaves_no_memory_behind(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        with closing(Taking(engine, collector, 0)):
            assert testing.allocated()
        assert not testing.allocated()


def test_what_it_cannot_release_is_told_later_and_ends_nothing(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        taking = Taking(engine, collector, 0)
        testing.fail("cudaStreamDestroy", 1, 700)
        taking.close()
    assert any("cudaStreamDestroy" in each for each in engine.take_cleanup_failures())


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithFlags"])
def test_what_it_has_is_freed_where_something_more_cannot_be_had(engine: Engine, call: str) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        testing.fail(call, 1, 2)
        with pytest.raises(CudaError):
            Taking(engine, collector, 0)
        assert not testing.allocated()
