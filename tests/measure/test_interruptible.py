from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from pyxfer._measure.interruptible import Ending, run_interruptible

pytestmark = pytest.mark.threads


class Work:
    """Goes on until it is cancelled, or for ever."""

    def __init__(self, *, heeds: bool = True) -> None:
        self.heeds = heeds
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.released = threading.Event()

    def __call__(self) -> None:
        self.started.set()
        (self.cancelled if self.heeds else self.released).wait(60)

    def cancel(self) -> None:
        self.cancelled.set()


def press_ctrl_c(*moments: threading.Event) -> threading.Thread:
    """From another thread, as a terminal would, at each of the moments."""

    def press() -> None:
        for moment in moments:
            moment.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_work_that_ends_by_itself_is_done() -> None:
    ran_in: list[threading.Thread] = []
    assert run_interruptible(lambda: ran_in.append(threading.current_thread()), lambda: None) is Ending.DONE
    assert ran_in != [threading.current_thread()]


@pytest.mark.parametrize("error", [ValueError("of the work's own"), MemoryError(), SystemExit(3)])
def test_what_the_work_raises_is_raised_here(error: BaseException) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_interruptible(work, lambda: None)
    assert caught.value is error


def test_ctrl_c_cancels_and_waits_for_the_end() -> None:
    work = Work()
    presser = press_ctrl_c(work.started)
    assert run_interruptible(work, work.cancel, grace_s=30) is Ending.INTERRUPTED
    presser.join()


def test_what_interrupted_work_raises_is_not_news() -> None:
    work = Work()

    def failing() -> None:
        work()
        raise ValueError("because it was cancelled")

    presser = press_ctrl_c(work.started)
    assert run_interruptible(failing, work.cancel, grace_s=30) is Ending.INTERRUPTED
    presser.join()


def test_work_that_does_not_heed_is_left_behind_after_a_moment() -> None:
    work = Work(heeds=False)
    presser = press_ctrl_c(work.started)
    assert run_interruptible(work, work.cancel, grace_s=0.1) is Ending.STUCK
    assert work.cancelled.is_set()
    work.released.set()
    presser.join()


def test_a_second_ctrl_c_does_not_wait_for_the_moment_to_pass() -> None:
    work = Work(heeds=False)
    presser = press_ctrl_c(work.started, work.cancelled)
    begun = time.perf_counter()
    assert run_interruptible(work, work.cancel, grace_s=60) is Ending.STUCK
    assert time.perf_counter() - begun < 30
    work.released.set()
    presser.join()


def test_outside_the_main_thread_it_works_as_well() -> None:
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(run_interruptible(lambda: None, lambda: None)))
    thread.start()
    thread.join()
    assert endings == [Ending.DONE]
