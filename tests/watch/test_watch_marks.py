"""Marks: ranges that the program names, also in threads, generators and coroutines; and samples of its own lines."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watch.copying import in_threads

import pyxfer
from pyxfer import UsageError
from pyxfer._watch import marks
from pyxfer._watch.marks import LineSampler, Range, RangeRecorder, mark


def names(ranges: tuple[Range, ...]) -> list[str]:
    return [name for name, *_ in ranges]


@pytest.fixture
def window() -> Iterator[RangeRecorder]:
    """An open window for ranges."""
    made = RangeRecorder()
    made.open()
    yield made
    made.close(0)


def now() -> int:
    return 2**62


def test_a_marked_block_is_a_range_of_its_thread(window: RangeRecorder) -> None:
    with pytest.raises(KeyError), mark("decode"):
        raise KeyError
    ((name, begin, end, thread),) = window.close(now())
    assert name == "decode"
    assert window.begin_ns <= begin <= end
    assert thread == threading.get_native_id()


def test_each_call_of_a_marked_function_generator_or_coroutine_is_a_range_until_its_end(window: RangeRecorder) -> None:
    @mark("work")
    def work(number: int) -> int:
        """Doubles."""
        return 2 * number

    @mark("batches")
    def batches() -> Iterator[int]:
        yield from (1, 2)

    @mark("fetch")
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 3

    async def both() -> list[int]:
        return list(await asyncio.gather(fetch(), fetch()))

    assert [work(1), work(2)] == [2, 4]
    assert work.__doc__ == "Doubles."
    assert list(batches()) == [1, 2]
    assert asyncio.run(both()) == [3, 3]
    assert names(window.close(now())) == ["work", "work", "batches", "fetch", "fetch"]


async def _rows() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("what", [7, "text", property(), dict, _rows], ids=lambda what: type(what).__name__)
def test_a_mark_refuses_what_it_cannot_decorate_and_a_missing_name(what: Any) -> None:
    with pytest.raises(UsageError, match=r"with pyxfer\.mark\('decode'\)"):
        mark("decode")(what)
    for name in ("", None, 7):
        with pytest.raises(UsageError, match=r"for example pyxfer\.mark\('decode'\)"):
            pyxfer.mark(name)  # type: ignore[arg-type]


def test_ranges_that_are_open_at_an_edge_of_the_window_are_cut() -> None:
    window = RangeRecorder()
    with mark("both edges"):
        with mark("before"):
            window.open()
        with mark("around"):
            edge = window.begin_ns + 10**9
            ranges = {name: (begin, end) for name, begin, end, _ in window.close(edge)}
    assert ranges["before"][0] == window.begin_ns < ranges["before"][1] < edge
    assert window.begin_ns < ranges["around"][0] < ranges["around"][1] == edge
    assert ranges["both edges"] == (window.begin_ns, edge)


def test_ranges_outside_of_a_window_are_not_kept() -> None:
    window = RangeRecorder()
    with mark("early"):
        pass
    window.open()
    window.close(now())
    with mark("late"):
        pass
    assert window.close(now()) == ()


def test_one_mark_works_recursively_and_in_several_threads(window: RangeRecorder) -> None:
    shared = mark("shared")
    meet = threading.Barrier(2)

    def inside() -> None:
        with shared:
            meet.wait(10)
            with shared:
                meet.wait(10)

    in_threads(inside, inside)
    found = window.close(now())
    assert names(found) == ["shared"] * 4
    assert len({thread for *_, thread in found}) == 2


def test_marks_may_end_in_another_order_than_nested(window: RangeRecorder) -> None:
    first, second = mark("first"), mark("second")
    for call in (first.__enter__, second.__enter__):
        call()
    for each in (first, second):
        each.__exit__(None, None, None)
    (_, begin, end, _), (_, later, last, _) = sorted(window.close(now()))
    assert begin <= later <= end <= last


def test_a_mark_may_end_in_another_thread_and_without_an_end_leaves_no_range(window: RangeRecorder) -> None:
    moved = mark("moved")
    moved.__enter__()
    in_threads(lambda: moved.__exit__(None, None, None), mark("lost").__enter__)
    assert names(window.close(now())) == ["moved"]


def test_ranges_beyond_the_limit_are_counted(window: RangeRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MAX_RANGES", 3)
    for _ in range(5):
        with mark("many"):
            pass
    assert len(window.close(now())) == 3
    assert window.dropped == 2


def test_a_very_long_name_is_cut(window: RangeRecorder) -> None:
    with mark("x" * 10_000):
        pass
    assert len(names(window.close(now()))[0]) == 200


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
    assert sampler.native_id not in {seen.thread for seen in sampler.samples}
    seen = {sample.line for sample in sampler.samples if sample.thread == thread.native_id}
    assert all("in wait_for_the_end" in line for line in seen)


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


def test_at_the_limit_every_second_sample_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MAX_SAMPLES", 8)
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


def test_an_error_while_sampling_ends_only_the_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[int, object]:
        raise RuntimeError("no frames")

    monkeypatch.setattr(sys, "_current_frames", fail)
    sampler = LineSampler()
    sampler.start()
    sampler.join(30)
    assert sampler.failure == "RuntimeError: no frames"
    sampler.stop()


@pytest.mark.parametrize(
    ("cost_s", "pause_s"),
    [(1e-6, marks.EVERY_S), (marks.MAX_SHARE * 0.1, 0.1), (1.0, marks.SLOWEST_S)],
    ids=["cheap", "dear", "very dear"],
)
def test_a_dear_sample_makes_the_pause_longer(monkeypatch: pytest.MonkeyPatch, cost_s: float, pause_s: float) -> None:
    """Sampling takes at most its share of a processor, on a clock that only samples advance."""
    pauses: list[float] = []

    class Running:
        def acquire(self, timeout: float) -> bool:
            pauses.append(timeout)
            return len(pauses) > 3

    class Clock:
        now_s = 0.0

        def thread_time(self) -> float:
            return self.now_s

        def perf_counter_ns(self) -> int:
            return 0

    sampler, clock = LineSampler(), Clock()

    def sample() -> None:
        clock.now_s += cost_s

    monkeypatch.setattr(sampler, "_running", Running())
    monkeypatch.setattr(sampler, "_sample", sample)
    monkeypatch.setattr(marks, "time", clock)
    sampler._sample_until_stopped()
    assert pauses == pytest.approx([marks.EVERY_S] + [pause_s] * 3)
    assert sampler.cost_s == pytest.approx(3 * cost_s)
