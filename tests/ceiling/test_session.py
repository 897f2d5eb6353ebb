from __future__ import annotations

import os
from typing import Any

import pytest

from pyxfer import Run, UsageError, ceiling
from pyxfer._ceiling.session import Session
from pyxfer._document.runs import Measurement
from pyxfer._measure.run import SaveNowAndThen
from pyxfer._measure.sampler import FEWEST_ROUNDS, Progress
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB, MIB = 1024, 1024**2
# Slower than the memory of any machine that this runs on, so that the model decides.
H2D, D2H, LATENCY_S = 2e9, 1e9, 20e-6
SIZES = (64 * KIB, 256 * KIB, MIB)


def quick(**changes: Any) -> Run:
    """A small run on the host runtime."""
    asked: dict[str, Any] = {
        "sizes": (4 * KIB,),
        "directions": ("h2d",),
        "memories": ("pinned",),
        "precision": 0.05,
        "budget_s": 0.5,
        "seed": 1,
    }
    return ceiling("host", **{**asked, **changes})


@pytest.fixture(scope="module")
def modelled() -> Run:
    """The default kinds of copies over a link of a known bandwidth and latency."""
    testing.reset()
    testing.model_link(H2D, LATENCY_S, D2H, LATENCY_S)
    run = ceiling("host", sizes=SIZES, precision=0.02, budget_s=6.0, seed=5)
    testing.reset()
    return run


def one(run: Run, route: str, side: str, nbytes: int, direction: str | None = None) -> Measurement:
    """The one measurement of a route, side and size."""
    (found,) = (
        each
        for each in run.measurements
        if (each.route, each.side, each.direction, each.nbytes, each.variant)
        == (route, side, direction or side, nbytes, "warm")
    )
    return found


@pytest.mark.parametrize(("side", "rate"), [("h2d", H2D), ("d2h", D2H)])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_modelled_link_is_measured_at_its_speed(modelled: Run, side: str, rate: float, nbytes: int) -> None:
    expected_s = LATENCY_S + nbytes / rate
    found = one(modelled, "raw.pinned-async", side, nbytes)
    assert found.summary is not None
    assert found.summary.median_s == pytest.approx(expected_s, rel=1e-4)
    assert found.verified.value is True


def test_the_sum_of_both_ways_is_the_sum_of_its_sides(modelled: Run) -> None:
    h2d, d2h, both = (one(modelled, "raw.pinned-async", side, MIB, "both").gbps for side in ("h2d", "d2h", "sum"))
    assert h2d is not None
    assert d2h is not None
    assert both == pytest.approx(h2d + d2h, rel=1e-4)


def test_the_fit_finds_the_latency_and_the_bandwidth_of_the_link(modelled: Run) -> None:
    (curve,) = (each for each in modelled.curves if (each.route, each.direction) == ("raw.pinned-async", "h2d"))
    assert curve.asymptote_gbps.value == pytest.approx(H2D / 1e9, rel=0.01)
    assert curve.latency_s.value == pytest.approx(LATENCY_S, rel=0.1)


def test_pageable_copies_are_below_the_ceiling(modelled: Run) -> None:
    for side in ("h2d", "d2h"):
        found = one(modelled, "raw.pageable-memcpy", side, 64 * KIB)
        assert found.of_ceiling is not None
        assert 0 < found.of_ceiling < 1
        assert one(modelled, "raw.pinned-async", side, 64 * KIB).of_ceiling == 1.0


def test_the_run_knows_its_ceiling(modelled: Run) -> None:
    for direction, side in (("h2d", "h2d"), ("d2h", "d2h"), ("both", "sum")):
        best = modelled.ceiling(direction, MIB)  # type: ignore[arg-type]
        rates = [
            each.gbps
            for each in modelled.measurements
            if (each.direction, each.side, each.nbytes) == (direction, side, MIB) and each.gbps is not None
        ]
        assert best.gbps == max(rates)
    with pytest.raises(UsageError, match=r"no ceiling for h2d at 7 B; it has 64 KiB, 256 KiB, 1 MiB\."):
        modelled.ceiling("h2d", 7)
    with pytest.raises(UsageError, match="direction 'up' is unknown"):
        modelled.ceiling("up", 65536)  # type: ignore[arg-type]


def test_rows_outside_the_precision_have_a_remark(modelled: Run) -> None:
    timed = [each for each in modelled.measurements if each.summary is not None]
    assert {each.direction for each in timed} >= {"h2d", "d2h"}
    for each in timed:
        assert each.summary is not None
        width = each.summary.relative_half_width
        assert each.remarks or (width is not None and width <= 0.02)


def test_the_host_runtime_says_that_it_is_not_a_link(modelled: Run) -> None:
    assert (modelled.runtime, modelled.device.name, modelled.link.kind) == (
        "host",
        "host memory, not a PCIe link",
        "none",
    )
    assert modelled.link.h2d_peak_gbps.value is None
    assert {each.of_peak for each in modelled.measurements} == {None}
    assert modelled.runtime_reason == ""


def test_a_complete_run_says_so(modelled: Run) -> None:
    assert (modelled.kind, modelled.ended, modelled.failure) == ("ceiling", "complete", None)
    assert modelled.duration_s > 0
    assert modelled.environment_after is not None


def test_fresh_adds_a_row_to_pageable_d2h_alone(engine: Engine) -> None:
    run = quick(memories=("pageable", "pinned"), directions=("h2d", "d2h"), fresh=True, sizes=(MIB,))
    fresh = [each for each in run.measurements if each.variant == "fresh"]
    assert [(each.route, each.direction) for each in fresh] == [("raw.pageable-memcpy", "d2h")]
    assert fresh[0].gbps is not None
    assert fresh[0].verified.value is True


def test_an_unavailable_way_is_a_row_with_the_reason(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    run = quick(modes=("async", "batch"))
    by_route = {each.route: each for each in run.measurements}
    assert by_route["raw.pinned-async"].gbps is not None
    assert by_route["raw.pinned-batch"].gbps is None
    assert "it came with CUDA 12.8 (driver 570)" in (by_route["raw.pinned-batch"].rate.reason or "")


def test_a_copy_that_fails_verification_has_no_bandwidth(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyxfer._ceiling.subjects import OneWay

    real = OneWay._run

    def forgetful(self: OneWay, copies: int, warmups: int) -> object:
        sample = real(self, copies, warmups)
        if self.way.direction == "d2h":
            self._engine.fill(self._arena.pages(self.way.memory)[0], self._arena.pages(self.way.memory)[1], 99)
        return sample

    monkeypatch.setattr(OneWay, "_run", forgetful)
    h2d, d2h = quick(directions=("h2d", "d2h")).measurements
    assert (h2d.verified.value, d2h.verified.value) == (True, False)
    assert d2h.gbps is None
    assert d2h.rate.reason == "what arrived was not what was sent, so no bandwidth is given"


def test_staged_and_fresh_copies_have_the_fewest_trials_after_a_preparation_beyond_the_budget(engine: Engine) -> None:
    staged = {"memories": ("pageable",), "modes": ("auto", "staged"), "directions": ("h2d", "d2h"), "fresh": True}
    run = quick(sizes=(4 * KIB, MIB), **staged, budget_s=1e-9)
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


def test_the_run_is_saved_at_the_end_as_it_is_returned(engine: Engine) -> None:
    saved: list[Run] = []
    run = quick(save_to=saved.append)
    assert saved[-1] == run


def test_a_long_run_is_saved_while_it_measures(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaveNowAndThen, "EVERY_S", 0.0)
    testing.model_link(H2D, 1e-3, D2H, 1e-3)
    saved: list[Run] = []
    quick(save_to=saved.append, precision=1e-9)
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
def test_an_unknown_device_is_refused_with_the_known_ones(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, device: int | str
) -> None:
    monkeypatch.setattr("pyxfer.native.load", lambda _runtime: engine)
    with pytest.raises(UsageError, match="none of the devices that CUDA shows: 0 host memory, not a PCIe link"):
        ceiling(device, sizes=(4 * KIB,))


def test_the_host_and_a_required_gpu_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="leave out one of the two"):
        ceiling("host", require_gpu=True)


def test_the_calling_thread_keeps_its_cpu_affinity(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    quick()
    assert os.sched_getaffinity(0) == before
