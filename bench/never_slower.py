"""Times pyxfer beside the calls that it replaces, at sizes and in loops where it could lose.

    python bench/never_slower.py torch|cupy|jax|tensorflow [--only WORD] [--rounds 9] [--device 0] [--export-json F]

All ways of a row take turns in one process. A round repeats a way for 20 ms at least, and waits for the device at its
end. The ratio is the median over the rounds of pyxfer's time over that of the fastest other way. A row is marked
`slower` if the whole 95 % interval of its ratio is above 1, and the exit status is 1 if any is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import shared
from never_slower_loops import loops_of
from never_slower_peers import PEERS, Peer

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import Summary
from pyxfer._machine.environment import read_environment
from pyxfer._measure import stats
from pyxfer.units import format_seconds, format_size

KIB, MIB = 1 << 10, 1 << 20
LEAST_ROUND_S = 0.02
PAUSE_S = 0.005
KEPT = 4
OWN = "pyxfer"

Ways = dict[str, Callable[[], object]]


class Case(NamedTuple):
    """A row to measure."""

    name: str
    nbytes: int
    ways: Ways
    pause_s: float = 0.0
    """Sleep before each call, which is then timed alone."""


class Row(msgspec.Struct, frozen=True):
    """Seconds of one call, or one step of a loop, in each round of each way."""

    name: str
    nbytes: int
    seconds: dict[str, list[float]]

    def other(self) -> str:
        """The fastest way but pyxfer's."""
        return min((name for name in self.seconds if name != OWN), key=self.median)

    def median(self, way: str) -> float:
        """Of all rounds."""
        return statistics.median(self.seconds[way])

    def ratio(self) -> Summary:
        """Of pyxfer's time to the fastest other way's, from rounds that were measured in turn."""
        pairs = zip(self.seconds[OWN], self.seconds[self.other()], strict=True)
        return stats.summarise([own / other for own, other in pairs])

    def is_slower(self) -> bool:
        """Whether the interval of the ratio is above 1."""
        low = self.ratio().low_s
        return low is not None and low > 1


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
            row = Row(case.name, case.nbytes, measure(case, peer, asked.rounds))
            rows.append(row)
            print(_line(row), file=sys.stderr, flush=True)
    result = NeverSlower(peer.name, peer.version, device, read_environment(engine, device), rows)
    print(shared.page(result, HEADER, [cells(row) for row in result.rows]))
    return shared.conclude(result, asked.export_json, [f"slower: {row.name}" for row in rows if row.is_slower()])


def every_row(peer: Peer, device: Any) -> Iterator[Case]:
    """The name, the bytes and the ways of each row."""
    yield from uploads(peer, device)
    yield from structures(peer, device)
    yield from pauses(peer, device)
    yield from downloads(peer)
    yield from loops_of(peer, device)


def uploads(peer: Peer, device: Any) -> Iterator[Case]:
    """One contiguous array in ordinary memory, whose result is dropped."""
    for nbytes in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB, 64 * MIB):
        x = _bytes(nbytes)
        _check(peer, _upload(x, peer, device)(), x)
        yield Case(f"upload of {format_size(nbytes)}", nbytes, {OWN: _upload(x, peer, device), **peer.uploads(x)})
    for nbytes in (4 * KIB, MIB):
        x = peer.on_host(_bytes(nbytes))
        if x is not None:
            ways = {OWN: _upload(x, peer, device), **peer.tensor_uploads(x)}
            yield Case(f"upload of a CPU tensor of {format_size(nbytes)}", nbytes, ways)


def structures(peer: Peer, device: Any) -> Iterator[Case]:
    """Structures of small arrays, and of a large one with small ones."""
    many = [_bytes(8 * KIB, seed) for seed in range(500)]
    sent: Any = _upload(many, peer, device)()
    for y, x in zip(sent, many, strict=True):
        _check(peer, y, x)
    batch = {"images": _bytes(16 * MIB), **{f"labels {i}": np.arange(256) for i in range(5)}}
    if peer.name == "jax":  # without x64
        batch = {name: x if x.dtype == np.uint8 else x.astype(np.int32) for name, x in batch.items()}
    for name, tree in (("500 arrays of 8 KiB", many), ("16 MiB and 5 of 2 KiB", batch)):
        nbytes = sum(x.nbytes for x in (tree.values() if isinstance(tree, dict) else tree))
        yield Case(f"upload of {name}", nbytes, {OWN: _upload(tree, peer, device), **peer.structures(tree)})


def pauses(peer: Peer, device: Any) -> Iterator[Case]:
    """After 5 ms without work, when the threads of a ring sleep."""
    for nbytes in (MIB, 4 * MIB, 24 * MIB):
        x = _bytes(nbytes)
        ways = {OWN: _upload(x, peer, device), **peer.uploads(x)}
        yield Case(f"upload of {format_size(nbytes)} after 5 ms", nbytes, ways, PAUSE_S)


def downloads(peer: Peer) -> Iterator[Case]:
    """Into new memory, which the loop drops or keeps."""
    for nbytes in (4 * KIB, 64 * KIB, MIB, 96 * MIB):
        x = _bytes(nbytes)
        y = peer.on_device(x)
        _check(peer, y, pyxfer.download(y))
        yield Case(f"download of {format_size(nbytes)}", nbytes, {OWN: _download(y), **peer.downloads(y)})
    kept: list[Any] = []

    def keep(way: Callable[[], object]) -> Callable[[], object]:
        def call() -> None:
            kept.append(way())
            if len(kept) == KEPT:
                kept.clear()

        return call

    ways = {OWN: _download(y), **peer.downloads(y)}
    yield Case(f"download of 96 MiB, {KEPT} results kept", 96 * MIB, {name: keep(way) for name, way in ways.items()})


def measure(case: Case, peer: Peer, rounds: int) -> dict[str, list[float]]:
    """Seconds of a call in each round; the order changes from round to round."""
    repeats = {name: _repeats(way, peer, case.pause_s) for name, way in case.ways.items()}
    found: dict[str, list[float]] = {name: [] for name in case.ways}
    names = list(case.ways)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(_seconds(case.ways[name], peer, repeats[name], case.pause_s))
    return found


def _repeats(way: Callable[[], object], peer: Peer, pause_s: float) -> int:
    """Warm up, and find how often to repeat a way in a round."""
    count = 1
    while (_seconds(way, peer, count, pause_s) + pause_s) * count < LEAST_ROUND_S:
        count *= 2
    return count


def _seconds(way: Callable[[], object], peer: Peer, count: int, pause_s: float) -> float:
    if pause_s:
        return statistics.fmean(_after_pause(way, peer, pause_s) for _ in range(count))
    begun = time.perf_counter()
    for _ in range(count):
        way()
    peer.synchronize()
    return (time.perf_counter() - begun) / count


def _after_pause(way: Callable[[], object], peer: Peer, pause_s: float) -> float:
    time.sleep(pause_s)
    return _seconds(way, peer, 1, 0.0)


def _upload(x: Any, peer: Peer, device: Any) -> Callable[[], object]:
    to: Any = peer.name
    return lambda: pyxfer.upload(x, to=to, device=device)


def _download(y: Any) -> Callable[[], object]:
    return lambda: pyxfer.download(y)


def _bytes(nbytes: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def _check(peer: Peer, y: Any, x: Any) -> None:
    if not np.array_equal(peer.to_numpy(y), x):
        raise AssertionError("an upload has other contents than its source")


HEADER = ("row", "pyxfer", "best other", "which", "ratio", "95 %", "")


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
        "slower" if row.is_slower() else "",
    ]


def _line(row: Row) -> str:
    return f"{row.name}: " + ", ".join(f"{name} {format_seconds(row.median(name))}" for name in row.seconds)


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
