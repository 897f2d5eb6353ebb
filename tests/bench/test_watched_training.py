"""Watched training: costs, gains, and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import watched_training
from samples import make_run
from training_loops import Loop
from watch_samples import make_watched
from watched_training import BLOCK_STEPS, PHASES, Trained, Training

import pyxfer
from pyxfer._document.watches import Verdict


def trained(loop: str, seconds: float, *, cost: float = 0.0, bound_by: Any = "device") -> Trained:
    """A loop whose steps take `seconds`, and longer by the share `cost` when watched."""
    times: dict[str, list[list[float]]] = {
        phase: [[seconds * (1 + cost * (phase != "unwatched"))] * 5] * 7 for phase in PHASES
    }
    watched = make_watched()
    verdict: Verdict = msgspec.structs.replace(watched.verdict, bound_by=bound_by)
    return Trained(loop, times, msgspec.structs.replace(watched, verdict=verdict))


def training(usual: Trained, ahead: Trained) -> Training:
    run = make_run()
    return Training("torch", run.device, run.environment, {}, (usual, ahead))


def real_gain(result: Training) -> Training:
    """The training with a second loop as fast as the watch of the first predicts."""
    usual = result.loops[0].summary("unwatched").median_s
    predicted = result.predicted_gain_s or 0.0
    return training(result.loops[0], trained("ahead", usual - predicted))


def test_a_gain_as_predicted_passes() -> None:
    usual = trained("usual", 13e-3, bound_by="input")
    assert watched_training.judge(real_gain(training(usual, usual))) == []


def test_a_prediction_off_by_more_than_a_fifth_fails() -> None:
    result = training(trained("usual", 13e-3, bound_by="link"), trained("ahead", 12.9e-3))
    (wrong,) = watched_training.judge(result)
    assert "predicted gain" in wrong


def test_a_wrong_bound_of_either_loop_fails() -> None:
    usual = trained("usual", 13e-3)
    ahead = real_gain(training(usual, usual)).loops[1]
    ahead = trained("ahead", ahead.summary("unwatched").median_s, bound_by="input")
    assert len(watched_training.judge(training(usual, ahead))) == 2


@pytest.mark.parametrize(("cost", "wrong"), [(0.019, 0), (0.021, 2)])
def test_watching_may_cost_two_percent(cost: float, wrong: int) -> None:
    usual = trained("usual", 13e-3, bound_by="input", cost=cost)
    assert len(watched_training.judge(real_gain(training(usual, usual)))) == wrong


def test_the_cost_is_the_median_over_the_blocks() -> None:
    usual = trained("usual", 13e-3, bound_by="input")
    usual.steps_s["watched"][:3] = [[26e-3] * 5] * 3
    assert usual.cost("watched").median_s == pytest.approx(1.0)
    assert (usual.cost("watched").high_s or 0.0) >= 2.0


def test_every_phase_has_all_blocks_and_the_watch_has_its_steps() -> None:
    def batches() -> Iterator[int]:
        yield from range(1000)

    asked = watched_training._arguments(["--device", "host", "--steps", "12", "--blocks", "2"])
    found = watched_training.train(Loop("usual", batches, lambda batch: None), asked)
    for phase in PHASES:
        assert [len(block) for block in found.steps_s[phase]] == [BLOCK_STEPS, BLOCK_STEPS]
    assert found.watched.steps.watched == 12
    assert isinstance(found.watched, pyxfer.Watched)


def test_the_page_has_both_loops_and_the_gain() -> None:
    page = watched_training.page(training(trained("usual", 13e-3), trained("ahead", 9e-3)))
    assert "usual" in page
    assert "ahead" in page
    assert "real 4.00 ms" in page


def test_page_faults_are_shown_if_they_were_counted() -> None:
    loop = trained("usual", 13e-3)
    assert watched_training.faults_text(loop) == "page faults a step: not counted"
    counted = msgspec.structs.replace(loop, faults={"unwatched": [1.0, 9.0, 2.0], "watched": [3.0]})
    assert watched_training.faults_text(counted) == "page faults a step: 2 unwatched, 3 watched"
    assert "usual: page faults a step: 2 unwatched" in watched_training.page(training(counted, counted))
