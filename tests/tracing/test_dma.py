"""The copies of trials, from hand-written records."""

from __future__ import annotations

import numpy as np
import pytest
from tracing.captures import MIB, copy, kernel, traced

from pyxfer._trace.breakdown import Crossed, crossed, dma_of
from pyxfer._trace.collector import Traced
from pyxfer._trace.records import CopyWay, MemoryKind


def h2d(trial: Traced) -> Crossed:
    return crossed(trial, CopyWay.H2D)


def test_only_copies_in_the_routes_direction_count() -> None:
    back = copy(500, 900, 64, CopyWay.D2H, MemoryKind.PINNED)
    found = h2d(traced(copy(100, 300), copy(300, 400), back, kernel(0, 50)))
    assert (found.nbytes, found.copies) == (2 * MIB, 2)
    assert found.memories == {"pageable"}
    assert found.seconds.value == pytest.approx(300e-6)


def test_the_host_memory_of_a_copy_from_the_device_is_its_target() -> None:
    trial = traced(copy(100, 300, MIB, CopyWay.D2H, MemoryKind.PINNED), way=CopyWay.D2H)
    assert crossed(trial, CopyWay.D2H).memories == {"pinned"}


def test_the_time_of_simultaneous_copies_counts_once() -> None:
    assert h2d(traced(copy(100, 300), copy(200, 400))).seconds.value == pytest.approx(300e-6)


def test_values_are_those_of_one_transfer() -> None:
    found = h2d(traced(*(copy(100 * n, 100 * n + 50) for n in range(4)), copies=4))
    assert (found.nbytes, found.copies) == (MIB, 1)
    assert found.seconds.value == pytest.approx(50e-6)


def test_a_batch_counts_as_its_copies() -> None:
    batch = copy(0, 10)
    batch["copies"] = 5
    unnamed = copy(10, 20)
    unnamed["copies"] = 0  # an older library does not fill it in
    assert h2d(traced(batch, unnamed)).copies == 6


def test_the_memory_of_a_few_bytes_is_ignored() -> None:
    found = h2d(traced(copy(0, 10), copy(10, 11, 64, memory=MemoryKind.PINNED)))
    assert found.memories == {"pageable"}
    halves = h2d(traced(copy(0, 10), copy(10, 20, memory=MemoryKind.PINNED)))
    assert halves.memories == {"pageable", "pinned"}


def test_bytes_of_a_copy_without_times_count() -> None:
    found = h2d(traced(copy(None, None, 4096), copy(10, 20, 4096)))
    assert found.nbytes == 8192
    assert found.seconds.reason == "the device gave no time for 1 of 2 copies"


@pytest.mark.parametrize(("median_s", "chosen_us"), [(None, 20), (300e-6, 30), (90e-6, 10)])
def test_a_row_has_the_copy_time_nearest_to_the_median(median_s: float | None, chosen_us: int) -> None:
    trials = [h2d(traced(copy(0, end), elapsed_us=10 * end)) for end in (30, 10, 20)]
    dma = dma_of(trials, median_s).value
    assert dma is not None
    assert dma.seconds.value == pytest.approx(chosen_us * 1e-6)
    assert dma.gbps == pytest.approx(MIB / chosen_us / 1e3)
    assert (dma.nbytes, dma.copies, dma.source, dma.trials) == (MIB, 1, "pageable", 3)


def test_different_memories_are_all_named() -> None:
    trials = [h2d(traced(copy(0, 10, memory=memory))) for memory in (MemoryKind.PINNED, MemoryKind.PAGEABLE)]
    dma = dma_of(trials, None).value
    assert dma is not None
    assert dma.source == "pageable+pinned"


def test_one_trial_without_times_leaves_the_copy_time_unknown() -> None:
    dma = dma_of([h2d(traced(copy(0, 10))), h2d(traced(copy(None, None)))], None).value
    assert dma is not None
    assert (dma.seconds.reason, dma.gbps) == ("the device gave no time for 1 of 1 copies", None)


@pytest.mark.parametrize("word", ["copies", "unknown"])
def test_lost_records_of_copies_leave_the_bytes_unknown(word: str) -> None:
    dma = dma_of([h2d(traced(copy(0, 10), dropped={word: 3}))], None)
    assert dma.reason == "3 of the device's records were lost, so the bytes that crossed the link are not known"


def test_other_lost_records_do_not_matter() -> None:
    assert dma_of([h2d(traced(copy(0, 10), dropped={"calls": 3, "kernels": 9}))], None).value is not None


def test_a_trial_without_copies_has_zero_bytes() -> None:
    dma = dma_of([h2d(traced())], None).value
    assert dma is not None
    assert (dma.nbytes, dma.copies, dma.source, dma.seconds.value, dma.gbps) == (0, 0, "", 0.0, None)
    assert not np.signbit(dma.nbytes)
