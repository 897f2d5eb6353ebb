"""The tracer of a window, its capacity for records, and the file in which a window is saved."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from watch.copying import copies, session, window_of

import pyxfer
from pyxfer._document.runs import Fact
from pyxfer._trace.records import Capture
from pyxfer._watch.marks import mark
from pyxfer._watch.recording import NVTX_VARIABLE, Recording, set_nvtx_library, unset_nvtx_library
from pyxfer._watch.window import Range, Seen, Window, load_window, save_window, within_capacity
from pyxfer.errors import DocumentError
from pyxfer.native import Engine
from pyxfer.native._host import testing

CAPACITY = 1 << 20


@pytest.fixture(autouse=True)
def _no_nvtx_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NVTX_VARIABLE, raising=False)


def test_a_tracer_that_cannot_start_is_the_reason_of_tracing_and_records(engine: Engine) -> None:
    testing.refuse_activity(35)
    recording = Recording(engine, CAPACITY)
    recording.start()
    assert (recording.tracing.reason or "").startswith("trace: unavailable: ")
    assert recording.finish().reason == recording.tracing.reason


def test_too_little_memory_for_the_records_is_a_reason(engine: Engine) -> None:
    recording = Recording(engine, 1 << 60)
    recording.start()
    assert "give a smaller capacity" in (recording.finish().reason or "")


def test_the_host_runtime_does_not_set_the_nvtx_library(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    recording.start()
    assert NVTX_VARIABLE not in os.environ
    recording.finish()


def test_the_nvtx_library_is_set_and_unset() -> None:
    library = set_nvtx_library("/somewhere/libcupti.so.12")
    assert os.environ[NVTX_VARIABLE] == "/somewhere/libcupti.so.12"
    unset_nvtx_library(library)
    assert NVTX_VARIABLE not in os.environ


def test_the_nvtx_library_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert found.capture.value is not None
    assert window.capture.value is not None
    assert np.array_equal(found.capture.value.records, window.capture.value.records)
    assert found.capture.value.names == window.capture.value.names
    assert found.capture.value.clock == window.capture.value.clock
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
