"""Counts how often `pyxfer baseline check` and `pyxfer compare` are right over models of noise between processes.

    python bench/verdicts.py [--repeats 150] [--seed 1] [--export-json F]

The times of whole processes are drawn from a model of noise and given to the functions that judge for the two commands
(`pyxfer/_baseline/judge.py`). There are three tables:

- Checks: a repeat is a baseline of some processes, and a check of a host that has lost a known share of its bandwidth.
- Comparisons of one run with one run, with --fail-on slower:5%.
- Printed losses: a repeat is a baseline, a check of the unchanged host, and another one of the host on which one cell
  has lost what the first check printed for it.

The exit status is 1 if a row misses a limit: more than 1 % of the equal hosts are confirmed SLOW, fewer than 80 % of
them are SAME or fewer than 95 % of the losses of 5 % are confirmed where processes differ by at most 1 %, a comparison
of equal hosts fails, or fewer than 93 % of the printed losses are found where the model is one that a check assumes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

from pyxfer._baseline.check import DEFAULT_PROCESSES, DEFAULT_RETRIES
from pyxfer._baseline.judge import (
    ASSUMED_LOCKED,
    DEFAULT_TOLERANCE,
    Judged,
    Plan,
    is_look,
    is_settled,
    is_slower,
    judge,
    overall_verdict,
)
from pyxfer._baseline.samples import Series
from pyxfer._document.cells import Cell
from pyxfer._document.files import check_writable
from pyxfer._document.machines import Device, Environment
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._report.grid import markdown_table
from pyxfer._report.tables import Value
from pyxfer.errors import UsageError
from pyxfer.native import HOST, choose
from pyxfer.units import format_percent

CELLS = tuple(
    Cell("raw", "raw.pinned-async", way, way, "pinned", nbytes, "async")
    for way in ("h2d", "d2h")
    for nbytes in (1 << 20, 1 << 24, 1 << 28)
)
WITHIN = 0.0003
FAIL_ON = 0.05
BAD = 0.2
MAX_FALSE, MIN_FOUND, MIN_SAME, MIN_AS_PRINTED = 0.01, 0.95, 0.80, 0.93
LOSSES = (0.0, 0.05, 0.1)
HALF = 0.5
COMPARED = 10
"""A comparison takes a tenth of the time of a check, so its rows have this many times the repeats."""
SEARCHED = 3
"""The loss that is needed is searched in one of this many repeats, because each search takes eight checks."""
FEW, DEFAULT, TEN, SITTINGS = (3,), (DEFAULT_PROCESSES,), (10,), (3,) * 5

Rng = np.random.Generator
Logs = NDArray[np.float64]
Outcome = Literal["SAME", "FAST", "AMBIGUOUS", "SLOW", "confirmed"]
OUTCOMES: tuple[Outcome, ...] = ("SAME", "FAST", "AMBIGUOUS", "SLOW", "confirmed")
HEADINGS = ("SAME", "FAST", "AMBIGUOUS", "SLOW, not confirmed", "SLOW, confirmed")


class Noise(msgspec.Struct, frozen=True):
    """A model: the logarithms of the times of the cells of one process, and the spread of the level of a sitting.

    `goal`: the limits for equal hosts and losses of 5 % hold for it. `known`: a check assumes such a noise, so the loss
    that it prints has to be found.
    """

    name: str
    process: Callable[[Rng], Logs]
    level: float = 0.0
    goal: bool = False
    known: bool = True


def normal(spread: float) -> Callable[[Rng], Logs]:
    """Each cell of each process for itself."""
    return lambda rng: spread * rng.standard_normal(len(CELLS))


def together(spread: float) -> Callable[[Rng], Logs]:
    """All cells of a process alike, and a tenth of it in each cell."""
    return lambda rng: spread * rng.standard_normal() + spread / 10 * rng.standard_normal(len(CELLS))


def student(spread: float) -> Callable[[Rng], Logs]:
    """With far more outliers than normal values."""
    return lambda rng: spread * rng.standard_t(2, len(CELLS))


def two_modes(rng: Rng) -> Logs:
    """Each process is in one of two modes."""
    return 0.08 * rng.integers(0, 2) + normal(0.003)(rng)


def one_bad(rng: Rng) -> Logs:
    """One process in five is 10 to 30 % slow."""
    bad = -math.log1p(-rng.uniform(0.1, 0.3)) if rng.random() < BAD else 0.0
    return bad + normal(0.003)(rng)


NOISES = (
    Noise("0.1 % normal", normal(0.001), goal=True),
    Noise("0.5 % normal", normal(0.005), goal=True),
    Noise("1 % normal", normal(0.01), goal=True),
    Noise("2 % normal", normal(0.02)),
    Noise("0.5 %, all cells of a process", together(0.005), goal=True),
    Noise("1 %, all cells of a process", together(0.01), goal=True),
    Noise("Student t2, 0.5 %", student(0.005)),
    Noise("two modes 8 % apart", two_modes),
    Noise("one process in five 10 to 30 % slow", one_bad),
    Noise("level of the day 1 %", normal(0.002), 0.01),
    Noise("level of the day 2 %", normal(0.002), 0.02),
)


LEVEL_HALF = Noise("level of the day 0.5 %", normal(0.001), 0.005, known=False)
PRINTED = (
    (Noise("0.1 % normal", normal(0.001)), (FEW, DEFAULT, TEN)),
    (Noise("0.3 % normal", normal(0.003)), (FEW, DEFAULT, TEN)),
    (Noise("1 % normal", normal(0.01)), (FEW, DEFAULT, TEN)),
    (Noise("1 %, all cells of a process", together(0.01)), (FEW, DEFAULT, TEN)),
    (Noise("3 % normal", normal(0.03)), (FEW, DEFAULT, TEN)),
    (Noise("level of the day 0.25 %", normal(0.001), 0.0025), (FEW, DEFAULT, TEN)),
    (LEVEL_HALF, (FEW, DEFAULT, TEN)),
    (msgspec.structs.replace(LEVEL_HALF, known=True), (SITTINGS,)),
)


class Row(msgspec.Struct, frozen=True):
    """All repeats of one model, baseline and loss; `runs` is the number of runs that the checks made."""

    what: Literal["check", "compare"]
    noise: str
    sittings: tuple[int, ...]
    lost: float
    repeats: int
    outcomes: dict[Outcome, int]
    runs: int

    def share(self, outcome: Outcome) -> float:
        """The share of the repeats with this outcome."""
        return self.outcomes.get(outcome, 0) / self.repeats

    @property
    def processes(self) -> str:
        """The number of processes of the baseline."""
        return processes_text(self.sittings)


class Printed(msgspec.Struct, frozen=True):
    """How often a loss is found that a check has printed. `median` is that of the printed losses.

    `needed`: the loss that is found in 95 % of the repeats, whatever is printed.
    """

    noise: str
    sittings: tuple[int, ...]
    repeats: int
    found: int
    median: float
    needed: float
    known: bool


def processes_text(sittings: Sequence[int]) -> str:
    """`5`, or `5 x 3` of five sittings."""
    return f"{sittings[0]}" if len(sittings) == 1 else f"{len(sittings)} x {sittings[0]}"


class Verdicts(msgspec.Struct, frozen=True):
    """The document: machine, parameters, and counts."""

    device: Device
    environment: Environment
    seed: int
    cells: int
    retries: int
    tolerance: float
    assumed: float
    rows: tuple[Row, ...]
    printed: tuple[Printed, ...]
    kind: Literal["verdicts"] = "verdicts"
    schema_version: int = 1


class Host:
    """Processes with the times of a model, in sittings."""

    def __init__(self, noise: Noise, rng: Rng) -> None:
        self._noise = noise
        self._rng = rng

    def sitting(self, processes: int) -> Logs:
        """The logarithms of the times of the cells of each process; all have the level of the sitting."""
        level = self._noise.level * self._rng.standard_normal()
        return np.array([level + self._noise.process(self._rng) for _ in range(processes)])

    def baseline(self, sittings: Sequence[int]) -> dict[Cell, Series]:
        """One side, with this many processes in each sitting."""
        return side([self.sitting(count) for count in sittings])


def side(sittings: Sequence[Logs]) -> dict[Cell, Series]:
    """The cells of these processes."""
    times = np.exp(np.concatenate(sittings))
    numbers = tuple(number for number, logs in enumerate(sittings) for _ in logs)
    processes = tuple(range(len(times)))
    errors = (WITHIN,) * len(times)
    return {
        cell: Series(tuple(times[:, place].tolist()), errors, processes, numbers, cell.nbytes)
        for place, cell in enumerate(CELLS)
    }


def slower(logs: Logs, lost: float, cell: int | None = None) -> Logs:
    """The same host with a share of its bandwidth lost, in one cell or in all."""
    moved: Logs = logs.copy()
    moved[:, slice(None) if cell is None else cell] -= math.log1p(-lost)
    return moved


class Checked(msgspec.Struct, frozen=True):
    """The result of a check after its last process."""

    cells: dict[Cell, Judged]
    processes: int

    @property
    def outcome(self) -> Outcome:
        """As the command would report it."""
        if any(each.confirmed for each in self.cells.values()):
            return "confirmed"
        return overall_verdict({each.verdict for each in self.cells.values()})


def check_once(before: dict[Cell, Series], now: Logs) -> Checked:
    """A check against the baseline by these processes, of which it uses as many as it needs."""
    most = len(now)
    for count in range(1, most + 1):
        plan = Plan(most, is_last=count == most)
        if not plan.is_last and not is_look(count):
            continue
        found = judge(before, side([now[:count]]), DEFAULT_TOLERANCE, plan)
        if plan.is_last or is_settled(((each.verdict, each.confirmed) for each in found.values()), count):
            return Checked(found, count)
    raise UsageError("a check needs a process")


def count_checks(host: Host, noise: Noise, sittings: tuple[int, ...], lost: float, repeats: int) -> Row:
    """One row of checks."""
    found = [
        check_once(host.baseline(sittings), slower(host.sitting(1 + DEFAULT_RETRIES), lost)) for _ in range(repeats)
    ]
    outcomes = Counter(each.outcome for each in found)
    return Row("check", noise.name, sittings, lost, repeats, dict(outcomes), sum(each.processes for each in found))


def count_comparisons(host: Host, noise: Noise, lost: float, repeats: int) -> Row:
    """One row of comparisons; those that --fail-on would fail count as confirmed."""
    outcomes: Counter[Outcome] = Counter()
    for _ in range(repeats):
        found = judge(host.baseline((1,)), side([slower(host.sitting(1), lost)])).values()
        fails = any(is_slower(each.found, FAIL_ON) for each in found)
        outcomes["confirmed" if fails else overall_verdict({each.verdict for each in found})] += 1
    return Row("compare", noise.name, (1,), lost, repeats, dict(outcomes), repeats)


def count_printed(host: Host, noise: Noise, sittings: tuple[int, ...], repeats: int) -> Printed:
    """One row of printed losses, each planted in its own cell; the cells take turns."""
    printed, needed, found = [], [], 0
    for number in range(repeats):
        place, before = number % len(CELLS), host.baseline(sittings)
        first = check_once(before, host.sitting(1 + DEFAULT_RETRIES))
        loss = first.cells[CELLS[place]].least_loss or 0.0
        now = host.sitting(1 + DEFAULT_RETRIES)
        found += is_found(before, now, place, loss)
        printed.append(loss)
        if number % SEARCHED == 0:
            needed.append(smallest_found(before, now, place))
    return Printed(
        noise.name,
        sittings,
        repeats,
        found,
        float(np.median(printed)),
        float(np.quantile(needed, MIN_FOUND)),
        noise.known,
    )


def is_found(before: dict[Cell, Series], now: Logs, place: int, loss: float) -> bool:
    """Whether a check confirms a loss of one cell."""
    return check_once(before, slower(now, loss, place)).cells[CELLS[place]].confirmed


def smallest_found(before: dict[Cell, Series], now: Logs, place: int) -> float:
    """The smallest loss of one cell that a check with these processes confirms, within 0.1 %."""
    low, high = DEFAULT_TOLERANCE, 0.2
    while high - low > 0.001:  # noqa: PLR2004
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(before, now, place, middle) else (middle, high)
    return high


def collect(repeats: int, seed: int) -> Verdicts:
    """Every row."""
    if repeats < 1:
        raise UsageError(f"--repeats must be 1 or more, not {repeats}.")
    rng, engine = np.random.default_rng(seed), choose(HOST).engine
    device = find_device(engine, 0)
    rows = tuple(row for noise in NOISES for row in rows_of(noise, rng, repeats))
    printed = tuple(
        count_printed(Host(noise, rng), noise, sittings, repeats) for noise, kinds in PRINTED for sittings in kinds
    )
    return Verdicts(
        device,
        read_environment(engine, device),
        seed,
        len(CELLS),
        DEFAULT_RETRIES,
        DEFAULT_TOLERANCE,
        ASSUMED_LOCKED,
        rows,
        printed,
    )


def rows_of(noise: Noise, rng: Rng, repeats: int) -> Iterator[Row]:
    """The checks and comparisons of one model."""
    host = Host(noise, rng)
    for sittings in (DEFAULT, SITTINGS) if noise.level else (DEFAULT, TEN):
        for lost in LOSSES[:2] if noise.goal else LOSSES:
            yield count_checks(host, noise, sittings, lost, repeats)
    for lost in (0.0, HALF):
        yield count_comparisons(host, noise, lost, COMPARED * repeats)
    print(f"{noise.name}: done", file=sys.stderr)


def misses(document: Verdicts) -> list[str]:
    """The limits that the counts miss, one sentence each."""
    return [*(text for row in document.rows for text in row_misses(row)), *printed_misses(document)]


def row_misses(row: Row) -> Iterator[str]:
    """The limits that one row of checks or comparisons misses."""
    name = f"of {row.repeats} with {row.noise}, {row.processes} processes, {format_percent(row.lost)} lost,"
    slow = row.share("confirmed")
    if row.lost == 0 and slow > (MAX_FALSE if row.what == "check" else 0):
        yield f"{format_percent(slow)} {name} are SLOW"
    if row.what == "compare" or row.noise not in {noise.name for noise in NOISES if noise.goal}:
        return
    if row.lost == 0 and row.share("SAME") < MIN_SAME:
        yield f"only {format_percent(row.share('SAME'))} {name} are SAME"
    if row.lost == FAIL_ON and slow < MIN_FOUND:
        yield f"only {format_percent(slow)} {name} are SLOW"


def printed_misses(document: Verdicts) -> list[str]:
    """The rows of printed losses that are found too seldom."""
    return [
        f"only {format_percent(row.found / row.repeats)} of {row.repeats} printed losses with {row.noise}, "
        f"{processes_text(row.sittings)} processes, are found"
        for row in document.printed
        if row.known and row.found < MIN_AS_PRINTED * row.repeats
    ]


def lost_text(row: Row) -> str:
    """The loss of a row."""
    return format_percent(row.lost) if row.lost else "nothing"


def table(document: Verdicts) -> str:
    """The table of checks for docs/reliability.md."""
    header = ["noise between processes", "processes", "lost", "repeats", *HEADINGS, "runs"]
    body: list[list[Value]] = [
        [
            row.noise,
            row.processes,
            lost_text(row),
            row.repeats,
            *(row.outcomes.get(outcome, 0) for outcome in OUTCOMES),
            f"{row.runs / row.repeats:.1f}",
        ]
        for row in document.rows
        if row.what == "check"
    ]
    return f"{caption(document)}\n\n{markdown_table(header, body)}"


def comparison_table(document: Verdicts) -> str:
    """The table of comparisons of one run with one run."""
    header = ["noise between processes", "lost", "repeats", "SAME", "AMBIGUOUS", "SLOW or FAST", "fails"]
    body: list[list[Value]] = [
        [
            row.noise,
            lost_text(row),
            row.repeats,
            *(row.outcomes.get(outcome, 0) for outcome in ("SAME", "AMBIGUOUS")),
            row.outcomes.get("SLOW", 0) + row.outcomes.get("FAST", 0),
            row.outcomes.get("confirmed", 0),
        ]
        for row in document.rows
        if row.what == "compare"
    ]
    text = (
        f"The same cells, of one run against one run; {format_percent(document.assumed)} is assumed between processes, "
        f"as of page-locked memory over a link; --fail-on slower:{format_percent(FAIL_ON).replace(' ', '')}."
    )
    return f"{text}\n\n{markdown_table(header, body)}"


def printed_table(document: Verdicts) -> str:
    """The table of printed losses."""
    header = ["noise between processes", "processes", "repeats", "printed", "found", "needed"]
    body: list[list[Value]] = [
        [
            row.noise,
            processes_text(row.sittings),
            row.repeats,
            format_percent(row.median),
            format_percent(row.found / row.repeats),
            format_percent(row.needed),
        ]
        for row in document.printed
    ]
    return markdown_table(header, body)


def caption(document: Verdicts) -> str:
    """The parameters, for the documentation."""
    return (
        f"Simulated times of {document.cells} cells, seed {document.seed}; checks with up to {document.retries} "
        f"retries, tolerance {format_percent(document.tolerance)}; {document.environment.taken_at[:10]}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print the tables, write the document; 0 if every limit is met."""
    parser = argparse.ArgumentParser(description="Count how often pyxfer baseline check is right over models of noise.")
    parser.add_argument("--repeats", type=int, default=150, help="repeats of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the noise (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the counts to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    document = collect(options.repeats, options.seed)
    print("\n\n".join(make(document) for make in (table, comparison_table, printed_table)))
    return shared.conclude(document, options.export_json, misses(document))


if __name__ == "__main__":
    shared.run_script(main)
