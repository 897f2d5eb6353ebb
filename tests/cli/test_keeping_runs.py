"""A store that fails during a check: the result and the lost runs are reported."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from baseline_samples import make_processes
from in_process import Command
from samples import make_run

from pyxfer._baseline.check import make_baseline
from pyxfer._cli import baseline as verb
from pyxfer._document.baselines import Baseline
from pyxfer._document.runs import Run
from pyxfer.errors import MeasurementError, StoreError


class LostStore:
    """A store that fails after `takes` runs."""

    def __init__(self, takes: int) -> None:
        self.left = takes

    def add_run(self, run: Any, labels: Any) -> str:
        del run, labels
        if not self.left:
            raise StoreError("the server is gone; start it again")
        self.left -= 1
        return "r-1"


def keeper(takes: int, runs: int) -> verb._Keeper:
    made = verb._Keeper(LostStore(takes), {})  # type: ignore[arg-type]
    for _ in range(runs):
        made.keep(make_run())
    return made


def ending(kept: verb._Keeper, *, is_slow: bool) -> int:
    with pytest.raises(SystemExit) as end:
        verb._end_check(make_processes(1), kept, is_slow=is_slow, interrupted=False)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_without_lost_runs_there_is_no_message() -> None:
    assert keeper(3, 3).trouble == ""


def test_lost_runs_are_counted_with_the_reason() -> None:
    assert keeper(1, 3).trouble.endswith("not stored (2): the server is gone; start it again")


@pytest.mark.parametrize(("is_slow", "code"), [(True, 1), (False, 4)])
def test_a_slow_cell_takes_precedence_over_lost_runs(
    is_slow: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(keeper(0, 1), is_slow=is_slow) == code
    assert "not stored (1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (0, ""),
        (1, "pyxfer: no baseline was saved; runs in the history: 1 of 3\n"),
        (2, "pyxfer: no baseline was saved; runs in the history: 2 of 3\n"),
    ],
)
def test_an_interrupted_save_counts_its_runs(
    ended: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter(make_processes(ended) if ended else ())

    def measure() -> Run:
        for run in runs:
            return run
        raise KeyboardInterrupt

    store: Any = LostStore(3)
    with pytest.raises(KeyboardInterrupt):
        verb._measure_all(measure, 3, lambda: nullcontext(store), {})
    assert (capsys.readouterr().err, store.left) == (words, 3 - ended)


def test_a_baseline_that_the_store_refused_is_saved_to_a_file() -> None:
    baseline = make_baseline("default", {}, make_processes(), "2025-11-21T08:30:00+00:00")
    path = verb._rescued(baseline).partition(",")[0].split()[-1]
    assert Baseline.load(path) == baseline


def test_a_save_that_measures_nothing_leaves_no_store(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Run:
        raise MeasurementError("it measured nothing")

    monkeypatch.setattr(verb, "_measuring", lambda *_: fail)
    assert command("baseline", "save", "--device", "host", "--store", str(tmp_path / "store.db")).returncode == 4
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_created_is_refused_before_measuring(tmp_path: Path, command: Command) -> None:
    result = command("baseline", "save", "--device", "host", "--store", str(tmp_path / "no" / "store.db"))
    assert result.returncode == 2
    assert "create its folder first" in result.stderr
