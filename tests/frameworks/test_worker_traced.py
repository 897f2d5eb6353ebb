"""The traced trials of a worker: correct and faulty routes to a device, over the host runtime, which records copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from frameworks import own_routes

import pyxfer
from pyxfer._ceiling import rows
from pyxfer._ceiling.plans import Limits
from pyxfer._document.machines import Remark
from pyxfer._document.runs import Measurement
from pyxfer._frameworks.base import Make, RingDownload
from pyxfer._frameworks.bench import Bench
from pyxfer._frameworks.messages import Doing, FromWorker, Marker, Rows, Task, Tracer
from pyxfer._machine.devices import find_device
from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native import Choice, Engine, load
from pyxfer.native._host import testing


class Stored(pyxfer.Transfer):
    """One copy of ordinary memory into memory of the device."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.buffer = load("host").DeviceBuffer(2 * context.nbytes)
        self.source = context.source("pageable")

    def refresh(self) -> None:
        self.source = self.context.source("pageable")

    def run(self) -> None:
        self.send(self.source)

    def send(self, data: Any) -> None:
        self.context.store(self.buffer.address, data)

    def where(self) -> Any:
        return "gpu"

    def arrived(self) -> Any:
        return self.context.fetch(self.buffer.address, self.context.nbytes)


class Uploaded(pyxfer.Transfer):
    """An upload through the worker's uploader."""

    def __init__(self, context: pyxfer.RouteContext) -> None:
        super().__init__(context)
        self.uploader, self.target = context.uploader(), Target(DevicePool(load("host"), 0, 0))
        self.source = context.source()

    def refresh(self) -> None:
        self.source = self.context.source()

    def run(self) -> None:
        self.result = self.uploader.upload(self.source, self.target)

    def where(self) -> Any:
        return "gpu"

    def arrived(self) -> Any:
        return self.context.fetch(self.result.address, self.context.nbytes)


class Downloaded(RingDownload):
    """A download through the worker's uploader."""

    def __init__(self, context: pyxfer.RouteContext, *, into: bool) -> None:
        super().__init__(context, into=into)
        self.array = DeviceArray(DevicePool(load("host"), 0, 0), (context.nbytes,), np.dtype(np.uint8))

    def write(self, data: Any) -> None:
        self.context.store(self.array.address, data)


class Mirrored(Stored):
    """Sends only bytes that it has not sent before, and takes long enough for every clock."""

    sent: Any = None

    def refresh(self) -> None:
        """Keep one array for all calls, as a program may do by mistake."""

    def write(self, data: Any) -> None:
        self.source = self.context.source()

    def run(self) -> None:
        time.sleep(0.002)
        if self.sent is not self.source:
            self.sent = self.source
            self.send(self.source)


class Slowly(Stored):
    """Prepares for ten milliseconds."""

    def run(self) -> None:
        time.sleep(0.010)
        super().run()


class FailingTraced(Stored):
    """Fails in its third `arrived()`, which is in its traced trial."""

    looks = 0

    def arrived(self) -> Any:
        self.looks += 1
        if self.looks > 2:
            raise RuntimeError("no more of it")
        return super().arrived()


class WrongTraced(FailingTraced):
    """Returns other contents in its traced trial."""

    def arrived(self) -> Any:
        self.looks += 1
        found = super(FailingTraced, self).arrived()
        return found if self.looks <= 2 else found ^ 1


def make_route(name: str, make: Any, **overrides: Any) -> pyxfer.Route:
    """A route from NumPy to the device."""
    words: dict[str, Any] = {"direction": "h2d", "host_copies": 0, "dma": "pageable", "bracket": "drained"}
    return own_routes.make_route(name, make, **{**words, **overrides})


NBYTES = 1 << 20
Work = Callable[..., "Worked"]


class Worked:
    """The messages of a worker."""

    def __init__(self, sent: list[FromWorker], remarks: Sequence[Remark]) -> None:
        self.sent = sent
        self.remarks = remarks
        self.rows = [each for each in sent if isinstance(each, Rows)]
        self.tracers = [each.tracing for each in sent if isinstance(each, Tracer)]

    def row(self, route: str = "mine.x", rows: Rows | None = None) -> Measurement:
        (found,) = [each for each in (rows or self.rows[-1]).measurements if each.route == route]
        return found


@pytest.fixture
def work(engine: Engine) -> Work:
    """Measure one route on the host runtime as if that were a GPU."""

    def run(make: Make, *, nbytes: int = NBYTES, trace: bool = True, cancelled: bool = False, **words: Any) -> Worked:
        route = make_route("mine.x", make, **words)
        task = Task(
            *("mine", "mine", "", ("mine.x",), (), "host", "copy"),
            sizes=(nbytes,),
            limits=Limits(0.05, 0.1, 1, trace),
        )
        bench = Bench(task, (route,), Choice(engine, "host", ""), find_device(engine, 0), None)
        sent: list[FromWorker] = []
        marker = Marker()

        def send(message: FromWorker) -> None:
            sent.append(message)
            if cancelled and isinstance(message, Doing) and message.now.phase == "tracing":
                bench.cancel()

        bench.run(send, marker, lambda: None)
        assert marker.read() is None
        marker.close()
        return Worked(sent, bench.remarks)

    return run


def test_every_row_has_the_bytes_that_crossed(work: Work) -> None:
    worked = work(Stored)
    row = worked.row()
    dma = row.dma.value
    assert dma is not None
    assert (dma.nbytes, dma.copies, dma.source) == (NBYTES, 1, "pageable")
    assert 2 <= dma.trials <= 3
    assert row.gbps is not None
    assert row.elapsed_s is not None
    assert row.dma_s is not None
    assert row.dma_s > 0
    assert not {remark.code for remark in row.remarks} & {"inflated", "wrong-memory"}
    raw = worked.row("raw.pinned-async")
    assert raw.dma.value is not None
    assert (raw.dma.value.nbytes, raw.dma.value.source) == (NBYTES, "pinned")


def test_the_parts_of_a_breakdown_sum_to_the_trial(work: Work) -> None:
    breakdown = work(Slowly).row().breakdown.value
    assert breakdown is not None
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
    assert breakdown.seconds("preparing") >= 0.009
    assert breakdown.seconds("copying") > 0
    assert breakdown.switches >= 1  # the sleep


# Whether less goes past the ring depends on how long its threads have slept.
RING_BYTES = 4 << 20
THROUGH_RING = {"memory": "pageable", "dma": "pinned", "host_copies": 1, "staged": True}


@pytest.mark.parametrize(
    ("make", "direction"),
    [
        (Uploaded, "h2d"),
        (partial(Downloaded, into=False), "d2h"),
        (partial(Downloaded, into=True), "d2h"),
    ],
    ids=["upload", "download", "download-into"],
)
def test_routes_through_the_ring_use_pinned_memory_and_show_staging(work: Work, make: Make, direction: str) -> None:
    row = work(make, nbytes=RING_BYTES, direction=direction, **THROUGH_RING).row()
    assert (row.verified.value, row.rate.reason) == (True, None)
    dma, breakdown = row.dma.value, row.breakdown.value
    assert dma is not None
    assert (dma.nbytes, dma.source) == (RING_BYTES, "pinned")
    assert "wrong-memory" not in {each.code for each in row.remarks}
    assert breakdown is not None
    assert breakdown.seconds("staging") > 0
    assert breakdown.seconds("preparing" if direction == "h2d" else "returning") == 0


def test_an_uploader_that_cannot_be_released_is_a_remark(work: Work) -> None:
    testing.fail("cudaFreeHost", 2, 1)
    worked = work(Uploaded, nbytes=RING_BYTES, **THROUGH_RING)
    assert worked.row().gbps is not None
    assert [each.code for each in worked.remarks] == ["cleanup"]


def test_a_route_that_sends_nothing_again_has_no_bandwidth(work: Work) -> None:
    row = work(Mirrored).row()
    assert row.dma.value is not None
    traced = row.dma.value.trials
    assert row.gbps is None
    assert row.elapsed_s is not None
    assert row.verified.value is True
    assert row.rate.reason == (
        f"elided: in {traced - 1} of {traced} traced trials nothing crossed the link instead of 1 MiB"
    )


def test_a_large_route_that_sends_nothing_again_is_found_by_its_bytes_alone(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BOTH_CONTENTS_BYTES", NBYTES - 1)
    row = work(Mirrored).row()
    assert (row.gbps, row.verified.value) == (None, True)
    assert row.rate.reason == "elided: nothing crossed the link instead of 1 MiB"
    assert work(WrongTraced).row().verified.value is True  # contents of traced trials are not checked


def test_nothing_is_traced_before_everything_is_timed_and_sent(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[str] = []
    real = Marker.set

    def note(self: Marker, route: str, nbytes: int, phase: str) -> None:
        marked.append(phase)
        real(self, route, nbytes, phase)

    monkeypatch.setattr(Marker, "set", note)
    worked = work(Stored)
    tracer = next(number for number, each in enumerate(worked.sent) if isinstance(each, Tracer))
    before = [each for each in worked.sent[:tracer] if isinstance(each, Rows)]
    timed = worked.row(rows=before[-1])
    assert timed.gbps is not None
    assert timed.dma.reason == "the run ended before it was traced"
    assert timed.trials == worked.row().trials
    assert {each.now.phase for each in worked.sent[tracer:] if isinstance(each, Doing)} == {"tracing"}
    assert 2 <= marked.count("traced") <= 3
    assert marked.index("traced") == len(marked) - marked.count("traced")


@pytest.mark.parametrize(
    ("arrange", "why"),
    [
        (lambda: testing.other_subscriber(True), "another profiler is active in this process"),
        (lambda: testing.refuse_activity(35), "trace: unavailable: "),
    ],
)
def test_without_a_tracer_every_row_has_its_figures_and_the_reason(
    work: Work, arrange: Callable[[], None], why: str
) -> None:
    arrange()
    worked = work(Stored)
    (tracing,) = worked.tracers
    assert (tracing.reason or "").startswith("trace: unavailable: ")
    assert why in (tracing.reason or "")
    for row in worked.rows[-1].measurements:
        assert row.gbps is not None
        assert row.dma.reason == row.breakdown.reason == tracing.reason


def test_nothing_is_traced_without_tracing(work: Work) -> None:
    worked = work(Stored, trace=False)
    assert [each.reason for each in worked.tracers] == ["tracing was left out"]
    assert worked.row().dma.reason == worked.row().breakdown.reason == "tracing was left out"
    assert "tracing" not in {each.now.phase for each in worked.sent if isinstance(each, Doing)}


def test_a_route_that_fails_when_it_is_traced_keeps_its_figures(work: Work) -> None:
    worked = work(FailingTraced)
    row = worked.row()
    assert row.gbps is not None
    assert row.dma.reason == "its traced trial failed: RuntimeError: no more of it"
    assert "untraced" not in {each.code for each in row.remarks}
    assert worked.row("raw.pinned-async").dma.value is not None


def test_wrong_contents_of_a_traced_trial_remove_the_bandwidth(work: Work) -> None:
    row = work(WrongTraced).row()
    assert row.verified.value is False
    assert row.rate.reason == "what arrived was not what was sent, so no bandwidth is given"


def test_cancelling_while_tracing_keeps_all_timed_trials(work: Work) -> None:
    worked = work(Stored, cancelled=True)
    for row in worked.rows[-1].measurements:
        assert row.gbps is not None
        assert row.dma.reason == "the run ended before it was traced"
