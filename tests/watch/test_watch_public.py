"""`pyxfer.watch` as a program uses it: arguments, the block, the report and its exports."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from watch.copying import copies

import pyxfer
from pyxfer import DocumentError, UsageError, Watch
from pyxfer._document.watches import Watched
from pyxfer._watch.options import WatchOptions, make_options
from pyxfer.native import Engine
from pyxfer.native._host import testing

MAX_CALLS = 12


@pytest.fixture
def watched(engine: Engine) -> Watch:
    """A watch of five steps, with a copy in each direction in every step."""
    with copies() as made, pyxfer.watch(skip=2, steps=5, device="host", ceilings=None) as w:
        for _ in range(10):
            with pyxfer.mark("make"):
                pass
            with w.step():
                made.send()
                made.fetch()
    return w


def test_the_result_is_of_the_steps_of_the_window(watched: Watch) -> None:
    result = watched.result
    assert (result.steps.watched, result.steps.skipped, result.ended) == (5, 2, "complete")
    assert result.activity.value is not None
    assert {row.way: row.count for row in result.activity.value.copies} == {"h2d": 5, "d2h": 5}
    assert {row.name: row.count for row in result.ranges} == {"make": 5}
    assert result.device.runtime == "host"


def test_the_report_is_the_page_of_the_result(watched: Watch) -> None:
    text = watched.report()
    assert "host memory, not a PCIe link" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_every_export_holds_the_result(watched: Watch, tmp_path: Path) -> None:
    text = watched.to_json(tmp_path / "w.json")
    assert text == (tmp_path / "w.json").read_text()
    assert Watched.load(tmp_path / "w.json") == watched.result
    assert watched.to_csv().count("\n") == 1 + 5
    assert watched.to_csv("copies").count("\n") == 1 + 2
    assert watched.to_markdown() == watched.result.to_markdown()


def test_the_chrome_trace_is_written_plain_and_compressed(watched: Watch, tmp_path: Path) -> None:
    watched.to_chrome_trace(tmp_path / "t.json")
    watched.to_chrome_trace(tmp_path / "t.json.gz")
    plain = json.loads((tmp_path / "t.json").read_text())
    with gzip.open(tmp_path / "t.json.gz") as packed:
        assert json.load(packed) == plain


def test_limits_may_be_text_and_numbers_of_numpy() -> None:
    options = make_options(np.int64(2), np.int32(3), "1.5s", 0, True, "64MiB")
    assert options == WatchOptions(2, 3, 1.5, 0, True, 64 << 20)


def test_a_trace_in_a_missing_folder_is_a_usage_error(watched: Watch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make the folder first"):
        watched.to_chrome_trace(tmp_path / "none" / "t.json")


def test_a_watch_can_be_used_again(engine: Engine) -> None:
    w = pyxfer.watch(device="host", ceilings=None)
    counts = []
    for steps in (1, 3):
        with w:
            for _ in range(steps):
                with w.step():
                    pass
        counts.append(w.result.steps.watched)
    assert counts == [1, 3]


def test_an_exception_in_the_block_propagates_and_the_window_is_kept(engine: Engine) -> None:
    w = pyxfer.watch(device="host", ceilings=None)

    def block() -> None:
        with w:
            with w.step():
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert (w.result.ended, w.result.steps.watched) == ("failed", 1)


@pytest.mark.parametrize(
    ("kind", "ended"), [(BaseException, "failed"), (KeyboardInterrupt, "ended"), (SystemExit, "ended")]
)
def test_exceptions_that_end_a_program_on_purpose_are_not_failures(
    engine: Engine, kind: type[BaseException], ended: str
) -> None:
    w = pyxfer.watch(device="host", ceilings=None)
    with pytest.raises(kind), w:
        raise kind
    assert w.result.ended == ended


def test_the_result_before_the_end_of_the_window_is_a_usage_error(engine: Engine) -> None:
    w = pyxfer.watch(device="host")
    with pytest.raises(UsageError, match="never started: use it in a with statement"):
        w.report()
    with w, pytest.raises(UsageError, match="still active: use its result after the window has closed"):
        w.report()


@pytest.mark.slow
def test_copies_are_compared_with_measured_ceilings_by_default(engine: Engine) -> None:
    testing.model_link(1e8, 20e-6, 1e8, 20e-6)  # 40 ms a copy: a pause of a few milliseconds makes no difference
    with copies(4 << 20) as made:
        made.send()  # its pages are touched for the first time
        with pyxfer.watch(device="host") as w, w.step():
            made.send()
    assert w.result.activity.value is not None
    (row,) = w.result.activity.value.copies
    assert row.ceiling_share.value == pytest.approx(1.0, abs=0.3)


def test_ceilings_may_be_the_path_of_a_saved_run(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    pyxfer.ceiling("host", directions=["h2d"], sizes=[64 << 10], budget_s=0.5).save(path)
    testing.model_link(1e7, 20e-6, 1e7, 20e-6)  # much slower than the ceiling, so that there is a share
    with copies() as made, pyxfer.watch(device="host", ceilings=path) as w, w.step():
        made.send()
    before = testing.calls()["cudaMalloc"]
    assert w.result.activity.value is not None
    assert w.result.activity.value.copies[0].ceiling_share.value is not None
    assert testing.calls()["cudaMalloc"] == before, "nothing was measured anew"


def test_without_a_gpu_the_report_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    if pyxfer.is_available():
        pytest.skip("there is a GPU here")
    with pyxfer.watch(ceilings=None) as w:
        pass
    assert w.result.remarks[0].code == "no-gpu"
    assert w.result.runtime_reason.startswith("No usable GPU")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"skip": -1}, "skip -1 is not a whole number"),
        ({"skip": 1.5}, "skip 1.5 is not a whole number"),
        ({"steps": 0}, "steps 0 is not a whole number"),
        ({"steps": True}, "steps True is not a whole number"),
        ({"seconds": 0}, "seconds 0 is not above zero"),
        ({"seconds": float("nan")}, "is not above zero"),
        pytest.param({"seconds": 10**400}, "is not above zero", id="more seconds than a float holds"),
        ({"seconds": "5x"}, "seconds .* unknown unit"),
        ({"capacity": 100}, "capacity is the memory that records may take, 1 MiB or more"),
        ({"capacity": 1 << 62}, "this machine has .*; give less"),
        ({"capacity": "lots"}, "is not a size"),
        ({"ceilings": 3}, "the path of a saved run, or None"),
    ],
    ids=str,
)
def test_an_invalid_argument_is_a_usage_error(words: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        pyxfer.watch(**words)  # type: ignore[arg-type]


def test_a_missing_saved_run_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="There is no file"):
        pyxfer.watch(ceilings=tmp_path / "none.json")


@pytest.mark.parametrize("phase", ["skipped", "after"])
def test_steps_and_marks_outside_of_the_window_make_few_calls(engine: Engine, phase: str) -> None:
    """No calls within `with w.step(): pass` but those of `step`, `__enter__` and `__exit__`; a mark is made as well."""
    made: list[str] = []
    with pyxfer.watch(skip=0 if phase == "after" else 10**9, steps=1, device="host") as w:
        if phase == "after":
            with w.step():
                pass
        sys.setprofile(lambda frame, event, _: made.append(frame.f_code.co_name) if event == "call" else None)
        with w.step():
            pass
        with pyxfer.mark("x"):
            pass
        sys.setprofile(None)
    assert len(made) <= MAX_CALLS, made
