"""A window whose capacity for records was used up is cut at the last record."""

from __future__ import annotations

from dataclasses import replace

from watch.copying import copies, session, window_of

from pyxfer._document.runs import Fact
from pyxfer._trace.records import Capture
from pyxfer._watch.window import Window, within_capacity
from pyxfer.native import Engine

CAPACITY_BYTES = 64 << 10  # a thousand records
TURNS = 400  # of some six


def overfull() -> Window:
    with copies(4096) as made, session(capacity_bytes=CAPACITY_BYTES) as watched:
        for _ in range(TURNS):
            with watched.steps.step():
                made.send()
    return window_of(watched)


def records(window: Window) -> Capture:
    assert window.capture.value is not None
    return window.capture.value


def test_records_stay_within_the_capacity_and_dropped_ones_are_counted(engine: Engine) -> None:
    window = overfull()
    assert records(window).records.nbytes <= CAPACITY_BYTES
    assert sum(records(window).dropped.values()) > 0
    assert len(window.steps) == TURNS


def test_a_window_is_cut_at_its_last_record(engine: Engine) -> None:
    whole = overfull()
    cut = within_capacity(whole)
    last_ns = int(records(whole).records["end_ns"].max())
    assert cut.end_ns == last_ns < whole.end_ns
    assert cut.steps == tuple(step for step in whole.steps if step.end_ns <= last_ns)
    assert 0 < len(cut.steps) < TURNS
    assert cut.remarks[-1].code == "capacity"


def test_records_that_cupti_has_lost_do_not_cut_the_window(engine: Engine) -> None:
    with copies(4096) as made, session() as watched:
        made.send()
    window = window_of(watched)
    lost = replace(window, capture=Fact(replace(records(window), dropped={"unknown": 5})))
    assert within_capacity(lost) == lost
