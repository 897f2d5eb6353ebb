"""A window goes from one process to another and is the same."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from watch.copying import copies, session, window_of

from pyxfer._document.runs import Fact
from pyxfer._watch.marks import mark
from pyxfer._watch.stored import fetch, store
from pyxfer._watch.window import Range, Seen, Window
from pyxfer.errors import DocumentError
from pyxfer.native import Engine


@pytest.fixture
def window(engine: Engine) -> Window:
    """One with something of everything in it."""
    with copies() as made, session(skip=1, lines=True) as watched:
        for _ in range(4):
            with watched.steps.step(), mark("decode \N{SNOWMAN}"):
                made.send()
        with pytest.raises(KeyError), watched.steps.step():
            raise KeyError("x")
    return window_of(watched)


def test_what_was_stored_is_fetched(window: Window, tmp_path: Path) -> None:
    store(window, tmp_path / "window-1")
    found = fetch(tmp_path / "window-1")
    assert found.capture.value is not None
    assert window.capture.value is not None
    assert np.array_equal(found.capture.value.records, window.capture.value.records)
    assert found.capture.value.names == window.capture.value.names
    assert found.capture.value.clock == window.capture.value.clock
    nothing = Fact[object](reason="compared above")
    assert replace(found, capture=nothing) == replace(window, capture=nothing)  # type: ignore[arg-type]


def test_the_reason_for_having_no_records_is_kept(window: Window, tmp_path: Path) -> None:
    store(replace(window, capture=Fact(reason="no library")), tmp_path / "window-1")
    assert fetch(tmp_path / "window-1").capture.reason == "no library"


def test_names_in_a_foreign_encoding_are_kept_as_documents_show_them(window: Window, tmp_path: Path) -> None:
    name, shown = os.fsdecode(b"img-\xff.jpg"), r"img-\udcff.jpg"
    begin, end = window.begin_ns, window.end_ns
    foreign = replace(
        window,
        ranges=(Range(name, begin, end, 1),),
        seen=(Seen(begin, 1, f"{name}:3 in f"),),
        threads={1: name, 2: "MainThread"},
    )
    store(foreign, tmp_path / "window-1")
    found = fetch(tmp_path / "window-1")
    assert found.ranges == (Range(shown, begin, end, 1),)
    assert found.seen == (Seen(begin, 1, f"{shown}:3 in f"),)
    assert found.threads == {1: shown, 2: "MainThread"}
    assert found.steps == window.steps


def test_nothing_is_left_beside_it(window: Window, tmp_path: Path) -> None:
    store(window, tmp_path / "window-1")
    assert [path.name for path in tmp_path.iterdir()] == ["window-1"]


@pytest.mark.parametrize("keep", [0, 100, -20])
def test_one_that_is_cut_short_is_refused(window: Window, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "window-1"
    store(window, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DocumentError, match="what the script has left of its window cannot be read"):
        fetch(path)
