"""Measures the time and memory of `pyxfer fleet judge` with the documents of many hosts.

    python bench/many_hosts.py [--hosts 10000] [--samples 20]

The documents are made up: hosts with 8 GPUs and 122 cells, one of 1,000 with a slow link. Time and memory are those of
the command and of all its processes, with a report. The exit status is 1 if it takes more than 20 s, also without the
time in which other programs had the processors, or if its processes together have more than 1 GiB at any time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import shared

from pyxfer._document import codec
from pyxfer._document.cells import ALL_GPUS, IDLE, Cell
from pyxfer._document.fleets import HostCell, HostReport
from pyxfer._document.links import HOST_END
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Run
from pyxfer._fleet.cells import figure_of, unit_of
from pyxfer.units import format_seconds, format_size

RESULTS = Path(__file__).with_name("results")
GPUS = 8
DRAWN = 200
"""Different cells. Their intervals take longer than writing them."""
MAX_S, MAX_BYTES = 20.0, 1 << 30
SPREAD, WITHIN, LOST, EACH = 0.002, 0.001, 0.05, 1000
MEMORIES, SIZES = ("pinned", "pageable"), (1 << 20, 16 << 20, 256 << 20)
USUAL = {"pinned": 55.0, "pageable": 12.0, "together": 54.0, "latency": 1100.0}


@cache
def cells_of_host() -> list[tuple[Cell, float]]:
    """The cells of a host, each with its usual figure."""
    found = [(latency_of(number), USUAL["latency"]) for number in range(GPUS)]
    for side in ("h2d", "d2h"):
        for number in range(GPUS):
            found += [(copy_of(number, side, *kind), USUAL[kind[0]]) for kind in product(MEMORIES, SIZES)]
            found.append((together_of(side, number), USUAL["together"]))
        found.append((together_of(side, ALL_GPUS), USUAL["together"]))
    return found


def copy_of(number: int, side: Literal["h2d", "d2h"], memory: str, nbytes: int) -> Cell:
    mode = "async" if memory == "pinned" else "memcpy"
    ends = ends_of(side, number)
    return Cell("raw", f"raw.{memory}-{mode}", side, side, memory, nbytes, mode, **ends)


def together_of(side: Literal["h2d", "d2h"], number: int) -> Cell:
    """The copies of one GPU while all copy, or of all."""
    of = "sum" if number == ALL_GPUS else side
    return Cell("together", side, side, of, "pinned", 64 << 20, engine="ce", **ends_of(side, number))


def ends_of(side: Literal["h2d", "d2h"], number: int) -> dict[str, Any]:
    ends = ((HOST_END,), (number,))
    return dict(zip(("source", "destination"), ends if side == "h2d" else ends[::-1], strict=True))


def latency_of(number: int) -> Cell:
    ends = ends_of("h2d", number)
    return Cell("latency", IDLE, "latency", "latency", "pinned", 2 << 20, **ends)


def drawn_cells(count: int, samples: int, rng: np.random.Generator) -> list[HostCell]:
    """Cells of value 1 with their intervals, of which the documents have multiples."""
    cells = []
    for _ in range(count):
        drawn = tuple(1 + WITHIN * rng.standard_normal(samples))
        value, low, high = figure_of(drawn)
        cells.append(HostCell(latency_of(0), "ns", Fact(value), low, high, drawn, unknown("no peak")))
    return cells


def cell(what: Cell, value: float, like: HostCell) -> HostCell:
    """The cell with these values times one."""
    figures = [f if f is None else float(f"{value * f:.9g}") for f in (like.value.value, like.low, like.high)]
    multiples = tuple(float(f"{value * sample:.9g}") for sample in like.samples)
    return HostCell(what, unit_of(what), Fact(figures[0]), figures[1], figures[2], multiples, unknown("no peak"))


def report_of(like: Run, number: int, drawn: Sequence[HostCell], rng: np.random.Generator) -> HostReport:
    """The document of one host."""
    cells = []
    for what, usual in cells_of_host():
        is_slow = (
            number % EACH == 0 and what.is_alone and (what.gpus, what.side, what.memory) == ((3,), "h2d", "pinned")
        )
        value = usual * float(np.exp(SPREAD * rng.standard_normal())) * (1 - LOST * is_slow)
        cells.append(cell(what, value, drawn[int(rng.integers(len(drawn)))]))
    return HostReport(
        kind="host",
        ended="complete",
        began_at=like.environment.taken_at,
        duration_s=20.0,
        runtime="cuda",
        runtime_reason="",
        environment=msgspec.structs.replace(like.environment, host=f"node{number}"),
        devices=tuple(msgspec.structs.replace(like.device, index=index) for index in range(GPUS)),
        labels={"rack": f"r{number % 400}", "switch": f"s{number % 40}"},
        cells=tuple(cells),
        facts={"driver": "580.65", "link capability": "PCIe 5.0 x16", "link state": "PCIe 5.0 x16"},
        findings=(),
    )


def write_hosts(folder: Path, hosts: int, samples: int) -> int:
    """Write the documents, and return their bytes."""
    like, rng = Run.load(RESULTS / "ceiling.json.gz"), np.random.default_rng(1)
    drawn, written = drawn_cells(DRAWN, samples, rng), 0
    for number in range(hosts):
        data = codec.encode(report_of(like, number, drawn, rng))
        written += (folder / f"node{number}.json").write_bytes(data)
    return written


def judge(folder: Path, report: Path) -> tuple[float, float, int, str]:
    """Wall time and processor time of the command, the most memory of its processes together, and its first line."""
    command = [sys.executable, "-m", "pyxfer", "fleet", "judge", str(folder), "--report", str(report)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        most = 0
        while running.poll() is None:
            most = max(most, memory_of(running.pid))
            time.sleep(0.1)
        text = running.stdout.read() if running.stdout else ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu_s, most, text.partition("\n")[0]


def memory_of(pid: int) -> int:
    """The resident bytes of a process and its children."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(memory_of(int(child)) for child in children)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the documents, judge them, print the figures; 0 if they are within the limits."""
    parser = argparse.ArgumentParser(description="Measure pyxfer fleet judge with the documents of many hosts.")
    parser.add_argument("--hosts", type=int, default=10_000, help="number of documents (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=20, help="trials of each cell (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "hosts"
        folder.mkdir()
        written = write_hosts(folder, options.hosts, options.samples)
        wall_s, cpu_s, most, line = judge(folder, Path(temporary) / "fleet.html")
    print(f"{options.hosts} documents, {format_size(written)}: {line}")
    print(f"wall {format_seconds(wall_s)}, processors {format_seconds(cpu_s)}, memory {most / 1024**2:.0f} MiB")
    return 1 if min(wall_s, cpu_s) > MAX_S or most > MAX_BYTES else 0


if __name__ == "__main__":
    shared.run_script(main)
