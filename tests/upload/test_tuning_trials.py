from __future__ import annotations

import ctypes
import itertools
import threading
from typing import get_args

import numpy as np
import pytest

from pyxfer._document.tunings import CopyDirection, CopyRate
from pyxfer._upload.settings import default_settings
from pyxfer._upload.tuning_search import (
    Bench,
    Copy,
    Deadline,
    Work,
    rates_of,
    rounds_of,
    take_turns,
    times_as_fast,
    works_of,
)
from pyxfer.errors import CancelledError
from pyxfer.native import Engine

KIB = 1024
MOST = 64 * KIB
DIRECTIONS = get_args(CopyDirection)


def bench_of(engine: Engine) -> Bench:
    return Bench(engine, 0, MOST, threading.Event())


def test_no_copy_reads_what_the_one_before_it_has_read(engine: Engine) -> None:
    with bench_of(engine) as bench:
        places = [(bench._next(nbytes), nbytes) for nbytes in (4 * KIB, MOST, 24 * KIB, MOST, MOST) * 3]
    for (at, nbytes), (later, _) in itertools.pairwise(places):
        assert not at <= later < at + nbytes


def test_no_copy_reads_beyond_the_memory(engine: Engine) -> None:
    with bench_of(engine) as bench:
        first = bench._next(4 * KIB)
        for nbytes in (MOST, 20 * KIB, 60 * KIB, MOST, 4 * KIB) * 3:
            assert first <= bench._next(nbytes) <= first + 2 * MOST - nbytes


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rings_and_plain_copies_take_their_time(engine: Engine, direction: CopyDirection) -> None:
    with bench_of(engine) as bench, bench.ring(default_settings()) as copy:
        assert copy(direction, MOST) > 0
        assert bench.plain(direction, MOST) > 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_copies_of_both_kinds_go_that_way(engine: Engine, direction: CopyDirection) -> None:
    """The host runtime's device memory is filled by an upload, and left as it is by a download."""
    with bench_of(engine) as bench, bench.ring(default_settings()) as copy:
        on_device = np.ctypeslib.as_array((ctypes.c_uint8 * MOST).from_address(bench._on_device.address))
        for each in (copy, bench.plain):
            on_device[:], bench._on_host[:] = 2, 1
            each(direction, MOST)
            assert set(on_device) == ({1} if direction == "h2d" else {2})
            assert set(bench._on_host) == ({1} if direction == "h2d" else {1, 2})


def test_after_it_was_cancelled_nothing_is_copied(engine: Engine) -> None:
    cancelled = threading.Event()
    with Bench(engine, 0, MOST, cancelled) as bench:
        cancelled.set()
        with pytest.raises(CancelledError):
            bench.plain("h2d", MOST)


def turns(repeats: int, deadline: Deadline) -> list[tuple[str, int]]:
    """Who copied what, in order."""
    done: list[tuple[str, int]] = []

    def copier(name: str) -> Copy:
        def copy(_: CopyDirection, nbytes: int) -> float:
            done.append((name, nbytes))
            return 1.0

        return copy

    take_turns([copier("a"), copier("b")], works_of([1, 2], ["h2d"]), repeats, deadline)
    return done


def test_each_size_is_copied_each_way() -> None:
    assert works_of([1, 2]) == [("h2d", 1), ("d2h", 1), ("h2d", 2), ("d2h", 2)]


def test_rounds_end_when_they_are_told_to() -> None:
    (times,) = take_turns([lambda *_: 1.0], works_of([1]), 5, Deadline(60), lambda so_far: rounds_of(so_far[0]) < 2)
    assert rounds_of(times) == 2


def test_copies_take_turns_at_every_size_and_each_begins_as_often() -> None:
    assert turns(2, Deadline(60)) == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 1), ("a", 1), ("b", 2), ("a", 2)]


def test_when_the_time_is_over_the_round_is_ended() -> None:
    assert len(turns(5, Deadline(-1))) == 4


def test_rates_are_medians() -> None:
    times = {Work("h2d", 10**9): [1.0, 0.5, 9.0], Work("d2h", 2 * 10**9): [1.0, 1.0]}
    assert rates_of(times) == (CopyRate("h2d", 10**9, 1.0), CopyRate("d2h", 2 * 10**9, 2.0))
    assert rounds_of(times) == 2


@pytest.mark.parametrize("other", [Work("h2d", 2), Work("d2h", 1)])
def test_sizes_and_directions_count_alike_in_a_comparison(other: Work) -> None:
    slow, fast = {Work("h2d", 1): [4.0], other: [1.0]}, {Work("h2d", 1): [1.0], other: [1.0]}
    assert times_as_fast(fast, slow) == pytest.approx(2.0)
    assert times_as_fast(slow, fast) == pytest.approx(0.5)


def test_a_clock_that_did_not_move_divides_by_nothing() -> None:
    times = {Work("h2d", 1): [0.0]}
    assert times_as_fast(times, times) == 1.0
