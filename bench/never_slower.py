"""Times pyxfer beside the calls that it replaces, at sizes and in loops where it could lose.

    python bench/never_slower.py torch|cupy|jax|tensorflow [--only WORD] [--rounds 9] [--device 0] [--export-json F]

All ways of a row take turns in one process. A round repeats a way for 20 ms at least (a step of a loop for 60 to 150),
and waits for the device at its end. The ratio is the median over the rounds of pyxfer's time over that of the fastest
other way. A row is marked `slower` if the whole 95 % interval of its ratio is above 1, and `equal` if 1 is in it. The
exit status is 1 if a row is slower. What is given for comparison is no other way to do the same. With `--device host`
the loops are smaller.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import shared
from never_slower_loops import loops_of
from never_slower_peers import PEERS, Case, Peer, Prepared, check

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import Summary
from pyxfer._machine.environment import read_environment
from pyxfer._measure import stats
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer.units import format_seconds, format_size

KIB, MIB = 1 << 10, 1 << 20
PAUSE_S = 0.005
KEPT = 4
OWN = "pyxfer"


class Row(msgspec.Struct, frozen=True):
    """Seconds of one call, or one step of a loop, in each round of each way."""

    name: str
    nbytes: int
    seconds: dict[str, list[float]]
    references: dict[str, list[float]] = {}
    """Seconds of what the ways are compared with, which does not do the same."""

    def other(self) -> str:
        """The fastest way but pyxfer's."""
        return min((name for name in self.seconds if name != OWN), key=self.median)

    def median(self, way: str) -> float:
        """Of all rounds."""
        return statistics.median(self.seconds[way] if way in self.seconds else self.references[way])

    def ratio(self) -> Summary:
        """Of pyxfer's time to the fastest other way's, from rounds that were measured in turn."""
        pairs = zip(self.seconds[OWN], self.seconds[self.other()], strict=True)
        return stats.summarise([own / other for own, other in pairs])

    def mark(self) -> str:
        """`slower` if the interval of the ratio is above 1, `equal` if 1 is in it."""
        ratio = self.ratio()
        if ratio.low_s is None or ratio.high_s is None or ratio.high_s < 1:
            return ""
        return "slower" if ratio.low_s > 1 else "equal"


class NeverSlower(msgspec.Struct, frozen=True):
    """The rows of one framework."""

    framework: str
    version: str
    device: Device
    environment: Environment
    rows: list[Row]


def main() -> int:
    """Measure and print the table; 1 if a row is slower."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    peer = PEERS[asked.framework](asked.device)
    rows = []
    for case in every_row(peer, asked.device):
        if asked.only in case.name:
            row = measure(case, peer, asked.rounds)
            rows.append(row)
            print(f"{row.name}: {_medians(row, [*row.seconds, *row.references])}", file=sys.stderr, flush=True)
    result = NeverSlower(peer.name, peer.version, device, read_environment(engine, device), rows)
    print(shared.page(result, HEADER, [cells(row) for row in result.rows]))
    return shared.conclude(result, asked.export_json, [f"slower: {row.name}" for row in rows if row.mark() == "slower"])


def every_row(peer: Peer, device: int | str) -> Iterator[Case]:
    """All rows."""
    yield from uploads(peer, device)
    yield from structures(peer, device)
    yield from pauses(peer, device)
    yield from downloads(peer)
    yield from loops_of(peer, device)


def uploads(peer: Peer, device: int | str) -> Iterator[Case]:
    """One contiguous array in ordinary memory, whose result is dropped."""
    for nbytes in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB, 64 * MIB):
        yield Case(f"upload of {format_size(nbytes)}", nbytes, partial(_array, peer, device, nbytes))
    for nbytes in (4 * KIB, MIB) if peer.has_tensors else ():
        yield Case(f"upload of a CPU tensor of {format_size(nbytes)}", nbytes, partial(_tensor, peer, device, nbytes))


def _array(peer: Peer, device: int | str, nbytes: int) -> Prepared:
    x = _bytes(nbytes)
    own = _upload(x, peer, device)
    check(peer, own(), x)
    return Prepared({OWN: own, **peer.uploads(x)})


def _tensor(peer: Peer, device: int | str, nbytes: int) -> Prepared:
    x = peer.on_host(_bytes(nbytes))
    return Prepared({OWN: _upload(x, peer, device), **peer.tensor_uploads(x)})


def structures(peer: Peer, device: int | str) -> Iterator[Case]:
    """Structures of small arrays, and of a large one with small ones."""

    def many() -> Prepared:
        arrays = [_bytes(8 * KIB, seed) for seed in range(500)]
        own = _upload(arrays, peer, device)
        sent: Any = own()
        for y, x in zip(sent, arrays, strict=True):
            check(peer, y, x)
        return Prepared({OWN: own, **peer.structures(arrays)})

    def mixed() -> Prepared:
        labels = np.arange(512, dtype=np.int32)
        batch = {"images": _bytes(16 * MIB), **{f"labels {i}": labels for i in range(5)}}
        return Prepared({OWN: _upload(batch, peer, device), **peer.structures(batch)})

    yield Case("upload of 500 arrays of 8 KiB", 500 * 8 * KIB, many)
    yield Case("upload of 16 MiB and 5 of 2 KiB", 16 * MIB + 10 * KIB, mixed)


def pauses(peer: Peer, device: int | str) -> Iterator[Case]:
    """After 5 ms without work, when the threads of a ring sleep."""
    for nbytes in (MIB, 4 * MIB, 24 * MIB):
        prepare = partial(_array, peer, device, nbytes)
        yield Case(f"upload of {format_size(nbytes)} after 5 ms", nbytes, prepare, PAUSE_S)


def downloads(peer: Peer) -> Iterator[Case]:
    """Into new memory, which the loop drops or keeps."""
    for nbytes in (4 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB, 96 * MIB):
        yield Case(f"download of {format_size(nbytes)}", nbytes, partial(_result, peer, nbytes))
    yield Case(f"download of 96 MiB, {KEPT} results kept", 96 * MIB, partial(_kept_results, peer, 96 * MIB))


def _result(peer: Peer, nbytes: int) -> Prepared:
    x = _bytes(nbytes)
    y = peer.on_device(x)
    check(peer, y, pyxfer.download(y))
    return Prepared({OWN: lambda: pyxfer.download(peer.not_fetched(y)), **peer.downloads(y)})


def _kept_results(peer: Peer, nbytes: int) -> Prepared:
    kept: list[Any] = []

    def keep(way: Callable[[], object]) -> Callable[[], object]:
        def call() -> None:
            kept.append(way())
            if len(kept) == KEPT:
                kept.clear()

        return call

    return Prepared({name: keep(way) for name, way in _result(peer, nbytes).ways.items()})


def measure(case: Case, peer: Peer, rounds: int) -> Row:
    """Seconds of a call in each round; the order changes from round to round."""
    prepared = case.prepare()
    try:
        timed = {**prepared.ways, **prepared.references}
        found: dict[str, list[float]] = {name: [] for name in timed}
        counts = {name: _repeats(case, prepared, name, peer) for name in timed}
        names = list(timed)
        for number in range(rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found[name].append(_settled(case, prepared, name, peer, counts[name]))
    finally:
        prepared.close()
    own, references = ({name: found[name] for name in kind} for kind in (prepared.ways, prepared.references))
    return Row(case.name, case.nbytes, own, references)


def _repeats(case: Case, prepared: Prepared, name: str, peer: Peer) -> int:
    """Warm up, and find how often to repeat a way in a round."""
    count = 1
    while (seconds := _settled(case, prepared, name, peer, count) + case.pause_s) * count < case.round_s:
        count = min(8 * count, int(1.25 * case.round_s / seconds) + 1)
    return count


def _settled(case: Case, prepared: Prepared, name: str, peer: Peer, count: int) -> float:
    way = prepared.ways.get(name) or prepared.references[name]
    prepared.settle(name)
    if case.pause_s:
        return statistics.fmean(_after_pause(way, peer, case.pause_s) for _ in range(count))
    peer.synchronize()
    return _seconds(way, peer, count)


def _seconds(way: Callable[[], object], peer: Peer, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        way()
    peer.synchronize()
    return (time.perf_counter() - begun) / count


def _after_pause(way: Callable[[], object], peer: Peer, pause_s: float) -> float:
    time.sleep(pause_s)
    return _seconds(way, peer, 1)


def _upload(x: Any, peer: Peer, device: Any) -> Callable[[], object]:
    to: Any = peer.name
    return lambda: pyxfer.upload(x, to=to, device=device)


def _bytes(nbytes: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


HEADER = ("row", "pyxfer", "best other", "which", "ratio", "95 %", "mark", "for comparison")


def cells(row: Row) -> list[str]:
    """A row of the table."""
    ratio = row.ratio()
    interval = "-" if ratio.low_s is None or ratio.high_s is None else f"{ratio.low_s:.2f} to {ratio.high_s:.2f}"
    return [
        row.name,
        format_seconds(row.median(OWN)),
        format_seconds(row.median(row.other())),
        row.other(),
        f"{ratio.median_s:.2f}",
        interval,
        row.mark(),
        _medians(row, row.references),
    ]


def markdown(results: Sequence[NeverSlower]) -> str:
    """A table of all frameworks for each GPU, for docs/never-slower.md."""
    by_gpu: dict[str, list[NeverSlower]] = {}
    for of in sorted(results, key=lambda of: of.environment.taken_at, reverse=True):
        by_gpu.setdefault(of.device.uuid.value or of.device.name, []).append(of)
    return "\n\n".join(_table(sorted(of_gpu, key=lambda of: of.framework)) for of_gpu in by_gpu.values())


def summary(results: Sequence[NeverSlower]) -> str:
    """How many rows of each framework and GPU are faster, equal and slower, for docs/results.md."""
    body = []
    for of in sorted(results, key=lambda of: (of.framework, of.environment.taken_at)):
        marks = [row.mark() for row in of.rows]
        slower = [f"{row.name} {row.ratio().median_s:.2f}" for row in of.rows if row.mark() == "slower"]
        ratios = [row.ratio().median_s for row in of.rows]
        counts = [str(marks.count(mark)) for mark in ("", "equal", "slower")]
        body.append(
            [
                f"{of.framework} {of.version}",
                of.environment.taken_at[:16].replace("T", " "),
                *counts,
                f"{statistics.median(ratios):.2f}",
                ", ".join(slower) or "-",
            ]
        )
    header = ["framework", "taken at (UTC)", "faster", "equal", "slower", "median ratio", "slower, and by what ratio"]
    names = sorted({of.device.name for of in results})
    return f"{escape_markdown(', '.join(names))}.\n\n{markdown_table(header, body)}"


def _table(results: Sequence[NeverSlower]) -> str:
    captions = [
        escape_markdown(f"{of.framework} {of.version}: {shared.machine_line(of.device, of.environment)}.")
        for of in results
    ]
    names = list(dict.fromkeys(row.name for of in results for row in of.rows))
    body = [[name, *(_cell(of, name) for of in results)] for name in names]
    table = markdown_table(["row", *(of.framework for of in results)], body)
    return "\n\n".join([*captions, table])


def _cell(result: NeverSlower, name: str) -> str:
    row = next((row for row in result.rows if row.name == name), None)
    if row is None:
        return "-"
    ratio = row.ratio()
    interval = "" if ratio.low_s is None else f" ({ratio.low_s:.2f} to {ratio.high_s:.2f})"
    told = f"{format_seconds(row.median(OWN))}, {ratio.median_s:.2f}{interval}, {row.other()}"
    beside = f"; {_medians(row, row.references)}" if row.references else ""
    return f"{told}{beside}" if row.mark() != "slower" else f"{told}{beside}; slower"


def _medians(row: Row, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {format_seconds(row.median(name))}" for name in names)


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("framework", choices=sorted(PEERS))
    shared.add_measuring_arguments(parser)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
