from __future__ import annotations

import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

import pytest
from measure.fakes import Clock

from pyxfer import measure
from pyxfer._ceiling.callables import WARM_CALLS, _clock_remark
from pyxfer._document.runs import Measurement
from pyxfer._measure import bracket
from pyxfer._measure.bracket import Bracket
from pyxfer.errors import CleanupWarning, CudaError, CudaMemoryError, DeviceLostError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1024, 1024**2
# So slow that the delays of a busy machine are small beside a copy.
H2D, D2H, LATENCY_S = 1e8, 5e7, 20e-6


def timed(fn: Callable[[], object], **changes: Any) -> Any:
    """A short measurement on the host runtime."""
    return measure(fn, **{"device": "host", "precision": 0.2, "budget": 0.5, **changes})


def nothing() -> None:
    pass


@contextmanager
def copying(engine: Engine, direction: str) -> Iterator[Callable[[], object]]:
    """A callable that copies a MiB through the engine, as a framework would."""
    with ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(MIB, "pageable")))
        device = stack.enter_context(closing(engine.DeviceBuffer(MIB)))
        copier = stack.enter_context(closing(engine.Copier(0)))
        lane = engine.Lane(direction, host.address, device.address, MIB, MIB, 1)
        yield lambda: copier.drained(lane, 0)


def test_dispatch_is_the_time_until_the_call_returns(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(bracket, "time", clock)
    with closing(engine.Stream()) as stream:  # whose bracket is not compared with the host's clock
        found = timed(lambda: clock.sleep(3.0), sync=lambda: clock.sleep(5.0), stream=stream)
    assert (found.dispatch_s, found.wall_s) == (3.0, 8.0)


def test_the_framework_is_waited_for_after_every_call_with_its_arguments(engine: Engine) -> None:
    calls: list[tuple[int, int] | str] = []
    sync = partial(calls.append, "sync")
    found = measure(lambda *args: calls.append(args), 1, 2, sync=sync, device="host", budget=0.05)
    assert calls == [(1, 2), "sync"] * (1 + WARM_CALLS + len(found.trials))


def test_the_first_calls_are_not_among_the_trials(engine: Engine) -> None:
    calls: list[None] = []
    found = timed(lambda: time.sleep(0.0 if calls else 0.05), sync=lambda: calls.append(None))
    assert found.first_s.value >= 0.049
    assert len(calls) == 1 + WARM_CALLS + len(found.trials)


def test_without_bytes_there_is_a_time_and_no_bandwidth_of_a_route_named_after_the_callable(engine: Engine) -> None:
    class Upload:
        def __call__(self) -> None:
            pass

    found = timed(nothing)
    assert found.elapsed_s is not None
    assert (found.gbps, found.rate.reason) == (None, "no nbytes were given")
    assert found.ceiling_share.reason == "no nbytes were given"
    assert "cudaHostAlloc" not in testing.calls()
    assert (found.route, timed(Upload()).route) == ("user.nothing", "user.Upload")


@pytest.mark.parametrize(("direction", "rate"), [("h2d", H2D), ("d2h", D2H)])
def test_a_copy_over_a_modelled_link_has_its_bandwidth_and_share(engine: Engine, direction: str, rate: float) -> None:
    testing.model_link(H2D, LATENCY_S, D2H, LATENCY_S)
    least_s = LATENCY_S + MIB / rate
    with copying(engine, direction) as copy:
        found = timed(copy, nbytes=MIB, direction=direction)
    assert found.gbps == pytest.approx(MIB / found.summary.median_s / 1e9)
    assert found.summary.min_s >= 0.99 * least_s
    assert found.of_ceiling is not None


def test_an_impossible_bandwidth_is_not_given(engine: Engine) -> None:
    found = measure(nothing, nbytes=1 << 24, direction="h2d", device="host", budget=0.2)
    assert found.summary is not None
    assert (found.gbps, found.of_ceiling) == (None, None)
    assert found.rate.reason is not None
    assert "not all bytes moved" in found.rate.reason
    assert not {"share", "above-ceiling"} & {remark.code for remark in found.remarks}


def test_half_the_speed_is_half_the_ceiling(engine: Engine) -> None:
    testing.model_link(H2D, 0, D2H, 0)
    with copying(engine, "h2d") as copy:
        found = timed(lambda: (copy(), copy()), nbytes=MIB, direction="h2d", budget=1.0)
    assert found.summary.min_s >= 1.99 * MIB / H2D
    # Beside a gated copy, which takes the modelled time; the trials beside it take at least twice that.
    assert found.of_ceiling < 0.52


def test_both_directions_count_the_bytes_each_way(engine: Engine) -> None:
    testing.model_link(H2D, 0, H2D, 0)
    found = timed(lambda: time.sleep(0.001), nbytes=MIB, direction="both", budget=1.0)
    assert (found.direction, found.side, found.nbytes, found.moved_bytes) == ("both", "sum", MIB, 2 * MIB)
    assert found.of_ceiling is not None, found.ceiling_share.reason


@pytest.mark.parametrize("given", ["object", "handle"])
def test_events_are_recorded_on_the_given_stream(engine: Engine, given: str) -> None:
    with closing(engine.Stream()) as stream:
        found = timed(lambda: time.sleep(0.002), stream=stream if given == "object" else stream.handle)
    assert found.bracket == "stream"
    assert found.elapsed_s >= 0.0019
    assert timed(nothing).bracket == "drained"


OWN = ValueError("the callable's own")


@pytest.mark.parametrize(
    ("error", "good_calls"),
    [
        *[(OWN, 0), (OWN, 6), (KeyboardInterrupt(), 6), (UsageError("the callable's own"), 6)],
        *((CudaError(1, "cudaErrorInvalidValue", "cudaMemcpy", "", "invalid argument", ""), calls) for calls in (0, 6)),
    ],
)
@pytest.mark.parametrize("bytes_given", [{}, {"nbytes": 4 * KIB, "direction": "h2d"}])
def test_exceptions_of_the_callable_pass_unchanged(
    engine: Engine, error: BaseException, good_calls: int, bytes_given: dict[str, Any]
) -> None:
    calls = iter(range(100_000))

    def fail() -> None:
        if next(calls) >= good_calls:
            raise error

    with pytest.raises(type(error)) as caught:
        timed(fail, **bytes_given)
    assert caught.value is error
    assert testing.allocated() == []


async def a_coroutine() -> None:
    pass


def a_generator() -> Iterator[int]:
    yield 1


async def an_async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("fn", [None, "copy", a_coroutine, partial(a_coroutine), a_generator, an_async_generator])
def test_what_does_no_work_when_it_is_called_is_refused(engine: Engine, fn: Any) -> None:
    with pytest.raises(UsageError, match=r"^measure "):
        timed(fn)


def test_invalid_trials_are_kept_and_do_not_count(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = iter(["late"] * 5 + [""] * 100_000)
    monkeypatch.setattr(Bracket, "fault", property(lambda _: next(verdicts) or None))
    found = timed(lambda: time.sleep(0.001))
    late = [trial for trial in found.trials if trial.invalid == "late"]
    assert len(late) == 5 - 1 - WARM_CALLS
    assert found.summary.n == len(found.trials) - len(late)
    assert [remark.text for remark in found.remarks if remark.code == "invalid-trials"]


def test_a_budget_too_short_for_one_trial_leaves_one(engine: Engine) -> None:
    found = timed(nothing, nbytes=4 * KIB, direction="h2d", budget=1e-9)
    assert len(found.trials) == 1
    assert found.gbps is not None


@pytest.mark.parametrize(
    ("elapsed_s", "wall_s", "disagree"), [(10e-3, 10.1e-3, False), (5e-6, 12e-6, False), (10e-3, 11e-3, True)]
)
def test_clocks_that_disagree_are_a_remark(elapsed_s: float, wall_s: float, disagree: bool) -> None:
    assert bool(_clock_remark(elapsed_s, wall_s)) == disagree


def test_a_failed_ceiling_leaves_the_time_without_a_share(engine: Engine) -> None:
    calls = iter(range(100_000))

    def order() -> None:
        if next(calls) == 1 + WARM_CALLS:
            testing.fail("cudaLaunchHostFunc", 1, 1)

    found = timed(order, nbytes=4 * KIB, direction="h2d")
    assert found.elapsed_s is not None
    assert found.gbps is not None
    assert found.of_ceiling is None
    assert "cudaLaunchHostFunc failed" in (found.ceiling_share.reason or "")


def test_a_lost_device_is_an_error_and_leaves_nothing(engine: Engine) -> None:
    calls = iter(range(100_000))

    def lose() -> None:
        if next(calls) == 6:
            testing.lose_device(719)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CleanupWarning)
        with pytest.raises(DeviceLostError):
            timed(lose, nbytes=4 * KIB, direction="h2d")
    engine.take_cleanup_failures()


@pytest.mark.parametrize("call", ["cudaMalloc", "cudaHostAlloc"])
def test_too_little_memory_for_the_ceiling_is_an_error_with_advice(engine: Engine, call: str) -> None:
    testing.fail(call, 1, 2)
    with pytest.raises(CudaMemoryError, match="ask for smaller sizes"):
        timed(nothing, nbytes=4 * KIB, direction="h2d")
    assert testing.allocated() == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"nbytes": 4096}, "nbytes and direction"),
        ({"direction": "h2d"}, "nbytes and direction"),
        *(({"nbytes": nbytes, "direction": "h2d"}, "nbytes") for nbytes in (0, -1, 1.5, True, "4K")),
        ({"nbytes": 4096, "direction": "sideways"}, "direction"),
        ({"nbytes": 1 << 50, "direction": "h2d"}, "Copies of 1024 TiB need"),
        *(({"precision": precision}, "precision") for precision in (0, -1.0)),
        ({"budget": 0}, "budget"),
        ({"stream": "cuda:0"}, "str is not a stream"),
    ],
)
def test_invalid_arguments_are_refused_before_any_call(engine: Engine, arguments: dict[str, Any], named: str) -> None:
    calls: list[str] = []
    with pytest.raises(UsageError, match=f"^{named}"):
        timed(lambda: calls.append("call"), **arguments)
    assert calls == []
    assert testing.allocated() == []


@pytest.mark.threads
def test_threads_that_measure_at_once_take_turns(engine: Engine) -> None:
    running = most = 0
    found: list[Measurement] = []

    def call() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.001)
        running -= 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: found.append(timed(call, budget=0.1)), range(4)))
    assert (len(found), most) == (4, 1)


def test_a_callable_may_measure_itself(engine: Engine) -> None:
    inner: list[Measurement] = []

    def outer() -> None:
        if not inner:
            inner.append(timed(nothing, budget=0.05))

    assert timed(outer, budget=0.05).elapsed_s is not None
    assert inner[0].elapsed_s is not None
