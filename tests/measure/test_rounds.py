from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from measure.fakes import Clock, Failing, Timed

from pyxfer._measure.sampler import (
    FEWEST_ROUNDS,
    MAX_ROUNDS,
    MIN_ROUNDS,
    TURN_ROUNDS,
    After,
    Group,
    Progress,
    Sampler,
    Subject,
)
from pyxfer.errors import CancelledError, CudaError, CudaUnavailableError, DeviceLostError

PRECISION = 0.01
LONG_S = 1000.0
# The median of such trials is within no percent of itself, however many there are.
NOISY = (1e-3, 2e-3)


@dataclass
class Bench:
    """A sampler to be run, with one log of everything that ran."""

    clock: Clock = field(default_factory=Clock)
    log: list[tuple[int, str]] = field(default_factory=list)

    def timed(self, key: str, *seconds: float, anchor: str | None = None, invalid: str | None = None) -> Timed:
        return Timed(key, self.clock, seconds or (1e-3,), anchor, self.log, invalid)

    def failing(self, key: str, error: BaseException, good_trials: int = 0) -> Failing:
        return Failing(key, self.clock, log=self.log, error=error, good_trials=good_trials)

    def run(
        self,
        *groups: Sequence[Subject],
        seed: int = 1,
        budget_s: float = LONG_S,
        cancelled: Callable[[], bool] = lambda: False,
        on_progress: Callable[[Progress], None] = lambda _: None,
        after: After = After(),  # noqa: B008 - it is frozen
        fewest_rounds: int = FEWEST_ROUNDS,
    ) -> list[Group]:
        made = [Group.of(str(index), subjects) for index, subjects in enumerate(groups)]
        until = self.clock() + budget_s
        Sampler(
            *(made, PRECISION, until, seed, cancelled, on_progress),
            clock=self.clock,
            after=after,
            fewest_rounds=fewest_rounds,
        ).run()
        return made

    def order_of(self, round_index: int) -> list[str]:
        return [key for index, key in self.log if index == round_index]


def lost(code: int = 719) -> DeviceLostError:
    return DeviceLostError(code, "cudaErrorLaunchFailure", "cudaMemcpyAsync", "csrc/x.cpp:1", "it is gone", "")


def test_every_subject_runs_once_in_each_round() -> None:
    bench = Bench()
    bench.run([bench.timed(key) for key in "abc"])
    rounds = max(index for index, _ in bench.log) + 1
    assert Counter(bench.log) == Counter((index, key) for index in range(rounds) for key in "abc")


def test_the_order_changes_from_round_to_round() -> None:
    bench = Bench()
    bench.run([bench.timed(key) for key in "abcdef"])
    assert len({tuple(bench.order_of(index)) for index in range(FEWEST_ROUNDS)}) > 1


def test_the_same_seed_gives_the_same_order() -> None:
    logs = []
    for seed in (7, 7, 8):
        bench = Bench()
        bench.run([bench.timed(key, *NOISY) for key in "abcdef"], seed=seed, budget_s=1.0)
        logs.append(bench.log)
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_a_precise_subject_stops_after_the_rounds_that_show_slow_changes() -> None:
    bench = Bench()
    subject = bench.timed("a")
    bench.run([subject])
    assert MIN_ROUNDS <= len(subject.rounds) < MIN_ROUNDS + TURN_ROUNDS


def test_what_is_noisy_goes_on_until_the_budget_is_spent() -> None:
    bench = Bench()
    subject = bench.timed("a", *NOISY)
    bench.run([subject], budget_s=0.5)
    assert 0.5 <= bench.clock() <= 0.5 + max(NOISY)
    assert len(subject.rounds) > MIN_ROUNDS


def test_a_document_does_not_grow_without_end() -> None:
    bench = Bench()
    subject = bench.timed("a", *NOISY)
    bench.run([subject], budget_s=1e6)
    assert MAX_ROUNDS <= len(subject.rounds) < MAX_ROUNDS + 64


def test_what_is_settled_gives_its_time_to_what_is_not() -> None:
    bench = Bench()
    settled, noisy = bench.timed("settled"), bench.timed("noisy", *NOISY)
    bench.run([settled, noisy], budget_s=1.0)
    assert MIN_ROUNDS <= len(settled.rounds) < MIN_ROUNDS + TURN_ROUNDS
    assert len(noisy.rounds) > 5 * MIN_ROUNDS


def test_an_anchor_runs_in_every_round_of_what_is_compared_with_it() -> None:
    bench = Bench()
    anchor = bench.timed("anchor")
    noisy = bench.timed("noisy", *NOISY, anchor="anchor")
    bench.run([anchor, noisy], budget_s=1.0)
    assert set(noisy.rounds) <= set(anchor.rounds)
    assert len(noisy.rounds) > MIN_ROUNDS


def test_groups_take_turns_from_the_first_round_on() -> None:
    bench = Bench()
    first, second = bench.timed("first"), bench.timed("second")
    bench.run([first], [second])
    assert [key for _, key in bench.log[: 2 * FEWEST_ROUNDS]] == ["first", "second"] * FEWEST_ROUNDS


def test_a_budget_that_is_not_enough_leaves_every_group_with_the_fewest_rounds() -> None:
    bench = Bench()
    subjects = [bench.timed(key, *NOISY) for key in "abcd"]
    bench.run(*([subject] for subject in subjects), budget_s=2e-3)
    assert [len(subject.rounds) for subject in subjects] == [FEWEST_ROUNDS] * 4


def test_where_not_everything_can_become_precise_the_cheapest_does() -> None:
    bench = Bench()
    cheap = bench.timed("cheap", 1.00e-3, 1.03e-3, 1.015e-3)
    dear = bench.timed("dear", 1.00, 1.03, 1.015)
    groups = bench.run([cheap], [dear], budget_s=7.0)
    assert groups[0].series[0].within(PRECISION)
    assert len(dear.rounds) < 8


def test_a_deadline_that_has_passed_leaves_the_fewest_rounds() -> None:
    bench = Bench()
    subject = bench.timed("a", *NOISY)
    bench.run([subject], budget_s=0.0)
    assert len(subject.rounds) == FEWEST_ROUNDS


def test_who_asks_for_fewer_rounds_gets_no_more_where_the_budget_is_spent() -> None:
    bench = Bench()
    subject = bench.timed("a", 1.0)
    bench.run([subject], budget_s=0.5, fewest_rounds=1)
    assert len(subject.rounds) == 1


def test_a_failing_subject_is_left_out_and_the_others_go_on() -> None:
    bench = Bench()
    error = CudaError(1, "cudaErrorInvalidValue", "cudaMemcpyAsync", "csrc/x.cpp:1", "invalid argument", "")
    failing, other = bench.failing("failing", error, good_trials=2), bench.timed("other")
    (group,) = bench.run([failing, other])
    assert group.series[0].failure == "cudaMemcpyAsync failed with cudaErrorInvalidValue (1): invalid argument."
    assert len(group.series[0].trials["h2d"]) == 2
    assert len(failing.rounds) == 3
    assert len(other.rounds) >= MIN_ROUNDS


def test_a_failing_anchor_leaves_what_is_compared_with_it() -> None:
    bench = Bench()
    error = CudaError(1, "cudaErrorInvalidValue", "cudaMemcpyAsync", "", "invalid argument", "")
    other = bench.timed("other", anchor="anchor")
    bench.run([bench.failing("anchor", error), other])
    assert len(other.rounds) >= MIN_ROUNDS


@pytest.mark.parametrize(
    "error",
    [
        lost(),
        CudaUnavailableError(100, "cudaErrorNoDevice", "cudaSetDevice", "", "no device", ""),
        ZeroDivisionError("of the subject's own"),
        KeyboardInterrupt(),
    ],
)
def test_what_ends_the_whole_run_is_passed_on_as_it_is(error: BaseException) -> None:
    bench = Bench()
    with pytest.raises(type(error)) as caught:
        bench.run([bench.timed("a"), bench.failing("b", error, good_trials=3)])
    assert caught.value is error


def test_who_asks_for_the_end_gets_it_before_the_next_trial() -> None:
    bench = Bench()
    with pytest.raises(CancelledError, match="was asked to end"):
        bench.run([bench.timed("a", *NOISY)], cancelled=lambda: len(bench.log) >= 5)
    assert len(bench.log) == 5


def test_rounds_that_are_asked_for_are_run_whatever_they_cost() -> None:
    bench = Bench()
    (group,) = [Group.of("all", [bench.timed("a", 1.0, anchor="b"), bench.timed("b", 1.0)])]
    Sampler([group], PRECISION, bench.clock(), 1, clock=bench.clock).run_rounds(3)
    assert Counter(key for _, key in bench.log) == {"a": 3, "b": 3}
    assert [trial.round for trial in group.series[0].trials["h2d"]] == [0, 1, 2]


def test_trials_that_do_not_count_do_not_settle_anything() -> None:
    bench = Bench()
    subject = bench.timed("a", invalid="the gate timed out")
    bench.run([subject], budget_s=0.5)
    assert len(subject.rounds) > 2 * MIN_ROUNDS


def test_progress_only_grows_and_ends_at_the_whole() -> None:
    bench = Bench()
    heard: list[Progress] = []
    bench.run([bench.timed("a")], [bench.timed("b", *NOISY)], budget_s=0.3, on_progress=heard.append)
    done = [each.done for each in heard]
    assert done == sorted(done)
    assert 0 < done[0] < 1
    assert done[-1] == 1.0
    assert heard[-1].text == "1 of 2 results are precise"


def test_without_anything_to_run_it_ends_at_once() -> None:
    assert Bench().run() == []


def test_what_comes_after_is_left_the_time_that_it_needs_by_what_trials_have_cost() -> None:
    bench = Bench()
    bench.run([bench.timed("a", *NOISY)], budget_s=1.0, after=After(rounds=3, once_s=0.1, each_s=0.01, most_s=0.5))
    # 0.1 s once, and three times 10 ms and twice the 1.5 ms of a trial.
    assert bench.clock() == pytest.approx(1.0 - 0.139, abs=3e-3)


def test_what_comes_after_is_left_its_share_at_most() -> None:
    bench = Bench()
    bench.run([bench.timed("a", *NOISY)], budget_s=1.0, after=After(rounds=1000, each_s=1.0, most_s=0.15))
    assert bench.clock() == pytest.approx(0.85, abs=3e-3)


def test_without_anything_after_it_the_whole_budget_is_used() -> None:
    bench = Bench()
    bench.run([bench.timed("a", *NOISY)], budget_s=1.0)
    assert bench.clock() == pytest.approx(1.0, abs=3e-3)
