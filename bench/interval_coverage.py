"""How often pyxfer's intervals cover, and how often its drift test is wrong: in simulation and on committed runs.

    python bench/interval_coverage.py [--seed 1] [--repeats 1000] [--export-json F]

Simulated trials go through the sampler, with its stopping rule and a precision of 0.5 %; the budget sets how many there
can be. The true value is that of the noise; of a drift it is the middle of the trials that ran. Of the committed runs,
the interval of some trials of a series is compared with the median of the others: of turns spread over the run, as the
sampler takes them, and of consecutive trials. Widths are compared with those of a block bootstrap with blocks of
sqrt(n). The exit status is 1 if intervals of a noise that the trials can show cover in less than 93 % of cases, or are
more than 1.6 times as wide as the bootstrap's from 100 trials on, where the bootstrap itself covers in about 90 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

from pyxfer._document.files import check_writable
from pyxfer._document.machines import Side
from pyxfer._document.runs import Run, Trial
from pyxfer._measure import doubts, stats
from pyxfer._measure.sampler import Group, Sampler
from pyxfer._report.grid import markdown_table
from pyxfer.errors import DocumentError, UsageError
from pyxfer.units import format_percent

ROOT = Path(__file__).resolve().parent.parent
MIN_COVERAGE = 0.93
WIDEST = 1.6
WIDEST_FROM = 100
"""Trials. With fewer the bootstrap is no measure: its own intervals cover in 50 to 90 % of cases."""
RESAMPLED = 200
BOOTSTRAPS = 40
"""Simulated runs of a cell that are resampled too."""
PRECISION = 0.005
TRIAL_S = 1e-3
BUDGETS = (6, 10, 20, 50, 100, 300, 1000)
"""In trials."""
WINDOWS = (6, 10, 20, 50, 100, 200)
LONG = 100
"""Trials from which on a committed series is used."""
WINDOWS_OF_A_SERIES = 12
TURN = 10
"""Trials of a turn."""

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


def modes(trials: int) -> Draw:
    """Two levels, four standard deviations apart, that alternate every `trials` from a random phase."""

    def draw(rng: np.random.Generator, n: int) -> Values:
        phase = int(rng.integers(2 * trials))
        return 4.0 * (((np.arange(n) + phase) // trials) % 2 - 0.5) + rng.standard_normal(n)

    return draw


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
    "modes of 10 trials": modes(10),
    "modes of 30 trials": modes(30),
    "modes of 100 trials": modes(100),
}
SHOWN_FROM = {"modes of 10 trials": 20, "modes of 30 trials": 60, "modes of 100 trials": math.inf}
"""Trials that span the noise's levels. Of modes of 100, the sampler may settle within one."""
WIDTHS_DIFFER = {"drift", "quantised clock"}
"""Of a drift no interval has a right width; those of a quantised clock have often none."""
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
    of_bootstrap: float | None
    """The median width as a multiple of the median width of the block bootstrap's; None if that has none."""
    bootstrap_coverage: float


class Window(msgspec.Struct, frozen=True):
    """Intervals of some trials of committed series."""

    of: Literal["pinned", "pageable"]
    taken: Literal["turns", "consecutive"]
    trials: int
    series: int
    coverage: float
    half_width: float
    of_bootstrap: float | None
    bootstrap_coverage: float
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


def bootstrap(values: Values, rng: np.random.Generator) -> tuple[float, float]:
    """The 95 % interval of the median by a circular block bootstrap."""
    n = values.size
    length = round(math.sqrt(n))
    starts = rng.integers(0, n, (RESAMPLED, -(-n // length)))
    places = (starts[:, :, None] + np.arange(length)).reshape(RESAMPLED, -1)[:, :n] % n
    low, high = np.quantile(np.median(values[places], axis=1), (0.025, 0.975))
    return float(low), float(high)


@dataclass
class Tally:
    """Intervals of one cell, and those of the bootstrap for some of the same trials."""

    covered: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    bootstrap_covered: list[bool] = field(default_factory=list)
    bootstrap_widths: list[float] = field(default_factory=list)

    def add(self, interval: tuple[float | None, float | None], values: Values, truth: float) -> None:
        """Count an interval; one that does not exist does not count."""
        low, high = interval
        if low is not None and high is not None:
            self.covered.append(low <= truth <= high)
            self.widths.append((high - low) / 2 / float(np.median(values)))

    def resample(self, values: Values, truth: float, rng: np.random.Generator) -> None:
        """Count the bootstrap's interval."""
        low, high = bootstrap(values, rng)
        self.bootstrap_covered.append(low <= truth <= high)
        self.bootstrap_widths.append((high - low) / 2 / float(np.median(values)))

    @property
    def of_bootstrap(self) -> float | None:
        """The median width as a multiple of the bootstrap's."""
        below = median(self.bootstrap_widths)
        return median(self.widths) / below if below > 0 else None


def simulate(noise: str, spread: float, budget: int, repeats: int, seed: int) -> Cell:
    """Coverage of one kind of noise, at most `budget` trials each time."""
    rng = np.random.default_rng([seed, budget, round(spread * 1e6), sum(noise.encode())])
    draw, counts, tally = NOISES[noise], [], Tally()
    for number in range(repeats):
        values = sampled(1e-3 * np.exp(spread * draw(rng, budget)))
        counts.append(values.size)
        truth = 1e-3
        if noise == "drift":
            truth *= math.exp(spread * (values.size - 1) / 200)
        if noise.startswith("ratio"):
            other = 1e-3 * np.exp(spread * draw(rng, values.size))
            share = stats.ratio_share(list(other), list(values))
            values, truth, interval = other / values, 1.0, (share.low, share.high)
        else:
            summary = stats.summarise(list(values))
            interval = (summary.low_s, summary.high_s)
        tally.add(interval, values, truth)
        if number < BOOTSTRAPS:
            tally.resample(values, truth, rng)
    return Cell(
        *(noise, spread, budget, median(counts), len(tally.covered) / repeats),
        *(fmean(tally.covered), median(tally.widths), tally.of_bootstrap, fmean(tally.bootstrap_covered)),
    )


def false_alarms(noise: str, trials: int, repeats: int, seed: int) -> Alarm:
    """How often stationary noise is called a drift, however small."""
    rng = np.random.default_rng([seed, trials, sum(noise.encode())])
    found = 0
    for _ in range(repeats):
        remark = doubts.instability(list(1e-3 * np.exp(0.01 * NOISES[noise](rng, trials))), precision=1e-9)
        found += remark is not None and remark.code == "drift"
    return Alarm(noise, trials, found / repeats)


# --- committed runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """The valid trials of one committed row, and its ceiling's times in the same rounds."""

    seconds: Values
    pinned: bool
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
            yield Recorded(seconds, row.memory == "pinned", ratios)


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


def parts(values: Values, trials: int, taken: str, rng: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    """The places of some trials, several times: turns spread over the series, or consecutive ones."""
    if values.size < max(4 * trials, LONG):
        return
    if taken == "consecutive":
        for start in np.linspace(0, values.size - trials, min(WINDOWS_OF_A_SERIES, values.size // trials)).astype(int):
            yield np.arange(start, start + trials)
        return
    turn = min(TURN, trials)
    edges = np.linspace(0, values.size // turn, trials // turn + 1).astype(int)
    for _ in range(WINDOWS_OF_A_SERIES // 2):
        starts = turn * rng.integers(edges[:-1], edges[1:])
        yield (starts[:, None] + np.arange(turn)).reshape(-1)


def covered_parts(values: Values, trials: int, taken: str, rng: np.random.Generator) -> Tally | None:
    """The intervals of parts of a series against the median of the rest; None if it is too short."""
    tally = Tally()
    for places in parts(values, trials, taken, rng):
        part, rest = values[places], float(np.median(np.delete(values, places)))
        summary = stats.summarise(list(part))
        tally.add((summary.low_s, summary.high_s), part, rest)
        tally.resample(part, rest, rng)
    return tally if tally.covered else None


def windows_of(series: Sequence[Recorded], seed: int = 1) -> Iterator[Window]:
    """A row for each kind of memory, number of trials and way to take them."""
    takings: tuple[Literal["turns", "consecutive"], ...] = ("turns", "consecutive")
    memories: tuple[Literal["pinned", "pageable"], ...] = ("pinned", "pageable")
    for taken in takings:
        for of in memories:
            members = [each for each in series if each.pinned == (of == "pinned")]
            for trials in WINDOWS:
                rng = np.random.default_rng([seed, trials])
                found = [each for each in (covered_parts(one.seconds, trials, taken, rng) for one in members) if each]
                ratios = [each for each in (covered_parts(one.ratios, trials, taken, rng) for one in members) if each]
                if found:
                    yield _window(of, taken, trials, found, ratios)


def _window(
    of: Literal["pinned", "pageable"],
    taken: Literal["turns", "consecutive"],
    trials: int,
    found: Sequence[Tally],
    ratios: Sequence[Tally],
) -> Window:
    multiples = [each.of_bootstrap for each in found if each.of_bootstrap is not None]
    return Window(
        of,
        taken,
        trials,
        len(found),
        fmean(fmean(each.covered) for each in found),
        median(median(each.widths) for each in found),
        median(multiples) if multiples else None,
        fmean(fmean(each.bootstrap_covered) for each in found),
        fmean(fmean(each.covered) for each in ratios) if ratios else None,
    )


# --- tables ----------------------------------------------------------------------------------------------------------


def shows_its_levels(cell: Cell) -> bool:
    """Whether the trials span the noise's levels."""
    return cell.budget_trials >= SHOWN_FROM.get(cell.noise, 0)


def is_too_wide(cell: Cell | Window) -> bool:
    """Whether the interval is too wide where the bootstrap's is a measure."""
    trials = cell.trials if isinstance(cell, Window) else min(cell.trials, cell.budget_trials)
    if isinstance(cell, Cell) and (cell.noise in WIDTHS_DIFFER or cell.noise.startswith("modes")):
        return False
    return trials >= WIDEST_FROM and cell.of_bootstrap is not None and cell.of_bootstrap > WIDEST


def misses(document: Coverage) -> Iterator[str]:
    """The cells that miss a limit. Consecutive trials have none: the sampler does not take trials so."""
    for cell in document.simulated:
        where = f"{cell.noise}, {cell.budget_trials} trials, spread {format_percent(cell.spread)}"
        if shows_its_levels(cell) and cell.coverage < MIN_COVERAGE:
            yield f"{where}: covers in {format_percent(cell.coverage)}"
        if is_too_wide(cell):
            yield f"{where}: {cell.of_bootstrap:.2f} times as wide as the bootstrap's"
    for window in document.committed:
        where = f"{window.of}, {window.trials} trials in turns"
        if window.taken == "turns" and window.coverage < MIN_COVERAGE:
            yield f"{where}: covers in {format_percent(window.coverage)}"
        if window.taken == "turns" and is_too_wide(window):
            yield f"{where}: {window.of_bootstrap:.2f} times as wide as the bootstrap's"


def simulated_table(document: Coverage) -> str:
    """Coverage, a row for each kind of noise and a column for each budget; the lower of both spreads."""

    def show(cells: Sequence[Cell]) -> str:
        return format_percent(min(cell.coverage for cell in cells))

    return _by_noise(document, show)


def widths_table(document: Coverage) -> str:
    """Widths as multiples of the bootstrap's; of the larger spread, with which no run ends early."""

    def show(cells: Sequence[Cell]) -> str:
        found = max(cells, key=lambda cell: cell.spread)
        if found.of_bootstrap is None:
            return "-"
        return f"{found.of_bootstrap:.1f} ({100 * found.bootstrap_coverage:.0f} %)"

    return _by_noise(document, show)


def _by_noise(document: Coverage, show: Callable[[Sequence[Cell]], str]) -> str:
    def cells(noise: str, budget: int) -> list[Cell]:
        return [cell for cell in document.simulated if (cell.noise, cell.budget_trials) == (noise, budget)]

    rows = [[noise, *(show(cells(noise, budget)) for budget in BUDGETS)] for noise in NOISES]
    return markdown_table(["noise", *(f"{budget} trials" for budget in BUDGETS)], rows)


def committed_table(document: Coverage) -> str:
    """Coverage and width on committed series."""
    rows = [
        [
            window.of,
            window.taken,
            str(window.trials),
            str(window.series),
            format_percent(window.coverage),
            format_percent(window.half_width),
            "-" if window.of_bootstrap is None else f"{window.of_bootstrap:.1f}",
            format_percent(window.bootstrap_coverage),
            "" if window.ratios is None else format_percent(window.ratios),
        ]
        for window in document.committed
    ]
    header = ["memory", "trials taken", "trials", "series", "coverage", "half-width", "of bootstrap's"]
    return markdown_table([*header, "bootstrap covers", "coverage of ratios"], rows)


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
        tuple(windows_of(list(recorded(results)), options.seed)),
        tuple(
            false_alarms(noise, trials, 10 * options.repeats, options.seed)
            for noise in list(NOISES)[:4]
            for trials in (30, 60, 200)
        ),
    )
    shared.write_document(options.export_json, document)
    tables = (simulated_table, widths_table, committed_table, drift_table)
    print(*(table(document) for table in tables), sep="\n\n")
    found = list(misses(document))
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
