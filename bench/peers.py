"""Compares nvbandwidth and pyxfer on the same link.

    python bench/peers.py --nvbandwidth PATH [--sizes 64MiB,512MiB] [--rounds 3] [--tolerance 0.5%] [--export-json F]

PATH is a binary of NVIDIA's nvbandwidth that you have built; the script does not download it. The speed of a machine
drifts, so the tools take turns: each round runs both at each size, in the reverse order of the round before, and the
difference is the median of the ratios of the rounds. The exit status is 1 if a difference exceeds the tolerance or is
missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import nvbandwidth_json
import shared

import pyxfer
from pyxfer._document.files import check_writable
from pyxfer._document.machines import Device, Environment, Fact, Side, unknown
from pyxfer._document.runs import Direction, Run, Summary
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.units import format_percent, format_size, parse_ratio, parse_sizes

Tool = Literal["nvbandwidth", "pyxfer"]
Test = tuple[Direction, Side]

TESTS: tuple[Test, ...] = tuple(nvbandwidth_json.TESTCASES.values())
BUDGET_S = 4.0


class Reading(msgspec.Struct, frozen=True):
    """The result of one tool for one test in one round."""

    tool: Tool
    round: int
    direction: Direction
    side: Side
    nbytes: int
    gbps: Fact[float]
    summary: Summary | None = None


Read = Callable[[int, int], list[Reading]]  # arguments: round and size


class Row(msgspec.Struct, frozen=True):
    """One test at one size: the median of each tool, and the median difference of the rounds."""

    direction: Direction
    side: Side
    nbytes: int
    nvbandwidth_gbps: Fact[float]
    pyxfer_gbps: Fact[float]
    difference: Fact[float]
    within: bool


class Peers(msgspec.Struct, frozen=True):
    """The document: machine, versions, every reading, and the table."""

    device: Device
    environment: Environment
    nvbandwidth_version: Fact[str]
    nvbandwidth_git_version: Fact[str]
    nvbandwidth_driver: Fact[str]
    tolerance: float
    rounds: int
    rows: tuple[Row, ...]
    readings: tuple[Reading, ...]
    kind: Literal["peers"] = "peers"
    schema_version: int = 1


class Bench:
    """Runs both tools on one device and keeps their results."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self.runs: list[Run] = []
        self.answers: list[nvbandwidth_json.Answer] = []

    def read_pyxfer(self, number: int, nbytes: int) -> list[Reading]:
        """Run `pyxfer.ceiling`. It must run before nvbandwidth, which uses the device of the last run."""
        run = pyxfer.ceiling(
            device=0,
            direction=("h2d", "d2h", "both"),
            memory=("pinned",),
            mode=("async",),
            size=(nbytes,),
            budget=BUDGET_S,
            seed=number,
            require_gpu=True,
        )
        if run.ended == "interrupted":
            raise KeyboardInterrupt
        if run.ended == "failed":
            raise MeasurementError(f"pyxfer could not measure {format_size(nbytes)}: {run.failure}")
        self.runs.append(run)
        return [from_run(run, number, test, nbytes) for test in TESTS]

    def read_nvbandwidth(self, number: int, nbytes: int) -> list[Reading]:
        """Run the four testcases of nvbandwidth in one process."""
        answer = nvbandwidth_json.run(self._binary, nbytes, self.runs[-1].device.uuid.value)
        self.answers.append(answer)
        return [
            Reading("nvbandwidth", number, direction, side, nbytes, answer.gbps[name])
            for name, (direction, side) in nvbandwidth_json.TESTCASES.items()
        ]


def from_run(run: Run, number: int, test: Test, nbytes: int) -> Reading:
    """The warm measurement of one test, or the reason why it is missing."""
    for found in run.measurements:
        if (found.direction, found.side, found.nbytes, found.variant) == (*test, nbytes, "warm"):
            gbps = Fact(found.gbps) if found.gbps is not None else unknown(found.rate.reason or "no rate")
            return Reading("pyxfer", number, *test, nbytes, gbps, found.summary)
    return Reading("pyxfer", number, *test, nbytes, unknown("the run has no such measurement"))


def interleave(tools: Sequence[Read], sizes: Sequence[int], rounds: int) -> list[Reading]:
    """Run every tool at every size in every round; each round reverses the order of the round before."""
    readings: list[Reading] = []
    for number in range(rounds):
        step = -1 if number % 2 else 1
        for nbytes in sizes[::step]:
            for tool in tools[::step]:
                readings += tool(number, nbytes)
    return readings


def compare(readings: Iterable[Reading], tolerance: float) -> tuple[Row, ...]:
    """One row per test and size, in the order of the tests."""
    readings = list(readings)
    sizes = sorted({reading.nbytes for reading in readings})
    return tuple(_row(readings, test, nbytes, tolerance) for test in TESTS for nbytes in sizes)


def _row(readings: Sequence[Reading], test: Test, nbytes: int, tolerance: float) -> Row:
    ours = [r for r in readings if ((r.direction, r.side), r.nbytes) == (test, nbytes)]
    by_round: dict[Tool, dict[int, float]] = {"nvbandwidth": {}, "pyxfer": {}}
    reasons: dict[Tool, str] = {}
    for reading in ours:
        if reading.gbps.value is None:
            reasons.setdefault(reading.tool, reading.gbps.reason or "")
        else:
            by_round[reading.tool][reading.round] = reading.gbps.value
    theirs, mine = by_round["nvbandwidth"], by_round["pyxfer"]
    shared_rounds = sorted(theirs.keys() & mine.keys())
    difference: Fact[float] = (
        Fact(median(mine[number] / theirs[number] for number in shared_rounds) - 1)
        if shared_rounds
        else unknown("no round has both")
    )
    within = difference.value is not None and abs(difference.value) <= tolerance
    return Row(
        direction=test[0],
        side=test[1],
        nbytes=nbytes,
        nvbandwidth_gbps=_median(theirs, reasons.get("nvbandwidth")),
        pyxfer_gbps=_median(mine, reasons.get("pyxfer")),
        difference=difference,
        within=within,
    )


def _median(by_round: dict[int, float], reason: str | None) -> Fact[float]:
    return Fact(median(by_round.values())) if by_round else unknown(reason or "not measured")


def label(direction: Direction, side: Side) -> str:
    """`h2d`, `d2h`, or `both, h2d side`."""
    return f"both, {side} side" if direction == "both" else direction


def cells(rows: Iterable[Row]) -> list[list[str]]:
    """The cells of the rows, without the verdict."""
    return [
        [
            label(row.direction, row.side),
            format_size(row.nbytes),
            _rate(row.nvbandwidth_gbps),
            _rate(row.pyxfer_gbps),
            "-" if row.difference.value is None else f"{row.difference.value * 100:.2f} %",
        ]
        for row in rows
    ]


def _rate(fact: Fact[float]) -> str:
    return "-" if fact.value is None else f"{fact.value:.2f}"


def table(document: Peers) -> str:
    """The table for a terminal, followed by the reasons for missing rates."""
    within = f"within {format_percent(document.tolerance)}"
    header = ["test", "size", "nvbandwidth GB/s", "pyxfer GB/s", "difference", within]
    verdicts = ["yes" if row.within else "no" for row in document.rows]
    body = [[*line, verdict] for line, verdict in zip(cells(document.rows), verdicts, strict=True)]
    reasons = [
        f"{label(row.direction, row.side)} at {format_size(row.nbytes)}, {tool}: {fact.reason}"
        for row in document.rows
        for tool, fact in (("nvbandwidth", row.nvbandwidth_gbps), ("pyxfer", row.pyxfer_gbps))
        if fact.reason is not None
    ]
    return "\n".join([shared.aligned(header, body), *reasons])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare pyxfer with nvbandwidth on the same link, round by round.")
    parser.add_argument("--nvbandwidth", type=Path, required=True, metavar="PATH", help="a built nvbandwidth binary")
    parser.add_argument("--sizes", default="64MiB,512MiB", help="whole MiB (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    parser.add_argument("--tolerance", default="0.5%", help="largest difference that passes (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write every reading to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both tools, print the table, write the document; 0 if every difference is within the tolerance."""
    options = _parse(arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    sizes, tolerance = parse_sizes(options.sizes), parse_ratio(options.tolerance)
    nvbandwidth_json.check_sizes(sizes)
    binary = options.nvbandwidth.absolute()  # subprocess would search PATH for a bare name
    nvbandwidth_json.check_binary(binary)
    if options.export_json:
        check_writable(options.export_json)
    bench = Bench(binary)
    readings = interleave((bench.read_pyxfer, bench.read_nvbandwidth), sizes, options.rounds)
    run, answer = bench.runs[-1], bench.answers[-1]
    document = Peers(
        device=run.device,
        environment=run.environment,
        nvbandwidth_version=answer.version,
        nvbandwidth_git_version=answer.git_version,
        nvbandwidth_driver=answer.driver,
        tolerance=tolerance,
        rounds=options.rounds,
        rows=compare(readings, tolerance),
        readings=tuple(readings),
    )
    print(shared.machine_line(document.device, document.environment))
    print(f"nvbandwidth {document.nvbandwidth_version.value or 'of unknown version'}; GB = 1e9 bytes")
    print(table(document))
    shared.write_document(options.export_json, document)
    return 0 if all(row.within for row in document.rows) else 1


if __name__ == "__main__":
    shared.run_script(main)
