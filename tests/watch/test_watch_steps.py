"""Which steps a watch counts, and where the input of each begins."""

from __future__ import annotations

import threading
import time

import pytest
from watch.copying import session, window_of

from pyxfer._watch import recording
from pyxfer._watch.marks import Lines
from pyxfer.native import Engine


def test_a_step_inside_a_skipped_step_belongs_to_it(engine: Engine) -> None:
    with session(skip=2, steps=1) as watched:
        for _ in range(2):
            with watched.steps.step(), watched.steps.step():
                pass
            assert watched.is_at_work
        with watched.steps.step():
            pass
    window = window_of(watched)
    assert (window.skipped, len(window.steps)) == (2, 1)


def test_a_thread_that_ends_inside_its_step_takes_no_step_from_a_later_thread(engine: Engine) -> None:
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
def test_what_opening_the_window_takes_is_no_steps_input(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, skip: int
) -> None:
    class Slow(Lines):
        def start(self) -> None:
            super().start()
            time.sleep(1.0)

    monkeypatch.setattr(recording, "Lines", Slow)
    with session(skip=skip, steps=1, lines=True) as watched:
        for _ in range(skip + 1):
            with watched.steps.step():
                pass
    (step,) = window_of(watched).steps
    assert step.begin_ns - step.from_ns < 0.5e9


def test_steps_of_several_optimizers_are_counted_each_and_that_is_said(engine: Engine) -> None:
    with session() as watched:
        for _ in range(3):
            for optimizer in (1, 2):
                watched.steps.boundary(optimizer)
    window = window_of(watched)
    assert len(window.steps) == 5
    assert [remark.text for remark in window.remarks] == ["steps of 2 optimizers are counted as steps of their own"]
