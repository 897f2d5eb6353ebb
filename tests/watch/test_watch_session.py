"""A watch from its start to its window, with the records of the host engine, and the steps that it counts."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Generator

import pytest
from watch.copying import copies, session, window_of

import pyxfer
from pyxfer import UsageError
from pyxfer._trace.collector import Collector
from pyxfer._watch import marks, recording, step_tracking
from pyxfer._watch.marks import LineSampler
from pyxfer._watch.recording import Recording
from pyxfer._watch.step_tracking import NO_STEP
from pyxfer._watch.window import Window
from pyxfer.errors import TraceUnavailableError
from pyxfer.native import Engine
from pyxfer.native._host import testing


def test_a_step_begins_at_the_end_of_the_previous_one(
    engine: Engine,
) -> None:
    with session(skip=1, steps=2) as watched:
        for _ in range(3):
            with watched.steps.step():
                pass
    window = window_of(watched)
    first, second = window.steps
    assert first.from_ns == window.begin_ns < first.begin_ns <= first.end_ns == second.from_ns < second.begin_ns
    assert window.end_ns == second.end_ns
    assert first.thread == threading.get_native_id()


def test_steps_outside_of_the_window_share_one_object(engine: Engine) -> None:
    with session(skip=2, steps=1) as watched:
        assert watched.steps.step() is watched.steps.step()
        for _ in range(3):
            with watched.steps.step():
                pass
        assert watched.steps is NO_STEP
        assert watched.steps.step() is watched.steps.step()


def test_after_the_window_another_tracer_can_start(engine: Engine) -> None:
    with session(steps=1) as watched:
        with watched.steps.step():
            pass
        with Collector(engine).running(), copies() as made:
            made.send()


def test_while_the_window_is_open_no_other_tracer_can_start(engine: Engine) -> None:
    with session(), pytest.raises(TraceUnavailableError):
        Collector(engine).start()


def test_an_exception_in_a_step_is_noted_and_propagates(engine: Engine) -> None:
    with session(steps=2) as watched:
        with pytest.raises(ValueError, match="no such batch"), watched.steps.step():
            raise ValueError("no such batch\nand more")
        with watched.steps.step():
            pass
    assert [step.failed for step in window_of(watched).steps] == ["ValueError: no such batch", None]


def test_an_exception_whose_str_fails_is_noted_by_its_type(engine: Engine) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with session(steps=1) as watched, pytest.raises(MuteError), watched.steps.step():
        raise MuteError
    assert window_of(watched).steps[0].failed == "MuteError"


def test_a_nested_step_is_part_of_the_outer_one(engine: Engine) -> None:
    with session() as watched:
        with watched.steps.step(), watched.steps.step():
            pass
        with watched.steps.step():
            pass
    window = window_of(watched)
    assert len(window.steps) == 2
    assert [remark.code for remark in window.remarks] == ["nested"]


def test_a_step_that_is_never_closed_ends_with_the_window(engine: Engine) -> None:
    with session() as watched:
        watched.steps.step().__enter__()
    window = window_of(watched)
    assert [(step.closed, step.end_ns) for step in window.steps] == [(False, window.end_ns)]


def test_closing_a_generator_closes_its_step(engine: Engine) -> None:
    def batches() -> Generator[int, None, None]:
        with watched.steps.step():
            yield 1

    with session() as watched:
        loop = batches()
        next(loop)
        loop.close()
    assert [step.failed for step in window_of(watched).steps] == ["GeneratorExit"]


@pytest.mark.threads
def test_threads_take_separate_steps(engine: Engine) -> None:
    native_ids: list[int] = []

    def loop() -> None:
        native_ids.append(threading.get_native_id())
        for _ in range(50):
            with watched.steps.step():
                pass

    with session(steps=100) as watched:
        threads = [threading.Thread(target=loop, name=f"loop-{number}") for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    window = window_of(watched)
    assert (len(window.steps), window.ended) == (100, "complete")
    for native_id in native_ids:
        own = [step for step in window.steps if step.thread == native_id]
        assert len(own) == 50
        assert all(after.from_ns == before.end_ns for before, after in itertools.pairwise(own))


@pytest.mark.threads
def test_threads_that_skip_steps_together_open_one_window(engine: Engine) -> None:
    def loop() -> None:
        for _ in range(100):
            with watched.steps.step():
                pass

    with session(skip=150) as watched:
        threads = [threading.Thread(target=loop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    window = window_of(watched)
    assert window.skipped == 150
    assert 0 < len(window.steps) <= 250


def test_a_window_closes_after_its_seconds(engine: Engine) -> None:
    closed = threading.Event()
    with session(seconds=0.05) as watched:
        watched.on_closed = lambda _: closed.set()
        assert closed.wait(60)
    window = window_of(watched)
    assert window.ended == "complete"
    assert 0.05e9 <= window.end_ns - window.begin_ns < 60e9


def test_a_window_with_too_few_steps_has_ended_early(engine: Engine) -> None:
    with session(steps=3) as watched, watched.steps.step():
        pass
    assert window_of(watched).ended == "ended"


def test_a_window_without_limits_is_complete(engine: Engine) -> None:
    with session() as watched, watched.steps.step():
        pass
    assert window_of(watched).ended == "complete"


def test_a_watch_that_is_stopped_while_skipping_has_never_opened(engine: Engine) -> None:
    with session(skip=5) as watched, watched.steps.step():
        pass
    window = window_of(watched)
    assert window.begin_ns == window.end_ns
    assert window.capture.reason == "the window never opened: 1 steps were taken, and 5 were to be skipped"
    assert window.remarks[-1].code == "never-opened"


def test_an_active_watch_cannot_be_started_again(engine: Engine) -> None:
    with session() as watched, pytest.raises(UsageError, match="This watch is active already, since"):
        watched.start()


def test_another_watch_may_start_after_the_window_has_closed(engine: Engine) -> None:
    with session(steps=1) as watched:
        with watched.steps.step():
            pass
        with session(steps=1) as other, other.steps.step():
            pass
    assert len(window_of(other).steps) == 1


def test_a_missing_device_leaves_no_active_watch(engine: Engine) -> None:
    with pytest.raises(UsageError, match="is none of the devices"), session(device=77):
        pass
    with session():
        pass


def test_with_another_profiler_a_window_has_steps_but_no_records(engine: Engine) -> None:
    testing.other_subscriber(True)
    with session(steps=1) as watched, watched.steps.step():
        pass
    window = window_of(watched)
    assert len(window.steps) == 1
    assert window.capture.value is None
    assert (window.capture.reason or "").startswith("trace: unavailable: ")
    assert window.tracing.reason == window.capture.reason


def test_a_window_closes_at_the_most_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_tracking, recording):
        monkeypatch.setattr(module, "MAX_STEPS", 3)
    with session() as watched:
        for _ in range(5):
            with watched.steps.step():
                pass
        assert not watched.is_active
    window = window_of(watched)
    assert len(window.steps) == 3
    assert [remark.code for remark in window.remarks] == ["full"]


def test_no_thread_is_left_after_the_window(engine: Engine) -> None:
    with session(steps=1, seconds=60.0, lines=True) as watched:
        assert {"pyxfer-watch-clock", "pyxfer-watch-lines"} <= {thread.name for thread in threading.enumerate()}
        clock = next(thread for thread in threading.enumerate() if thread.name == "pyxfer-watch-clock")
        with watched.steps.step():
            pass
        clock.join(10)
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("pyxfer-watch")]


def test_a_preempted_window_has_a_remark_with_the_line(engine: Engine) -> None:
    with session() as watched:
        watched.is_preemptible = True
        with session():
            pass
    window = window_of(watched)
    assert window.ended == "ended"
    assert window.remarks[-1].code == "gave-way"
    assert "began a watch of its own, at copying.py:" in window.remarks[-1].text


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (KeyboardInterrupt(), "closing it was interrupted"),
        (ZeroDivisionError("by its own"), "closing it failed: ZeroDivisionError: by its own"),
    ],
)
def test_an_error_while_the_window_closes_leaves_nothing_active_and_a_remark(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, raised: BaseException, why: str
) -> None:
    def finish(_: Recording) -> None:
        raise raised

    monkeypatch.setattr(Recording, "finish", finish)
    w = pyxfer.watch(device="host")
    with pytest.raises(type(raised)), w:
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pyxfer-watch")]
    assert marks._recorder is None
    remark = w.result.remarks[-1]
    assert (remark.code, remark.text) == ("lost", f"the window is lost: {why}")
    assert w.report().count("is lost") == 1
    monkeypatch.undo()
    with session():
        pass


def test_a_session_ends_also_if_its_callback_fails(engine: Engine) -> None:
    def fail(_: Window) -> None:
        raise ZeroDivisionError

    with session() as watched:
        watched.on_closed = fail
        with pytest.raises(ZeroDivisionError):
            watched.stop()
        assert not watched.is_active


def test_a_nested_skipped_step_is_part_of_the_outer_one(engine: Engine) -> None:
    with session(skip=2, steps=1) as watched:
        for _ in range(2):
            with watched.steps.step(), watched.steps.step():
                pass
            assert watched.is_active
        with watched.steps.step():
            pass
    window = window_of(watched)
    assert (window.skipped, len(window.steps)) == (2, 1)


def test_a_thread_that_ends_inside_its_step_does_not_affect_later_threads(engine: Engine) -> None:
    def whole() -> None:
        with watched.steps.step():
            pass

    with session() as watched:
        for work in (lambda: watched.steps.step().__enter__(), *[whole] * 3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    window = window_of(watched)
    assert [step.closed for step in window.steps].count(True) == 3
    assert not window.remarks


@pytest.mark.parametrize("skip", [0, 1])
def test_opening_the_window_is_not_part_of_a_step(engine: Engine, monkeypatch: pytest.MonkeyPatch, skip: int) -> None:
    opened_ns: list[int] = []

    class Noting(LineSampler):
        def start(self) -> None:
            super().start()
            opened_ns.append(time.perf_counter_ns())

    monkeypatch.setattr(recording, "LineSampler", Noting)
    with session(skip=skip, steps=1, lines=True) as watched:
        for _ in range(skip + 1):
            with watched.steps.step():
                pass
    (step,) = window_of(watched).steps
    assert step.from_ns >= opened_ns[0]


def test_steps_of_several_optimizers_are_counted_separately_with_a_remark(engine: Engine) -> None:
    with session() as watched:
        for _ in range(3):
            for optimizer in (1, 2):
                watched.steps.optimizer_stepped(optimizer)
    window = window_of(watched)
    assert len(window.steps) == 5
    assert [remark.code for remark in window.remarks] == ["optimizers"]
