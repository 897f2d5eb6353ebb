from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from pyxfer._measure import interruptible
from pyxfer._measure.interruptible import Ending, run_interruptible

pytestmark = pytest.mark.threads


class Work:
    """Runs until it is cancelled or, with `stops=False`, until it is released."""

    def __init__(self, *, stops: bool = True) -> None:
        self.stops = stops
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.released = threading.Event()

    def __call__(self) -> None:
        self.started.set()
        (self.cancelled if self.stops else self.released).wait(60)

    def cancel(self) -> None:
        self.cancelled.set()


def press_ctrl_c(*moments: threading.Event) -> threading.Thread:
    """Send SIGINT from another thread, once after each event."""

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
def test_an_exception_of_the_work_is_raised(error: BaseException) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_interruptible(work, lambda: None)
    assert caught.value is error


def test_a_kept_thread_works_again_and_ends_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruptible, "KEPT_S", 0.02)
    ran_in: list[threading.Thread] = []

    def work() -> None:
        ran_in.append(threading.current_thread())

    assert run_interruptible(work, lambda: None, kept=True) is Ending.DONE
    ran_in[0].join(30)
    assert not ran_in[0].is_alive()
    assert not interruptible._idle
    monkeypatch.setattr(interruptible, "KEPT_S", 30.0)
    assert run_interruptible(work, lambda: None, kept=True) is Ending.DONE
    until = time.monotonic() + 30
    while not interruptible._idle and time.monotonic() < until:
        time.sleep(0.001)
    assert run_interruptible(work, lambda: None, kept=True) is Ending.DONE
    assert ran_in[1] is ran_in[2]


def test_stuck_work_keeps_no_later_work_waiting() -> None:
    work = Work(stops=False)
    presser = press_ctrl_c(work.started)
    assert run_interruptible(work, work.cancel, grace_s=0.1, kept=True) is Ending.STUCK
    assert run_interruptible(lambda: None, lambda: None, kept=True) is Ending.DONE
    work.released.set()
    presser.join()


def test_ctrl_c_cancels_the_work_and_waits() -> None:
    work = Work()
    presser = press_ctrl_c(work.started)
    assert run_interruptible(work, work.cancel, grace_s=30) is Ending.INTERRUPTED
    presser.join()


def test_stuck_work_is_abandoned_after_the_grace_time() -> None:
    work = Work(stops=False)
    presser = press_ctrl_c(work.started)
    assert run_interruptible(work, work.cancel, grace_s=0.1) is Ending.STUCK
    assert work.cancelled.is_set()
    work.released.set()
    presser.join()


def test_a_second_ctrl_c_ends_the_wait() -> None:
    work = Work(stops=False)
    presser = press_ctrl_c(work.started, work.cancelled)
    begun = time.perf_counter()
    assert run_interruptible(work, work.cancel, grace_s=60) is Ending.STUCK
    assert time.perf_counter() - begun < 30
    work.released.set()
    presser.join()
