"""Figures of a step are of completed steps, and not of what happens outside of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from watch.windows import Flat, Script, activity_of, analysed, make_window, steps_at

from pyxfer._document.watches import Advice, Watched
from pyxfer._trace.records import CopyWay

SENT = 10_000_000
TURN = 5_000
TURNS = 4


def loop() -> Script:
    """Four steps: one millisecond to make the input, one to send it, three to compute."""
    script = Script()
    for begin in range(0, TURNS * TURN, TURN):
        send(script, begin + 1000)
        script.kernel(begin + 2000, begin + TURN)
        script.call("cudaStreamSynchronize", begin + 2000, begin + TURN)
    return script


def send(script: Script, begin: float, nbytes: int = SENT) -> None:
    call = ("cudaMemcpyAsync", begin, begin + 1000)
    script.copy(CopyWay.H2D, begin, begin + 1000, nbytes=nbytes, pageable=True, call=call)


def spans(turns: int = TURNS) -> list[tuple[float, float, float]]:
    return [(begin, begin + 1000, begin + TURN) for begin in range(0, turns * TURN, TURN)]


def watched_loop(script: Script, length: float = 10 * TURNS * TURN) -> Watched:
    return analysed(make_window(script, length, steps_at(*spans())), Flat(50.0))


def gains(watched: Watched) -> dict[str, Advice]:
    return {row.code: row for row in watched.advice}


def test_copies_after_the_loop_are_in_no_prediction() -> None:
    script = loop()
    for place in range(20):
        send(script, (TURNS + 1 + place) * TURN, nbytes=100 * SENT)
    assert gains(watched_loop(script)) == gains(watched_loop(loop()))


def test_copies_of_a_failed_step_are_in_no_prediction() -> None:
    script = loop()
    for place in range(20):
        send(script, TURNS * TURN + 10 + place, nbytes=100 * SENT)
    failed = replace(steps_at((TURNS * TURN, TURNS * TURN, (TURNS + 1) * TURN))[0], failed="ValueError: no")
    window = make_window(script, 50_000, (*steps_at(*spans()), failed))
    assert gains(analysed(window, Flat(50.0))) == gains(watched_loop(loop()))


def test_pinned_copies_outside_of_steps_do_not_hide_that_the_input_is_pageable() -> None:
    script = loop()
    script.copy(CopyWay.H2D, 40_000, 45_000, nbytes=1000 * SENT)
    assert "waits" not in gains(watched_loop(script))


def test_the_saving_per_step_is_of_copies_in_steps() -> None:
    script = loop()
    send(script, 60_000)
    (row,) = activity_of(watched_loop(script)).pageable
    assert (row.count, row.saves_s.value) == (5, pytest.approx(5 * 800e-6))
    assert row.saves_per_step_s == pytest.approx(800e-6)


def test_a_copy_without_a_time_belongs_to_the_step_of_its_call() -> None:
    script = Script()
    script.kernel(0, 20_000)
    for begin in (1000, 60_000):
        script.copy(CopyWay.H2D, 0, 0, nbytes=SENT, pageable=True, call=("cudaMemcpyAsync", begin, begin + 10))
    script.copy(CopyWay.H2D, 2000, 3000, nbytes=SENT)
    window = make_window(script, 70_000, steps_at((0, 0, 20_000)))
    assert activity_of(analysed(window)).pageable[0].saves_per_step_s == pytest.approx(0)


def test_a_window_without_steps_has_no_saving_per_step() -> None:
    (row,) = activity_of(analysed(make_window(loop(), 20_000))).pageable
    assert row.saves_per_step_s is None
