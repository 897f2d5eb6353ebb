from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest
from measure.fakes import Clock, Failing, Rare, Shaky, Timed

from pyxfer._document.runs import Summary, Trial
from pyxfer._measure import sampler as module
from pyxfer._measure import stats
from pyxfer._measure.sampler import FEWEST_ROUNDS, MIN_ROUNDS, Group, Progress, Reserve, Sampler, Series, Subject
from pyxfer.errors import CancelledError, CudaError, CudaUnavailableError, DeviceLostError


def series(*seconds: float, invalid: str | None = None) -> Series:
    made = Series(Timed("a", Clock()))
    for index, elapsed_s in enumerate(seconds):
        made.add({"h2d": Trial(index, elapsed_s, invalid=invalid)})
    return made


def test_invalid_trials_are_kept_and_do_not_count() -> None:
    made = series(1.0, 2.0, invalid="the gate timed out")
    assert len(made.trials["h2d"]) == 2
    assert made.valid_times("h2d") == []
    assert made.summaries() == []


def test_a_series_is_precise_if_all_sides_are() -> None:
    made = Series(Timed("a", Clock()))
    for index in range(10):
        made.add({"h2d": Trial(index, 1.0), "d2h": Trial(index, 1.0 + index % 2)})
    assert not made.is_precise(0.01)
    assert series(*[1.0] * 10).is_precise(0.01)


def test_fewer_trials_than_an_interval_needs_are_not_precise() -> None:
    assert not series(*[1.0] * 5).is_precise(0.01)
    assert not series().is_precise(0.01)


PRECISION = 0.01
LONG_S = 1000.0
# The median of such trials never becomes precise.
NOISY = (1e-3, 2e-3)


@dataclass
class Bench:
    """Runs samplers, and logs the rounds and keys of all trials."""

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
        reserve: Reserve = Reserve(),  # noqa: B008 - it is frozen
        fewest_rounds: int = FEWEST_ROUNDS,
        latest_s: float = math.inf,
        few_rounds: int = FEWEST_ROUNDS,
        spared: Collection[str] = (),
    ) -> list[Group]:
        made = [Group.of(str(index), subjects) for index, subjects in enumerate(groups)]
        until = self.clock() + budget_s
        Sampler(
            *(made, PRECISION, until, seed, cancelled, on_progress),
            clock=self.clock,
            reserve=reserve,
            fewest_rounds=fewest_rounds,
            latest_s=latest_s,
            few_rounds=few_rounds,
            spared=spared,
        ).run()
        return made

    def order_of(self, round_index: int) -> list[str]:
        return [key for index, key in self.log if index == round_index]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def lost(code: int = 719) -> DeviceLostError:
    return DeviceLostError(code, "cudaErrorLaunchFailure", "cudaMemcpyAsync", "csrc/x.cpp:1", "it is gone", "")


def test_every_subject_runs_once_in_each_round(bench: Bench) -> None:
    bench.run([bench.timed(key) for key in "abc"])
    rounds = max(index for index, _ in bench.log) + 1
    assert Counter(bench.log) == Counter((index, key) for index in range(rounds) for key in "abc")


def test_after_a_spent_budget_progress_counts_the_fewest_rounds(bench: Bench) -> None:
    heard = []
    bench.run([bench.timed("a", *NOISY)], budget_s=0, on_progress=lambda progress: heard.append(progress.done))
    assert heard == pytest.approx([number / FEWEST_ROUNDS for number in range(1, FEWEST_ROUNDS + 1)])


def test_the_order_changes_from_round_to_round(bench: Bench) -> None:
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


def test_a_precise_subject_stops_after_the_rounds_that_show_slow_changes(bench: Bench) -> None:
    subject = bench.timed("a")
    bench.run([subject])
    assert MIN_ROUNDS <= len(subject.rounds) < MIN_ROUNDS + module.TURN_ROUNDS


def test_a_noisy_subject_runs_until_the_budget_is_spent(bench: Bench) -> None:
    subject = bench.timed("a", *NOISY)
    bench.run([subject], budget_s=0.5)
    assert 0.5 <= bench.clock() <= 0.5 + max(NOISY)
    assert len(subject.rounds) > MIN_ROUNDS


def test_a_subject_has_a_largest_number_of_rounds(bench: Bench) -> None:
    subject = bench.timed("a", *NOISY)
    bench.run([subject], budget_s=1e6)
    assert module.MAX_ROUNDS <= len(subject.rounds) < module.MAX_ROUNDS + 64


def test_a_settled_subject_leaves_its_time_to_the_others(bench: Bench) -> None:
    settled, noisy = bench.timed("settled"), bench.timed("noisy", *NOISY)
    bench.run([settled, noisy], budget_s=1.0)
    assert MIN_ROUNDS <= len(settled.rounds) < MIN_ROUNDS + module.TURN_ROUNDS
    assert len(noisy.rounds) > 5 * MIN_ROUNDS


def test_an_anchor_runs_in_every_round_of_its_subjects(bench: Bench) -> None:
    anchor = bench.timed("anchor")
    noisy = bench.timed("noisy", *NOISY, anchor="anchor")
    bench.run([anchor, noisy], budget_s=1.0)
    assert set(noisy.rounds) <= set(anchor.rounds)
    assert len(noisy.rounds) > MIN_ROUNDS


def test_all_that_may_become_the_ceiling_run_in_every_round_of_what_is_compared_with_them(bench: Bench) -> None:
    anchor = Timed("anchor", bench.clock, (1.2e-3,), log=bench.log, ceiling_of="h2d")
    faster = Timed("faster", bench.clock, (1e-3,), log=bench.log, ceiling_of="h2d")
    slower = Timed("slower", bench.clock, (2e-3,), log=bench.log, ceiling_of="h2d")
    noisy = bench.timed("noisy", *NOISY, anchor="anchor")
    bench.run([anchor, faster, slower, noisy], budget_s=3.0)
    assert len(noisy.rounds) > 3 * MIN_ROUNDS
    assert set(noisy.rounds) <= set(anchor.rounds) & set(faster.rounds)
    assert len(slower.rounds) < 2 * MIN_ROUNDS


def test_groups_take_turns(bench: Bench) -> None:
    first, second = bench.timed("first"), bench.timed("second")
    bench.run([first], [second])
    assert [key for _, key in bench.log[: 2 * FEWEST_ROUNDS]] == ["first", "second"] * FEWEST_ROUNDS


def test_a_small_budget_leaves_every_group_with_the_fewest_rounds(bench: Bench) -> None:
    subjects = [bench.timed(key, *NOISY) for key in "abcd"]
    groups = bench.run(*([subject] for subject in subjects), budget_s=2e-3, latest_s=1.0)
    assert [len(subject.rounds) for subject in subjects] == [FEWEST_ROUNDS] * 4
    assert not any(group.dropped for group in groups)


def test_the_costliest_groups_are_dropped_after_their_first_round_if_all_would_take_too_long(bench: Bench) -> None:
    subjects = [bench.timed(key, seconds) for key, seconds in (("a", 0.01), ("b", 0.2), ("c", 3.0), ("d", 0.4))]
    groups = bench.run(*([subject] for subject in subjects), budget_s=1.0, latest_s=7.5)
    assert [group.dropped for group in groups] == [False, False, True, False]
    assert [len(subject.rounds) for subject in subjects][1:] == [FEWEST_ROUNDS, 1, FEWEST_ROUNDS]
    assert bench.clock() <= 7.5


@pytest.mark.parametrize(
    ("seconds", "budget_s", "few"),
    [
        ({"anchor": 0.4, "fast": 0.01, "slow": 0.6, "quick": 0.05, "slower": 0.9}, 5.5, {"slow": 2, "slower": 2}),
        ({"spared": 0.9, "slow": 0.6}, 1.0, {"slow": 2}),
        ({"slow": 0.3, "slower": 0.9}, 4.0, {"slower": 3}),  # no more than must, and later
        ({str(number): 0.09 for number in range(40)}, 1.0, {}),  # short trials are never few
    ],
)
def test_the_costliest_series_have_few_rounds_if_all_would_end_after_the_deadline(
    bench: Bench, seconds: dict[str, float], budget_s: float, few: dict[str, int]
) -> None:
    subjects = [bench.timed(key, s, anchor="anchor" if key == "fast" else None) for key, s in seconds.items()]
    bench.run(subjects[:3], subjects[3:], budget_s=budget_s, few_rounds=2, spared={"spared"})
    rounds = {subject.key: len(subject.rounds) for subject in subjects}
    assert {key: count for key, count in rounds.items() if count < FEWEST_ROUNDS} == few


def test_a_trial_that_turns_out_longer_drops_its_group_later(bench: Bench) -> None:
    subjects = [bench.timed("a", 0.1), bench.timed("b", 0.1, 5.0, 5.0, 5.0)]
    groups = bench.run(*([subject] for subject in subjects), budget_s=1.0, latest_s=9.0)
    assert [group.dropped for group in groups] == [False, True]
    assert len(subjects[0].rounds) >= FEWEST_ROUNDS
    assert len(subjects[1].rounds) == 2


def test_a_single_group_has_as_many_rounds_as_there_is_time_for(bench: Bench) -> None:
    slow, other = bench.timed("slow", 2.0), bench.timed("other", 1.0)
    (group,) = bench.run([slow, other], budget_s=1.0, latest_s=7.0)
    assert not group.dropped
    assert 7.0 <= bench.clock() < 9.0
    assert len(slow.rounds) in (2, 3)


def test_invalid_trials_are_not_replaced_after_the_latest_end(bench: Bench) -> None:
    bench.run([bench.timed("a", 1.0, invalid="late")], budget_s=1.0, latest_s=8.0)
    assert bench.clock() <= 8.0


@pytest.mark.parametrize(("budget_s", "left_s"), [(10.0, 9.0), (1.0, 5.0)], ids=["the deadline", "five more rounds"])
def test_progress_says_how_long_it_goes_on(bench: Bench, budget_s: float, left_s: float) -> None:
    seen = []
    bench.run([bench.timed("a", 1.0, 1.1)], budget_s=budget_s, on_progress=lambda each: seen.append(each.left_s))
    assert seen[0] == pytest.approx(left_s)


def test_all_groups_take_turns_until_the_budget_is_spent(bench: Bench) -> None:
    cheap, dear = bench.timed("cheap", *NOISY), bench.timed("dear", 0.1, 0.2)
    bench.run([cheap], [dear], budget_s=7.0)
    assert len(dear.rounds) > 3 * FEWEST_ROUNDS
    assert len(cheap.rounds) > 2 * MIN_ROUNDS
    order = [key for _, key in bench.log]
    thirds = [order[i * len(order) // 3 : (i + 1) * len(order) // 3] for i in range(3)]
    assert all({"cheap", "dear"} == set(third) for third in thirds)


def test_groups_share_the_budget_by_time(bench: Bench) -> None:
    cheap, dear = bench.timed("cheap", *NOISY), bench.timed("dear", 0.02, 0.04)
    (first, second) = bench.run([cheap], [dear], budget_s=2.0)
    assert first.spent_s == pytest.approx(second.spent_s, abs=0.07)
    assert len(cheap.rounds) > 10 * len(dear.rounds)


def test_a_quick_subject_is_not_held_back_by_a_slow_one_of_its_group(bench: Bench) -> None:
    noisy = (0.5, 1.5, 1.0, 0.4, 1.6, 0.7, 1.2)
    slow, quick, other = (
        bench.timed(key, *(mean_s * share for share in noisy))
        for key, mean_s in (("slow", 0.2), ("quick", 0.02), ("other", 0.02))
    )
    bench.run([slow, quick], [other], budget_s=5.0)
    assert len(slow.rounds) < 12
    assert len(quick.rounds) > 30


def test_the_fewest_rounds_count_as_time(bench: Bench) -> None:
    dear, cheap = bench.timed("dear", 0.1, 0.2), bench.timed("cheap", *NOISY)
    bench.run([dear], [cheap], budget_s=1.5)
    assert len(dear.rounds) == FEWEST_ROUNDS
    assert len(cheap.rounds) > 3 * MIN_ROUNDS


def test_long_trials_are_settled_with_fewer(bench: Bench) -> None:
    subject = bench.timed("a", module.MIN_ROUNDS_S / 20)
    bench.run([subject])
    assert 20 <= len(subject.rounds) <= 30


def test_a_series_is_summarised_a_few_times_for_many_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    summarise = stats.summarise

    def counted(seconds: Sequence[float]) -> Summary:
        counts.append(len(seconds))
        return summarise(seconds)

    monkeypatch.setattr(stats, "summarise", counted)
    bench = Bench()
    bench.run([bench.timed("a", *NOISY)], budget_s=1e6)
    assert counts[-1] > 0.8 * module.MAX_ROUNDS
    assert len(counts) < 30


def test_invalid_trials_are_replaced_after_the_deadline(bench: Bench) -> None:
    anchor, steady = bench.timed("anchor"), bench.timed("steady", anchor="anchor")
    shaky = Shaky("shaky", bench.clock, log=bench.log, anchor="anchor", invalid_rounds=4)
    (group,) = bench.run([anchor, steady, shaky], budget_s=0.0)
    assert [len(each.valid_times("h2d")) for each in group.series] == [FEWEST_ROUNDS + 4, FEWEST_ROUNDS, FEWEST_ROUNDS]


@pytest.mark.parametrize(("trial_s", "valid"), [(1e-3, FEWEST_ROUNDS), (0.1, 2)])
def test_a_quick_subject_with_some_valid_trials_is_tried_longer(bench: Bench, trial_s: float, valid: int) -> None:
    subject = Rare("a", bench.clock, (trial_s,), log=bench.log, valid_every=8)
    (group,) = bench.run([subject], budget_s=0.0)
    assert len(group.series[0].valid_times("h2d")) == valid


def test_a_subject_without_a_valid_trial_is_given_up(bench: Bench) -> None:
    subject = bench.timed("a", invalid="late")
    bench.run([subject], budget_s=0.0)
    assert len(subject.rounds) == module.RETRIES * FEWEST_ROUNDS


def test_fewest_rounds_can_be_lowered(bench: Bench) -> None:
    subject = bench.timed("a", 1.0)
    bench.run([subject], budget_s=0.5, fewest_rounds=1)
    assert len(subject.rounds) == 1


@pytest.mark.parametrize("anchor", [None, "failing"])
def test_a_failed_subject_does_not_stop_the_others(bench: Bench, anchor: str | None) -> None:
    error = CudaError(1, "cudaErrorInvalidValue", "cudaMemcpyAsync", "csrc/x.cpp:1", "invalid argument", "")
    failing, other = bench.failing("failing", error, good_trials=2), bench.timed("other", anchor=anchor)
    (group,) = bench.run([failing, other])
    assert group.series[0].failure == "cudaMemcpyAsync failed with cudaErrorInvalidValue (1): invalid argument."
    assert len(group.series[0].trials["h2d"]) == 2
    assert len(failing.rounds) == 3
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
def test_a_fatal_error_is_raised_unchanged(bench: Bench, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        bench.run([bench.timed("a"), bench.failing("b", error, good_trials=3)])
    assert caught.value is error


def test_a_cancelled_run_ends_before_the_next_trial(bench: Bench) -> None:
    with pytest.raises(CancelledError):
        bench.run([bench.timed("a", *NOISY)], cancelled=lambda: len(bench.log) >= 5)
    assert len(bench.log) == 5


def test_invalid_trials_do_not_settle_a_subject(bench: Bench) -> None:
    subject = bench.timed("a", invalid="the gate timed out")
    bench.run([subject], budget_s=0.5)
    assert len(subject.rounds) > 2 * MIN_ROUNDS


def test_progress_grows_and_ends_at_1(bench: Bench) -> None:
    heard: list[Progress] = []
    bench.run([bench.timed("a")], [bench.timed("b", *NOISY)], budget_s=0.3, on_progress=heard.append)
    done = [progress.done for progress in heard]
    assert done == sorted(done)
    assert 0 < done[0] < 1
    assert done[-1] == 1.0
    assert heard[-1].text == "1 of 2 results precise"


# The first: 0.1 s once, and three times 10 ms and twice the 1.5 ms of a trial.
@pytest.mark.parametrize(
    ("reserve", "seconds"), [(Reserve(3, 0.1, 0.01, 0.5), 0.139), (Reserve(999, 0, 1, 0.15), 0.15)]
)
def test_the_reserve_is_estimated_by_trials_and_has_a_limit(bench: Bench, reserve: Reserve, seconds: float) -> None:
    bench.run([bench.timed("a", *NOISY)], budget_s=1.0, reserve=reserve)
    assert bench.clock() == pytest.approx(1.0 - seconds, abs=3e-3)
