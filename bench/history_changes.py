"""Counts how often the changes of a history are right, over models of noise.

    python bench/history_changes.py [--repeats 300] [--seed 1] [--export-json F]

Histories are drawn from a model of noise and given to the code of `pyxfer history`: clean ones, ones with a lasting
loss or one that ended, and ones that have lost exactly what the history itself states as the loss that would have been
found. A change is found if it is within one run of its place; the stated loss, if its beginning is within two runs.

The exit status is 1 if a model of the goal misses a limit: a change in more than 1 in 20 of the clean histories, less
than 95 % of the stated losses found, less than 95 % of lasting losses or 90 % of both ends of the others in normal
noise.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

from pyxfer._baseline.changes import MIN_RUNS, Changes, find_changes
from pyxfer._document.files import check_writable
from pyxfer._report.grid import markdown_table
from pyxfer._report.tables import Value
from pyxfer.errors import UsageError
from pyxfer.units import format_percent

SPREAD = 0.005
LENGTHS = (20, 60, 200)
GOAL_RUNS = 60
LOST = 0.05
SHORT = 5
OUTLIERS, SLOW_MODE = 0.08, 0.3
WEEK, WORKDAYS = 7, 5
MAX_FALSE, MIN_FOUND, MIN_ENDS = 0.05, 0.95, 0.90

Rng = np.random.Generator
Logs = NDArray[np.float64]
Draw = Callable[[Rng, int], Logs]


def normal(rng: Rng, runs: int) -> Logs:
    """Each run for itself."""
    return SPREAD * rng.standard_normal(runs)


def heavy(rng: Rng, runs: int) -> Logs:
    """Student's t with three degrees of freedom."""
    return SPREAD / math.sqrt(3) * rng.standard_t(3, runs)


def outliers(rng: Rng, runs: int) -> Logs:
    """8 % of the runs are 5 to 30 % slow."""
    return normal(rng, runs) + np.where(rng.random(runs) < OUTLIERS, np.log1p(-rng.uniform(0.05, 0.3, runs)), 0.0)


def correlated(correlation: float) -> Draw:
    """Each run is like the one before it."""

    def draw(rng: Rng, runs: int) -> Logs:
        values = rng.standard_normal(runs)
        for run in range(1, runs):
            values[run] = correlation * values[run - 1] + math.sqrt(1 - correlation**2) * values[run]
        return SPREAD * values

    return draw


def two_modes(rng: Rng, runs: int) -> Logs:
    """Three of ten runs are in a mode that is 5 % slower."""
    return 0.4 * normal(rng, runs) + math.log1p(-LOST) * (rng.random(runs) < SLOW_MODE)


def weekly(rng: Rng, runs: int) -> Logs:
    """Two of seven runs in a row are 2 % slower."""
    return normal(rng, runs) - 0.02 * ((np.arange(runs) + rng.integers(WEEK)) % WEEK >= WORKDAYS)


def drift(rng: Rng, runs: int) -> Logs:
    """From the first to the last run the host becomes 3 % slower."""
    return normal(rng, runs) - np.linspace(0, 0.03, runs)


def walk(rng: Rng, runs: int) -> Logs:
    """The level of each run differs from that before by 0.2 %."""
    return 0.5 * normal(rng, runs) + 0.4 * np.cumsum(normal(rng, runs))


class Noise(msgspec.Struct, frozen=True):
    """A model. `goal`: the limit of false changes holds for it. `states`: that of the stated loss too."""

    name: str
    draw: Draw
    goal: bool = True
    states: bool = True


NOISES = (
    Noise("normal", normal),
    Noise("Student t3", heavy),
    Noise("8 % of the runs 5 to 30 % slow", outliers),
    Noise("correlation 0.5", correlated(0.5)),
    Noise("correlation 0.7", correlated(0.7), goal=False, states=False),
    Noise("two modes 5 % apart", two_modes, states=False),
    Noise("two of seven runs 2 % slow", weekly),
    Noise("drift of 3 %", drift, goal=False, states=False),
    Noise("random walk, 0.2 % a run", walk, goal=False, states=False),
)


class Row(msgspec.Struct, frozen=True):
    """One model and length of histories; all counts are of `repeats`.

    `changed`, `drifting`: of clean ones. `steps` and `small_steps`: losses of 5 and 2 % found that begin anywhere and
    last. `short` and `long`: losses of 5 % for 5 and for up to 15 runs, both ends found. `newest`: a loss of 5 % in the
    last 5 runs found. `stating`: clean ones that state a loss, `stated` the median of these losses and `found` how many
    of them are found.
    """

    noise: str
    runs: int
    repeats: int
    changed: int
    drifting: int
    steps: int
    small_steps: int
    short: int
    long: int
    newest: int
    stating: int
    stated: float
    stated_runs: float
    found: int


class Found(msgspec.Struct, frozen=True):
    """The document."""

    seed: int
    spread: float
    rows: tuple[Row, ...]
    kind: Literal["history-changes"] = "history-changes"
    schema_version: int = 1


def changes_of(logs: Logs) -> Changes:
    """The changes of a history with these logarithms of rates."""
    return find_changes(list(np.exp(logs)))


def lost(logs: Logs, begin: int, length: int, loss: float) -> Logs:
    """The history with a loss in these runs."""
    changed: Logs = logs.copy()
    changed[begin : begin + length] += math.log1p(-loss)
    return changed


def is_found(logs: Logs, begin: int, length: int, loss: float, *, within: int = 1, ends: bool = True) -> bool:
    """Whether a planted loss is found: its beginning, and its end if that is inside of the history and `ends`."""
    places = changes_of(lost(logs, begin, length, loss)).places
    planted = [begin, *([begin + length] if ends and begin + length < logs.size else [])]
    return all(any(abs(place - true) <= within for place in places) for true in planted)


def somewhere(rng: Rng, runs: int, length: int) -> int:
    """Where a slow period of this many runs begins, with at least five other runs on both sides, or at the end."""
    last = runs - length - MIN_RUNS
    return int(rng.integers(MIN_RUNS, last + 1)) if last >= MIN_RUNS else runs - length


def count(noise: Noise, runs: int, repeats: int, rng: Rng) -> Row:
    """One row of the table."""
    longest = min(15, runs // 2)
    counted = np.zeros(7, dtype=int)
    losses: list[tuple[float, int]] = []
    found = 0
    for _ in range(repeats):
        logs = noise.draw(rng, runs)
        clean = changes_of(logs)
        begin = int(rng.integers(MIN_RUNS, runs - MIN_RUNS + 1))
        length = int(rng.integers(SHORT + 1, longest + 1))
        counted += (
            bool(clean.places),
            clean.drift is not None,
            is_found(logs, begin, runs, LOST),
            is_found(logs, begin, runs, 0.02),
            is_found(logs, somewhere(rng, runs, SHORT), SHORT, LOST),
            is_found(logs, somewhere(rng, runs, length), length, LOST),
            is_found(logs, runs - SHORT, SHORT, LOST),
        )
        if clean.limit is not None and not clean.places and clean.drift is None:
            loss, least = clean.limit.loss, clean.limit.runs
            losses.append((loss, least))
            found += is_found(logs, somewhere(rng, runs, least), least, loss, within=2, ends=False)
    stated, stated_runs = np.median(losses, axis=0).tolist() if losses else (0.0, 0.0)
    counts: list[int] = counted.tolist()
    return Row(noise.name, runs, repeats, *counts, len(losses), stated, stated_runs, found)  # type: ignore[call-arg]


def collect(repeats: int, seed: int, noises: Sequence[Noise] = NOISES, lengths: Sequence[int] = LENGTHS) -> Found:
    """Every row."""
    if repeats < 1:
        raise UsageError(f"--repeats must be 1 or more, not {repeats}.")
    rng = np.random.default_rng(seed)
    rows = []
    for noise in noises:
        for runs in lengths:
            rows.append(count(noise, runs, repeats, rng))
            print(f"{noise.name}, {runs} runs: {rows[-1].changed} of {repeats} changed", file=sys.stderr)
    return Found(seed, SPREAD, tuple(rows))


def misses(document: Found) -> list[str]:
    """The limits that the counts miss, one sentence each."""
    goals = {noise.name: noise for noise in NOISES if noise.goal}
    found = []
    for row in document.rows:
        if row.noise not in goals or row.runs < GOAL_RUNS:
            continue
        name = f"{row.runs} runs with {row.noise}"
        if row.changed > MAX_FALSE * row.repeats:
            found.append(f"{row.changed} of {row.repeats} clean histories have a change: {name}")
        if goals[row.noise].states and row.found < MIN_FOUND * row.stating:
            found.append(f"only {row.found} of {row.stating} stated losses are found: {name}")
        if row.noise == NOISES[2].name and row.steps < MIN_ENDS * row.repeats:
            found.append(f"only {row.steps} of {row.repeats} lasting losses of 5 % are found: {name}")
        if row.noise == NOISES[0].name:
            found += [
                f"only {kept} of {row.repeats} {what} are found: {name}"
                for what, kept, least in (
                    ("lasting losses of 5 %", row.steps, MIN_FOUND),
                    ("lasting losses of 2 %", row.small_steps, MIN_FOUND),
                    ("losses in the newest runs", row.newest, MIN_FOUND),
                    ("short losses", row.short, MIN_ENDS),
                    ("losses that ended", row.long, MIN_ENDS),
                )
                if kept < least * row.repeats
            ]
    return found


def table(document: Found) -> str:
    """The table for docs/reliability.md."""
    header = ["noise", "runs", "clean: changed", "drift", "5 % lasting", "2 % lasting", "5 % for 5 runs"]
    header += ["for 6 to 15", "newest 5 runs", "states a loss", "median loss", "for runs", "found"]
    body: list[list[Value]] = [
        [
            row.noise,
            row.runs,
            *(
                format_percent(each / row.repeats)
                for each in (row.changed, row.drifting, row.steps, row.small_steps, row.short, row.long, row.newest)
            ),
            format_percent(row.stating / row.repeats),
            *(
                (format_percent(row.stated), f"{row.stated_runs:.0f}", format_percent(row.found / row.stating))
                if row.stating
                else ("", "", "")
            ),
        ]
        for row in document.rows
    ]
    return f"{caption(document)}\n\n{markdown_table(header, body)}"


def caption(document: Found) -> str:
    """The parameters, for the documentation."""
    repeats = sorted({row.repeats for row in document.rows})
    return (
        f"{' to '.join(map(str, repeats))} simulated histories of each row, seed {document.seed}; the standard "
        f"deviation of a run is {format_percent(document.spread)} beside the outliers, modes and patterns."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print the table, write the document; 0 if every limit is met."""
    parser = argparse.ArgumentParser(description="Count how often the changes of a history are right.")
    parser.add_argument("--repeats", type=int, default=300, help="histories of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the noise (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the counts to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    document = collect(options.repeats, options.seed)
    print(table(document))
    return shared.conclude(document, options.export_json, misses(document))


if __name__ == "__main__":
    shared.run_script(main)
