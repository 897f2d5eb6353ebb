"""Coverage of intervals, in simulation and on committed runs."""

from __future__ import annotations

from pathlib import Path

import interval_coverage as intervals
import msgspec
import numpy as np
import pytest
from samples import make_measurement, make_run

from pyxfer._document.runs import Trial
from pyxfer._measure import stats

replace = msgspec.structs.replace


def document() -> intervals.Coverage:
    cells = tuple(
        intervals.Cell(noise, spread, budget, budget, 1.0, 0.96 if spread < 0.005 else 0.95, 0.01)
        for noise in intervals.NOISES
        for spread in intervals.SPREADS
        for budget in intervals.BUDGETS
    )
    windows = (
        intervals.Window("all", 20, 392, 0.948, 0.062, 0.937),
        intervals.Window("unmarked", 6, 3, 0.97, 0.01, None),
    )
    alarms = (intervals.Alarm("independent", 30, 0.0), intervals.Alarm("independent", 200, 0.0005))
    return intervals.Coverage(1, 100, cells, windows, alarms)


@pytest.mark.parametrize("budget", [6, 50])
def test_a_budget_allows_that_many_trials(budget: int) -> None:
    assert intervals.sampled(1e-3 * np.linspace(1, 2, budget)).size == budget


def test_the_sampler_stops_before_the_budget_if_trials_are_quiet() -> None:
    assert intervals.sampled(np.full(1000, 1e-3)).size < 200


@pytest.mark.parametrize("noise", list(intervals.NOISES))
def test_a_simulation_counts_what_the_interval_encloses(noise: str) -> None:
    cell = intervals.simulate(noise, 0.01, 100, repeats=20, seed=3)
    assert cell.with_interval == 1.0
    assert cell.trials == 100
    assert cell.coverage >= 0.8
    assert cell.half_width >= 0


def test_a_narrower_interval_covers_less(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = intervals.simulate("AR(1), 0.7", 0.01, 20, repeats=100, seed=3)
    monkeypatch.setattr(stats, "ALLOWANCE", 0.3)
    narrow = intervals.simulate("AR(1), 0.7", 0.01, 20, repeats=100, seed=3)
    assert narrow.coverage < wide.coverage - 0.1


def test_committed_series_are_compared_with_their_own_rest() -> None:
    rng = np.random.default_rng(5)
    steady = 1e-3 * (1 + 0.01 * rng.standard_normal(400))
    assert intervals.covered_windows(steady[:50], 20) is None
    found = intervals.covered_windows(steady, 20)
    assert found is not None
    assert found[0] >= 0.9
    rising = intervals.covered_windows(1e-3 * np.linspace(1, 2, 400), 20)
    assert rising is not None
    assert rising[0] < 0.2


def test_long_series_and_their_ratios_are_read_from_runs(tmp_path: Path) -> None:
    def row(scale: float, route: str) -> object:
        seconds = [scale * (1e-3 + 1e-6 * (i % 7)) for i in range(120)]
        trials = tuple(Trial(round=i, elapsed_s=s, dispatch_s=1e-6) for i, s in enumerate(seconds))
        summary = stats.summarise(seconds)
        rate = replace(make_measurement().rate, value=stats.rate(16 << 20, summary))
        share = replace(make_measurement().peak_share, value=None, reason="none")
        return make_measurement(
            route=route,
            trials=trials,
            summary=summary,
            rate=rate,
            peak_share=share,
            ceiling_share=share,
            dispatch=stats.summarise([1e-6] * 120),
        )

    rows = (row(1.0, "raw.pinned-async"), row(2.0, "raw.pageable-memcpy"), make_measurement())
    make_run(measurements=rows, curves=(), locking=()).save(tmp_path / "run.json.gz")
    found = list(intervals.recorded(tmp_path))
    assert [each.seconds.size for each in found] == [120, 120]


def test_the_tables_show_the_lower_coverage_of_each_noise() -> None:
    made = document()
    assert "95.0 %" in intervals.simulated_table(made)
    assert "96.0 %" not in intervals.simulated_table(made)
    assert "93.7 %" in intervals.committed_table(made)
    assert "0.05 %" in intervals.drift_table(made)


def test_slow_modes_need_trials_of_both() -> None:
    cells = [cell for cell in document().simulated if cell.noise == "slow modes"]
    assert [intervals.shows_its_levels(cell) for cell in cells[:7]] == [False] * 4 + [True] * 3


@pytest.mark.slow
def test_too_low_a_coverage_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(intervals, "BUDGETS", (20,))
    monkeypatch.setattr(intervals, "NOISES", {"AR(1), 0.7": intervals.NOISES["AR(1), 0.7"]})
    monkeypatch.setattr(intervals, "windows_of", lambda series: ())
    arguments = ["--repeats", "60", "--export-json", str(tmp_path / "c.json")]
    assert intervals.main(arguments, tmp_path) == 0
    assert msgspec.json.decode((tmp_path / "c.json").read_bytes(), type=intervals.Coverage).repeats == 60
    monkeypatch.setattr(stats, "ALLOWANCE", 0.3)
    assert intervals.main(arguments, tmp_path) == 1
    assert "AR(1), 0.7" in capsys.readouterr().out
