"""Samples of the program's own lines, and their cost."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyxfer._watch import marks
from pyxfer._watch.marks import LineSampler

HERE = Path(__file__).name


def sampled(work: Callable[[], object], is_enough: Callable[[LineSampler], bool]) -> LineSampler:
    """Call `work` until there are enough samples of it."""
    sampler = LineSampler()
    sampler.start()
    deadline = time.monotonic() + 30
    while not is_enough(sampler) and time.monotonic() < deadline:
        work()
    sampler.stop()
    assert is_enough(sampler), sampler.failure
    return sampler


def count_up() -> int:
    return sum(range(20_000))


def test_the_sampled_line_is_the_innermost_of_the_users_code() -> None:
    def sleep_in_the_library() -> None:
        threading.Event().wait(0.02)  # its own frames are Python's, and not the user's

    sampler = sampled(sleep_in_the_library, lambda sampler: any("sleep_in" in seen.line for seen in sampler.samples))
    line = next(seen.line for seen in sampler.samples if "sleep_in" in seen.line)
    number = sleep_in_the_library.__code__.co_firstlineno + 1
    assert line == f"{HERE}:{number} in sleep_in_the_library"


def test_every_thread_is_sampled_with_its_native_id_and_name() -> None:
    over = threading.Event()

    def wait_for_the_end() -> None:
        over.wait(30)

    thread = threading.Thread(target=wait_for_the_end, name="loader")
    thread.start()
    sampler = sampled(count_up, lambda sampler: thread.native_id in sampler.names)
    over.set()
    thread.join()
    assert thread.native_id is not None
    assert sampler.names[thread.native_id] == "loader"
    seen = {sample.line for sample in sampler.samples if sample.thread == thread.native_id}
    assert all("in wait_for_the_end" in line for line in seen)


def test_the_sampler_does_not_sample_itself() -> None:
    sampler = sampled(count_up, lambda sampler: len(sampler.samples) > 3)
    assert sampler.native_id not in {seen.thread for seen in sampler.samples}


def test_no_frame_is_kept_alive() -> None:
    class Large:
        """A local variable of a sampled frame."""

    def hold(gone: threading.Event) -> None:
        held = Large()
        import weakref

        weakref.finalize(held, gone.set)
        sampled(count_up, lambda sampler: len(sampler.samples) > 3)

    gone = threading.Event()
    hold(gone)
    assert gone.is_set()


def test_at_the_limit_every_second_sample_is_dropped_and_the_interval_doubles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "MOST_SAMPLES", 8)
    sampler = LineSampler()
    every_s = sampler._every_s
    sampler.start()
    deadline = time.monotonic() + 30
    while sampler._every_s < 4 * every_s and time.monotonic() < deadline:
        count_up()
    sampler.stop()
    assert sampler._every_s >= 4 * every_s
    assert len(sampler.samples) <= 8 + threading.active_count()
    moments = [sample.at_ns for sample in sampler.samples]
    assert moments == sorted(moments)


@pytest.mark.unsanitized(reason="measures time")
def test_sampling_takes_less_than_one_percent_of_a_processor() -> None:
    sampler = LineSampler()
    begun = time.perf_counter()
    sampler.start()
    while time.perf_counter() < begun + 1.0:
        count_up()
    sampler.stop()
    spent_s = time.perf_counter() - begun
    assert sampler.samples
    assert sampler.cost_s < 0.01 * spent_s


def test_an_error_while_sampling_ends_only_the_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[int, object]:
        raise RuntimeError("no frames")

    monkeypatch.setattr(sys, "_current_frames", fail)
    sampler = LineSampler()
    sampler.start()
    sampler.join(30)
    assert sampler.failure == "RuntimeError: no frames"
    sampler.stop()


def test_the_sampler_can_be_stopped_twice() -> None:
    sampler = LineSampler()
    sampler.start()
    sampler.stop()
    sampler.stop()
    assert not sampler.is_alive()
