"""Where the program is, by its own lines, and what looking costs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyxfer._watch import marks
from pyxfer._watch.marks import Lines

HERE = Path(__file__).name


def looked_at(work: Callable[[], object], seen_enough: Callable[[Lines], bool]) -> Lines:
    """Work again and again until enough has been seen of it."""
    looking = Lines()
    looking.start()
    deadline = time.monotonic() + 30
    while not seen_enough(looking) and time.monotonic() < deadline:
        work()
    looking.stop()
    assert seen_enough(looking), looking.failure
    return looking


def count_up() -> int:
    return sum(range(20_000))


def test_a_line_is_the_innermost_of_the_users_own() -> None:
    def sleep_in_the_library() -> None:
        threading.Event().wait(0.02)  # its own frames are Python's, and not the user's

    looking = looked_at(sleep_in_the_library, lambda each: any("sleep_in" in seen.line for seen in each.seen))
    line = next(seen.line for seen in looking.seen if "sleep_in" in seen.line)
    number = sleep_in_the_library.__code__.co_firstlineno + 1
    assert line == f"{HERE}:{number} in sleep_in_the_library"


def test_every_thread_is_looked_at_by_its_native_id_and_name() -> None:
    over = threading.Event()

    def wait_for_the_end() -> None:
        over.wait(30)

    thread = threading.Thread(target=wait_for_the_end, name="loader")
    thread.start()
    looking = looked_at(count_up, lambda each: thread.native_id in each.names)
    over.set()
    thread.join()
    assert thread.native_id is not None
    assert looking.names[thread.native_id] == "loader"
    seen = {each.line for each in looking.seen if each.thread == thread.native_id}
    assert all("in wait_for_the_end" in line for line in seen)


def test_the_looking_thread_is_not_looked_at() -> None:
    looking = looked_at(count_up, lambda each: len(each.seen) > 3)
    assert looking.native_id not in {seen.thread for seen in looking.seen}


def test_no_frame_is_kept_alive() -> None:
    class Large:
        """Something that a frame holds."""

    def hold(gone: threading.Event) -> None:
        held = Large()
        import weakref

        weakref.finalize(held, gone.set)
        looked_at(count_up, lambda each: len(each.seen) > 3)

    gone = threading.Event()
    hold(gone)
    assert gone.is_set()


def test_when_much_has_been_seen_every_other_is_given_up_and_looks_become_rarer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "MOST_SEEN", 8)
    looking = Lines()
    every_s = looking._every_s
    looking.start()
    deadline = time.monotonic() + 30
    while looking._every_s < 4 * every_s and time.monotonic() < deadline:
        count_up()
    looking.stop()
    assert looking._every_s >= 4 * every_s
    assert len(looking.seen) <= 8 + threading.active_count()
    moments = [each.at_ns for each in looking.seen]
    assert moments == sorted(moments)


@pytest.mark.unsanitized(reason="this is about time")
def test_looking_takes_less_than_a_hundredth_of_the_processor() -> None:
    looking = Lines()
    begun = time.perf_counter()
    looking.start()
    while time.perf_counter() < begun + 1.0:
        count_up()
    looking.stop()
    spent_s = time.perf_counter() - begun
    assert looking.seen
    assert looking.cost_s < 0.01 * spent_s


def test_a_look_that_fails_ends_the_looking_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[int, object]:
        raise RuntimeError("frames are not to be had")

    monkeypatch.setattr(sys, "_current_frames", fail)
    looking = Lines()
    looking.start()
    looking.join(30)
    assert looking.failure == "RuntimeError: frames are not to be had"
    looking.stop()


def test_stopping_twice_does_nothing_more() -> None:
    looking = Lines()
    looking.start()
    looking.stop()
    looking.stop()
    assert not looking.is_alive()
