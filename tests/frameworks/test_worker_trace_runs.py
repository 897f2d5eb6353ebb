"""Tracing in worker processes: timed rows survive a traced trial that crashes or hangs."""

from __future__ import annotations

import pytest
from frameworks import own_routes
from frameworks.conftest import RunOwn
from frameworks.test_worker_runs import row
from marks import slow

import pyxfer


def test_a_run_names_the_source_of_its_records(run_own: RunOwn) -> None:
    run = run_own(own_routes.Copied)
    assert run.tracing.value is not None
    assert run.tracing.value.library == "the host runtime"
    assert run.workers[0].tracing == run.tracing


def test_ingest_has_a_breakdown_and_no_crossed_bytes(run_own: RunOwn) -> None:
    slow = row(run_own(own_routes.Slow), "mine.slow")
    assert slow.dma.reason == "nothing crosses the link"
    breakdown = slow.breakdown.value
    assert breakdown is not None
    assert breakdown.seconds("preparing") >= 0.02
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s


@pytest.mark.slow
def test_without_tracing_the_run_and_its_rows_say_so(run_own: RunOwn) -> None:
    run = run_own(own_routes.Copied, trace=False)
    why = "tracing was left out"
    assert (run.tracing.reason, run.workers[0].tracing.reason) == (why, why)
    assert {each.breakdown.reason for each in run.measurements} == {why}


@pytest.mark.parametrize(
    ("make", "ended", "how"),
    [
        (own_routes.AbortingTraced, "crashed", "it crashed (SIGABRT)"),
        slow(own_routes.HangingTraced, "hung", "it sent nothing for 2.00 s"),
    ],
)
def test_a_worker_that_ends_while_tracing_keeps_its_figures(
    run_own: RunOwn, make: type[pyxfer.Transfer], ended: str, how: str
) -> None:
    run = run_own(make, own_routes.Copied, patience_s=2.0)
    name = f"mine.{make.__name__.lower()}"
    (worker,) = run.workers
    assert (worker.ended, worker.reason) == (ended, f"{how}, while {name} at 64 KiB was being traced")
    for route in (name, "mine.copied", "raw.host-copy"):
        assert row(run, route).gbps is not None
    assert row(run, name).breakdown.reason == f"its worker ended while it was traced: {how}"
    for route in ("mine.copied", "raw.host-copy"):
        assert row(run, route).breakdown.reason == "the run ended before it was traced"


def test_a_row_that_uses_the_whole_budget_is_traced(run_own: RunOwn) -> None:
    slow = row(run_own(own_routes.Slow, budget_s=1.0, precision=1e-6), "mine.slow")
    assert slow.breakdown.value is not None


def test_rows_interrupted_in_preparation_do_not_mention_the_budget(run_own: RunOwn) -> None:
    def interrupt(progress: pyxfer.Progress) -> None:
        if "verifying raw.host-copy" in progress.text:
            raise KeyboardInterrupt

    run = run_own(own_routes.Slow, own_routes.Copied, on_progress=interrupt)
    assert run.ended == "interrupted"
    assert {each.rate.reason for each in run.measurements} == {"the run was interrupted"}
