from __future__ import annotations

import pytest
from msgspec import structs
from samples import make_measurement, make_missing

from pyxfer._ceiling.arena import GIB, MOST_BYTES, TRIALS, locking_bytes, locking_cost, measure_locking
from pyxfer._document.runs import Measurement, Memory
from pyxfer._measure import stats
from pyxfer.native import Engine
from pyxfer.native._host import testing

MIB = 1024**2
KIB = 1024


def never() -> bool:
    return False


def h2d(memory: str, seconds: float, nbytes: int = 16 * MIB, **changes: object) -> Measurement:
    summary = stats.summarise([seconds] * 6)
    return structs.replace(make_measurement(), memory=memory, nbytes=nbytes, summary=summary, **changes)


@pytest.mark.parametrize(("memory", "call"), [("pinned", "cudaHostAlloc"), ("registered", "cudaHostRegister")])
def test_each_page_locking_is_timed_and_freed(engine: Engine, memory: Memory, call: str) -> None:
    testing.stall(call, 1, 0.02)
    seconds = measure_locking(engine, 0, memory, 4 * KIB, never)
    assert len(seconds) == TRIALS == testing.calls()[call]
    assert seconds[0] >= 0.02
    assert all(each > 0 for each in seconds)
    assert testing.allocated() == []


def test_cancelling_ends_it(engine: Engine) -> None:
    assert measure_locking(engine, 0, "pinned", 4 * KIB, lambda: True) == []


def test_slow_page_locking_stops_after_its_time_limit(engine: Engine) -> None:
    testing.stall("cudaHostAlloc", 1, 0.6)
    assert len(measure_locking(engine, 0, "pinned", 4 * KIB, never)) == 1


def test_at_most_64_mib_are_locked_at_a_time() -> None:
    assert locking_bytes(4 * KIB) == 4 * KIB
    assert locking_bytes(16 * GIB) == MOST_BYTES


def test_locking_pays_when_the_saved_time_exceeds_its_cost() -> None:
    # 16 MiB cost 2.5 ms to lock, and each transfer saves 1 ms.
    cost = locking_cost("pinned", 64 * MIB, [0.01] * 6, [h2d("pageable", 2e-3), h2d("pinned", 1e-3)])
    assert (cost.pays_after_transfers.value, cost.pays_direction) == (3, "h2d")


def test_the_largest_common_size_decides() -> None:
    measurements = [
        h2d("pageable", 2e-3),
        h2d("pinned", 1e-3),
        h2d("pageable", 1e-5, 4 * KIB),
        h2d("pinned", 0.9e-5, 4 * KIB),
        h2d("pageable", 1.0, 256 * MIB),
    ]
    assert locking_cost("pinned", 64 * MIB, [0.01] * 6, measurements).pays_after_transfers.value == 3


def test_the_best_modes_of_both_memories_are_compared() -> None:
    measurements = [h2d("pageable", 9e-3), h2d("pageable", 2e-3), h2d("pinned", 5e-3), h2d("pinned", 1e-3)]
    assert locking_cost("pinned", 64 * MIB, [0.01] * 6, measurements).pays_after_transfers.value == 3


def test_unmeasured_registered_memory_counts_as_fast_as_pinned() -> None:
    measurements = [h2d("pageable", 2e-3), h2d("pinned", 1e-3)]
    assert locking_cost("registered", 64 * MIB, [0.01] * 6, measurements).pays_after_transfers.value == 3


@pytest.mark.parametrize(
    "measurements",
    [
        [],
        [h2d("pageable", 2e-3)],
        [h2d("pinned", 1e-3)],
        [h2d("pageable", 2e-3), h2d("pinned", 1e-3, 4 * KIB)],
        [h2d("pageable", 2e-3), h2d("pinned", 1e-3, variant="fresh")],
        [h2d("pageable", 2e-3), h2d("pinned", 1e-3, direction="d2h", side="d2h")],
        [h2d("pageable", 2e-3), make_missing()],
        [h2d("pageable", 2e-3, mode="staged"), h2d("pinned", 1e-3)],
    ],
)
def test_without_a_common_size_the_result_has_a_reason(measurements: list[Measurement]) -> None:
    pays = locking_cost("pinned", 64 * MIB, [0.01] * 6, measurements).pays_after_transfers
    assert pays.reason is not None
    assert "h2d was not measured from pageable and from page-locked memory at one size" in pays.reason


def test_staged_copies_do_not_count_as_pageable_transfers() -> None:
    measured = [h2d("pageable", 3e-3), h2d("pageable", 1.1e-3, mode="staged"), h2d("pinned", 1e-3)]
    with_staged, without = (
        locking_cost("pinned", 16 * MIB, [0.01] * 6, rows).pays_after_transfers for rows in (measured, measured[::2])
    )
    assert with_staged.value == without.value == 5


def test_locking_never_pays_if_pageable_memory_is_as_fast() -> None:
    cost = locking_cost("pinned", MOST_BYTES, [0.01] * 6, [h2d("pageable", 1e-3), h2d("pinned", 1e-3)])
    assert cost.pays_after_transfers.reason is not None
    assert "copies from pageable memory are as fast" in cost.pays_after_transfers.reason


def test_without_a_timed_page_locking_the_result_has_a_reason() -> None:
    cost = locking_cost("pinned", MOST_BYTES, [], [h2d("pageable", 2e-3), h2d("pinned", 1e-3)])
    assert cost.summary is None
    assert cost.s_per_gib.reason == cost.pays_after_transfers.reason == "no page-locking was timed before the run ended"
