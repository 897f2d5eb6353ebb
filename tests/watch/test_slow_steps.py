"""Steps far beyond the others are reported separately, and are not in the figures of usual steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch.windows import H2D, LOADER, Script, activity_of, analysed, flat, make_window, steps_at

from pyxfer._document import codec
from pyxfer._document.machines import Remark
from pyxfer._document.watches import FIRST_STEPS, Advice, Parts, SlowSteps, Watched
from pyxfer._watch.parts import warming_up
from pyxfer._watch.step_tracking import Step

MADE, SENT, COMPUTED = 4_000, 1_000, 15_000
STEP = MADE + SENT + COMPUTED
NBYTES = 10_000_000


def loop(
    made: Sequence[float],
    computed: Mapping[int, float] | None = None,
    logged: Mapping[int, float] | None = None,
    recorded: bool = True,
) -> Watched:
    """A step for each of these times to make its input, which is sent; the host waits while the device computes."""
    script, time, spans = Script(), 0.0, []
    for turn, making in enumerate(made):
        begin = time + making
        send = ("cudaMemcpyAsync", begin, begin + SENT)
        script.copy(H2D, begin, begin + SENT, nbytes=NBYTES, pageable=True, call=send)
        end = begin + SENT + (computed or {}).get(turn, COMPUTED)
        script.kernel(begin + SENT, end)
        script.call("cudaStreamSynchronize", begin + SENT, end)
        spans.append((time, begin, end + (logged or {}).get(turn, 0)))
        time = spans[-1][-1]
    return analysed(make_window(script if recorded else None, time, steps_at(*spans)), flat(50.0))


def one_by_one(*lengths: float, **given: int) -> tuple[Step, ...]:
    """Steps of these lengths, each begun where the one before it ended."""
    ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
    return steps_at(*((end - took, end - took, end) for end, took in zip(ends, lengths, strict=True)), **given)


def taking(*lengths: float) -> Watched:
    """Steps of these lengths, of the host alone."""
    return analysed(make_window(None, sum(lengths), one_by_one(*lengths)))


def taking_in_two(own: Sequence[float], other: Sequence[float]) -> Watched:
    """Steps of these lengths in two threads, in the order in which they end."""
    steps = (*one_by_one(*own), *one_by_one(*other, thread=LOADER))
    return analysed(make_window(None, max(sum(own), sum(other)), sorted(steps, key=lambda step: step.end_ns)))


def slow_of(watched: Watched) -> SlowSteps:
    assert watched.steps.slow is not None
    return watched.steps.slow


def remarks_of(watched: Watched) -> dict[str, Remark]:
    """On first and slow steps, by code."""
    return {remark.code: remark for remark in watched.remarks if remark.code in (FIRST_STEPS, "slow-steps")}


def gains(watched: Watched) -> dict[str, Advice]:
    return {row.code: row for row in watched.advice}


def nearly(parts: Parts, others: Parts) -> bool:
    pairs = zip(parts.named(), others.named(), strict=True)
    return all(name == other and math.isclose(s, o, abs_tol=1e-12) for (name, s), (other, o) in pairs)


def test_the_cost_of_slow_steps_is_their_time_beyond_as_many_usual_steps() -> None:
    slow = slow_of(taking(*[1_000] * 18, 5_000, 2_000))
    assert (slow.count, slow.more_s) == pytest.approx((2, 5e-3))
    assert slow.share == pytest.approx(5 / 25)


@pytest.mark.parametrize("steps", [8, 9, 13, 20, 41])
def test_alternating_modes_periodic_long_steps_and_a_steady_drift_have_no_slow_step(steps: int) -> None:
    assert taking(*([1_000, 3_000] * 21)[:steps]).steps.slow is None
    assert taking(*(1_000 + 100 * turn for turn in range(steps))).steps.slow is None
    for turns, first in [*((turns, 0) for turns in range(2, 7)), (4, 1), (4, 2), (4, 3)]:
        periodic = (30_000 if (first + step) % turns == 0 else 5_000 for step in range(steps))
        assert taking(*periodic).steps.slow is None, (turns, first)


@pytest.mark.parametrize(
    ("usual", "slow", "count"),
    [
        # Fewer than eight steps have no slow one but the first.
        ([1_000] * 6 + [100_000], [1_000] * 7 + [100_000], 1),
        # Among equal steps one is slow from five percent more on.
        ([1_000] * 20 + [1_049], [1_000] * 20 + [1_051], 1),
        # A step up to the far out fence of the quartiles is usual.
        ([1_000] * 4 + [1_100] * 4 + [1_400], [1_000] * 4 + [1_100] * 4 + [1_401], 1),
        # At most three in twenty are slow.
        ([1_000] * 16 + [9_000] * 4, [1_000] * 17 + [9_000] * 3, 3),
    ],
)
def test_a_few_steps_beyond_many_others_are_slow(usual: list[int], slow: list[int], count: int) -> None:
    assert taking(*usual).steps.slow is None
    assert slow_of(taking(*slow)).count == count


def test_steps_are_not_slow_if_only_those_of_another_thread_are_shorter() -> None:
    assert taking_in_two([5_000] * 40, [100_000] * 2).steps.slow is None
    assert taking_in_two([5_000] * 40, [30_000] * 6).steps.slow is None


def test_a_step_is_compared_with_those_of_its_thread() -> None:
    watched = taking_in_two([1_000] * 19 + [4_000], [10_000] * 20)
    slow = slow_of(watched)
    assert (slow.count, slow.longest_s, slow.more_s) == pytest.approx((1, 4e-3, 3e-3))
    assert slow.share == pytest.approx(3 / 223)


def test_the_main_part_of_slow_steps_is_found_among_steps_of_their_thread() -> None:
    """The other thread's usual steps make their input for longer than the slow step does."""
    own = [(1_000 * step, 1_000 * step + 200, 1_000 * step + 1_000) for step in range(19)]
    other = [(10_000 * step, 10_000 * step + 9_000, 10_000 * step + 10_000) for step in range(20)]
    steps = (*steps_at(*own, (19_000, 22_200, 23_000)), *steps_at(*other, thread=LOADER))
    assert slow_of(analysed(make_window(None, 200_000, steps))).mostly == "input"


@settings(deadline=None)
@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=30), st.lists(st.integers(1, 10_000), max_size=30))
def test_watches_of_two_threads_can_be_saved_and_loaded(own: list[int], other: list[int]) -> None:
    watched = taking_in_two([*own, *[50_000] * (len(own) // 8)], other)
    assert codec.decode(Watched, codec.encode(watched)) == watched


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60))
def test_at_most_three_of_twenty_steps_are_slow_and_they_are_the_longest(lengths: list[int]) -> None:
    watched = taking(*lengths)
    slow = {step.parts.period_s for step in watched.steps.each if step.slow}
    usual = {step.parts.period_s for step in watched.steps.each if not step.slow}
    first = int(warming_up(np.array(lengths, np.float64)).sum())
    assert 20 * (watched.steps.watched - watched.steps.usual - first) <= 3 * len(lengths)
    assert not slow or min(slow) > max(usual)


@pytest.mark.parametrize(
    ("lengths", "left_out"),
    [
        ([3_630, 320, 300], [1]),
        ([2_010, 1_000], [1]),
        ([2_000, 1_000], []),
        ([1_000], []),
        ([1_000, 3_000], []),  # nothing says that the steps after it are short
        ([3_630, 3_000, 300], [1, 2]),
        ([3_630, 3_000, 300, 310], [1, 2]),
        ([300, 3_600, 310, 290, 300], [2]),  # compiled in the second
        ([5_000, 30_000, 5_000], []),  # perhaps every second one
        ([3_000, 2_900, 2_800, 300, 310, 320], [1, 2, 3]),
        ([3_000] * 4 + [300] * 4, []),  # a phase of the program
        ([2_100, *[1_000] * 999], [1]),
        ([9_000, 1_000, 1_000, 8_000, 1_000], []),  # it comes again
        ([9_000, 1_000, 1_000, 7_000, 1_000], [1]),
        ([30_000, 5_000, 5_000, 5_000] * 2, []),
    ],
)
def test_first_steps_of_twice_the_others_are_left_out_at_any_count(lengths: list[float], left_out: list[int]) -> None:
    watched = taking(*lengths)
    assert [step.number for step in watched.steps.each if step.slow] == left_out
    usual = [took for number, took in enumerate(lengths, start=1) if number not in left_out]
    assert watched.parts.period_s == pytest.approx(sum(usual) / len(usual) * 1e-6)
    assert codec.decode(Watched, codec.encode(watched)) == watched


def test_each_thread_warms_up_by_itself_and_steps_that_stall_later_are_slow_beside_a_first_one() -> None:
    watched = taking_in_two([5_000, 1_000, 1_000], [100_000, 90_000])
    assert [step.parts.period_s for step in watched.steps.each if step.slow] == pytest.approx([5e-3])
    watched = taking(9_000, *[1_000] * 8, 5_000)
    assert [step.number for step in watched.steps.each if step.slow] == [1, 10]
    assert list(remarks_of(watched)) == [FIRST_STEPS, "slow-steps"]


@pytest.mark.parametrize(
    ("unchanged", "skipped", "lengths", "fix"),
    [
        (True, 0, [9_000, 1_000, 1_000], "--skip 1"),
        (True, 5, [9_000, 8_000, 1_000, 1_000], "--skip 7"),
        (False, 0, [9_000, 1_000, 1_000], "call pyxfer.watch with skip=1"),
        (False, 2, [9_000, 1_000], "call pyxfer.watch with skip=3 and more steps"),
    ],
)
def test_the_fix_for_first_steps_skips_them(unchanged: bool, skipped: int, lengths: list[float], fix: str) -> None:
    window = make_window(None, sum(lengths), one_by_one(*lengths), skipped=skipped)
    watched = analysed(window, flat(None), unchanged=unchanged)
    assert {code: remark.fix for code, remark in remarks_of(watched).items()} == {FIRST_STEPS: fix}


@pytest.mark.parametrize(
    "stall",
    [
        lambda: loop([*[MADE] * 39, MADE + 50_000]),
        lambda: loop([MADE] * 40, computed={17: COMPUTED + 50_000}),
        lambda: loop([MADE] * 40, logged={0: 50_000}),
    ],
    ids=["input", "kernels", "host"],
)
def test_one_slow_step_changes_neither_the_parts_nor_the_predictions(stall: Callable[[], Watched]) -> None:
    even, stalled = loop([MADE] * 40), stall()
    assert slow_of(stalled).count == 1
    assert nearly(stalled.parts, even.parts)
    assert stalled.verdict == even.verdict
    assert gains(stalled).keys() == gains(even).keys() >= {"pin-and-prefetch", "pin"}
    for code, expected in gains(even).items():
        found = gains(stalled)[code]
        assert found.gain_s == pytest.approx(expected.gain_s, rel=1e-9)
        assert (found.text, found.worked_out) == (expected.text, expected.worked_out)
    for name in ("between_s", "inside_s", "waiting_s"):
        assert getattr(stalled.steps, name) == pytest.approx(getattr(even.steps, name), rel=1e-9)


def test_the_advice_on_waits_names_a_call_of_the_usual_steps() -> None:
    script = Script()
    for turn in range(20):
        begin = turn * STEP
        script.kernel(begin + 5_000, begin + 6_000)
        script.call("cudaStreamSynchronize", begin, begin + 6_000)
    script.call("cudaDeviceSynchronize", 20 * STEP + 10, 40 * STEP)
    watched = analysed(make_window(script, 40 * STEP, one_by_one(*[STEP] * 20, 20 * STEP)))
    assert [row.call for row in activity_of(watched).surprises] == ["cudaDeviceSynchronize", "cudaStreamSynchronize"]
    assert gains(watched)["waits"].text.startswith("Do not wait in every step (cudaStreamSynchronize):")


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=8, max_size=20), st.lists(st.integers(1, 300), max_size=5))
def test_the_parts_of_the_usual_steps_sum_to_their_mean_period(usual: list[int], more: list[int]) -> None:
    watched = loop([*usual, *(60_000 * making for making in more)])
    assert sum(seconds for _, seconds in watched.parts.named()) == pytest.approx(watched.parts.period_s, rel=1e-12)
    periods = [step.parts.period_s for step in watched.steps.each if not step.slow]
    assert len(periods) == watched.steps.usual
    assert watched.parts.period_s == pytest.approx(sum(periods) / len(periods), rel=1e-12)
    whole = sum(step.parts.period_s for step in watched.steps.each)
    more_s = 0.0 if watched.steps.slow is None else watched.steps.slow.more_s
    assert whole == pytest.approx(len(watched.steps.each) * watched.parts.period_s + more_s, rel=1e-12)


@pytest.mark.parametrize(
    ("slow", "mostly"),
    [
        (lambda: loop([MADE] * 9 + [50_000]), "input"),
        (lambda: loop([MADE] * 10, {3: 90_000}), "kernels"),
        (lambda: loop([MADE] * 9 + [50_000], recorded=False), "input"),
        (lambda: loop([MADE] * 10, {3: 90_000}, recorded=False), "host"),
        (lambda: loop([MADE] * 9 + [MADE + 30_000], {9: COMPUTED + 30_000}, {9: 30_000}), None),
        (lambda: taking(*[1_000] * 9, 5_000), None),
    ],
    ids=["input", "kernels", "between", "inside", "thirds", "of one part"],
)
def test_the_main_part_of_slow_steps_has_more_than_half_of_their_cost(slow: Callable[[], Watched], mostly: str) -> None:
    assert slow_of(slow()).mostly == mostly


def test_slow_steps_that_cost_five_percent_get_a_remark_with_a_fix_if_they_are_slow_in_input() -> None:
    assert remarks_of(loop([MADE] * 39 + [MADE + 50_000]))["slow-steps"].fix is not None
    assert remarks_of(loop([MADE] * 40, {3: COMPUTED + 90_000}))["slow-steps"].fix is None
    little = loop([MADE] * 39 + [MADE + 30_000])
    assert slow_of(little).share < 0.05
    assert remarks_of(little) == {}
