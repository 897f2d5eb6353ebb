"""Times the same routes with torch.utils.benchmark, cupyx.profiler.benchmark and pyxfer.measure.

    python bench/timers.py [--rounds 5] [--export-json F]

The calls are routes of `pyxfer frameworks` (the code that it times) with 64 MiB from the host to the GPU: `torch.to`,
`torch.pinned-nonblocking`, `cupy.asarray`, `cupy.asarray-pinned`. Each is set up and verified once and uses the same
source memory every time. Each call ends with a synchronisation of the framework's current stream, so that every timer
includes the whole transfer and the same wait.

The figures of the timers include:

- torch (`Timer.blocked_autorange`): a host clock around a block of calls that ends with a device synchronisation,
  divided by the number of calls: the call, its wait, and its share of that synchronisation;
- cupyx (`benchmark(...).gpu_times`): the time between two events on CuPy's current stream around one call;
- pyxfer (`measure(..., stream=...).elapsed_s`): the time between two events on the library's current stream around one
  call.

An empty callable is timed as well: its time is the overhead that is part of every figure of a timer.

Every round runs each timer on each call once, in the reverse order of the round before. A timer's figure is the median
of its samples of all rounds. Its *noise* is a range: it covers the 95 % interval of that median and the medians of the
single rounds, and its lower end is then reduced by the timer's figure for the empty callable. Timers agree on a call
within noise if the noises of each pair overlap. A line below the table counts the pairs whose intervals, which are
narrower, do not overlap.

The last lines give pyxfer's times for the empty callable in both brackets. The exit status is 1 if timers disagree or
if one of these times exceeds 5 us.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import metadata
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import shared
from timed_calls import EMPTY, NAMES, NBYTES, TIMERS, Call, Calls, Samples, Timer

import pyxfer
from pyxfer import native
from pyxfer._document.files import check_writable
from pyxfer._document.machines import Device, Environment, Fact, unknown
from pyxfer._document.runs import Summary
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._measure.stats import summarise
from pyxfer.errors import PyxferError, UsageError

EMPTY_TARGET_S = 5e-6
HEADER = ("call", "timer", "median us", "95 % interval us", "noise us", "n", "agree within noise")
VERDICTS = {True: "yes", False: "no", None: "-"}

Time = Callable[[Call], Samples]


class Row(msgspec.Struct, frozen=True):
    """The samples of one timer for one call, in seconds."""

    call: str
    timer: Timer
    rounds: tuple[tuple[float, ...], ...]
    summary: Fact[Summary]


class Empty(msgspec.Struct, frozen=True):
    """pyxfer's time for an empty callable in one bracket."""

    bracket: str
    elapsed_s: Fact[float]


class Timers(msgspec.Struct, frozen=True):
    """The document: machine, versions, and every sample."""

    device: Device
    environment: Environment
    versions: dict[str, Fact[str]]
    nbytes: int
    rows: tuple[Row, ...]
    empty: tuple[Empty, ...]
    kind: Literal["timers"] = "timers"
    schema_version: int = 1


def measure(calls: Sequence[Call], timers: dict[Timer, Time], rounds: int) -> tuple[Row, ...]:
    """Run every timer on every call in every round; the row of a timer that fails has the reason."""
    samples: dict[tuple[str, Timer], list[Samples]] = {(call.name, timer): [] for call in calls for timer in timers}
    reasons: dict[tuple[str, Timer], str] = {}
    for number in range(rounds):
        step = -1 if number % 2 else 1
        for call in calls[::step]:
            for timer in list(timers)[::step]:
                try:
                    samples[call.name, timer].append(timers[timer](call))
                except (ImportError, RuntimeError, PyxferError) as error:
                    reasons[call.name, timer] = _why(error)
    return tuple(_row(*key, found, reasons.get(key)) for key, found in samples.items())


def _row(call: str, timer: Timer, rounds: Sequence[Samples], reason: str | None) -> Row:
    return Row(call, timer, (), unknown(reason)) if reason is not None else summarised(call, timer, rounds)


def summarised(call: str, timer: Timer, rounds: Sequence[Samples]) -> Row:
    """The row of these samples."""
    together = [sample for samples in rounds for sample in samples]
    return Row(call, timer, tuple(tuple(samples) for samples in rounds), Fact(summarise(together)))


def _why(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    return str(error) or type(error).__name__


def noise(row: Row, rows: Sequence[Row]) -> tuple[float, float] | None:
    """The noise of a row, as defined above; `rows` include the empty callable."""
    if row.summary.value is None:
        return None
    medians = [median(samples) for samples in row.rounds]
    ends = [end for end in (row.summary.value.low_s, row.summary.value.high_s) if end is not None]
    return min(*medians, *ends) - _own_s(row, rows), max(*medians, *ends)


def _own_s(row: Row, rows: Sequence[Row]) -> float:
    own = (other.summary.value for other in rows if (other.call, other.timer) == (EMPTY, row.timer))
    return next((summary.median_s for summary in own if summary is not None), 0.0)


def agree(call: str, rows: Sequence[Row]) -> bool | None:
    """Whether all noises of a call overlap; None with fewer than two timers."""
    noises = [span for row in rows if row.call == call and (span := noise(row, rows)) is not None]
    if len(noises) <= 1:
        return None
    return max(low for low, _ in noises) <= min(high for _, high in noises)


def pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Every two timers of the same call, without the empty callable."""
    known = [row for row in rows if row.call != EMPTY and row.summary.value is not None]
    return [(one, other) for one, other in combinations(known, 2) if one.call == other.call]


def differ(one: Row, other: Row) -> bool:
    """Whether the 95 % intervals of the two medians do not overlap."""
    a, b = one.summary.value, other.summary.value
    if a is None or b is None:
        return False
    if a.low_s is None or a.high_s is None or b.low_s is None or b.high_s is None:
        return False
    return max(a.low_s, b.low_s) > min(a.high_s, b.high_s)


def pairs_line(rows: Sequence[Row]) -> str:
    """How many pairs agree within noise, and how many of them have intervals apart."""
    compared = pairs(rows)
    spans = [(noise(one, rows), noise(other, rows)) for one, other in compared]
    agreeing = sum(a is not None and b is not None and max(a[0], b[0]) <= min(a[1], b[1]) for a, b in spans)
    apart = sum(differ(one, other) for one, other in compared)
    return (
        f"{agreeing} of {len(compared)} pairs agree within noise; the 95 % intervals of {apart} pairs do not overlap."
    )


# --- the table -------------------------------------------------------------------------------------------------------


def table(document: Timers) -> str:
    """The table, followed by the reasons for missing figures and the lines of the empty callable."""
    lines = [*missing_lines(document.rows), *(_empty_line(empty) for empty in document.empty)]
    return "\n".join([shared.aligned(HEADER, cells(document.rows)), pairs_line(document.rows), *lines])


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The cells of the rows, in the columns of `HEADER`."""
    return [
        [row.call, row.timer, *_figures(row, rows), VERDICTS[None if row.call == EMPTY else agree(row.call, rows)]]
        for row in rows
    ]


def missing_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each missing figure, with the reason."""
    return [f"{row.call}, {row.timer}: {row.summary.reason}" for row in rows if row.summary.reason is not None]


def _figures(row: Row, rows: Sequence[Row]) -> list[str]:
    summary, reach = row.summary.value, noise(row, rows)
    if summary is None or reach is None:
        return ["-"] * 4
    interval = _span(summary.low_s, summary.high_s)
    return [_us(summary.median_s), interval, _span(*reach), str(summary.n)]


def _span(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{_us(low)} to {_us(high)}"


def _us(seconds: float) -> str:
    return f"{round(seconds * 1e6, 1) + 0.0:.1f}"  # no -0.0


def _empty_line(empty: Empty) -> str:
    if empty.elapsed_s.value is None:
        return f"empty callable, {empty.bracket} bracket: {empty.elapsed_s.reason}"
    verdict = "yes" if empty.elapsed_s.value <= EMPTY_TARGET_S else "no"
    seconds = f"{empty.elapsed_s.value * 1e6:.2f} us"
    return f"empty callable, {empty.bracket} bracket: {seconds}; at most {EMPTY_TARGET_S * 1e6:.0f} us: {verdict}"


# --- the script ------------------------------------------------------------------------------------------------------


def measure_empty(rows: Sequence[Row]) -> tuple[Empty, Empty]:
    """Time of the empty callable in the bracket `stream` (from its row of pyxfer) and in the bracket `drained`."""
    row = next(row for row in rows if (row.call, row.timer) == (EMPTY, "pyxfer"))
    summary = row.summary.value
    on_stream: Fact[float] = unknown(row.summary.reason or "") if summary is None else Fact(summary.median_s)
    found = pyxfer.measure(lambda: None)
    drained: Fact[float] = unknown(found.rate.reason or "no valid trial")
    if found.elapsed_s is not None:
        drained = Fact(found.elapsed_s)
    return Empty("stream", on_stream), Empty("drained", drained)


def prepare(calls: Calls) -> tuple[list[Call], tuple[Row, ...]]:
    """The available calls, and a row with the reason for each timer of an unavailable call."""
    made: list[Call] = []
    missing: list[Row] = []
    for name in NAMES:
        try:
            made.append(calls.make(name))
        except (ImportError, RuntimeError, PyxferError) as error:
            missing += [Row(name, timer, (), unknown(_why(error))) for timer in TIMERS]
    return made, tuple(missing)


def versions() -> dict[str, Fact[str]]:
    """Versions of the libraries whose timers are used."""
    found: dict[str, Fact[str]] = {}
    for name in ("torch", "cupy"):
        owners = metadata.packages_distributions().get(name)
        found[name] = Fact(metadata.version(owners[0])) if owners else unknown(f"{name} is not installed")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the document; see `status` for the exit status."""
    parser = argparse.ArgumentParser(description="Time the same routes with three timers.")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write every sample to this file")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    if options.export_json:
        check_writable(options.export_json)
    engine = native.choose(0, require_gpu=True).engine
    device = find_device(engine, 0)
    with Calls(engine, device.index) as calls:
        made, missing = prepare(calls)
        rows = (*measure(made, TIMERS, options.rounds), *missing)
    empty = measure_empty(rows)
    document = Timers(device, read_environment(engine, device), versions(), NBYTES, rows, empty)
    print(shared.machine_line(document.device, document.environment))
    print(table(document))
    shared.write_document(options.export_json, document)
    return status(document)


def status(document: Timers) -> int:
    """0 if timers agree and the empty callable is short enough, 1 if not, 4 if no two timers ran on a call."""
    verdicts = [agree(name, document.rows) for name in NAMES if name != EMPTY]
    compared = [verdict for verdict in verdicts if verdict is not None]
    short = all(empty.elapsed_s.value is None or empty.elapsed_s.value <= EMPTY_TARGET_S for empty in document.empty)
    if not compared:
        return 4
    return 0 if all(compared) and short else 1


if __name__ == "__main__":
    shared.run_script(main)
