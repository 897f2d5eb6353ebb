"""A watch from its start to its window, the steps that it counts, its tracer and capacity, and a window's file."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import known
from watch.copying import copies, in_threads, session, take, window_of

import pyxfer
from pyxfer import UsageError
from pyxfer._document.machines import Fact
from pyxfer._trace.records import Capture
from pyxfer._watch import marks, recording, step_tracking
from pyxfer._watch.marks import LineSampler, Range, Seen, mark
from pyxfer._watch.recording import NVTX_VARIABLE, Recording, set_nvtx_library, unset_nvtx_library
from pyxfer._watch.window import Window, load_window, save_window, within_capacity
from pyxfer.errors import DocumentError
from pyxfer.native import Engine
from pyxfer.native._host import testing


def test_a_step_begins_at_the_end_of_the_previous_one(engine: Engine) -> None:
    with session(skip=1, steps=2) as watched:
        take(watched, 3)
    window = window_of(watched)
    first, second = window.steps
    assert first.from_ns == window.begin_ns < first.begin_ns <= first.end_ns == second.from_ns < second.begin_ns
    assert window.end_ns == second.end_ns
    assert first.thread == threading.get_native_id()


def test_an_exception_in_a_step_is_noted_and_propagates(engine: Engine) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with session(steps=3) as watched:
        with pytest.raises(ValueError, match="no such batch"), watched.steps.step():
            raise ValueError("no such batch\nand more")
        with pytest.raises(MuteError), watched.steps.step():
            raise MuteError
        take(watched)
    assert [step.failed for step in window_of(watched).steps] == ["ValueError: no such batch", "MuteError", None]


def test_a_step_that_is_never_closed_ends_with_the_window(engine: Engine) -> None:
    with session() as watched:
        watched.steps.step().__enter__()
    window = window_of(watched)
    assert [(step.closed, step.end_ns) for step in window.steps] == [(False, window.end_ns)]


@pytest.mark.threads
def test_threads_take_separate_steps(engine: Engine) -> None:
    native_ids: list[int] = []

    def loop() -> None:
        native_ids.append(threading.get_native_id())
        take(watched, 50)

    with session(steps=100) as watched:
        in_threads(loop, loop)
    window = window_of(watched)
    assert (len(window.steps), window.ended) == (100, "complete")
    for native_id in native_ids:
        own = [step for step in window.steps if step.thread == native_id]
        assert len(own) == 50
        assert all(after.from_ns == before.end_ns for before, after in itertools.pairwise(own))


@pytest.mark.threads
def test_threads_that_skip_steps_together_open_one_window(engine: Engine) -> None:
    with session(skip=150) as watched:
        in_threads(*[lambda: take(watched, 100)] * 4)
    window = window_of(watched)
    assert window.skipped == 150
    assert 0 < len(window.steps) <= 250


def test_a_window_closes_after_its_seconds(engine: Engine) -> None:
    closed = threading.Event()
    with session(seconds=0.05) as watched:
        watched.on_closed = lambda _: closed.set()
        assert closed.wait(60)
    window = window_of(watched)
    assert window.ended == "complete"
    assert 0.05e9 <= window.end_ns - window.begin_ns < 60e9


@pytest.mark.parametrize(("steps", "ended"), [(3, "ended"), (1, "complete"), (None, "complete")])
def test_a_window_with_too_few_steps_has_ended_early(engine: Engine, steps: int | None, ended: str) -> None:
    with session(steps=steps) as watched:
        take(watched)
    assert window_of(watched).ended == ended


def test_a_watch_that_is_stopped_while_skipping_has_never_opened(engine: Engine) -> None:
    with session(skip=5) as watched:
        take(watched)
    window = window_of(watched)
    assert window.begin_ns == window.end_ns
    assert window.capture.reason == "the window never opened: 1 steps were taken, and 5 were to be skipped"
    assert window.remarks[-1].code == "never-opened"


def test_an_active_watch_cannot_be_started_again_and_another_one_after_the_window(engine: Engine) -> None:
    with session(steps=1) as watched:
        with pytest.raises(UsageError, match="is active already"):
            watched.start()
        take(watched)
        with session(steps=1) as other, other.steps.step():
            pass
    window = window_of(other)
    assert len(window.steps) == 1
    assert window.capture.value is not None


def test_a_missing_device_leaves_no_active_watch(engine: Engine) -> None:
    with pytest.raises(UsageError, match="is none of the devices"), session(device=77):
        pass
    with session():
        pass


@pytest.mark.parametrize("hinder", [lambda: testing.other_subscriber(True), lambda: testing.refuse_activity(35)])
def test_without_a_tracer_a_window_has_steps_but_no_records(engine: Engine, hinder: Callable[[], None]) -> None:
    hinder()
    with session(steps=1) as watched:
        take(watched)
    window = window_of(watched)
    assert len(window.steps) == 1
    assert window.capture.value is None
    assert (window.capture.reason or "").startswith("trace: unavailable: ")
    assert window.tracing.reason == window.capture.reason


def test_a_window_closes_at_the_most_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step_tracking, recording):
        monkeypatch.setattr(module, "MAX_STEPS", 3)
    with session() as watched:
        take(watched, 5)
        assert not watched.is_active
    window = window_of(watched)
    assert len(window.steps) == 3
    assert [remark.code for remark in window.remarks] == ["full"]


def test_no_thread_is_left_after_the_window(engine: Engine) -> None:
    with session(steps=1, seconds=60.0, lines=True) as watched:
        assert {"pyxfer-watch-clock", "pyxfer-watch-lines"} <= {thread.name for thread in threading.enumerate()}
        clock = next(thread for thread in threading.enumerate() if thread.name == "pyxfer-watch-clock")
        take(watched)
        clock.join(10)
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("pyxfer-watch")]


def test_a_preempted_window_has_a_remark_with_the_line(engine: Engine) -> None:
    with session() as watched:
        watched.is_preemptible = True
        with session():
            pass
    window = window_of(watched)
    assert window.ended == "ended"
    assert window.remarks[-1].code == "gave-way"
    assert "began a watch of its own, at copying.py:" in window.remarks[-1].text


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (KeyboardInterrupt(), "closing it was interrupted"),
        (ZeroDivisionError("by its own"), "closing it failed: ZeroDivisionError: by its own"),
    ],
)
def test_an_error_while_the_window_closes_leaves_nothing_active_and_a_remark(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, raised: BaseException, why: str
) -> None:
    def finish(_: Recording) -> None:
        raise raised

    monkeypatch.setattr(Recording, "finish", finish)
    w = pyxfer.watch(device="host")
    with pytest.raises(type(raised)), w:
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pyxfer-watch")]
    assert marks._recorder is None
    remark = w.result.remarks[-1]
    assert (remark.code, remark.text) == ("lost", f"the window is lost: {why}")
    assert w.result.text().count("is lost") == 1
    monkeypatch.undo()
    with session():
        pass


def test_a_session_ends_also_if_its_callback_fails(engine: Engine) -> None:
    def fail(_: Window) -> None:
        raise ZeroDivisionError

    with session() as watched:
        watched.on_closed = fail
        with pytest.raises(ZeroDivisionError):
            watched.stop()
        assert not watched.is_active


@pytest.mark.parametrize(("skip", "codes"), [(0, ["nested"]), (2, [])])
def test_a_nested_step_is_part_of_the_outer_one_also_if_it_is_skipped(
    engine: Engine, skip: int, codes: list[str]
) -> None:
    with session(skip=skip, steps=3) as watched:
        for _ in range(2):
            with watched.steps.step(), watched.steps.step():
                pass
            assert watched.is_active
        take(watched)
    window = window_of(watched)
    assert (window.skipped, len(window.steps)) == (skip, 3 - skip)
    assert [remark.code for remark in window.remarks] == codes


def test_a_thread_that_ends_inside_its_step_does_not_affect_later_threads(engine: Engine) -> None:
    with session() as watched:
        for work in (lambda: watched.steps.step().__enter__(), *[lambda: take(watched)] * 3):
            in_threads(work)
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
        take(watched, skip + 1)
    (step,) = window_of(watched).steps
    assert step.from_ns >= opened_ns[0]


def test_steps_of_several_optimizers_are_counted_separately_with_a_remark(engine: Engine) -> None:
    with session() as watched:
        for _ in range(3):
            for optimizer in (1, 2):
                watched.steps.found_step("optimizer", str(optimizer), None)
    window = window_of(watched)
    assert len(window.steps) == 5
    assert [remark.code for remark in window.remarks] == ["optimizers"]


@pytest.fixture(autouse=True)
def _no_nvtx_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NVTX_VARIABLE, raising=False)


def test_too_little_memory_for_the_records_is_a_reason(engine: Engine) -> None:
    recording = Recording(engine, 1 << 60)
    recording.start()
    assert "give a smaller capacity" in (recording.finish().reason or "")


def test_the_nvtx_library_is_set_and_unset_unless_the_user_has_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    library = set_nvtx_library("/somewhere/libcupti.so.12")
    assert os.environ[NVTX_VARIABLE] == "/somewhere/libcupti.so.12"
    unset_nvtx_library(library)
    assert NVTX_VARIABLE not in os.environ
    monkeypatch.setenv(NVTX_VARIABLE, "/own/library.so")
    unset_nvtx_library(set_nvtx_library("/somewhere/libcupti.so.12"))
    assert os.environ[NVTX_VARIABLE] == "/own/library.so"


CAPACITY_BYTES = 64 << 10  # a thousand records
TURNS = 400  # of some six


def overfull() -> Window:
    with copies(4096) as made, session(capacity_bytes=CAPACITY_BYTES) as watched:
        for _ in range(TURNS):
            with watched.steps.step():
                made.send()
    return window_of(watched)


def records(window: Window) -> Capture:
    return known(window.capture)


def test_a_window_is_cut_at_its_last_record(engine: Engine) -> None:
    whole = overfull()
    assert records(whole).records.nbytes <= CAPACITY_BYTES
    assert sum(records(whole).dropped.values()) > 0
    assert len(whole.steps) == TURNS
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


MANY_TURNS = 4000  # of about six records, with a capacity of sixteen thousand


def test_the_trace_of_a_cut_window_ends_like_its_result(engine: Engine, tmp_path: Path) -> None:
    with copies(4096) as made, pyxfer.watch(device="host", ceilings=None, lines=False, capacity="1MiB") as w:
        for _ in range(MANY_TURNS):
            with w.step():
                made.send()
    w.to_chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    steps = [event for event in events if event.get("cat") == "step" and event["ph"] == "X"]
    assert 0 < len(steps) == w.result.steps.watched < MANY_TURNS


@pytest.fixture
def window(engine: Engine) -> Window:
    """A window with steps, ranges, lines and records."""
    with copies() as made, session(skip=1, lines=True) as watched:
        for _ in range(4):
            with watched.steps.step(), mark("decode \N{SNOWMAN}"):
                made.send()
        with pytest.raises(KeyError), watched.steps.step():
            raise KeyError("x")
    return window_of(watched)


def test_a_saved_window_is_loaded(window: Window, tmp_path: Path) -> None:
    save_window(window, tmp_path / "window-1")
    found = load_window(tmp_path / "window-1")
    assert np.array_equal(records(found).records, records(window).records)
    assert (records(found).names, records(found).clock) == (records(window).names, records(window).clock)
    nothing = Fact[object](reason="compared above")
    assert replace(found, capture=nothing) == replace(window, capture=nothing)  # type: ignore[arg-type]


def test_names_that_are_not_unicode_are_escaped_as_in_documents(window: Window, tmp_path: Path) -> None:
    name, shown = os.fsdecode(b"img-\xff.jpg"), r"img-\udcff.jpg"
    begin, end = window.begin_ns, window.end_ns
    foreign = replace(
        window,
        ranges=(Range(name, begin, end, 1),),
        seen=(Seen(begin, 1, f"{name}:3 in f"),),
        threads={1: name, 2: "MainThread"},
    )
    save_window(foreign, tmp_path / "window-1")
    found = load_window(tmp_path / "window-1")
    assert found.ranges == (Range(shown, begin, end, 1),)
    assert found.seen == (Seen(begin, 1, f"{shown}:3 in f"),)
    assert found.threads == {1: shown, 2: "MainThread"}
    assert found.steps == window.steps


@pytest.mark.parametrize("keep", [0, 100, -20])
def test_an_incomplete_file_is_a_document_error(window: Window, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "window-1"
    save_window(window, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DocumentError, match="cannot be read"):
        load_window(path)
