"""The trace of a window whose capacity was used up covers the same time as its report."""

from __future__ import annotations

import json
from pathlib import Path

from watch.copying import copies

import pyxfer
from pyxfer.native import Engine

TURNS = 4000  # of about six records, with a capacity of sixteen thousand


def test_the_trace_of_a_cut_window_ends_like_its_result(engine: Engine, tmp_path: Path) -> None:
    with copies(4096) as made, pyxfer.watch(device="host", ceilings=None, lines=False, capacity="1MiB") as w:
        for _ in range(TURNS):
            with w.step():
                made.send()
    w.to_chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    steps = [event for event in events if event.get("cat") == "step" and event["ph"] == "X"]
    assert 0 < len(steps) == w.result.steps.watched < TURNS
