"""Runs with worker processes: their rows, faults that affect only one route or worker, and traced trials."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from frameworks import own_routes
from frameworks.conftest import RunOwn, children
from marks import slow

import pyxfer
from pyxfer._document import codec
from pyxfer._document.runs import Measurement
from pyxfer._frameworks import process, session
from pyxfer._frameworks.session import _without_ceiling
from pyxfer._measure.sampler import Progress


def row(run: pyxfer.Run, route: str, nbytes: int = 64 << 10) -> Measurement:
    (found,) = [each for each in run.measurements if each.route == route and each.nbytes == nbytes]
    return found


def test_a_route_is_timed_and_verified_beside_one_host_copy_in_the_same_rounds(run_own: RunOwn) -> None:
    run = run_own(own_routes.Copied)
    route, reference = row(run, "mine.copied"), row(run, "raw.host-copy")
    assert route.verified.value is True
    assert route.gbps is not None
    assert route.of_ceiling is not None
    assert route.worker == reference.worker == "mine"
    assert {trial.round for trial in route.trials} <= {trial.round for trial in reference.trials}


def test_a_run_has_its_parameters_and_its_workers_and_is_saved_after_each(run_own: RunOwn) -> None:
    saved: list[pyxfer.Run] = []
    run = run_own(own_routes.Copied, route="mine.*", save_to=saved.append)
    assert (saved[0].ended, saved[-1]) == ("interrupted", run)
    assert (run.kind, run.ended) == ("frameworks", "complete")
    assert run.parameters.frameworks == ("mine",)
    assert run.parameters.routes == ("mine.*",)
    assert run.parameters.sizes_bytes == (64 << 10,)
    (worker,) = run.workers
    assert (worker.name, worker.ended, worker.reason) == ("mine", "complete", None)
    assert worker.start_s.value is not None
    assert run.tracing.value is not None
    assert run.tracing.value.library == "the host runtime"
    assert worker.tracing == run.tracing


@pytest.mark.parametrize(
    ("staged", "why"),
    [
        (False, "nothing was staged"),
        slow(True, "each worker had its own ring, with the settings that pyxfer info shows"),
    ],
)
def test_a_run_says_that_each_worker_had_its_own_ring(run_own: RunOwn, staged: bool, why: str) -> None:
    pyxfer.register_route(own_routes.make_route("mine.threads", own_routes.Copied, staged=staged))
    run = run_own()
    assert run.ring.reason == why
    route_info = row(run, "mine.threads").route_info
    assert route_info is not None
    assert route_info.staged == staged


def test_a_route_without_a_copy_gets_no_bandwidth(run_own: RunOwn) -> None:
    aliased = row(run_own(own_routes.Aliased), "mine.aliased")
    assert aliased.gbps is None
    assert "no bytes were moved" in (aliased.rate.reason or "")
    assert aliased.elapsed_s is not None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (own_routes.LateRefused, "no more of it"),
        slow(own_routes.Raising, "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        slow(own_routes.LateUsage, "used wrongly"),
        slow(own_routes.LateExit, "SystemExit: 3"),
        slow(own_routes.LateInterrupt, "KeyboardInterrupt"),
        slow(own_routes.LateRelease, "OSError: cannot let go"),
    ],
)
def test_every_exception_of_a_route_ends_only_that_route(
    run_own: RunOwn, make: type[pyxfer.Transfer], why: str
) -> None:
    run = run_own(make, own_routes.Copied)
    (worker,) = run.workers
    assert worker.ended == "complete"
    failed = row(run, f"mine.{make.__name__.lower()}")
    assert [r.text for r in failed.remarks if r.code == "failed"] == [f"it ended early: {why}"]
    assert len(row(run, "mine.copied").trials) > len(failed.trials)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (own_routes.Elsewhere, "the result is on the gpu and not on the cpu, so nothing was copied"),
        (own_routes.refused, "not available in Mine 2.0 for 65536 bytes: it has moved"),
        slow(own_routes.broken, "ValueError: set up wrongly"),
        (own_routes.Fractional, "copies has to be a whole number of 1 or more; it is 0.5"),
        slow(own_routes.NoTransfer, "its function has to return a pyxfer.Transfer; it returned a NoTransfer"),
        slow(own_routes.Lists, "arrived() has to return a NumPy array; it returned a list"),
        slow(own_routes.Cuda, "where() has to return gpu or cpu; it returned 'cuda'"),
    ],
)
def test_a_route_that_cannot_be_measured_has_the_reason(run_own: RunOwn, make: Any, why: str) -> None:
    found = row(run_own(make), f"mine.{make.__name__.lower()}")
    assert (found.rate.reason, found.first_s.reason) == (why, why)


def test_a_worker_that_ends_before_its_child_is_not_a_hang(run_own: RunOwn) -> None:
    run = run_own(own_routes.Forking, own_routes.Copied)
    assert (run.workers[0].reason or "").startswith("it ended by itself with exit code 7, while mine.forking")


def test_a_local_file_does_not_shadow_the_standard_library(
    run_own: RunOwn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "numpy", "pyxfer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken for a module')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert row(run_own(own_routes.Copied), "mine.copied").gbps is not None


def test_the_time_of_several_copies_is_divided(run_own: RunOwn) -> None:
    several = row(run_own(own_routes.Several), "mine.several")
    trial = several.trials[0]
    assert trial.copies == 4
    assert trial.wall_s is not None
    assert trial.dispatch_s is not None
    assert trial.elapsed_s >= 0.005
    assert 0.005 <= trial.dispatch_s <= trial.wall_s


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (own_routes.Aborting, "it crashed (SIGABRT)"),
        slow(own_routes.Killed, "it was killed (SIGKILL; possibly out of memory)"),
        slow(own_routes.Leaving, "it ended by itself with exit code 7"),
    ],
)
def test_the_other_routes_of_a_crashed_worker_are_measured(
    run_own: RunOwn, make: type[pyxfer.Transfer], how: str
) -> None:
    run = run_own(make, own_routes.Copied)
    name = f"mine.{make.__name__.lower()}"
    assert (row(run, name).rate.reason or "").startswith(f"{how}, while {name} at 64 KiB was ")
    assert row(run, "mine.copied").gbps is not None
    first, second = run.workers
    assert (first.ended, second.ended) == ("crashed", "complete")
    assert run.ended == "complete"


@pytest.mark.slow
def test_a_worker_that_crashes_between_two_trials_is_started_again_with_all_its_routes(run_own: RunOwn) -> None:
    run = run_own(own_routes.CrashingLater, own_routes.Copied)
    assert [worker.ended for worker in run.workers][:1] == ["crashed"]
    assert (run.workers[0].reason or "").startswith("it crashed (SIGABRT)")
    assert run.workers[1].name == "mine, start 2"
    assert {"mine.crashinglater", "mine.copied"} <= {each.route for each in run.measurements}


def test_results_of_a_crashed_worker_are_kept_without_the_ceiling_that_it_measured(run_own: RunOwn) -> None:
    run = run_own(own_routes.Copied)
    (measured,) = (each for each in run.measurements if each.route == "mine.copied")
    kept = _without_ceiling(measured)
    assert (kept.rate, kept.trials, kept.ceiling_share.value) == (measured.rate, measured.trials, None)
    without_raw = msgspec.structs.replace(run, measurements=(kept,))
    assert codec.decode(pyxfer.Run, codec.encode(without_raw)).measurements == (kept,)


@pytest.mark.slow
def test_a_worker_is_not_started_again_without_end(run_own: RunOwn) -> None:
    for number in range(6):
        pyxfer.register_route(own_routes.make_route(f"mine.leaving{number}", own_routes.Leaving))
    run = run_own(budget=0.2)
    assert [worker.ended for worker in run.workers] == ["crashed"] * 4
    assert all(row(run, f"mine.leaving{number}").gbps is None for number in range(6))


def test_the_output_of_a_framework_does_not_reach_the_terminal(
    run_own: RunOwn, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_own(own_routes.noisy)
    assert capfd.readouterr() == ("", "")
    assert "to standard output" in run.workers[0].log


def test_sizes_beyond_the_host_memory_are_refused(run_own: RunOwn) -> None:
    run = run_own(own_routes.Copied, size=[1 << 45])
    (worker,) = run.workers
    assert worker.ended == "failed"
    assert (worker.reason or "").startswith("Transfers of 32 TiB need about 192 TiB of host memory for sources, and ")
    assert row(run, "mine.copied", 1 << 45).rate.reason == worker.reason


def test_patience_covers_a_framework_that_hangs_on_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(process, "MIN_START_S", 0.0)
    (worker,) = pyxfer.frameworks("torch", device="host", size="4KiB", patience=0.4).workers
    assert (worker.ended, worker.reason) == ("hung", "it sent nothing for 1.00 s, while it started")


def test_ingest_has_a_breakdown_and_no_crossed_bytes(run_own: RunOwn) -> None:
    slow = row(run_own(own_routes.Slow), "mine.slow")
    assert slow.dma.reason == "nothing crosses the link"
    breakdown = slow.breakdown.value
    assert breakdown is not None
    assert breakdown.seconds("preparing") >= 0.02
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s


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
    run = run_own(make, own_routes.Copied, patience=2.0)
    name = f"mine.{make.__name__.lower()}"
    (worker,) = run.workers
    assert (worker.ended, worker.reason) == (ended, f"{how}, while {name} at 64 KiB was being traced")
    for route in (name, "mine.copied", "raw.host-copy"):
        assert row(run, route).gbps is not None
    assert row(run, name).breakdown.reason == f"its worker ended while it was traced: {how}"
    for route in ("mine.copied", "raw.host-copy"):
        assert row(run, route).breakdown.reason == "the run ended before it was traced"


def test_a_row_that_uses_the_whole_budget_is_traced(run_own: RunOwn) -> None:
    slow = row(run_own(own_routes.Slow, budget=1.0, precision=1e-6), "mine.slow")
    assert slow.breakdown.value is not None


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors for which frameworks are prepared side by side."""
    monkeypatch.setattr(session, "usable_cpus", lambda: 64)


def register(*names: str, make: Any = own_routes.Copied) -> None:
    for name in names:
        pyxfer.register_route(own_routes.make_route(f"{name}.route", make))


def run_all(*names: str, **options: Any) -> pyxfer.Run:
    return pyxfer.frameworks(list(names), size="64KiB", budget=0.3, seed=1, device="host", patience=20.0, **options)


@pytest.mark.usefixtures("many_cpus")
def test_all_workers_are_prepared_before_the_first_measures() -> None:
    register("mine", "other")
    phases: list[str] = []
    run = run_all("mine", "other", on_progress=lambda progress: phases.append(progress.phase))
    assert [(worker.name, worker.ended) for worker in run.workers] == [("mine", "complete"), ("other", "complete")]
    assert all(row(run, f"{name}.route").gbps for name in ("mine", "other"))
    last = max(place for place, phase in enumerate(phases) if phase.endswith("preparing"))
    assert last < min(place for place, phase in enumerate(phases) if phase.endswith("measuring"))


@pytest.mark.usefixtures("many_cpus")
def test_a_worker_that_dies_while_all_are_prepared_does_not_stop_the_others() -> None:
    register("mine", make=own_routes.Killed)
    register("other")
    run = run_all("mine", "other")
    assert run.workers[0].ended == "crashed"
    assert run.workers[-1].ended == "complete"
    assert row(run, "other.route").gbps


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.parametrize("phase", ["starting the frameworks", "preparing"])
def test_an_interrupt_while_all_are_prepared_ends_the_run_and_every_process(phase: str) -> None:
    register("mine", "other", make=own_routes.Slow)
    before = set(children(os.getpid()))

    def interrupt(progress: Progress) -> None:
        if progress.phase.endswith(phase):
            raise KeyboardInterrupt

    run = run_all("mine", "other", on_progress=interrupt)
    assert run.ended == "interrupted"
    assert set(children(os.getpid())) <= before


def test_rows_interrupted_in_preparation_do_not_mention_the_budget(run_own: RunOwn) -> None:
    def interrupt(progress: Progress) -> None:
        if "verifying raw.host-copy" in progress.text:
            raise KeyboardInterrupt

    run = run_own(own_routes.Slow, own_routes.Copied, on_progress=interrupt)
    assert run.ended == "interrupted"
    assert {each.rate.reason for each in run.measurements} == {"the run was interrupted"}
