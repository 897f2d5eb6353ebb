from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from measure.fakes import Clock

from pyxfer._measure import bracket as module
from pyxfer._measure.bracket import Bracket, HostClock, Timer, stream_handle
from pyxfer.errors import CudaError, UsageError
from pyxfer.native import Choice, Engine
from pyxfer.native._host import testing

SLEEP_S = 0.02  # on the real clock, which events read


@pytest.fixture(params=["drained", "stream"])
def bracket(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Bracket]:
    """Both kinds of bracket on the host runtime."""
    with closing(engine.Stream()) as stream:
        made = Bracket(engine, 0, stream if request.param == "stream" else None)
        assert made.word == request.param
        with closing(made):
            yield made


@pytest.fixture
def timers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Timers use the host runtime, even with a GPU."""
    monkeypatch.setattr(module, "choose", lambda _device: Choice(engine, "host", ""))
    return engine


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The host's clock of every bracket."""
    made = Clock(1000.0)
    monkeypatch.setattr(module, "time", made)
    return made


def elapsed_around_a_sleep(bracket: Bracket) -> float:
    bracket.begin()
    time.sleep(SLEEP_S)
    bracket.returned()
    bracket.end()
    return bracket.elapsed_s


def test_events_include_the_call(bracket: Bracket) -> None:
    assert elapsed_around_a_sleep(bracket) >= 0.95 * SLEEP_S


def test_the_hosts_times_are_until_the_return_and_until_the_end(bracket: Bracket, clock: Clock) -> None:
    for call_s, sync_s in ((3.0, 5.0), (7.0, 0.0)):
        bracket.begin()
        clock.sleep(call_s)
        bracket.returned()
        bracket.end(lambda seconds=sync_s: clock.sleep(seconds))  # type: ignore[misc]
        assert (bracket.dispatch_s, bracket.wall_s) == (call_s, call_s + sync_s)


def test_the_events_of_a_drained_bracket_include_the_frameworks_sync(engine: Engine) -> None:
    with closing(Bracket(engine, 0)) as bracket:
        bracket.begin()
        bracket.returned()
        bracket.end(lambda: time.sleep(SLEEP_S))
        assert bracket.elapsed_s >= 0.95 * SLEEP_S


def test_a_drained_bracket_includes_queued_work(engine: Engine) -> None:
    testing.model_link(10e6, 0, 10e6, 0)
    with (
        closing(engine.HostBuffer(1 << 16, "pinned")) as host,
        closing(engine.DeviceBuffer(1 << 16)) as device,
        closing(engine.Copier(0)) as copier,
        closing(Bracket(engine, 0)) as bracket,
    ):
        lane = engine.Lane("h2d", host.address, device.address, 1 << 16, 1 << 16, 1)
        bracket.begin()
        copier.on_stream("async", lane, 0)
        bracket.returned()
        bracket.end()
        assert bracket.elapsed_s >= 0.95 * (1 << 16) / 10e6


def test_a_late_first_event_is_a_fault_of_a_drained_bracket(engine: Engine) -> None:
    with closing(Bracket(engine, 0)) as bracket:
        testing.stall("cuEventRecord", 1, 0.1)
        elapsed_around_a_sleep(bracket)
        assert bracket.fault == "the device stamped the first event late"


@pytest.mark.parametrize("call", ["cuEventRecord", "cuEventQuery", "cuEventElapsedTime"])
def test_a_failed_driver_call_raises(bracket: Bracket, call: str) -> None:
    testing.fail(call, 1, 1)
    with pytest.raises(CudaError, match=f"{call} failed"):
        elapsed_around_a_sleep(bracket)


def test_the_times_of_a_host_clock_include_the_frameworks_sync(clock: Clock) -> None:
    bracket = HostClock()
    for sync, wall_s in ((None, 3.0), (lambda: clock.sleep(5.0), 8.0)):
        bracket.begin()
        clock.sleep(3.0)
        bracket.returned()
        bracket.end(sync)
        assert (bracket.dispatch_s, bracket.elapsed_s, bracket.wall_s) == (3.0, wall_s, wall_s)
    assert bracket.fault is None


def test_a_timer_times_its_block(timers: Engine, clock: Clock) -> None:
    with Timer() as timer:
        clock.sleep(3.0)
        time.sleep(SLEEP_S)
    assert timer.dispatch_s == timer.wall_s == 3.0
    assert timer.elapsed_s >= 0.95 * SLEEP_S


def test_a_running_timer_cannot_be_entered_again(timers: Engine, clock: Clock) -> None:
    with Timer() as outer:
        clock.sleep(1.0)
        with Timer() as inner:
            clock.sleep(3.0)
    assert (outer.wall_s, inner.wall_s) == (4.0, 3.0)
    with outer, pytest.raises(UsageError, match="already running"), outer:
        pass


@pytest.mark.parametrize("error", [ValueError("of the block's own"), KeyboardInterrupt()])
def test_a_block_that_raises_leaves_no_times(timers: Engine, error: BaseException) -> None:
    timer = Timer()
    with pytest.raises(type(error)) as caught, timer:
        raise error
    assert caught.value is error
    with pytest.raises(UsageError, match="or it raised an exception"):
        _ = timer.elapsed_s
    with timer:
        pass
    assert timer.elapsed_s >= 0


def test_a_timer_whose_event_fails_releases_it(timers: Engine) -> None:
    timer = Timer()
    testing.fail("cuEventRecord", 1, 1)
    with pytest.raises(CudaError, match="cuEventRecord failed"), timer:
        pass
    assert testing.allocated() == []
    with timer:
        pass


ADDRESS = 0x7F0012345678


class CudaCore:
    """The interface of `cuda.core.Stream`."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, ADDRESS


# Also the interfaces of `torch.cuda.Stream` and of `cupy.cuda.Stream`.
@pytest.mark.parametrize(
    "stream", [ADDRESS, CudaCore(), SimpleNamespace(cuda_stream=ADDRESS), SimpleNamespace(ptr=ADDRESS)]
)
def test_the_handle_of_every_known_stream_is_found(stream: object) -> None:
    assert stream_handle(stream) == ADDRESS


def test_the_engines_stream_is_known(engine: Engine) -> None:
    with closing(engine.Stream()) as stream:
        assert stream_handle(stream) == stream.handle != 0


# The last has an attribute with a known name that is not a handle.
@pytest.mark.parametrize("stream", ["0", 1.5, None, True, object(), [], SimpleNamespace(ptr=True)])
def test_an_object_that_is_not_a_stream_is_refused(stream: object) -> None:
    with pytest.raises(UsageError, match=rf"{type(stream).__name__} is not a stream: give an integer handle"):
        stream_handle(stream)


@pytest.mark.parametrize("handle", [-1, 1 << 64])
def test_a_number_that_cannot_be_an_address_is_refused(handle: int) -> None:
    with pytest.raises(UsageError, match=f"{handle} is not a stream handle"):
        stream_handle(handle)
