"""A store that fails while a check is at work: the result is told all the same, and what was not stored."""

from __future__ import annotations

from typing import Any

import pytest
from baseline_samples import make_processes
from samples import make_run

from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.measure import Order
from pyxfer._cli import baseline as verb
from pyxfer._document.baselines import Baseline
from pyxfer._document.runs import Run
from pyxfer.errors import StoreError


class LostStore:
    """One that takes so many runs and then is gone."""

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


def test_nothing_is_said_where_all_was_stored() -> None:
    assert keeper(3, 3).trouble == ""


def test_what_was_not_stored_is_counted_with_the_reason() -> None:
    text = "2 runs were not stored, and the result above is of them all the same: the server is gone; start it again"
    assert keeper(1, 3).trouble == text


@pytest.mark.parametrize(("is_slow", "code"), [(True, 1), (False, 4)])
def test_a_loss_counts_for_more_than_a_store(is_slow: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(keeper(0, 1), is_slow=is_slow) == code
    assert "1 run was not stored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (0, ""),
        (1, "pyxfer: 1 of 3 runs is in the history, and no baseline was made\n"),
        (2, "pyxfer: 2 of 3 runs are in the history, and no baseline was made\n"),
    ],
)
def test_an_interrupted_save_counts_what_it_has_kept(
    ended: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter(make_processes(ended) if ended else ())

    def measure() -> Run:
        for run in runs:
            return run
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "_measuring", lambda *_: measure)
    store: Any = LostStore(3)
    with pytest.raises(KeyboardInterrupt):
        verb._measure_all(Order("host"), 3, store, {})
    assert (capsys.readouterr().err, store.left) == (words, 3 - ended)


def test_a_baseline_that_the_store_did_not_take_is_rescued_into_a_file() -> None:
    baseline = make_baseline("default", {}, make_processes(), "2025-11-21T08:30:00+00:00")
    path = verb._rescued(baseline).rpartition(" ")[2]
    assert Baseline.load(path) == baseline
