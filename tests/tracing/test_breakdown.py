"""Functions on intervals, the copies of traced trials, and their breakdown."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import known
from tracing.captures import BEGIN_NS, MIB, call, copy, kernel, record, traced

from pyxfer._document.runs import PartName
from pyxfer._trace import records as module
from pyxfer._trace.breakdown import Crossed, break_down, breakdown_of, crossed, dma_of
from pyxfer._trace.collector import Traced
from pyxfer._trace.records import CopyKind, Kind, MemoryKind, intervals, total_ns

# A MiB at 50 us is 21 GB/s.
CEILING_S = 50e-6


def parts(trial: Traced, ceiling_s: float | None = CEILING_S) -> dict[PartName, Any]:
    """Microseconds by part."""
    breakdown = known(break_down(trial, ceiling_s, MIB))
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
    return {part.name: pytest.approx(part.seconds * 1e6) for part in breakdown.parts}


def through_ring(*records: Any, **options: Any) -> Traced:
    return replace(traced(*records, **options), staged=True)


def slot_copies(*spans: tuple[float, float], kind: CopyKind = CopyKind.H2D) -> list[Any]:
    return [
        copy(begin, end, MIB // len(spans), kind, MemoryKind.PINNED, correlation=7 + number)
        for number, (begin, end) in enumerate(spans)
    ]


FILLED = [call(100, 104, 7), *slot_copies((110, 135), (150, 175))]
EMPTIED = [call(5, 9, 7), *slot_copies((20, 45), (60, 85), kind=CopyKind.D2H)]
QUEUED = copy(20, 70, memory=MemoryKind.PINNED, correlation=7)
D2H = CopyKind.D2H
# Kernels and other copies.
MIXED = [copy(100, 200), copy(300, 400), kernel(350, 500), copy(600, 650, 64, D2H), copy(650, 660, 64, CopyKind.D2D)]

PARTS: dict[str, tuple[Traced, dict[PartName, float]]] = {
    "the driver stages before the engine's first copy and between its copies": (
        traced(call(400, 950, 7), copy(420, 900, correlation=7), returned_us=960),
        {"preparing": 400, "copying": 50, "staging": 450, "returning": 60, "finishing": 40},
    ),
    "a blocking copy of page-locked memory waits for its engine": (
        traced(call(400, 950, 7), copy(420, 470, memory=MemoryKind.PINNED, correlation=7), returned_us=960),
        {"preparing": 400, "waiting": 20, "copying": 50, "returning": 490, "finishing": 40},
    ),
    "a copy back to pageable memory is staged until its call returns": (
        traced(call(5, 90, 7), copy(20, 70, kind=D2H, correlation=7), kind=D2H, returned_us=95),
        {"preparing": 5, "waiting": 15, "copying": 50, "staging": 20, "returning": 5, "finishing": 905},
    ),
    "preparing ends at the outermost call of the copy": (
        traced(call(420, 900, 7), call(400, 950, 7), call(10, 20, 8), copy(430, 900, correlation=7), elapsed_us=950),
        {"preparing": 400, "copying": 50, "staging": 450, "returning": 50},
    ),
    "without a call all time before the copy is preparing": (
        traced(call(400, 950, 8), copy(420, 900, correlation=7)),
        {"preparing": 420, "copying": 50, "staging": 430, "returning": 100},
    ),
    "a call that seems to begin after its copy has no waiting": (
        traced(call(421, 950, 7), copy(420, 900, correlation=7)),
        {"preparing": 420, "copying": 50, "staging": 430, "returning": 100},
    ),
    "kernels and other copies are not gaps": (
        traced(*MIXED, record(Kind.SET, 660, 665), elapsed_us=665),
        {"preparing": 100, "copying": 100, "staging": 100, "gaps": 200, "kernels": 105, "other copies": 60},
    ),
    "simultaneous copies are one interval": (
        traced(copy(0, 100), copy(50, 150), elapsed_us=150),
        {"copying": 100, "staging": 50},
    ),
    "a copy faster than the ceiling has no staging": (traced(copy(0, 40), elapsed_us=40), {"copying": 40}),
    "copying is by the bytes that crossed": (
        traced(copy(0, 900, 4 * MIB), elapsed_us=900),
        {"copying": 200, "staging": 700},
    ),
    "without a copy all time until the return is preparing": (
        traced(kernel(100, 200), returned_us=800),
        {"preparing": 700, "kernels": 100, "finishing": 200},
    ),
    "kernels before the first copy are not preparing": (
        traced(kernel(10, 40), copy(100, 200), elapsed_us=200),
        {"preparing": 70, "kernels": 30, "copying": 50, "staging": 50},
    ),
    "copies during a host route are other copies": (
        traced(copy(100, 200), kind=None),
        {"preparing": 900, "other copies": 100},
    ),
    "returning ends with the last event": (
        traced(copy(0, 900), elapsed_us=1000, returned_us=1200),
        {"copying": 50, "staging": 850, "returning": 100},
    ),
    "a copy slightly outside of the trial is cut": (
        traced(copy(-1, 999), elapsed_us=999),
        {"copying": 50, "staging": 949},
    ),
    "a queued copy returns before it begins": (
        traced(call(5, 9, 7), QUEUED, elapsed_us=80, returned_us=10),
        {"preparing": 5, "waiting": 15, "copying": 50, "finishing": 10},
    ),
    "staging by the driver ends when the call returns": (
        traced(call(5, 9, 7), copy(20, 70, correlation=7), elapsed_us=80, returned_us=10),
        {"preparing": 5, "staging": 4, "waiting": 11, "copying": 50, "finishing": 10},
    ),
    "filling slots is staging, until the first is full and between the copies": (
        through_ring(*FILLED, elapsed_us=190, returned_us=180),
        {"staging": 100 + 15, "waiting": 10, "copying": 50, "returning": 5, "finishing": 10},
    ),
    "filling slots after the call returned is staging": (
        through_ring(*FILLED, elapsed_us=190, returned_us=140),
        {"staging": 100 + 15, "waiting": 10, "copying": 50, "finishing": 15},
    ),
    "time after the last slot is not staging": (
        through_ring(*FILLED, kernel(180, 185), elapsed_us=190, returned_us=190),
        {"staging": 100 + 15, "waiting": 10, "copying": 50, "gaps": 5, "kernels": 5, "returning": 5},
    ),
    "a kernel between two slots is a kernel": (
        through_ring(*FILLED, kernel(138, 148), elapsed_us=190, returned_us=190),
        {"staging": 100 + 5, "waiting": 10, "kernels": 10, "copying": 50, "returning": 15},
    ),
    "slots that are slower than the ceiling are staging too": (
        through_ring(call(10, 12, 7), *slot_copies((10, 45), (45, 80)), elapsed_us=80),
        {"copying": 50, "staging": 10 + 20},
    ),
    "emptying slots is staging": (
        through_ring(*EMPTIED, kind=CopyKind.D2H, elapsed_us=190, returned_us=180),
        {"preparing": 5, "waiting": 15, "copying": 50, "staging": 15 + 95, "finishing": 10},
    ),
}


@pytest.mark.parametrize(("trial", "expected"), PARTS.values(), ids=PARTS)
def test_every_instant_belongs_to_its_part(trial: Traced, expected: dict[PartName, float]) -> None:
    assert parts(trial) == expected


def test_without_a_ceiling_all_copying_is_copying_and_staging_is_that_of_the_call_of_the_outer_copy() -> None:
    assert parts(traced(copy(0, 900), elapsed_us=900), None) == {"copying": 900}
    copies = copy(20, 70, correlation=7), copy(70, 75, 64, correlation=8)
    trial = traced(call(5, 9, 7), call(9, 74, 8), *copies, elapsed_us=75)
    assert parts(trial, None) == {"preparing": 5, "staging": 4, "waiting": 11, "copying": 55}
    copies = copy(20, 40, kind=D2H, correlation=7), copy(40, 70, 64, kind=D2H, correlation=8)
    trial = traced(call(5, 30, 7), call(30, 90, 8), *copies, kind=D2H, elapsed_us=95)
    assert parts(trial, None) == {"preparing": 5, "waiting": 15, "copying": 50, "staging": 20, "returning": 5}


def test_values_of_a_breakdown_are_those_of_one_transfer() -> None:
    trial = traced(*(copy(200 * n, 200 * n + 200) for n in range(7)), elapsed_us=1400, copies=7)
    assert parts(trial) == {"copying": 50, "staging": 150}
    breakdown = known(break_down(trial, CEILING_S, MIB))
    assert (breakdown.faults, breakdown.switches, breakdown.preemptions) == pytest.approx((120 / 7, 4 / 7, 2 / 7))
    assert breakdown.page_bytes == os.sysconf("SC_PAGE_SIZE")
    assert breakdown.dispatch_s == pytest.approx(200e-6)
    assert breakdown.wall_s == pytest.approx(200e-6)


OUTSIDE = "50 % of the copying is outside of the trial: it copies ahead or later, or the clocks of host and device"
LOST = "2 of the device's records were lost, so where the time went is not known"


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        (traced(copy(-50, 50)), OUTSIDE),
        (traced(copy(950, 1050)), OUTSIDE),
        (traced(copy(-0.5, 0.5), error_ns=600), ""),
        (traced(copy(-0.5, 0.5), error_ns=400), "10 % of the copying is outside"),
        (traced(copy(500, 500)), "its copies took no time at all, so the clocks of host and device disagree"),
        (traced(copy(None, None)), "the device gave no time for its copies"),
        (traced(copy(0, 900), drift_ns=20_000), ""),
        (traced(copy(0, 900), drift_ns=50_000), "the clocks of host and device disagree: they moved by 50.0 us"),
        (traced(copy(0, 10), elapsed_us=10, drift_ns=2000, error_ns=900), ""),
        (traced(copy(0, 10), elapsed_us=10, drift_ns=2001, error_ns=900), "the clocks of host and device disagree"),
        *((traced(copy(0, 10), dropped={kind: 2}), LOST) for kind in ("copies", "sets", "kernels", "calls", "unknown")),
    ],
)
def test_a_trial_whose_records_do_not_say_where_the_time_went_has_no_breakdown(trial: Traced, reason: str) -> None:
    found = break_down(trial, CEILING_S, MIB).reason or ""
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(("median_s", "chosen_us"), [(None, 20), (29e-6, 30), (1.0, 30), (12e-6, 10), (0.0, 10)])
def test_a_row_has_the_breakdown_nearest_to_the_median(median_s: float | None, chosen_us: int) -> None:
    trials = [break_down(traced(copy(0, 10), elapsed_us=elapsed_us), CEILING_S, MIB) for elapsed_us in (30, 10, 20)]
    chosen = known(breakdown_of(trials, median_s))
    assert chosen.elapsed_s == pytest.approx(chosen_us * 1e-6)
    assert chosen.trials == 3


def test_trials_without_a_breakdown_are_counted() -> None:
    lost = break_down(traced(dropped={"calls": 1}), CEILING_S, MIB)
    whole = break_down(traced(copy(0, 10)), CEILING_S, MIB)
    chosen = known(breakdown_of([lost, whole], 1.0))
    assert (chosen.trials, chosen.left_out) == (1, 1)
    assert breakdown_of([lost, lost], 1.0) == lost
    apart = break_down(traced(copy(950, 1050)), CEILING_S, MIB)
    reason = breakdown_of([apart, whole, apart], 1.0).reason or ""
    assert reason.startswith("2 of 3 traced trials cannot be broken down: 50 % of the copying")


_moments = st.integers(-200, 1200)
_stretches = st.tuples(_moments, st.integers(1, 400)).map(lambda pair: (pair[0], sum(pair)))


def _some(make: Any) -> st.SearchStrategy[Any]:
    return st.lists(_stretches.map(lambda pair: make(*pair)), max_size=4)


@given(
    copies=_some(lambda begin, end: copy(begin, end, 1 << 16, correlation=7)),
    others=_some(lambda begin, end: copy(begin, end, 64, CopyKind.D2H)),
    kernels=_some(kernel),
    calls=_some(lambda begin, end: call(begin, end, 7)),
    returned_us=st.integers(0, 1200),
    count=st.integers(1, 7),
)
def test_parts_of_any_trial_sum_to_its_time(
    copies: list[Any], others: list[Any], kernels: list[Any], calls: list[Any], returned_us: int, count: int
) -> None:
    records = [*copies, *others, *kernels, *calls]
    trial = traced(*records, returned_us=returned_us, copies=count, error_ns=10**9)
    breakdown = known(break_down(trial, CEILING_S, MIB))
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
    assert breakdown.elapsed_s == pytest.approx(trial.elapsed_s / count, rel=1e-12)
    assert all(part.seconds > 0 for part in breakdown.parts)
    assert len({part.name for part in breakdown.parts}) == len(breakdown.parts)
    assert np.isfinite(breakdown.elapsed_s)


def h2d(trial: Traced) -> Crossed:
    return crossed(trial, CopyKind.H2D)


def test_only_copies_in_the_routes_direction_count_and_simultaneous_ones_once() -> None:
    back = copy(500, 900, 64, CopyKind.D2H, MemoryKind.PINNED)
    trial = traced(copy(100, 300), copy(200, 400), back, kernel(0, 50))
    found = h2d(trial)
    assert (found.nbytes, found.copies) == (2 * MIB, 2)
    assert found.seconds.value == pytest.approx(300e-6)
    assert [*found.memories, *crossed(trial, CopyKind.D2H).memories] == ["pageable", "pinned"]


def test_values_are_those_of_one_transfer() -> None:
    found = h2d(traced(*(copy(100 * n, 100 * n + 50) for n in range(4)), copies=3))
    assert (found.nbytes, found.copies, found.elapsed_s) == pytest.approx((4 * MIB / 3, 4 / 3, 1e-3 / 3))
    assert found.seconds.value == pytest.approx(200e-6 / 3)


def test_a_batch_counts_as_its_copies() -> None:
    batch = copy(0, 10)
    batch["copies"] = 5
    unnamed = copy(10, 20)
    unnamed["copies"] = 0  # an older library does not fill it in
    assert h2d(traced(batch, unnamed)).copies == 6


def test_the_memory_of_a_few_bytes_is_ignored() -> None:
    found = h2d(traced(copy(0, 10), copy(10, 11, 64, memory=MemoryKind.PINNED)))
    assert found.memories == {"pageable"}
    one_percent = h2d(traced(copy(0, 10, 99), copy(10, 20, 1, memory=MemoryKind.PINNED)))
    assert one_percent.memories == {"pageable"}
    halves = h2d(traced(copy(0, 10), copy(10, 20, memory=MemoryKind.PINNED)))
    assert halves.memories == {"pageable", "pinned"}


def test_bytes_of_a_copy_without_times_count() -> None:
    found = h2d(traced(copy(None, None, 4096), copy(10, 20, 4096)))
    assert found.nbytes == 8192
    assert found.seconds.reason == "the device gave no time for 1 of 2 copies"


@pytest.mark.parametrize(("median_s", "chosen_us"), [(None, 20), (300e-6, 30), (90e-6, 10)])
def test_a_row_has_the_copy_time_nearest_to_the_median(median_s: float | None, chosen_us: int) -> None:
    trials = [h2d(traced(copy(0, end), elapsed_us=10 * end)) for end in (30, 10, 20)]
    dma = known(dma_of(trials, median_s))
    assert dma.seconds.value == pytest.approx(chosen_us * 1e-6)
    assert dma.gbps == pytest.approx(MIB / chosen_us / 1e3)
    assert (dma.nbytes, dma.copies, dma.source, dma.trials) == (MIB, 1, "pageable", 3)


def test_different_memories_are_all_named_and_one_trial_without_times_leaves_the_copy_time_unknown() -> None:
    trials = [h2d(traced(copy(0, 10, memory=memory))) for memory in (MemoryKind.PINNED, MemoryKind.PAGEABLE)]
    assert known(dma_of(trials, None)).source == "pageable+pinned"
    dma = known(dma_of([h2d(traced(copy(0, 10))), h2d(traced(copy(None, None)))], None))
    assert (dma.seconds.reason, dma.gbps) == ("the device gave no time for 1 of 1 copies", None)


def test_lost_records_of_copies_leave_the_bytes_unknown_and_others_do_not_matter() -> None:
    lost = [dma_of([h2d(traced(copy(0, 10), dropped={word: 3}))], None).reason for word in ("copies", "unknown")]
    assert lost == ["3 of the device's records were lost, so the bytes that crossed the link are not known"] * 2
    assert known(dma_of([h2d(traced(copy(0, 10), dropped={"calls": 3, "kernels": 9}))], None))


def test_a_trial_without_copies_has_zero_bytes() -> None:
    found = h2d(traced())
    assert found.outside == 0.0
    dma = known(dma_of([found], None))
    assert (dma.nbytes, dma.copies, dma.source, dma.seconds.value, dma.gbps) == (0, 0, "", 0.0, None)
    assert not np.signbit(dma.nbytes)


END = 40
_instants = st.integers(0, END)
stretches = st.lists(st.tuples(_instants, _instants), max_size=8).map(
    lambda pairs: np.array([sorted(pair) for pair in pairs], np.int64).reshape(-1, 2)
)


def moments(of: NDArray[np.int64]) -> set[int]:
    return {moment for begin, end in of.tolist() for moment in range(begin, end)}


@given(stretches, stretches)
def test_union(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    both = module.union(one, other)
    assert moments(both) == moments(one) | moments(other)
    edges: list[int] = both.reshape(-1).tolist()
    assert edges == sorted(set(edges))
    assert total_ns(both) == len(moments(both))


@given(stretches, _instants, _instants)
def test_clip(of: NDArray[np.int64], begin: int, end: int) -> None:
    assert moments(module.clip(of, begin, end)) == moments(of) & set(range(begin, end))


@given(st.lists(stretches, max_size=5), _instants, _instants)
def test_partition_assigns_instants_to_the_first_claim(claims: list[NDArray[np.int64]], begin: int, end: int) -> None:
    expected: Counter[str] = Counter()
    for moment in range(begin, end):
        owners = (str(number) for number, claim in enumerate(claims) if moment in moments(claim))
        expected[next(owners, "")] += 1
    shares = module.partition(begin, max(begin, end), [(str(number), claim) for number, claim in enumerate(claims)])
    assert {name: ns for name, ns in shares.items() if ns} == expected
    assert sum(shares.values()) == max(0, end - begin)
    together = module.partition(begin, max(begin, end), [("any", claim) for claim in claims])
    assert together.get("any", 0) == expected.total() - expected[""]


@given(stretches)
def test_levels(of: NDArray[np.int64]) -> None:
    depths: Counter[int] = Counter()
    for moment in range(END):
        depths[sum(begin <= moment < end for begin, end in of.tolist())] += 1
    assert module.levels(of) == {depth: ns for depth, ns in depths.items() if depth > 0}


def test_records_without_a_time_have_no_interval() -> None:
    records = np.concatenate((kernel(1, 3), kernel(5, 5)))
    assert (intervals(records) - BEGIN_NS).tolist() == [[1000, 3000]]
    assert total_ns(intervals(records[:0])) == total_ns(module.no_intervals()) == 0
