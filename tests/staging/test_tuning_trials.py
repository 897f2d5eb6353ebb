from __future__ import annotations

import itertools
import threading

import pytest

from pyxfer.errors import CancelledError
from pyxfer.native import Engine
from pyxfer.staging.settings import default_settings
from pyxfer.staging.tuning_trials import Bench, Copy, Deadline, rates_of, rounds_of, take_turns, times_as_fast

KIB = 1024
MOST = 64 * KIB


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


def test_rings_and_plain_copies_take_their_time(engine: Engine) -> None:
    with bench_of(engine) as bench, bench.ring(default_settings()) as copy:
        assert copy(MOST) > 0
        assert bench.plain(MOST) > 0


def test_after_it_was_cancelled_nothing_is_copied(engine: Engine) -> None:
    cancelled = threading.Event()
    with Bench(engine, 0, MOST, cancelled) as bench:
        cancelled.set()
        with pytest.raises(CancelledError):
            bench.plain(MOST)


def turns(repeats: int, deadline: Deadline) -> list[tuple[str, int]]:
    """Who copied what, in order."""
    done: list[tuple[str, int]] = []

    def copier(name: str) -> Copy:
        def copy(nbytes: int) -> float:
            done.append((name, nbytes))
            return 1.0

        return copy

    take_turns([copier("a"), copier("b")], [1, 2], repeats, deadline)
    return done


def test_copies_take_turns_at_every_size_and_each_begins_as_often() -> None:
    assert turns(2, Deadline(60)) == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 1), ("a", 1), ("b", 2), ("a", 2)]


def test_when_the_time_is_over_the_round_is_ended() -> None:
    assert len(turns(5, Deadline(-1))) == 4


def test_rates_are_medians() -> None:
    times = {10**9: [1.0, 0.5, 9.0], 2 * 10**9: [1.0, 1.0]}
    assert [rate.gbps for rate in rates_of(times)] == [1.0, 2.0]
    assert rounds_of(times) == 2


def test_sizes_count_alike_in_a_comparison() -> None:
    slow, fast = {1: [4.0], 2: [1.0]}, {1: [1.0], 2: [1.0]}
    assert times_as_fast(fast, slow) == pytest.approx(2.0)
    assert times_as_fast(slow, fast) == pytest.approx(0.5)


def test_a_clock_that_did_not_move_divides_by_nothing() -> None:
    assert times_as_fast({1: [0.0]}, {1: [0.0]}) == 1.0
