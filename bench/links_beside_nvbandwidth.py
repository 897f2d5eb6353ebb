"""Compares `pyxfer links` with every single-node testcase of nvbandwidth, on all GPUs of the host.

    python bench/links_beside_nvbandwidth.py --nvbandwidth PATH [--rounds 2] [--export-json F] [--export-links F]

PATH is a binary of NVIDIA's nvbandwidth that you have built; the script does not download it. The tools take turns, in
the reverse order of the round before. A difference is the median of the ratios of the rounds. docs/other-tools.md says
which row measures which testcase. The exit status is 1 if a difference exceeds its tolerance: 0.5 % for copy engines,
1 % for kernels, 2 % for latencies. The bidirectional kernel testcases with the host are listed and not judged, because
nvbandwidth moves both directions in one kernel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import nvbandwidth_json
import shared

import pyxfer
from pyxfer._document.files import check_writable
from pyxfer._document.links import HOST_END, CopyEngine, Links, Traffic
from pyxfer._document.machines import Device, Environment, Fact
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer.errors import MeasurementError, UsageError

SIZE = 512 << 20
TOLERANCES = {"ce": 0.005, "sm": 0.01, "latency": 0.02}
Matrix = Sequence[Sequence[float | None]]
Place = tuple[int, int]


class Compared(msgspec.Struct, frozen=True):
    """One cell of a testcase, and the figure of pyxfer's row: GB/s, or ns of latencies. Medians of the rounds."""

    testcase: str
    row: int
    column: int
    nvbandwidth: float
    pyxfer: float
    difference: float
    tolerance: float | None

    @property
    def within(self) -> bool:
        return self.tolerance is None or abs(self.difference) <= self.tolerance


class Beside(msgspec.Struct, frozen=True):
    """The document. `pyxfer_figures` have an interval; nvbandwidth's have none."""

    devices: tuple[Device, ...]
    environment: Environment
    nvbandwidth_version: Fact[str]
    rounds: int
    nvbandwidth_s: tuple[float, ...]
    nvbandwidth_figures: int
    pyxfer_s: tuple[float, ...]
    pyxfer_figures: int
    rows: tuple[Compared, ...]
    kind: Literal["links-peers"] = "links-peers"
    schema_version: int = 1


# --- pyxfer's figures by testcase -------------------------------------------------------------------------------------

Figure = Callable[[Links, int, int], float | None]


def _traffic(links: Links, group: str, case: str, engine: str, ends: Place | None = None) -> Traffic | None:
    for row in links.traffics:
        if (row.group, row.case, row.engine, row.node) == (group, case, engine, None):
            first = row.flows[0]
            if ends is None or (first.source, first.destination) == ends:
                return row
    return None


def _stream(group: str, case: str, engine: CopyEngine, side: str) -> Figure:
    """The stream of one side of one GPU; the GPU is the column."""

    def find(links: Links, _: int, column: int) -> float | None:
        ends = (HOST_END, column) if case != "d2h" else (column, HOST_END)
        row = _traffic(links, group, case, engine, ends if group == "host" else None)
        flows = () if row is None else row.flows
        return next((flow.gbps for flow in flows if (flow.side, flow.device) == (side, column)), None)

    return find


def _pair(case: str, engine: CopyEngine, *, reads: bool) -> Figure:
    """A pair: nvbandwidth's read goes from the column to the row, its write from the row to the column."""

    def find(links: Links, row: int, column: int) -> float | None:
        found = _traffic(links, "pairs", case, engine, (column, row) if reads else (row, column))
        return None if found is None else found.gbps

    return find


def _both(case: str, engine: CopyEngine) -> Figure:
    def find(links: Links, row: int, column: int) -> float | None:
        ends = (min(row, column), max(row, column))
        found = _traffic(links, "pairs", case, engine, ends)
        return None if found is None else found.gbps

    return find


def _star(case: str, engine: CopyEngine, *, outwards: bool) -> Figure:
    """All peers of one GPU, the column; with two GPUs the only pair."""

    def find(links: Links, _: int, column: int) -> float | None:
        others = [each.device.index for each in links.devices if each.device.index != column]
        if len(others) == 1:
            ends = (column, others[0]) if outwards else (others[0], column)
            found = _traffic(links, "pairs", case.rpartition("-")[2], engine, ends)
            return None if found is None else found.gbps
        for found in links.traffics:
            center = {flow.source if outwards else flow.destination for flow in found.flows}
            if (found.group, found.case, found.engine) == ("pairs", case, engine) and center == {column}:
                return found.gbps
        return None

    return find


def _local(links: Links, _: int, column: int) -> float | None:
    found = _traffic(links, "local", "copy", "ce", (column, column))
    return None if found is None else found.gbps


def _latency(links: Links, device: int, target: int) -> float | None:
    rows = [row for row in links.latencies if (row.device, row.target, row.node) == (device, target, None)]
    near = [row for row in rows if row.hops == row.places]
    return min(near, key=lambda row: row.footprint_bytes).ns if near else None


def figures() -> dict[str, tuple[Figure, float | None]]:
    """By testcase: pyxfer's figure of a cell, and the tolerance."""
    found: dict[str, tuple[Figure, float | None]] = {}
    engines: tuple[CopyEngine, ...] = ("ce", "sm")
    for engine in engines:
        most = TOLERANCES[engine]
        judged = most if engine == "ce" else None
        one_way = {"host_to_device_memcpy": ("host", "h2d", "h2d"), "device_to_host_memcpy": ("host", "d2h", "d2h")}
        one_way |= {"host_to_all_memcpy": ("together", "h2d", "h2d"), "all_to_host_memcpy": ("together", "d2h", "d2h")}
        for name, (group, case, side) in one_way.items():
            found[f"{name}_{engine}"] = _stream(group, case, engine, side), most
        for name, group in (("device", "host"), ("all", "together")):
            to, of = f"host_to_{name}_bidirectional_memcpy", f"{name}_to_host_bidirectional_memcpy"
            found[f"{to}_{engine}"] = _stream(group, "both", engine, "h2d"), judged
            found[f"{of}_{engine}"] = _stream(group, "both", engine, "d2h"), judged
        for way in ("read", "write"):
            name = f"device_to_device_memcpy_{way}_{engine}"
            found[name] = _pair(way, engine, reads=way == "read"), most
            found[f"device_to_device_bidirectional_memcpy_{way}_{engine}"] = _both(f"both-{way}", engine), most
        found[f"all_to_one_write_{engine}"] = _star("all-to-one-write", engine, outwards=False), most
        found[f"all_to_one_read_{engine}"] = _star("one-to-all-read", engine, outwards=True), most
        found[f"one_to_all_write_{engine}"] = _star("one-to-all-write", engine, outwards=True), most
        found[f"one_to_all_read_{engine}"] = _star("all-to-one-read", engine, outwards=False), most
    found["device_local_copy"] = _local, TOLERANCES["ce"]
    found["host_device_latency_sm"] = lambda links, _, column: _latency(links, column, HOST_END), TOLERANCES["latency"]
    found["device_to_device_latency_sm"] = _latency, TOLERANCES["latency"]
    return found


# --- comparing --------------------------------------------------------------------------------------------------------


def cells(matrix: Matrix, columns: int) -> Iterator[tuple[Place, float]]:
    """The cells that have a number; of a matrix for each direction and one for both, those of both."""
    last = matrix[-columns:] if len(matrix) > columns else matrix
    for row, line in enumerate(last):
        for column, value in enumerate(line):
            if value is not None:
                yield (row, column), value


def compare(rounds: Sequence[tuple[dict[str, list[list[float | None]]], Links]]) -> tuple[Compared, ...]:
    """A row for each cell of which both tools have a figure in a round."""
    compared = []
    for name, (figure, tolerance) in figures().items():
        pairs: dict[Place, list[tuple[float, float]]] = {}
        for matrices, links in rounds:
            for place, theirs in cells(matrices.get(name, []), len(links.devices)):
                ours = figure(links, *place)
                if ours is not None:
                    pairs.setdefault(place, []).append((theirs, ours))
        for place, known in pairs.items():
            ratio = median(ours / theirs for theirs, ours in known)
            theirs, ours = median(each[0] for each in known), median(each[1] for each in known)
            compared.append(Compared(name, *place, theirs, ours, ratio - 1, tolerance))
    return tuple(compared)


def figures_of(links: Links) -> int:
    """The number of rates and latencies that have an interval."""
    rates = [flow.rate for row in links.traffics for flow in row.flows]
    rates += [row.total for row in links.traffics if len(row.flows) > 1]
    rates += [row.rate for row in links.small]
    known = sum(rate.value is not None and rate.value.low_gbps is not None for rate in rates)
    chased = [fact for row in links.latencies for fact in (row.p50, row.p99, row.fastest, row.slowest)]
    return known + sum(fact.value is not None and fact.value.low_ns is not None for fact in chased)


HEADER = ("testcase", "cell", "nvbandwidth", "pyxfer", "difference", "within")


def table_cells(rows: Sequence[Compared]) -> list[list[str]]:
    """The rows of the table as text."""
    return [
        [
            row.testcase,
            f"{row.row}, {row.column}",
            f"{row.nvbandwidth:.2f}",
            f"{row.pyxfer:.2f}",
            f"{row.difference * 100:+.2f} %",
            "not judged" if row.tolerance is None else "yes" if row.within else "no",
        ]
        for row in rows
    ]


def pace(document: Beside) -> str:
    """How long each tool took, and for how many figures."""
    ours_s, theirs_s = median(document.pyxfer_s), median(document.nvbandwidth_s)
    return (
        f"pyxfer took {ours_s:.1f} s for {document.pyxfer_figures} figures with intervals, "
        f"nvbandwidth {theirs_s:.1f} s for {document.nvbandwidth_figures} figures without; "
        "GB/s (GB = 1e9 bytes), latencies in ns"
    )


def markdown(document: Beside) -> str:
    """The table for a page."""
    return f"{escape_markdown(_caption(document))}\n\n{markdown_table(HEADER, table_cells(document.rows))}"


def ranges_markdown(document: Beside) -> str:
    """A table with a line for each testcase: the differences of its cells from the least to the greatest."""
    lines = []
    for testcase in dict.fromkeys(row.testcase for row in document.rows):
        rows = [row for row in document.rows if row.testcase == testcase]
        ends = [f"{end(row.difference for row in rows) * 100:+.2f} %" for end in (min, max)]
        theirs, ours = (median(getattr(row, tool) for row in rows) for tool in ("nvbandwidth", "pyxfer"))
        lines.append([testcase, str(len(rows)), f"{theirs:.2f}", f"{ours:.2f}", " to ".join(ends)])
    header = ("testcase", "cells", "nvbandwidth", "pyxfer", "difference")
    return f"{escape_markdown(_caption(document))}\n\n{markdown_table(header, lines)}"


def _caption(document: Beside) -> str:
    version = document.nvbandwidth_version.value or "of unknown version"
    where = f"{shared.machine_line(document.devices[0], document.environment)}; GPUs: {len(document.devices)}"
    return f"{where}; nvbandwidth {version}; medians of {document.rounds} rounds in turns. {pace(document)}."


def _nvbandwidth(binary: Path) -> tuple[str, float]:
    begun = time.perf_counter()
    text = nvbandwidth_json.run_cases(binary, SIZE, tuple(figures()), None)
    return text, time.perf_counter() - begun


def _links(number: int) -> tuple[Links, float]:
    run = pyxfer.links(size=SIZE, seed=number, require_gpu=True)
    if run.ended == "interrupted":
        raise KeyboardInterrupt
    if run.ended == "failed":
        raise MeasurementError(f"pyxfer could not measure the links: {run.failure}")
    return run, run.duration_s


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare pyxfer links with nvbandwidth, round by round.")
    parser.add_argument("--nvbandwidth", type=Path, required=True, metavar="PATH", help="a built nvbandwidth binary")
    parser.add_argument("--rounds", type=int, default=2, help="number of rounds (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the comparison to this file")
    parser.add_argument("--export-links", type=Path, metavar="F", help="write the last run of links to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both tools, print the table, write the documents; 0 if every judged difference is within its tolerance."""
    options = _parse(arguments)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {options.rounds}.")
    binary = options.nvbandwidth.absolute()  # subprocess would search PATH for a bare name
    nvbandwidth_json.check_binary(binary)
    for path in (options.export_json, options.export_links):
        if path:
            check_writable(path)
    rounds, theirs_s, ours_s = [], [], []
    for number in range(options.rounds):
        if number % 2:
            text, seconds = _nvbandwidth(binary)
            links, own_s = _links(number)
        else:
            links, own_s = _links(number)
            text, seconds = _nvbandwidth(binary)
        matrices = nvbandwidth_json.read_matrices(text)
        rounds.append((matrices, links))
        theirs_s.append(seconds)
        ours_s.append(own_s)
    last = rounds[-1][1]
    document = Beside(
        devices=tuple(each.device for each in last.devices),
        environment=last.environment,
        nvbandwidth_version=nvbandwidth_json.read_answer(text).version,
        rounds=options.rounds,
        nvbandwidth_s=tuple(theirs_s),
        nvbandwidth_figures=sum(1 for matrix in matrices.values() for _ in cells(matrix, len(last.devices))),
        pyxfer_s=tuple(ours_s),
        pyxfer_figures=figures_of(last),
        rows=compare(rounds),
    )
    print(shared.machine_line(document.devices[0], document.environment))
    print(pace(document))
    print(shared.aligned(HEADER, table_cells(document.rows)))
    shared.write_document(options.export_json, document)
    if options.export_links:
        last.save(options.export_links)
    return 0 if document.rows and all(row.within for row in document.rows) else 1


if __name__ == "__main__":
    shared.run_script(main)
