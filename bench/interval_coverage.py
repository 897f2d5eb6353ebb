"""How often pyxfer's intervals cover, and how often its drift test is wrong: in simulation and on committed runs.

    python bench/interval_coverage.py [--seed 1] [--repeats 1000] [--export-json F]

Simulated trials go through the sampler, with its stopping rule and a precision of 0.5 %; the budget sets how many there
can be. The true value is that of the noise; of a drift it is the middle of the trials that ran. Of the committed runs,
the interval of consecutive trials is compared with the median of the series' other trials. The exit status is 1 if an
interval of a noise that the trials can show covers in less than 93 % of cases.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

from pyxfer._document.exports import markdown_table
from pyxfer._document.files import check_writable
from pyxfer._document.runs import Run, Side, Trial
from pyxfer._measure import remarks, stats
from pyxfer._measure.sampler import Group, Sampler
from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_percent

ROOT = Path(__file__).resolve().parent.parent
LEAST = 0.93
PRECISION = 0.005
TRIAL_S = 5e-3
BUDGETS = (6, 10, 20, 50, 100, 300, 1000)
"""In trials."""
WINDOWS = (6, 10, 15, 20, 30, 50, 100)
LONG = 100
"""Trials from which on a committed series is used."""
WINDOWS_OF_A_SERIES = 12
MODE_TRIALS = 50

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]


def correlated(phi: float) -> Draw:
    """First-order autoregressive noise of standard deviation 1."""

    def draw(rng: np.random.Generator, n: int) -> Values:
        steps = rng.standard_normal(n) * math.sqrt(1 - phi * phi)
        values = np.empty(n)
        last = rng.standard_normal()
        for i in range(n):
            last = phi * last + steps[i]
            values[i] = last
        return values

    return draw


def slow_modes(rng: np.random.Generator, n: int) -> Values:
    """Two levels, four standard deviations apart, that alternate every `MODE_TRIALS` trials from a random phase."""
    phase = int(rng.integers(2 * MODE_TRIALS))
    return 4.0 * (((np.arange(n) + phase) // MODE_TRIALS) % 2 - 0.5) + rng.standard_normal(n)


def heavy_tails(rng: np.random.Generator, n: int) -> Values:
    """Student's t with two degrees of freedom."""
    return rng.standard_t(2, n)


def skewed(rng: np.random.Generator, n: int) -> Values:
    """Log-normal, with a median of 0."""
    return np.expm1(rng.standard_normal(n))


def quantised(rng: np.random.Generator, n: int) -> Values:
    """A clock whose ticks are as long as the standard deviation."""
    return np.round(rng.standard_normal(n))


def drifting(rng: np.random.Generator, n: int) -> Values:
    """Independent noise on a level that rises by one standard deviation in a hundred trials; 0 at the first."""
    return rng.standard_normal(n) + np.arange(n) / 100


NOISES: dict[str, Draw] = {
    "independent": lambda rng, n: rng.standard_normal(n),
    "AR(1), 0.3": correlated(0.3),
    "AR(1), 0.5": correlated(0.5),
    "AR(1), 0.7": correlated(0.7),
    "heavy tails (t2)": heavy_tails,
    "log-normal": skewed,
    "quantised clock": quantised,
    "drift": drifting,
    "ratio of AR(1), 0.5": correlated(0.5),
    "slow modes": slow_modes,
}
SPREADS = (0.002, 0.01)
"""Standard deviations relative to the level: one that lets the rule stop early, and one that does not."""


class Cell(msgspec.Struct, frozen=True):
    """Intervals of one kind of noise at one number of trials."""

    noise: str
    spread: float
    budget_trials: int
    trials: float
    """The median number of trials when the sampler stopped."""
    with_interval: float
    coverage: float
    half_width: float
    """Relative to the median, at the median."""


class Window(msgspec.Struct, frozen=True):
    """Intervals of consecutive trials of committed series."""

    of: Literal["all", "unmarked", "unmarked pinned"]
    trials: int
    series: int
    coverage: float
    half_width: float
    ratios: float | None
    """Coverage of the interval of the ratio to the ceiling."""


class Alarm(msgspec.Struct, frozen=True):
    """How often the drift test finds a drift that is not there."""

    noise: str
    trials: int
    false_alarms: float


class Coverage(msgspec.Struct, frozen=True):
    """The document."""

    seed: int
    repeats: int
    simulated: tuple[Cell, ...]
    committed: tuple[Window, ...]
    drift: tuple[Alarm, ...]
    kind: Literal["coverage"] = "coverage"
    schema_version: int = 1


# --- simulation ------------------------------------------------------------------------------------------------------


class Simulated:
    """A subject whose trials are drawn beforehand, and whose clock only its trials advance."""

    key = "simulated"
    anchor = None
    ceiling_of = None

    def __init__(self, seconds: Values) -> None:
        self.seconds = seconds
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self.now_s += TRIAL_S
        return {"h2d": Trial(round_index, float(self.seconds[round_index]))}


def sampled(seconds: Values) -> Values:
    """The trials that the sampler takes before it stops."""
    subject = Simulated(seconds)
    group = Group.of("simulated", [subject])
    # Half a trial less, so that rounding does not add one.
    deadline_s = (seconds.size - 0.5) * TRIAL_S
    Sampler([group], PRECISION, deadline_s, seed=1, clock=subject.clock).run()
    return np.asarray(group.series[0].valid_times("h2d"))


def simulate(noise: str, spread: float, budget: int, repeats: int, seed: int) -> Cell:
    """Coverage of one kind of noise, at most `budget` trials each time."""
    rng = np.random.default_rng([seed, budget, round(spread * 1e6), sum(noise.encode())])
    draw, counts, covered, widths = NOISES[noise], [], [], []
    for _ in range(repeats):
        seconds = sampled(1e-3 * np.exp(spread * draw(rng, budget)))
        truth = 1e-3
        if noise == "drift":
            truth *= math.exp(spread * (seconds.size - 1) / 200)
        counts.append(seconds.size)
        if noise.startswith("ratio"):
            other = 1e-3 * np.exp(spread * draw(rng, seconds.size))
            share = stats.ratio_share(list(other), list(seconds))
            low, middle, high, truth = share.low, share.value, share.high, 1.0
        else:
            summary = stats.summarise(list(seconds))
            low, middle, high = summary.low_s, summary.median_s, summary.high_s
        if low is not None and high is not None:
            covered.append(low <= truth <= high)
            widths.append((high - low) / 2 / middle)
    return Cell(noise, spread, budget, median(counts), len(covered) / repeats, fmean(covered), median(widths))


def false_alarms(noise: str, trials: int, repeats: int, seed: int) -> Alarm:
    """How often stationary noise is called a drift, however small."""
    rng = np.random.default_rng([seed, trials, sum(noise.encode())])
    found = 0
    for _ in range(repeats):
        remark = remarks.instability(list(1e-3 * np.exp(0.01 * NOISES[noise](rng, trials))), precision=1e-9)
        found += remark is not None and remark.code == "drift"
    return Alarm(noise, trials, found / repeats)


# --- committed runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """The valid trials of one committed row, and its ceiling's times in the same rounds."""

    seconds: Values
    pinned: bool
    unmarked: bool
    ratios: Values


def recorded(results: Path) -> Iterator[Recorded]:
    """The long series of all committed runs."""
    for path in sorted(results.glob("*.json.gz")):
        try:
            run = Run.load(path)
        except DocumentError:
            continue  # of another kind
        for row in run.measurements:
            trials = [trial for trial in row.trials if trial.invalid is None]
            if len(trials) < LONG:
                continue
            reference = ceiling_times(run, row.direction, row.side, row.nbytes)
            shared_rounds = [(reference[t.round], t.elapsed_s) for t in trials if t.round in reference]
            ratios = np.array([above / below for above, below in shared_rounds if below > 0])
            if np.unique(ratios).size == 1:  # the ceiling itself
                ratios = np.array([])
            seconds = np.array([trial.elapsed_s for trial in trials])
            yield Recorded(seconds, row.memory == "pinned", not row.remarks, ratios)


def ceiling_times(run: Run, direction: str, side: Side, nbytes: int) -> dict[int, float]:
    """The trials, by round, of the fastest raw row of a run."""
    rows = [
        row
        for row in run.measurements
        if (row.direction, row.side, row.nbytes, row.variant) == (direction, side, nbytes, "warm")
        and row.route.startswith("raw.pinned")
        and row.summary is not None
    ]
    if not rows:
        return {}
    fastest = min(rows, key=lambda row: row.summary.median_s if row.summary else math.inf)
    return {trial.round: trial.elapsed_s for trial in fastest.trials if trial.invalid is None}


def covered_windows(values: Values, trials: int) -> tuple[float, float] | None:
    """Coverage and median width of the intervals of parts of a series; None if it is too short."""
    if values.size < max(2 * trials, LONG):
        return None
    starts = np.linspace(0, values.size - trials, min(WINDOWS_OF_A_SERIES, values.size // trials)).astype(int)
    covered, widths = [], []
    for start in starts:
        summary = stats.summarise(list(values[start : start + trials]))
        rest = float(np.median(np.delete(values, np.s_[start : start + trials])))
        if summary.low_s is None or summary.high_s is None:
            continue
        covered.append(summary.low_s <= rest <= summary.high_s)
        widths.append((summary.high_s - summary.low_s) / 2 / summary.median_s)
    return (fmean(covered), median(widths)) if covered else None


def windows_of(series: Sequence[Recorded]) -> Iterator[Window]:
    """A row for each choice of series and length of part."""
    chosen: dict[Literal["all", "unmarked", "unmarked pinned"], list[Recorded]] = {
        "all": list(series),
        "unmarked": [each for each in series if each.unmarked],
        "unmarked pinned": [each for each in series if each.unmarked and each.pinned],
    }
    for of, members in chosen.items():
        for trials in WINDOWS:
            found = [each for each in (covered_windows(one.seconds, trials) for one in members) if each]
            ratios = [each for each in (covered_windows(one.ratios, trials) for one in members) if each]
            yield Window(
                of,
                trials,
                len(found),
                fmean(coverage for coverage, _ in found),
                median(width for _, width in found),
                fmean(coverage for coverage, _ in ratios) if ratios else None,
            )


# --- tables ----------------------------------------------------------------------------------------------------------


def shows_its_levels(cell: Cell) -> bool:
    """Whether the trials span the noise's levels: slow modes need both."""
    return cell.noise != "slow modes" or cell.budget_trials >= 2 * MODE_TRIALS


def simulated_table(document: Coverage) -> str:
    """Coverage, a row for each kind of noise and a column for each budget; the lower of both spreads."""
    rows = [
        [noise]
        + [
            format_percent(
                min(cell.coverage for cell in document.simulated if (cell.noise, cell.budget_trials) == (noise, budget))
            )
            for budget in BUDGETS
        ]
        for noise in NOISES
    ]
    return markdown_table(["noise", *(f"{budget} trials" for budget in BUDGETS)], rows)


def committed_table(document: Coverage) -> str:
    """Coverage and width on committed series."""
    rows = [
        [
            window.of,
            str(window.trials),
            str(window.series),
            format_percent(window.coverage),
            format_percent(window.half_width),
            "" if window.ratios is None else format_percent(window.ratios),
        ]
        for window in document.committed
    ]
    return markdown_table(["series", "trials", "series", "coverage", "half-width", "coverage of ratios"], rows)


def drift_table(document: Coverage) -> str:
    """False alarms of the drift test."""
    lengths = sorted({alarm.trials for alarm in document.drift})
    rates = {(alarm.noise, alarm.trials): f"{alarm.false_alarms * 100:.2f} %" for alarm in document.drift}
    noises = list(dict.fromkeys(alarm.noise for alarm in document.drift))
    return markdown_table(
        ["noise", *(f"{length} trials" for length in lengths)],
        [[noise, *(rates[noise, length] for length in lengths)] for noise in noises],
    )


def main(arguments: Sequence[str] | None = None, results: Path = ROOT / "bench" / "results") -> int:
    """Simulate, read the committed runs, print the tables; 1 if an interval covers too seldom."""
    parser = argparse.ArgumentParser(description="Coverage of pyxfer's intervals.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1000, help="simulated runs of a cell (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        raise UsageError(f"--repeats must be at least 1, not {options.repeats}.")
    if options.export_json:
        check_writable(options.export_json)
    document = Coverage(
        options.seed,
        options.repeats,
        tuple(
            simulate(noise, spread, budget, options.repeats, options.seed)
            for noise in NOISES
            for spread in SPREADS
            for budget in BUDGETS
        ),
        tuple(windows_of(list(recorded(results)))),
        tuple(
            false_alarms(noise, trials, 10 * options.repeats, options.seed)
            for noise in list(NOISES)[:4]
            for trials in (30, 60, 200)
        ),
    )
    shared.write_document(options.export_json, document)
    print(simulated_table(document), committed_table(document), drift_table(document), sep="\n\n")
    missed = [cell for cell in document.simulated if shows_its_levels(cell) and cell.coverage < LEAST]
    missed_windows = [window for window in document.committed if window.coverage < LEAST]
    return 1 if missed or missed_windows else 0


if __name__ == "__main__":
    sys.exit(main())
