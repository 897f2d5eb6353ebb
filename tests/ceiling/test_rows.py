from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from measure.fakes import Clock, Timed
from samples import known, make_link, make_measurement, make_run, retimed
from tracing.captures import copy, traced

from pyxfer._ceiling.derived import derive_run, derived_row
from pyxfer._ceiling.plans import CopyPlan
from pyxfer._ceiling.rows import NO_TRIAL, Assembler, Item, ceiling_share, credible_rate, curves, raw_head, share_remark
from pyxfer._document.machines import Fact, Link, Side, unknown
from pyxfer._document.runs import Trial
from pyxfer._measure import stats
from pyxfer._measure.doubts import QUIETER
from pyxfer._measure.sampler import Series
from pyxfer._trace.records import MemoryKind

KIB, MIB = 1024, 1024**2
PINNED = CopyPlan("h2d", "pinned", "async")
PAGEABLE = CopyPlan("h2d", "pageable", "memcpy")
STAGED = CopyPlan("h2d", "pageable", "staged")
BOTH = CopyPlan("both", "pinned", "async")
# 16 MiB in 400 us: 41.9 GB/s, below the 58.45 of the link.
SECONDS = [400e-6] * 10


def collected(
    plan: CopyPlan, seconds: Sequence[float] = SECONDS, *, sides: Sequence[Side] = ("h2d",), invalid: str | None = None
) -> Any:
    series = Series(Timed(plan.key, Clock()))
    for index, each in enumerate(seconds):
        series.add({side: Trial(index, each, each / 10, each, invalid=invalid) for side in sides})
    return Item(raw_head(plan), 16 * MIB, series=series, verified=Fact(True), first_s=Fact(1e-3))


def assembled(*found: Item[CopyPlan], link: Link | None = None, precision: float = 0.005) -> Any:
    return Assembler(link or make_link(), precision, 7.0).measurements(found)


def test_a_measurement_has_the_description_of_its_item() -> None:
    (made,) = assembled(collected(PINNED))
    assert (made.route, made.direction, made.side) == ("raw.pinned-async", "h2d", "h2d")
    assert (made.memory, made.mode) == ("pinned", "async")
    assert made.gbps == pytest.approx(16 * MIB / 400e-6 / 1e9)
    assert made.of_peak == pytest.approx(16 * MIB / 400e-6 / 1e9 / 58.45, rel=1e-4)
    assert made.dispatch_s == pytest.approx(40e-6)
    assert made.wall_s == pytest.approx(400e-6)
    assert made.first_s == Fact(1e-3)
    assert len(made.trials) == 10


@pytest.mark.parametrize(
    ("plan", "bracket"),
    [
        (PINNED, "gated"),
        (PAGEABLE, "drained"),
        (CopyPlan("h2d", "pinned", "memcpy"), "drained"),
        (CopyPlan("h2d", "pageable", "async"), "stream"),
        (BOTH, "gated"),
        (CopyPlan("both", "pageable", "async"), "stream"),
        (CopyPlan("d2h", "pageable", "staged"), "drained"),
    ],
)
def test_a_measurement_names_its_bracket(plan: CopyPlan, bracket: str) -> None:
    assert assembled(Item(raw_head(plan), MIB))[0].bracket == bracket


def test_both_ways_at_once_are_three_measurements() -> None:
    h2d, d2h, both = assembled(collected(BOTH, sides=("h2d", "d2h", "sum")))
    assert [h2d.side, d2h.side, both.side] == ["h2d", "d2h", "sum"]
    assert {made.direction for made in (h2d, d2h, both)} == {"both"}
    assert [h2d.moved_bytes, d2h.moved_bytes, both.moved_bytes] == [16 * MIB, 16 * MIB, 32 * MIB]
    assert both.of_peak == pytest.approx(32 * MIB / 400e-6 / 1e9 / (58.45 + 57.61), rel=1e-4)


@pytest.mark.parametrize("seconds", [284e-6, 100e-6, 1e-9])
def test_a_bandwidth_above_the_protocol_peak_is_rejected(seconds: float) -> None:
    (made,) = assembled(collected(PINNED, [seconds] * 10))
    assert (made.gbps, made.of_peak, made.of_ceiling) == (None, None, None)
    assert "would be above the link's peak of 58.4" in made.rate.reason
    assert made.summary is not None


def test_a_bandwidth_above_the_peak_by_less_than_the_clock_may_be_off_is_given() -> None:
    (made,) = assembled(collected(PINNED, [286.9e-6] * 10))
    assert made.gbps == pytest.approx(58.48, abs=0.01)
    assert (made.of_peak or 0.0) > 1.0


def test_a_bandwidth_above_the_raw_peak_is_rejected() -> None:
    link = make_link(h2d_peak_gbps=unknown("MaxPayload is not readable"))
    (slow,) = assembled(collected(PINNED, [270e-6] * 10), link=link)
    assert slow.gbps == pytest.approx(62.1, abs=0.1)
    assert slow.peak_share.reason == "MaxPayload is not readable"
    (fast,) = assembled(collected(PINNED, [260e-6] * 10), link=link)
    assert fast.gbps is None


def test_without_any_peak_there_is_a_bandwidth_and_no_share() -> None:
    none: Fact[float] = unknown("host memory, not a PCIe link")
    link = make_link(raw_peak_gbps=none, h2d_peak_gbps=none, d2h_peak_gbps=none)
    (made,) = assembled(collected(PINNED, [1e-6] * 10), link=link)
    assert made.gbps is not None
    assert made.peak_share.reason == "host memory, not a PCIe link"


def test_times_below_the_clocks_resolution_give_no_bandwidth() -> None:
    rate = credible_rate(4096, stats.summarise([0.0] * 10), None)
    assert rate.reason == "half of the trials are shorter than the event clock's resolution: time a larger size"


def test_the_ceiling_is_the_best_of_the_same_direction_and_size() -> None:
    pinned, pageable = assembled(collected(PINNED), collected(PAGEABLE, [800e-6] * 10))
    assert (pinned.of_ceiling, pageable.of_ceiling) == (1.0, 0.5)


def test_shares_are_computed_within_rounds() -> None:
    drifting = [400e-6 * (1 + index / 10) for index in range(10)]
    _, pageable = assembled(collected(PINNED, drifting), collected(PAGEABLE, [2 * each for each in drifting]))
    assert pageable.ceiling_share.value.value == pytest.approx(0.5)
    assert pageable.ceiling_share.value.low == pytest.approx(0.5)


def test_only_common_rounds_count() -> None:
    ceiling = [Trial(0, 1.0), Trial(1, 3.0, invalid="late"), Trial(2, 1.0), Trial(3, 0.0)]
    mine = [Trial(1, 4.0), Trial(2, 2.0), Trial(3, 1.0), Trial(4, 1.0)]
    rate = Fact(stats.rate(1, stats.summarise([1.0])))
    share = known(ceiling_share(mine, ceiling, rate))
    assert (share.value, share.low) == (0.5, None)
    assert ceiling_share(mine[:1], ceiling, rate).reason == "no round has a valid trial of this and of the ceiling"
    assert ceiling_share(mine, None, rate).value is None


def test_a_row_keeps_the_share_of_its_own_ceiling_beside_a_reference_with_the_same_ratio() -> None:
    """Clocks have ticks, so two references may have equal medians and different spreads, in either order."""
    seconds = [400e-6, 404e-6, 396e-6] * 4
    other = [
        time_s * factor for time_s, factor in zip(seconds, [1.1, 1.1, 1.1, 0.9, 0.9, 0.9] + [1.0] * 6, strict=True)
    ]
    pinned, pageable = assembled(collected(PINNED, seconds), collected(PAGEABLE, [2 * each for each in seconds]))
    (reference,) = assembled(collected(PINNED, other))
    for row in (pinned, pageable):
        for references in ((pinned, reference), (reference, pinned)):
            assert derived_row(row, make_link(), references).ceiling_share == row.ceiling_share


def test_the_ceiling_of_a_row_is_of_its_own_worker() -> None:
    own, other = (make_measurement(worker=name) for name in ("jax", "torch"))
    slower = retimed(other, [trial.elapsed_s * (1 + 0.01 * (trial.round % 3 - 1)) for trial in own.trials])
    alone = derive_run(make_run(measurements=(own,))).measurements[0]
    beside = derive_run(make_run(measurements=(slower, own))).measurements[1]
    assert beside.ceiling_share == alone.ceiling_share


def shared(own: list[float], ceiling: list[float], first: int = 0) -> list[str]:
    """The codes of the remarks on the share of a row whose first round is `first`."""
    mine = [Trial(first + index, seconds) for index, seconds in enumerate(own)]
    best = [Trial(index, seconds) for index, seconds in enumerate(ceiling)]
    share = ceiling_share(mine, best, Fact(stats.rate(1, stats.summarise(own)))).value
    remark = share_remark(share, stats.summarise(own), mine, best)
    return [] if remark is None else [remark.code]


def test_a_share_that_contradicts_the_medians_or_is_above_its_ceiling_has_a_remark() -> None:
    assert shared([2.0] * 6 + [1.0] * 300, [1.0] * 6) == ["share"]
    assert shared([1.0] * 20, [1.0] * 20 + [0.5] * 300) == ["share"]
    assert shared([2.0] * 3 + [1.0] * 300, [1.0] * 300, first=297) == ["share"], "three rounds have no interval"
    assert shared([2.0] * 20, [1.0] * 30, first=5) == []
    assert shared([1.0] * 10, [1.25] * 10) == ["above-ceiling"]
    assert shared([1.0] * 10, [1.0] * 10) == []
    assert shared([0.8, 1.2] * 5, [1.0] * 10) == [], "the interval holds 100 %"


def test_neither_a_row_that_failed_verification_nor_a_staged_or_fresh_copy_is_a_ceiling() -> None:
    wrong = collected(PINNED, [100e-6] * 10)
    wrong.verified = Fact(False)
    pinned, pageable = assembled(wrong, collected(PAGEABLE))
    assert pinned.rate.reason == "what arrived was not what was sent, so no bandwidth is given"
    assert pageable.of_ceiling == 1.0
    rows = collected(STAGED, [320e-6] * 10), collected(PAGEABLE, [800e-6] * 10), collected(PINNED)
    assert [made.of_ceiling for made in assembled(*rows)] == [1.25, 0.5, 1.0]
    fresh = collected(CopyPlan("d2h", "pageable", "memcpy", "fresh"), [300e-6] * 10, sides=("d2h",))
    warm = collected(CopyPlan("d2h", "pageable", "memcpy"), sides=("d2h",))
    assert [made.of_ceiling for made in assembled(fresh, warm)] == [pytest.approx(4 / 3), 1.0]


@pytest.mark.parametrize("memory", ["pinned", "registered", "write-combined"])
def test_the_ceiling_of_a_staged_copy_is_any_page_locked_memory(memory: Any) -> None:
    staged, _, _ = assembled(
        collected(STAGED, [500e-6] * 10),
        collected(PAGEABLE, [300e-6] * 10),
        collected(CopyPlan("h2d", memory, "async")),
    )
    assert staged.of_ceiling == pytest.approx(0.8)


def test_a_staged_copy_without_a_ceiling_has_a_rate_and_advice() -> None:
    staged, pageable = assembled(collected(STAGED, [500e-6] * 10), collected(PAGEABLE, [800e-6] * 10))
    assert staged.gbps is not None
    assert staged.ceiling_share.reason == (
        "the ceiling of a staged copy is page-locked memory, which was not measured: measure pinned memory too"
    )
    assert pageable.of_ceiling == 1.0


@pytest.mark.parametrize(("met", "codes"), [(MemoryKind.PINNED, []), (MemoryKind.PAGEABLE, ["wrong-memory"])])
def test_a_staged_copy_from_the_wrong_memory_has_a_remark(met: MemoryKind, codes: list[str]) -> None:
    found = collected(STAGED)
    found.evidence["h2d"].add(traced(copy(10, 390, 16 * MIB, memory=met), elapsed_us=400), 400e-6, 16 * MIB)
    (staged,) = assembled(found)
    assert [remark.code for remark in staged.remarks] == codes


@pytest.mark.parametrize(
    ("nbytes", "chunk_bytes", "codes"),
    [
        *[(4 * KIB, None, []), (4 * KIB, 128 * KIB, []), (32 * KIB - 1, 4 * KIB, [])],
        *[(32 * KIB, 4 * KIB, ["wrong-memory"]), (64 * KIB, 64 * KIB, ["wrong-memory"])],
        *[(65 * KIB, 64 * KIB, []), (256 * KIB, 64 * KIB, []), (257 * KIB, 64 * KIB, ["wrong-memory"])],
        *[(MIB, None, []), (MIB + 1, None, ["wrong-memory"])],
    ],
)
def test_a_staged_upload_that_is_left_to_the_driver_may_meet_pageable_memory(
    nbytes: int, chunk_bytes: int | None, codes: list[str]
) -> None:
    found = Item(raw_head(STAGED), nbytes)
    found.evidence["h2d"].add(traced(copy(10, 390, nbytes, memory=MemoryKind.PAGEABLE), elapsed_us=400), 400e-6, nbytes)
    (staged,) = Assembler(make_link(), 0.005, 7.0, chunk_bytes=chunk_bytes).measurements([found])
    assert [remark.code for remark in staged.remarks] == codes


@pytest.mark.parametrize("reason", [None, "the driver is too old"])
def test_an_unmeasured_row_has_the_reason_in_every_fact(reason: str | None) -> None:
    found = collected(PINNED)
    found.series, found.unavailable = None, reason
    (made,) = assembled(found)
    assert {made.rate.reason, made.peak_share.reason, made.ceiling_share.reason} == {reason or NO_TRIAL}
    assert (made.summary, made.trials) == (None, ())


def test_a_route_that_failed_later_keeps_its_trials_with_a_remark() -> None:
    found = collected(PINNED)
    found.series.failure = "cudaMemcpyAsync failed"
    (made,) = assembled(found)
    assert made.gbps is not None
    assert [remark.text for remark in made.remarks] == ["it ended early: cudaMemcpyAsync failed"]


def test_invalid_trials_are_kept_with_a_remark_or_if_all_are_with_the_reason() -> None:
    found = collected(PINNED)
    found.series.add({"h2d": Trial(10, 1e-6, invalid="the gate timed out")})
    (made,) = assembled(found)
    assert (len(made.trials), made.summary.n, made.summary.min_s) == (11, 10, 400e-6)
    assert [remark.code for remark in made.remarks] == ["invalid-trials"]
    assert made.remarks[0].text.endswith("of the trials were not used: the gate timed out")
    (made,) = assembled(collected(PINNED, invalid="the gate timed out"))
    assert made.rate.reason == f"no trial was valid: the gate timed out; {QUIETER}"


def test_an_imprecise_row_has_a_remark_with_advice() -> None:
    (made,) = assembled(collected(PINNED, [400e-6 * (1 + 0.004 * (index * 7 % 10)) for index in range(10)]))
    assert [(remark.code, "budget" in remark.fix) for remark in made.remarks] == [("unstable", True)]


def test_each_route_direction_side_and_variant_has_its_own_curve() -> None:
    points = [make_measurement(side=side) for side in ("h2d", "d2h", "sum")] + [make_measurement(variant="fresh")]
    assert [(curve.direction, curve.side, curve.variant) for curve in curves(points)] == [
        ("h2d", "h2d", "warm"),
        ("d2h", "d2h", "warm"),
        ("both", "sum", "warm"),
        ("h2d", "h2d", "fresh"),
    ]
