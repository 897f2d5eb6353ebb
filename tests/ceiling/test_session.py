"""Runs of raw copies on the host runtime: measured, traced and staged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from ceiling.troubles import run_into

from pyxfer import Run, UsageError, ceiling
from pyxfer._ceiling import session
from pyxfer._ceiling.session import Session
from pyxfer._document.runs import LEFT_OUT
from pyxfer._measure.run import SaveNowAndThen
from pyxfer._measure.sampler import FEWEST_ROUNDS, Progress
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1024, 1024**2
# Slower than the memory of any machine that this runs on, so that the model decides.
H2D, D2H, LATENCY_S = 2e9, 1e9, 20e-6
SIZES = (64 * KIB, 256 * KIB, MIB)


def quick(**changes: Any) -> Any:
    """A small run on the host runtime."""
    asked: dict[str, Any] = {
        "size": (4 * KIB,),
        "direction": ("h2d",),
        "memory": ("pinned",),
        "precision": 0.05,
        "budget": 0.5,
        "seed": 1,
    }
    return ceiling("host", **{**asked, **changes})


@pytest.fixture(scope="module")
def modelled() -> Any:
    """The default kinds of copies over a link of a known bandwidth and latency."""
    testing.reset()
    testing.model_link(H2D, LATENCY_S, D2H, LATENCY_S)
    run = ceiling("host", size=SIZES, budget=0.5, seed=5, complete=True)
    testing.reset()
    return run


def one(run: Run, route: str, side: str, nbytes: int, direction: str | None = None) -> Any:
    """The one measurement of a route, side and size."""
    place = (route, side, direction or side, nbytes)
    (found,) = (each for each in run.measurements if (each.route, each.side, each.direction, each.nbytes) == place)
    return found


@pytest.mark.parametrize(("side", "rate"), [("h2d", H2D), ("d2h", D2H)])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_modelled_link_is_measured_at_its_speed(modelled: Any, side: str, rate: float, nbytes: int) -> None:
    expected_s = LATENCY_S + nbytes / rate
    found = one(modelled, "raw.pinned-async", side, nbytes)
    assert found.summary.median_s == pytest.approx(expected_s, rel=1e-4)
    assert found.verified.value is True


def test_the_sum_of_both_ways_is_the_sum_of_its_sides(modelled: Any) -> None:
    h2d, d2h, both = (one(modelled, "raw.pinned-async", side, MIB, "both").gbps for side in ("h2d", "d2h", "sum"))
    assert h2d is not None
    assert both == pytest.approx(h2d + d2h, rel=1e-4)


def test_the_fit_finds_the_latency_and_the_bandwidth_of_the_link(modelled: Any) -> None:
    (curve,) = (each for each in modelled.curves if (each.route, each.direction) == ("raw.pinned-async", "h2d"))
    assert curve.asymptote_gbps.value == pytest.approx(H2D / 1e9, rel=0.01)
    assert curve.latency_s.value == pytest.approx(LATENCY_S, rel=0.1)


def test_pageable_copies_are_below_the_ceiling(modelled: Any) -> None:
    for side in ("h2d", "d2h"):
        found = one(modelled, "raw.pageable-memcpy", side, 64 * KIB)
        assert 0 < found.of_ceiling < 1
        assert one(modelled, "raw.pinned-async", side, 64 * KIB).of_ceiling == 1.0


def test_the_run_knows_its_ceiling(modelled: Any) -> None:
    for place in (("h2d", "h2d", MIB), ("d2h", "d2h", MIB), ("both", "sum", MIB)):
        found = [each for each in modelled.measurements if (each.direction, each.side, each.nbytes) == place]
        assert modelled.ceiling(place[0], MIB).gbps == max(each.gbps for each in found if each.gbps is not None)
    with pytest.raises(UsageError, match=r"no ceiling for h2d at 7 B; it has 64 KiB, 256 KiB, 1 MiB\."):
        modelled.ceiling("h2d", 7)
    with pytest.raises(UsageError, match="direction 'up' is unknown"):
        modelled.ceiling("up", 65536)


@pytest.mark.parametrize("complete", [False, True])
def test_memory_that_is_too_late_to_allocate_is_left_out(monkeypatch: pytest.MonkeyPatch, complete: bool) -> None:
    monkeypatch.setattr(session, "PREPARING_S", -3600.0)
    run = quick(memory=("pageable", "pinned"), complete=complete)
    reasons = {row.memory: row.rate.reason for row in run.measurements}
    assert reasons == {"pageable": None if complete else LEFT_OUT, "pinned": None}
    assert [remark.code for remark in run.remarks if remark.code == "late"] == ([] if complete else ["late"])


def test_rows_outside_the_precision_have_a_remark(modelled: Any) -> None:
    timed = [each for each in modelled.measurements if each.summary is not None]
    assert {each.direction for each in timed} >= {"h2d", "d2h"}
    for each in timed:
        width = each.summary.relative_half_width
        assert each.remarks or (width is not None and width <= 0.02)


def test_the_host_runtime_says_that_it_is_not_a_link_and_a_complete_run_that_it_is(modelled: Any) -> None:
    assert (modelled.runtime, modelled.runtime_reason, modelled.link.kind) == ("host", "", "none")
    assert modelled.device.name == "host memory, not a PCIe link"
    assert modelled.link.h2d_peak_gbps.value is None
    assert {each.of_peak for each in modelled.measurements} == {None}
    assert (modelled.kind, modelled.ended, modelled.failure) == ("ceiling", "complete", None)
    assert modelled.duration_s > 0
    assert modelled.environment_after is not None


def test_an_unavailable_way_is_a_row_with_the_reason(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    run = quick(mode=("async", "batch"))
    by_route = {each.route: each for each in run.measurements}
    assert by_route["raw.pinned-async"].gbps is not None
    assert by_route["raw.pinned-batch"].gbps is None
    assert "it came with CUDA 12.8 (driver 570)" in (by_route["raw.pinned-batch"].rate.reason or "")


def test_a_copy_that_fails_verification_has_no_bandwidth(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyxfer._ceiling.subjects import OneWay

    real = OneWay._run

    def forgetful(self: OneWay, copies: int, warmups: int) -> object:
        sample = real(self, copies, warmups)
        if self.plan.direction == "d2h":
            self._engine.fill(self._arena.pages(self.plan.memory)[0], self._arena.pages(self.plan.memory)[1], 99)
        return sample

    monkeypatch.setattr(OneWay, "_run", forgetful)
    h2d, d2h = quick(direction=("h2d", "d2h")).measurements
    assert (h2d.verified.value, d2h.verified.value) == (True, False)
    assert d2h.gbps is None
    assert d2h.rate.reason == "what arrived was not what was sent, so no bandwidth is given"


def test_staged_and_fresh_copies_have_the_fewest_trials_after_a_preparation_beyond_the_budget(engine: Engine) -> None:
    staged = {"memory": ("pageable",), "mode": ("auto", "staged"), "direction": ("h2d", "d2h"), "fresh": True}
    run = quick(size=(4 * KIB, MIB), **staged, budget=1e-9)
    assert {row.variant for row in run.measurements} == {"warm", "fresh"}
    assert {row.mode for row in run.measurements} == {"memcpy", "staged"}
    assert min(len(row.trials) for row in run.measurements) == FEWEST_ROUNDS
    assert all(row.gbps for row in run.measurements)
    assert [remark.code for remark in run.remarks] == ["late"]
    assert testing.allocated() == []


def test_progress_covers_all_phases(engine: Engine) -> None:
    heard: list[Progress] = []
    quick(on_progress=heard.append)
    assert [each.phase for each in heard][:1] == ["preparing"]
    assert any(each.text.startswith("verifying raw.pinned-async h2d 4 KiB") for each in heard)
    assert list(dict.fromkeys(each.phase for each in heard)) == ["preparing", "measuring", "tracing"]


def test_a_long_run_is_saved_while_it_measures(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaveNowAndThen, "EVERY_S", 0.0)
    testing.model_link(H2D, 1e-3, D2H, 1e-3)
    saved: list[Run] = []
    assert quick(save_to=saved.append, precision=1e-9) == saved[-1]
    assert len(saved) > 2
    assert {each.ended for each in saved[:-1]} == {"interrupted"}
    counts = [len(each.measurements[0].trials) for each in saved]
    assert counts == sorted(counts)
    assert saved[-1].ended == "complete"


def test_a_run_that_is_not_saved_is_made_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaveNowAndThen, "EVERY_S", 0.0)
    made: list[Any] = []
    document = Session._document

    def counted(*given: Any) -> Run:
        made.append(given)
        return document(*given)

    monkeypatch.setattr(Session, "_document", counted)
    quick()
    assert len(made) == 1


@pytest.mark.parametrize("device", [1, "7", "GPU-12345678", "ffff:ff:1f.0", "garbage", -1])
def test_known_devices_are_in_the_refusal(engine: Engine, monkeypatch: pytest.MonkeyPatch, device: int | str) -> None:
    monkeypatch.setattr("pyxfer.native.load", lambda _runtime: engine)
    with pytest.raises(UsageError, match="none of the devices of this host: 0 host memory, not a PCIe link"):
        ceiling(device, size=(4 * KIB,))
    with pytest.raises(UsageError, match="leave out one of the two"):
        ceiling("host", require_gpu=True)


def test_the_calling_thread_keeps_its_cpu_affinity(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    quick()
    assert os.sched_getaffinity(0) == before


def traced_run(**changes: Any) -> Any:
    """Copies of both kinds of memory both ways."""
    asked = {"size": (256 * KIB,), "direction": ("h2d", "d2h"), "memory": ("pinned", "pageable"), "precision": 0.1}
    return quick(**{**asked, "budget": 1.0, **changes})


@pytest.fixture(scope="module")
def every_plan() -> Iterator[Run]:
    """All memories, modes and directions at row_of size, traced."""
    testing.reset()
    yield traced_run(
        direction=("h2d", "d2h", "both"),
        memory=("pageable", "pinned", "registered", "write-combined"),
        mode=("memcpy", "async", "streams:2", "batch"),
        budget=0.5,
        complete=True,
    )
    testing.reset()


def row_of(run: Run, route: str, direction: str = "h2d") -> Any:
    (found,) = [each for each in run.measurements if (each.route, each.direction) == (route, direction)]
    return found


def test_every_way_moves_its_bytes_from_the_memory_of_its_name(every_plan: Any) -> None:
    traced = [each for each in every_plan.measurements if each.gbps is not None and each.side != "sum"]
    assert len([each for each in traced if each.direction != "both"]) == 4 * 4 * 2
    for each in traced:
        dma = each.dma.value
        assert dma.nbytes == each.nbytes, each.route
        assert dma.source == ("pageable" if each.memory == "pageable" else "pinned")
        assert not {remark.code for remark in each.remarks} & {"inflated", "wrong-memory"}


def test_a_split_copy_has_several_records_and_a_batched_copy_one(every_plan: Any) -> None:
    for mode, copies in {"async": 1, "streams:2": 2, "batch": 1}.items():
        assert row_of(every_plan, f"raw.pinned-{mode}").dma.value.copies == copies


def test_the_sum_of_two_sides_has_no_records(every_plan: Any) -> None:
    sums = [each for each in every_plan.measurements if each.side == "sum"]
    assert {each.dma.reason for each in sums} == {"its two sides have theirs"}


def test_a_window_on_a_modelled_link_copies_for_the_modelled_time(engine: Engine) -> None:
    testing.model_link(2e9, 20e-6, 2e9, 20e-6)
    row = row_of(traced_run(memory=("pinned",), size=(MIB,)), "raw.pinned-async")
    breakdown = row.breakdown.value
    assert row.dma_s >= 0.9 * MIB / 2e9
    assert breakdown.seconds("copying") + breakdown.seconds("staging") >= 0.9 * MIB / 2e9


def test_without_a_tracer_every_row_has_its_figures_and_the_reason(engine: Engine) -> None:
    testing.other_subscriber(True)
    run = traced_run()
    assert run.ended == "complete"
    assert (run.tracing.reason or "").startswith("trace: unavailable: ")
    for each in run.measurements:
        assert each.gbps is not None
        assert each.dma.reason == run.tracing.reason


def test_nothing_is_traced_before_everything_is_timed_and_saved(engine: Engine) -> None:
    saved: list[Run] = []
    phases: list[str] = []
    run = traced_run(save_to=saved.append, on_progress=lambda progress: phases.append(progress.phase))
    assert phases.index("tracing") == len(phases) - phases.count("tracing")
    before, after = saved[-2:]
    assert after == run
    assert [each.trials for each in before.measurements] == [each.trials for each in after.measurements]
    assert {each.dma.reason for each in before.measurements} == {"the run ended before it was traced"}


STAGED_ROUTE = "raw.pageable-staged"
RING = "threads=2,chunk=128KiB,slots=2,fill=plain"


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of two threads on every machine."""
    monkeypatch.setenv("PYXFER_RING", RING)


def staged_run(**changes: Any) -> Any:
    return traced_run(**{"memory": ("pageable", "pinned"), "mode": ("auto", "staged"), "size": (MIB,), **changes})


def rows(run: Any, route: str = STAGED_ROUTE) -> list[Any]:
    return [each for each in run.measurements if each.route == route]


@pytest.fixture(scope="module")
def whole() -> Iterator[Run]:
    """Staged copies both ways, warm and fresh, beside plain and pinned ones, traced; over a link of known speed."""
    testing.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYXFER_RING", RING)
        testing.model_link(2e9, 0, 1e9, 0)
        yield staged_run(fresh=True, budget=0.5, complete=True)
    testing.reset()


def test_staged_copies_do_not_exceed_the_link(whole: Any) -> None:
    most_gbps = {"h2d": 2.02, "d2h": 1.01}
    for each in rows(whole):
        assert each.gbps <= most_gbps[each.direction]


def test_staged_copies_are_several_copies_from_the_slots(whole: Any) -> None:
    for each in rows(whole):
        dma = each.dma.value
        assert (dma.nbytes, dma.source) == (MIB, "pinned")
        assert dma.copies >= MIB / (128 * KIB)
        assert not {remark.code for remark in each.remarks} & {"inflated", "wrong-memory", "outside"}


def test_staged_breakdowns_sum_to_the_trial_and_include_staging(whole: Any) -> None:
    for each in rows(whole):
        breakdown = each.breakdown.value
        assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
        assert breakdown.seconds("staging") > 0
        assert breakdown.seconds("gaps") == 0


def test_the_document_has_the_ring_and_the_source_of_its_settings(whole: Any) -> None:
    made = whole.ring.value
    assert (made.threads, made.chunk_bytes, made.slots, made.fill) == (2, 128 * KIB, 2, "plain")
    assert made.pinned_bytes == 256 * KIB
    assert (made.source, made.reason) == ("given", f"given by PYXFER_RING={RING}")
    assert whole.parameters.modes == ("memcpy", "staged", "async")


@pytest.mark.unsanitized(reason="compares modelled times, which a sanitizer makes longer")
def test_staged_copies_have_page_locked_memory_as_ceiling_and_are_not_one(whole: Any) -> None:
    for each in rows(whole):
        assert 0 < each.of_ceiling < 1.1
    assert {whole.ceiling(direction, MIB).memory for direction in ("h2d", "d2h")} == {"pinned"}


def test_without_staged_copies_no_ring_is_created(nothing_left: Engine) -> None:
    run = staged_run(mode=("auto",), memory=("pageable",), trace=False)
    assert run.ring.reason == "nothing was staged"
    assert "cudaHostAlloc" not in testing.calls()
    assert not rows(run)


def test_a_failed_thread_start_affects_only_staged_rows(nothing_left: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("pyxfer._ceiling.resources.make_ring", refuse)
    # Less than this goes past the slots of the ring.
    ended = run_into(memory=("pageable",), mode=("memcpy", "staged"), direction=("h2d", "d2h"), size=(64 * KIB,))
    assert ended.run.ended == "complete"
    assert all("ulimit -u" in (each.rate.reason or "") for each in rows(ended.run))
    assert all(each.gbps for each in rows(ended.run, "raw.pageable-memcpy"))
