"""Runs with staged copies: their rows, their ceiling, and the faults of a ring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ceiling.troubles import Ended, run_into

from pyxfer import Measurement, Run, ceiling
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1024, 1024**2
STAGED = "raw.pageable-staged"
RING = "threads=2,chunk=128KiB,slots=2,fill=plain"


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of two threads on every machine."""
    monkeypatch.setenv("PYXFER_RING", RING)


def quick(**changes: Any) -> Run:
    settings: dict[str, Any] = {
        "directions": ("h2d", "d2h"),
        "memories": ("pageable", "pinned"),
        "modes": ("auto", "staged"),
        "sizes": (MIB,),
        "precision": 0.1,
        "budget_s": 1.0,
        "seed": 1,
    }
    return ceiling("host", **{**settings, **changes})


def into_trouble(**changes: Any) -> Ended:
    """A small run of plain and staged copies of pageable memory; the first page-locked memory is the ring's."""
    settings: dict[str, Any] = {
        "memories": ("pageable",),
        "modes": ("memcpy", "staged"),
        "directions": ("h2d", "d2h"),
        "sizes": (64 * KIB,),  # less goes past the ring's slots
    }
    return run_into(**{**settings, **changes})


def rows(run: Run | None, route: str = STAGED) -> list[Measurement]:
    assert run is not None
    return [each for each in run.measurements if each.route == route]


@pytest.fixture(scope="module")
def whole() -> Iterator[Run]:
    """Staged copies both ways, warm and fresh, beside plain and pinned ones, traced; over a link of known speed."""
    testing.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYXFER_RING", RING)
        testing.model_link(2e9, 0, 1e9, 0)
        yield quick(fresh=True, budget_s=3.0)
    testing.reset()


def test_staged_copies_do_not_exceed_the_link(whole: Run) -> None:
    most_gbps = {"h2d": 2.02, "d2h": 1.01}
    for each in rows(whole):
        assert each.gbps is not None
        assert each.gbps <= most_gbps[each.direction]


def test_staged_copies_are_several_copies_from_the_slots(whole: Run) -> None:
    for each in rows(whole):
        dma = each.dma.value
        assert dma is not None, each.dma.reason
        assert (dma.nbytes, dma.source) == (MIB, "pinned")
        assert dma.copies >= MIB / (128 * KIB)
        assert not {remark.code for remark in each.remarks} & {"inflated", "wrong-memory", "outside"}


def test_staged_breakdowns_sum_to_the_trial_and_include_staging(whole: Run) -> None:
    for each in rows(whole):
        breakdown = each.breakdown.value
        assert breakdown is not None, each.breakdown.reason
        assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
        assert breakdown.seconds("staging") > 0
        assert breakdown.seconds("gaps") == 0


def test_the_document_has_the_ring_and_the_source_of_its_settings(whole: Run) -> None:
    made = whole.ring.value
    assert made is not None
    assert (made.threads, made.chunk_bytes, made.slots, made.fill) == (2, 128 * KIB, 2, "plain")
    assert made.pinned_bytes == 256 * KIB
    assert (made.source, made.reason) == ("given", f"given by PYXFER_RING={RING}")
    assert whole.parameters.modes == ("memcpy", "staged", "async")


@pytest.mark.unsanitized(reason="compares modelled times, which a sanitizer makes longer")
def test_staged_copies_have_page_locked_memory_as_ceiling_and_are_not_one(whole: Run) -> None:
    for each in rows(whole):
        assert each.of_ceiling is not None
        assert 0 < each.of_ceiling < 1.1
    assert {whole.ceiling(direction, MIB).memory for direction in ("h2d", "d2h")} == {"pinned"}


def test_without_staged_copies_no_ring_is_created(nothing_left: Engine) -> None:
    run = quick(modes=("auto",), memories=("pageable",), trace=False)
    assert run.ring.reason == "nothing was staged"
    assert "cudaHostAlloc" not in testing.calls()
    assert not rows(run)


def test_a_failed_thread_start_affects_only_staged_rows(nothing_left: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("pyxfer._ceiling.resources.make_ring", refuse)
    ended = into_trouble()
    assert ended.run is not None
    assert ended.run.ended == "complete"
    assert all("ulimit -u" in (each.rate.reason or "") for each in rows(ended.run))
    assert all(each.gbps for each in rows(ended.run, "raw.pageable-memcpy"))


# A longer grace period, because a busy machine may need it.
