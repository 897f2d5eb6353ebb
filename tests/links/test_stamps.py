"""From the stamps of the engine to trials, and from rates to shared uplinks and slow links."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

import numpy as np
import pytest
from links.conftest import LINK, NVLINK, Host
from numpy.typing import NDArray

from pyxfer._document.links import HOST_END, LatencyTrial
from pyxfer._links import sharing, traffic
from pyxfer._links.chases import MIN_FOR_P99, LatencySubject, latency_trial
from pyxfer._links.plan import LatencyPlan
from pyxfer._links.rows import Assembler

MS = 1_000_000


def times(*milliseconds: float) -> NDArray[np.int64]:
    return np.asarray([round(each * MS) for each in milliseconds], dtype=np.int64)


@dataclass
class Flow:
    """Stamps as the engine returns them."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    clock_error_ns: float = 0.0
    late: bool = False


def steady(start: float, each: float, count: int, pause: float = 0.0, **more: Any) -> Any:
    """Items of `each` milliseconds, one after the other."""
    begins = [start + number * (each + pause) for number in range(count)]
    return Flow(times(*begins), times(*(begin + each for begin in begins)), **more)


def test_queued_items_are_one_busy_stretch_and_a_long_pause_divides_it() -> None:
    flow = steady(5, 2.0, 10, pause=0.01)
    assert traffic.busy(flow.begin_ns, flow.end_ns).tolist() == [[5 * MS, int(flow.end_ns[-1])]]
    assert traffic.busy(times(0, 1, 5), times(1, 2, 6)).tolist() == [[0, 2 * MS], [5 * MS, 6 * MS]]


@pytest.mark.parametrize(
    ("flows", "overlap"),
    [
        ([(0, 10), (0, 10)], 1.0),
        ([(0, 10), (5, 15)], 5 / 15),
        ([(0, 10), (2, 8)], 0.6),
        ([(0, 10), (10, 20)], 0.0),
        ([(0, 10), (0, 10), (0, 5)], 0.5),
        ([(0, 4, 6, 10), (0, 10)], 0.8),
    ],
)
def test_the_overlap_is_the_intersection_over_the_union(flows: list[tuple[int, ...]], overlap: float) -> None:
    assert traffic.overlap([times(*flow).reshape(-1, 2) for flow in flows]) == pytest.approx(overlap)


def test_bytes_count_in_proportion_at_the_ends_of_the_common_interval() -> None:
    trial = traffic.make_trial(3, [steady(0, 1.0, 100), steady(0.5, 1.0, 100)], [1000, 500])
    assert (trial.round, trial.invalid) == (3, None)
    assert trial.seconds == pytest.approx(0.0995)
    assert trial.nbytes == pytest.approx((99.5 * 1000, 99.5 * 500))
    assert trial.overlap == pytest.approx(99.5 / 100.5)


def test_a_flow_by_itself_has_all_of_its_bytes() -> None:
    trial = traffic.make_trial(0, [steady(7, 2.0, 5, pause=0.1)], [100])
    assert (trial.seconds, *trial.nbytes, trial.overlap) == pytest.approx((0.0104, 500.0, 1.0))


@pytest.mark.parametrize("apart", [0.04, 0.06, 0.5])
def test_a_trial_counts_from_an_overlap_of_95_percent_on(apart: float) -> None:
    # Of two equal stretches that are shifted by a share s of their length, (1 - s)/(1 + s) is common.
    shift = 100 * apart / (2 - apart)
    trial = traffic.make_trial(0, [steady(0, 1.0, 100), steady(shift, 1.0, 100)], [1, 1])
    assert trial.overlap == pytest.approx(1 - apart, abs=1e-6)
    assert (trial.invalid is None) == (apart < 0.05)


def test_flows_that_never_run_at_once_have_no_bytes() -> None:
    trial = traffic.make_trial(0, [steady(0, 1.0, 10), steady(20, 1.0, 10)], [1, 1])
    assert (trial.seconds, trial.nbytes, trial.overlap) == (0.0, (0.0, 0.0), 0.0)
    assert trial.invalid is not None


def test_a_late_gate_and_a_flow_without_copies_and_loose_clocks_are_invalid() -> None:
    fine = steady(0, 1.0, 100)
    for other in (
        steady(0, 1.0, 100, late=True),
        cast("Any", Flow(times(), times())),
        steady(0, 1.0, 100, clock_error_ns=2 * MS),
    ):
        assert traffic.make_trial(0, [fine, other], [1, 1]).invalid is not None
    assert traffic.make_trial(0, [steady(0, 1.0, 100, clock_error_ns=2 * MS)], [1]).invalid is None


@pytest.mark.parametrize("seed", range(20))
def test_the_rates_of_flows_at_random_are_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    flows, rates = [], []
    for _ in range(4):
        each = random.uniform(0.5, 2.0)
        flows.append(steady(random.uniform(0, 1.0), each, round(200 / each)))
        rates.append(1 / each)
    trial = traffic.make_trial(0, flows, [MS] * 4)
    assert trial.invalid is None
    found = np.asarray(trial.nbytes) / trial.seconds / 1e9
    assert found == pytest.approx(rates, rel=1e-3)


@pytest.mark.parametrize(("item_s", "seconds"), [(0.001, 0.02), (0.005, 0.06), (0.02, 0.1), (0.1, 0.3), (0.9, 2.0)])
def test_a_trial_is_long_against_its_items_or_the_time_in_which_they_stop(item_s: float, seconds: float) -> None:
    assert traffic.trial_seconds([item_s], 4) == pytest.approx(seconds)
    assert traffic.trial_seconds([0.001, 0.003], 2) == pytest.approx(2 * 0.003 / 0.03)


HOPS = 16


@dataclass
class Chase:
    """Stamps of launches, one after the other, as the engine returns them."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kernel_ns: NDArray[np.float64]
    cycles: NDArray[np.int64]
    multiprocessor: NDArray[np.int32]
    clock_error_ns: float = 0.0
    late: bool = False


def chase(launch_ns: Any, tick_ns: float = 1.0, start_ns: int = 0, late: bool = False) -> Any:
    """Launches of these lengths on a clock that ticks each `tick_ns`; two cycles are a nanosecond."""
    exact = np.asarray(launch_ns, dtype=np.float64)
    ends = start_ns + np.cumsum(exact).astype(np.int64)
    begins = ends - exact.astype(np.int64)
    shown = np.floor(ends / tick_ns) * tick_ns - np.floor(begins / tick_ns) * tick_ns
    return Chase(begins, ends, shown, (2 * exact).astype(np.int64), np.zeros(exact.size, dtype=np.int32), late=late)


def load(start_ns: int, each_ns: int, count: int) -> Any:
    begins = start_ns + each_ns * np.arange(count, dtype=np.int64)
    return Chase(begins, begins + each_ns, np.empty(0), np.empty(0, np.int64), np.empty(0, np.int32))


def test_the_quantiles_are_of_launches_divided_by_their_loads() -> None:
    lengths = np.concatenate((np.full(980, 16_000.0), np.full(20, 48_000.0)))
    trial = latency_trial(4, [chase(lengths)], HOPS, 0)
    assert (trial.round, trial.launches, trial.invalid, trial.load_gbps) == (4, 1000, None, None)
    assert trial.p50_ns == pytest.approx(1000)
    assert trial.p99_ns == pytest.approx(3000)


def test_a_coarse_clock_of_nanoseconds_makes_no_steps() -> None:
    lengths = np.random.default_rng(1).normal(18_900.0, 300.0, 2000)
    trial = latency_trial(0, [chase(lengths, tick_ns=1024.0)], HOPS, 0)
    assert trial.p50_ns == pytest.approx(18_900 / HOPS, rel=2e-3)
    assert trial.p99_ns == pytest.approx((18_900 + 2.33 * 300) / HOPS, rel=5e-3)


def ramp(launches: int, hz: tuple[float, float], seed: int = 2) -> Any:
    """Launches of 19 us on a clock of cycles that ramps while they run."""
    found = chase(np.random.default_rng(seed).normal(19_000.0, 50.0, launches), tick_ns=1024.0)
    found.cycles = (19_000.0 * np.linspace(*hz, launches) / 1e9).astype(np.int64)
    return found


def test_a_ramp_of_the_clock_is_no_p99() -> None:
    slow = latency_trial(0, [ramp(1300, (1.96e9, 1.98e9))], HOPS, 0)
    assert slow.invalid is None
    assert slow.p99_ns == pytest.approx(slow.p50_ns, rel=0.005)
    quick = latency_trial(0, [ramp(1300, (1.2e9, 1.98e9))], HOPS, 0)
    assert quick.p99_ns == pytest.approx(quick.p50_ns, rel=0.03)
    assert "clock" in (quick.invalid or "")


def test_long_launches_need_no_cycles() -> None:
    long = chase([3_000_000.0] * 9, tick_ns=1024.0)
    long.cycles = np.linspace(1, 2, 9) * 4_000_000
    trial = latency_trial(0, [long], 4096, 0)
    assert trial.invalid is None
    assert trial.p50_ns == pytest.approx(3_000_000 / 4096, rel=1e-3)


def test_a_p99_of_some_trials_only_is_not_given_beside_a_p50_of_all() -> None:
    plan = LatencyPlan(0, HOST_END, large=False, quick=True, load=0.0)
    subject = LatencySubject(plan, None, 1, lambda _: None, 0)  # type: ignore[arg-type]
    subject.trials = [LatencyTrial(0, 300, 10.0, 12.0, None), LatencyTrial(1, 40, 32.0, None, None)]
    row = Assembler((), (), 0.005, 30.0, None, {}).latency(subject)
    assert row.ns == 21.0
    assert row.p99.value is None
    assert "too few launches" in (row.p99.reason or "")


def test_few_launches_have_no_p99() -> None:
    assert latency_trial(0, [chase([16_000.0] * (MIN_FOR_P99 - 1))], HOPS, 0).p99_ns is None


def test_only_launches_while_the_link_is_busy_count() -> None:
    lengths = [16_000.0] * 500 + [80_000.0] * 100
    trial = latency_trial(0, [chase(lengths), load(8_000_000, 20_000, 400)], HOPS, 1 << 20)
    assert trial.launches == 100
    assert trial.p50_ns == pytest.approx(5000)
    assert trial.load_gbps == pytest.approx((1 << 20) / 20_000)


def test_trials_that_do_not_count_have_the_reason() -> None:
    assert latency_trial(0, [chase([16_000.0] * 9, late=True)], HOPS, 0).invalid is not None
    assert latency_trial(0, [chase([16_000.0] * 9), load(10**9, 1000, 5)], HOPS, 1).invalid is not None
    nowhere = chase([16_000.0] * 9)
    nowhere.multiprocessor -= 1
    assert latency_trial(0, [nowhere], HOPS, 0).launches == 0


SEEDS = range(100)
TWO = [((0, 1, 2, 3), LINK), ((4, 5, 6, 7), LINK)]

FOUR = [((0, 1), 1.5 * LINK), ((2, 3), 1.5 * LINK), ((4, 5), 1.5 * LINK), ((6, 7), 1.5 * LINK)]

SCATTERED = [((0, 5), LINK), ((1, 3, 7), LINK)]


def found(host: Host, seed: int) -> tuple[list[tuple[int, ...]], set[tuple[int, int]], set[tuple[int, int]]]:
    """The groups, the slow pairs and the slow host links of a host."""
    alone = host.alone(seed)
    groups = sharing.groups_of(sharing.losses(alone, host.beside(seed)))
    links = sharing.slow_links({(-1, gpu): rates for gpu, rates in alone.items()})
    return groups, set(sharing.slow_links(host.pair_rates(seed))), set(links)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "groups", "pairs", "links"),
    [
        (Host(uplinks=TWO), [(0, 1, 2, 3), (4, 5, 6, 7)], set(), set()),
        (Host(uplinks=FOUR), [(0, 1), (2, 3), (4, 5), (6, 7)], set(), set()),
        (Host(uplinks=SCATTERED), [(0, 5), (1, 3, 7)], set(), set()),
        (Host(slow={(2, 5): NVLINK / 2, (5, 2): NVLINK / 2}), [], {(2, 5), (5, 2)}, set()),
        (Host(slow={(-1, 3): LINK / 2}), [], set(), {(-1, 3)}),
        (Host(uplinks=[(range(8), 1.6 * LINK)]), [tuple(range(8))], set(), set()),
        (Host(), [], set(), set()),
    ],
    ids=["two-uplinks", "four-uplinks", "scattered", "slow-pair", "x8", "one-uplink", "clean"],
)
def test_what_is_planted_is_found_in_every_one_of_a_hundred_hosts(
    host: Host, groups: list[tuple[int, ...]], pairs: set[tuple[int, int]], links: set[tuple[int, int]]
) -> None:
    wrong = {seed: each for seed in SEEDS if (each := found(host, seed)) != (groups, pairs, links)}
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, 12])
def test_the_stated_error_rate_holds_for_noise_alone(rounds: int) -> None:
    named = 0
    for seed in range(300):
        noise = np.random.default_rng(seed).normal
        alone = {gpu: list(noise(1, 0.05, rounds)) for gpu in range(8)}
        beside = {pair: list(noise(2, 0.07, rounds)) for pair in combinations(range(8), 2)}
        named += any(loss.keeps < loss.bound for loss in sharing.losses(alone, beside, error_rate=0.05).values())
    assert named <= 0.05 * 300 + 3 * np.sqrt(0.05 * 0.95 * 300)


def test_two_gpus_that_share_are_a_group() -> None:
    alone = {0: [54.0, 55.0, 56.0] * 2, 1: [55.0, 54.5, 55.5] * 2}
    assert sharing.groups_of(sharing.losses(alone, {(0, 1): [55.0, 56.0, 54.0] * 2})) == [(0, 1)]


def test_a_loss_without_interest_and_too_few_rounds_name_nothing() -> None:
    alone = dict.fromkeys((0, 1, 2), [50.0] * 6)
    assert sharing.groups_of(sharing.losses(alone, {(0, 1): [97.0] * 6, (0, 2): [100.0] * 6})) == []
    assert sharing.losses({0: [50.0] * 9, 1: [50.0] * 9}, {(0, 1): [50.0] * 5}) == {}
    assert sharing.slow_links({(0, 1): [1.0] * 6, (1, 0): [9.0] * 6}) == {}


def test_one_pair_by_chance_does_not_join_two_groups() -> None:
    lost, kept = sharing.Loss(0.5, 0.95), sharing.Loss(1.0, 0.95)
    groups = [(0, 1, 2, 3), (4, 5, 6, 7)]
    pairs = {
        (one, other): lost if any({one, other} <= set(group) for group in groups) or (one, other) == (3, 4) else kept
        for one, other in combinations(range(8), 2)
    }
    assert sharing.groups_of(pairs) == groups


def test_links_of_which_most_are_slow_have_no_usual_rate() -> None:
    rates = {(0, 1): [100.0] * 6, (1, 2): [50.0] * 6, (2, 3): [20.0] * 6, (3, 0): [10.0] * 6}
    assert sharing.slow_links(rates) == {}
