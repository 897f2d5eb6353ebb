"""Raw copies with records of the device, on the host runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyxfer import Run, ceiling
from pyxfer._document.runs import Measurement
from pyxfer._measure.sampler import Progress
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1024, 1024**2


def quick(**changes: Any) -> Run:
    """A small run on the host runtime."""
    asked: dict[str, Any] = {
        "sizes": (256 * KIB,),
        "directions": ("h2d", "d2h"),
        "memories": ("pinned", "pageable"),
        "precision": 0.1,
        "budget_s": 1.0,
        "seed": 1,
    }
    return ceiling("host", **{**asked, **changes})


@pytest.fixture(scope="module")
def every_way() -> Iterator[Run]:
    """All memories, modes and directions at one size, traced."""
    testing.reset()
    yield quick(
        directions=("h2d", "d2h", "both"),
        memories=("pageable", "pinned", "registered", "write-combined"),
        modes=("memcpy", "async", "streams:2", "batch"),
        budget_s=6.0,
    )
    testing.reset()


def one(run: Run, route: str, direction: str = "h2d") -> Measurement:
    (found,) = [each for each in run.measurements if (each.route, each.direction) == (route, direction)]
    return found


@pytest.mark.slow
def test_every_way_moves_its_bytes_from_the_memory_of_its_name(every_way: Run) -> None:
    traced = [each for each in every_way.measurements if each.gbps is not None and each.side != "sum"]
    assert len([each for each in traced if each.direction != "both"]) == 4 * 4 * 2
    for each in traced:
        dma = each.dma.value
        assert dma is not None, (each.route, each.dma.reason)
        assert dma.nbytes == each.nbytes, each.route
        assert dma.source == ("pageable" if each.memory == "pageable" else "pinned")
        assert not {remark.code for remark in each.remarks} & {"inflated", "wrong-memory"}


def test_a_split_copy_has_several_records_and_a_batched_copy_one(every_way: Run) -> None:
    counted = {mode: one(every_way, f"raw.pinned-{mode}").dma.value for mode in ("async", "streams:2", "batch")}
    assert {mode: dma.copies for mode, dma in counted.items() if dma is not None} == {
        "async": 1,
        "streams:2": 2,
        "batch": 1,
    }


def test_the_parts_of_every_breakdown_sum_to_the_trial(every_way: Run) -> None:
    for each in every_way.measurements:
        breakdown = each.breakdown.value
        if each.gbps is not None and each.side != "sum":
            assert breakdown is not None, (each.route, each.direction, each.breakdown.reason)
            assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s


def test_the_sum_of_two_sides_has_no_records(every_way: Run) -> None:
    sums = [each for each in every_way.measurements if each.side == "sum"]
    assert {each.dma.reason for each in sums} == {"its two sides have theirs"}


def test_a_window_on_a_modelled_link_copies_for_the_modelled_time(engine: Engine) -> None:
    testing.model_link(2e9, 20e-6, 2e9, 20e-6)
    row = one(quick(memories=("pinned",), sizes=(MIB,)), "raw.pinned-async")
    breakdown = row.breakdown.value
    assert breakdown is not None
    assert row.dma_s is not None
    assert row.dma_s >= 0.9 * MIB / 2e9
    assert breakdown.seconds("copying") + breakdown.seconds("staging") >= 0.9 * MIB / 2e9


def test_without_a_tracer_every_row_has_its_figures_and_the_reason(engine: Engine) -> None:
    testing.other_subscriber(True)
    run = quick()
    assert run.ended == "complete"
    assert (run.tracing.reason or "").startswith("trace: unavailable: ")
    for each in run.measurements:
        assert each.gbps is not None
        assert each.dma.reason == run.tracing.reason


def test_nothing_is_traced_before_everything_is_timed_and_saved(engine: Engine) -> None:
    saved: list[Run] = []
    phases: list[str] = []

    def hear(progress: Progress) -> None:
        phases.append(progress.phase)

    run = quick(save_to=saved.append, on_progress=hear)
    assert phases.index("tracing") == len(phases) - phases.count("tracing")
    before, after = saved[-2:]
    assert after == run
    assert [each.trials for each in before.measurements] == [each.trials for each in after.measurements]
    assert {each.dma.reason for each in before.measurements} == {"the run ended before it was traced"}
