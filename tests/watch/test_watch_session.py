"""A watch from its start to the window that it leaves, on the host engine's own records."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator

import pytest
from watch.copying import NBYTES, copies, session, window_of

import pyxfer
from pyxfer import UsageError
from pyxfer._trace.collector import Collector
from pyxfer._trace.records import CopyWay, Kind
from pyxfer._watch import marks, recording, steps_taken
from pyxfer._watch.recording import Recording
from pyxfer._watch.steps_taken import NO_STEP
from pyxfer._watch.window import Window
from pyxfer.errors import TraceUnavailableError
from pyxfer.native import Engine
from pyxfer.native._host import testing


def copied_bytes(window: Window, way: CopyWay) -> int:
    assert window.capture.value is not None, window.capture.reason
    found = window.capture.value.of(Kind.COPY)
    return int(found["nbytes"][found["way"] == way].sum())


def test_the_window_holds_the_steps_that_were_asked_for_and_no_more(engine: Engine) -> None:
    with session(skip=3, steps=4) as watched:
        for _ in range(10):
            with watched.steps.step():
                pass
    window = window_of(watched)
    assert (len(window.steps), window.skipped, window.ended) == (4, 3, "complete")


def test_what_the_steps_copied_is_in_its_records_and_what_others_copied_is_not(engine: Engine) -> None:
    with copies() as made, session(skip=1, steps=3) as watched:
        for _ in range(6):
            with watched.steps.step():
                made.send()
                made.send()
                made.fetch()
    window = window_of(watched)
    assert copied_bytes(window, CopyWay.H2D) == 6 * NBYTES
    assert copied_bytes(window, CopyWay.D2H) == 3 * NBYTES


def test_a_step_begins_where_the_one_before_it_has_ended_and_the_first_where_the_last_skipped_one_did(
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


def test_steps_before_and_after_the_window_share_one_object_that_keeps_nothing(engine: Engine) -> None:
    with session(skip=2, steps=1) as watched:
        assert watched.steps.step() is watched.steps.step()
        for _ in range(3):
            with watched.steps.step():
                pass
        assert watched.steps is NO_STEP
        assert watched.steps.step() is watched.steps.step()


def test_after_the_window_the_tracer_is_free_for_others(engine: Engine) -> None:
    with session(steps=1) as watched:
        with watched.steps.step():
            pass
        with Collector(engine).running(), copies() as made:
            made.send()


def test_while_the_window_is_open_nobody_else_can_trace(engine: Engine) -> None:
    with session(), pytest.raises(TraceUnavailableError):
        Collector(engine).start()


def test_what_is_raised_in_a_step_is_noted_and_goes_on(engine: Engine) -> None:
    with session(steps=2) as watched:
        with pytest.raises(ValueError, match="no such batch"), watched.steps.step():
            raise ValueError("no such batch\nand more")
        with watched.steps.step():
            pass
    assert [step.failed for step in window_of(watched).steps] == ["ValueError: no such batch", None]


def test_an_error_whose_text_cannot_be_made_is_noted_by_its_kind(engine: Engine) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with session(steps=1) as watched, pytest.raises(MuteError), watched.steps.step():
        raise MuteError
    assert window_of(watched).steps[0].failed == "MuteError"


def test_a_step_inside_a_step_belongs_to_it(engine: Engine) -> None:
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


def test_a_generator_that_is_left_inside_its_step_closes_it(engine: Engine) -> None:
    def batches() -> Generator[int, None, None]:
        with watched.steps.step():
            yield 1

    with session() as watched:
        loop = batches()
        next(loop)
        loop.close()
    assert [step.failed for step in window_of(watched).steps] == ["GeneratorExit"]


@pytest.mark.threads
def test_threads_take_steps_of_their_own(engine: Engine) -> None:
    natives: list[int] = []

    def loop() -> None:
        natives.append(threading.get_native_id())
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
    for native in natives:
        own = [step for step in window.steps if step.thread == native]
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


def test_a_window_closes_after_its_seconds_without_any_step(engine: Engine) -> None:
    closed = threading.Event()
    with session(seconds=0.05) as watched:
        watched.on_closed = lambda _: closed.set()
        assert closed.wait(10)
    window = window_of(watched)
    assert window.ended == "complete"
    assert 0.05e9 <= window.end_ns - window.begin_ns < 5e9


def test_a_window_whose_steps_were_not_all_taken_has_ended_early(engine: Engine) -> None:
    with session(steps=3) as watched, watched.steps.step():
        pass
    assert window_of(watched).ended == "ended"


def test_a_window_without_limits_is_complete_when_it_is_left(engine: Engine) -> None:
    with session() as watched, watched.steps.step():
        pass
    assert window_of(watched).ended == "complete"


def test_a_watch_that_is_left_while_it_skips_says_that_it_never_opened(engine: Engine) -> None:
    with session(skip=5) as watched, watched.steps.step():
        pass
    window = window_of(watched)
    assert window.begin_ns == window.end_ns
    assert window.capture.reason == "the window never opened: 1 steps were taken, and 5 were to be skipped"
    assert window.remarks[-1].code == "never-opened"


def test_a_second_watch_is_told_where_the_first_was_begun(engine: Engine) -> None:
    with session(), pytest.raises(UsageError, match=r"begun at copying\.py:\d+ in session, and there can be one"):
        pyxfer.watch(device="host").start()


def test_a_watch_that_is_at_work_cannot_be_started_again(engine: Engine) -> None:
    with session() as watched, pytest.raises(UsageError, match="This watch is at work already, since"):
        watched.start()


def test_another_watch_may_begin_when_the_window_has_closed(engine: Engine) -> None:
    with session(steps=1) as watched:
        with watched.steps.step():
            pass
        with session(steps=1) as other, other.steps.step():
            pass
    assert len(window_of(other).steps) == 1


def test_a_watch_that_gives_way_ends_when_another_begins(engine: Engine) -> None:
    with session() as watched:
        watched.gives_way = True
        with session(steps=1) as other, other.steps.step():
            pass
        assert not watched.is_at_work
    assert window_of(watched).end_ns <= window_of(other).begin_ns


def test_a_device_that_is_not_there_leaves_nothing_at_work(engine: Engine) -> None:
    with pytest.raises(UsageError, match="is none of the devices"), session(device=77):
        pass
    with session():
        pass


def test_another_profiler_in_the_process_leaves_steps_without_records_and_the_reason(engine: Engine) -> None:
    testing.other_subscriber(True)
    with session(steps=1) as watched, watched.steps.step():
        pass
    window = window_of(watched)
    assert len(window.steps) == 1
    assert window.capture.value is None
    assert (window.capture.reason or "").startswith("trace: unavailable: ")
    assert window.tracing.reason == window.capture.reason


def test_a_window_has_room_for_so_many_steps_and_then_closes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (steps_taken, recording):
        monkeypatch.setattr(module, "MOST_STEPS", 3)
    with session() as watched:
        for _ in range(5):
            with watched.steps.step():
                pass
        assert not watched.is_at_work
    window = window_of(watched)
    assert len(window.steps) == 3
    assert [remark.code for remark in window.remarks] == ["full"]


def test_after_the_window_no_thread_of_ours_is_left(engine: Engine) -> None:
    with session(steps=1, seconds=60.0, lines=True) as watched:
        assert {"pyxfer-watch-clock", "pyxfer-watch-lines"} <= {each.name for each in threading.enumerate()}
        clock = next(each for each in threading.enumerate() if each.name == "pyxfer-watch-clock")
        with watched.steps.step():
            pass
        clock.join(10)
        assert not [each.name for each in threading.enumerate() if each.name.startswith("pyxfer-watch")]


def test_a_window_in_which_nothing_was_copied_has_a_capture_without_copies(engine: Engine) -> None:
    with session(steps=1) as watched, watched.steps.step():
        pass
    assert copied_bytes(window_of(watched), CopyWay.H2D) == 0


def test_a_watch_that_gives_way_has_ended_and_says_where(engine: Engine) -> None:
    with session() as watched:
        watched.gives_way = True
        with session():
            pass
    window = window_of(watched)
    assert window.ended == "ended"
    assert window.remarks[-1].code == "gave-way"
    assert "began a watch of its own, at copying.py:" in window.remarks[-1].text


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (KeyboardInterrupt(), "it was interrupted while it was being put together"),
        (ZeroDivisionError("by its own"), "it could not be put together: ZeroDivisionError: by its own"),
    ],
)
def test_a_window_that_is_interrupted_while_it_closes_leaves_nothing_at_work_and_says_why_it_is_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, raised: BaseException, why: str
) -> None:
    def finish(_: Recording) -> None:
        raise raised

    monkeypatch.setattr(Recording, "finish", finish)
    w = pyxfer.watch(device="host")
    with pytest.raises(type(raised)), w:
        pass
    assert not [each for each in threading.enumerate() if each.name.startswith("pyxfer-watch")]
    assert marks._window is None
    remark = w.result.remarks[-1]
    assert (remark.code, remark.text) == ("lost", f"the window is lost: {why}")
    assert w.report().count("is lost") == 1
    monkeypatch.undo()
    with session():
        pass


def test_a_session_whose_window_nobody_can_use_has_ended_all_the_same(engine: Engine) -> None:
    def fail(_: Window) -> None:
        raise ZeroDivisionError

    with session() as watched:
        watched.on_closed = fail
        with pytest.raises(ZeroDivisionError):
            watched.stop()
        assert not watched.is_at_work
