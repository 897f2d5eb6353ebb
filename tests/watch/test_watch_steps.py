"""The steps that a watch counts, and where their input begins."""

from __future__ import annotations

import threading
import time

import pytest
from watch.copying import session, window_of

from pyxfer._watch import recording
from pyxfer._watch.marks import LineSampler
from pyxfer.native import Engine


def test_a_nested_skipped_step_is_part_of_the_outer_one(engine: Engine) -> None:
    with session(skip=2, steps=1) as watched:
        for _ in range(2):
            with watched.steps.step(), watched.steps.step():
                pass
            assert watched.is_active
        with watched.steps.step():
            pass
    window = window_of(watched)
    assert (window.skipped, len(window.steps)) == (2, 1)


def test_a_thread_that_ends_inside_its_step_does_not_affect_later_threads(engine: Engine) -> None:
    def whole() -> None:
        with watched.steps.step():
            pass

    with session() as watched:
        for work in (lambda: watched.steps.step().__enter__(), *[whole] * 3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    window = window_of(watched)
    assert [step.closed for step in window.steps].count(True) == 3
    assert not window.remarks


@pytest.mark.parametrize("skip", [0, 1])
def test_opening_the_window_is_not_part_of_a_step(engine: Engine, monkeypatch: pytest.MonkeyPatch, skip: int) -> None:
    opened_ns: list[int] = []

    class Noting(LineSampler):
        def start(self) -> None:
            super().start()
            opened_ns.append(time.perf_counter_ns())

    monkeypatch.setattr(recording, "LineSampler", Noting)
    with session(skip=skip, steps=1, lines=True) as watched:
        for _ in range(skip + 1):
            with watched.steps.step():
                pass
    (step,) = window_of(watched).steps
    assert step.from_ns >= opened_ns[0]


def test_steps_of_several_optimizers_are_counted_separately_with_a_remark(engine: Engine) -> None:
    with session() as watched:
        for _ in range(3):
            for optimizer in (1, 2):
                watched.steps.optimizer_stepped(optimizer)
    window = window_of(watched)
    assert len(window.steps) == 5
    assert [remark.code for remark in window.remarks] == ["optimizers"]
