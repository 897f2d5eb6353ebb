"""Windows are saved by the script's process and loaded by the command."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from watch.copying import copies, session, window_of

from pyxfer._document.runs import Fact
from pyxfer._watch.marks import mark
from pyxfer._watch.window import Range, Seen, Window, load_window, save_window
from pyxfer.errors import DocumentError
from pyxfer.native import Engine


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


def test_the_reason_for_missing_records_is_saved(window: Window, tmp_path: Path) -> None:
    save_window(replace(window, capture=Fact(reason="no library")), tmp_path / "window-1")
    assert load_window(tmp_path / "window-1").capture.reason == "no library"


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


def test_saving_leaves_no_other_file(window: Window, tmp_path: Path) -> None:
    save_window(window, tmp_path / "window-1")
    assert [path.name for path in tmp_path.iterdir()] == ["window-1"]


@pytest.mark.parametrize("keep", [0, 100, -20])
def test_an_incomplete_file_is_a_document_error(window: Window, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "window-1"
    save_window(window, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DocumentError, match="cannot be read"):
        load_window(path)
