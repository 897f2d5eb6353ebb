"""Ranges that the program names: kept while a window is open, whatever threads and generators do with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import pyxfer
from pyxfer import UsageError
from pyxfer._watch import marks
from pyxfer._watch.marks import Named, Ranges, mark


def names(ranges: tuple[Named, ...]) -> list[str]:
    return [name for name, *_ in ranges]


@pytest.fixture
def window() -> Iterator[Ranges]:
    """An open window for ranges."""
    made = Ranges()
    made.open()
    yield made
    made.close(0)


def now() -> int:
    return 2**62


def test_a_marked_block_is_a_range_of_its_thread(window: Ranges) -> None:
    with mark("decode"):
        pass
    ((name, begin, end, thread),) = window.close(now())
    assert name == "decode"
    assert window.begin_ns <= begin <= end
    assert thread == threading.get_native_id()


def test_a_marked_function_is_a_range_each_time_it_is_called(window: Ranges) -> None:
    @mark("work")
    def work(number: int) -> int:
        """Doubles."""
        return 2 * number

    assert [work(1), work(2)] == [2, 4]
    assert work.__doc__ == "Doubles."
    assert names(window.close(now())) == ["work", "work"]


def test_a_marked_generator_is_a_range_until_it_is_exhausted(window: Ranges) -> None:
    @mark("batches")
    def batches() -> Iterator[int]:
        yield from (1, 2)

    assert list(batches()) == [1, 2]
    assert names(window.close(now())) == ["batches"]


def test_a_marked_coroutine_is_a_range_until_it_returns(window: Ranges) -> None:
    @mark("fetch")
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 3

    async def both() -> list[int]:
        return list(await asyncio.gather(fetch(), fetch()))

    assert asyncio.run(both()) == [3, 3]
    assert names(window.close(now())) == ["fetch", "fetch"]


def test_an_asynchronous_generator_is_refused_with_what_to_do(window: Ranges) -> None:
    async def rows() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(UsageError, match=r"use with pyxfer\.mark\('rows'\) inside of it"):
        mark("rows")(rows)


@pytest.mark.parametrize("what", [7, "text", property(), dict], ids=lambda what: type(what).__name__)
def test_what_is_no_function_cannot_be_marked(what: object) -> None:
    with pytest.raises(UsageError, match=r"A mark decorates a function: @pyxfer\.mark\('decode'\) above its def"):
        mark("decode")(what)  # type: ignore[type-var]


def test_what_is_raised_inside_ends_the_range_and_goes_on(window: Ranges) -> None:
    with pytest.raises(ValueError, match="no"), mark("fails"):
        raise ValueError("no")
    assert names(window.close(now())) == ["fails"]


def test_ranges_that_are_open_at_the_edges_of_the_window_are_cut_to_it() -> None:
    window = Ranges()
    with mark("before"):
        window.open()
    with mark("around") as around:
        del around
        edge = window.begin_ns + 10**9
        before, inside = sorted(window.close(edge))[::-1]
    assert before == ("before", window.begin_ns, before[2], before[3])
    assert (inside[0], inside[2]) == ("around", edge)


def test_a_range_that_is_open_at_both_edges_lasts_the_whole_window() -> None:
    window = Ranges()
    with mark("epoch"):
        window.open()
        ((name, begin, end, _),) = window.close(window.begin_ns + 5)
    assert (name, begin, end) == ("epoch", window.begin_ns, window.begin_ns + 5)


def test_ranges_outside_of_a_window_are_not_kept() -> None:
    window = Ranges()
    with mark("early"):
        pass
    window.open()
    window.close(now())
    with mark("late"):
        pass
    assert window.close(now()) == ()


def test_one_mark_serves_recursion_and_threads_at_once(window: Ranges) -> None:
    shared = mark("shared")
    meet = threading.Barrier(2)

    def inside() -> None:
        with shared:
            meet.wait(10)
            with shared:
                meet.wait(10)

    threads = [threading.Thread(target=inside) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = window.close(now())
    assert names(found) == ["shared"] * 4
    assert len({thread for *_, thread in found}) == 2


def test_marks_that_end_in_another_order_keep_their_own_times(window: Ranges) -> None:
    first, second = mark("first"), mark("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    by_name = {name: (begin, end) for name, begin, end, _ in window.close(now())}
    assert by_name["first"][0] <= by_name["second"][0]
    assert by_name["first"][1] <= by_name["second"][1]


def test_a_mark_that_ends_in_another_thread_is_found(window: Ranges) -> None:
    moved = mark("moved")
    moved.__enter__()
    thread = threading.Thread(target=moved.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert names(window.close(now())) == ["moved"]


def test_a_thread_that_ends_inside_a_mark_leaves_nothing(window: Ranges) -> None:
    thread = threading.Thread(target=mark("lost").__enter__)
    thread.start()
    thread.join()
    assert names(window.close(now())) == []


def test_more_ranges_than_there_is_room_for_are_counted(window: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST_RANGES", 3)
    for _ in range(5):
        with mark("many"):
            pass
    assert len(window.close(now())) == 3
    assert window.dropped == 2


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_mark_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"for example pyxfer\.mark\('decode'\)"):
        pyxfer.mark(name)


def test_a_very_long_name_is_cut(window: Ranges) -> None:
    with mark("x" * 10_000):
        pass
    assert len(names(window.close(now()))[0]) == 200
