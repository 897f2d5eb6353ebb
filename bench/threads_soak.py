"""Uploads small arrays and trees from several threads, downloads them, and checks contents and memory.

    python bench/threads_soak.py [--to own|torch|jax|cupy] [--threads 4] [--calls 1000000] [--device 0]
        [--export-json F]

A call uploads an array of 1 B to 64 KiB (one in 16: 256 KiB to 1 MiB), or a tree of 4 to 32 arrays of up to 8 KiB, or
downloads one of these arrays. The threads share an uploader, and compare all bytes. What is in use is read before the
first call, after a tenth of the calls and at the end, when no thread holds an array.

The exit status is 1 if a byte is wrong, or if something has grown too much between the last two readings.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import shared
from upload_soak import HELD, KIB, MIB, held

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._machine.environment import read_environment
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.pools import Pool
from pyxfer._upload.targets import Target
from pyxfer.native import Engine
from pyxfer.units import format_seconds, format_size

ARRAY, LARGE, LEAF = (1, 64 * KIB), (256 * KIB, MIB), (0, 8 * KIB)
LEAVES = (4, 32)
EACH_LARGE = EACH_TREE = 16
MAX_GROWN = {"process": 16 * MIB, "device": 16 * MIB, "page-locked": 0, "blocks": 64}
"""The pools keep 8 MiB at most of small blocks, and 2 MiB of results; a framework has a pool of its own."""


class ThreadsSoak(msgspec.Struct, frozen=True):
    """What was called, and what was in use before, after a tenth of the calls and at the end."""

    to: str
    threads: int
    device: Device
    environment: Environment
    calls: dict[str, int]
    nbytes: int
    wrong: int
    seconds: float
    readings: tuple[dict[str, int], dict[str, int], dict[str, int]]

    def grown(self, what: str) -> int:
        """Between a tenth of the calls and the end."""
        _, early, late = self.readings
        return late[what] - early[what]


class Soak:
    """The uploader that the threads share, and what they have counted together."""

    def __init__(self, asked: argparse.Namespace, engine: Engine, device: int) -> None:
        self.engine, self.device = engine, device
        self.uploader = pyxfer.Uploader(asked.device)
        own = Target(DevicePool(engine, device)) if asked.to == "own" else None
        self.to: Any = own or asked.to
        self.pools: list[Pool[Any]] = [own.pool if own else self.uploader._pool, self.uploader._results]
        self.threads = asked.threads
        self.source = np.random.default_rng(0).integers(0, 256, 16 * MIB, np.uint8)
        self.calls: Counter[str] = Counter()
        self.nbytes = self.wrong = 0
        self._lock = threading.Lock()

    def run(self, count: int) -> None:
        """Make about `count` calls in all threads together."""
        with ThreadPoolExecutor(self.threads) as threads:
            for done in [threads.submit(self._work, number, count // self.threads) for number in range(self.threads)]:
                done.result()

    def reading(self) -> dict[str, int]:
        """What is in use now."""
        gc.collect()
        blocks = sum(len(idle) for pool in self.pools for idle in pool._idle.values())
        return {**held(self.engine, self.device, self.uploader), "blocks": blocks}

    def _work(self, number: int, count: int) -> None:
        draw = random.Random(f"{number} {self.calls.total()}")  # noqa: S311 - sizes and addresses, not secrets
        calls: Counter[str] = Counter()
        nbytes = wrong = 0
        while calls.total() < count:
            sources = self._drawn(draw, calls)
            tree = sources[0] if len(sources) == 1 else {"x": sources[0], "rest": sources[1:]}
            sent = self.uploader.upload(tree, self.to)
            made = [sent] if len(sources) == 1 else [sent["x"], *sent["rest"]]
            for x, y in zip(sources, made, strict=True):
                wrong += not np.array_equal(self.uploader.download(y), x)
                nbytes += x.nbytes
            calls["downloads"] += len(made)
        with self._lock:
            self.calls.update(calls)
            self.nbytes += nbytes
            self.wrong += wrong

    def _drawn(self, draw: random.Random, calls: Counter[str]) -> list[Any]:
        """The arrays of the next upload, which is counted."""
        if draw.randrange(EACH_TREE) == 0:
            calls["trees"] += 1
            return [self._array(draw, LEAF) for _ in range(draw.randint(*LEAVES))]
        calls["arrays"] += 1
        return [self._array(draw, LARGE if draw.randrange(EACH_LARGE) == 0 else ARRAY)]

    def _array(self, draw: random.Random, sizes: tuple[int, int]) -> Any:
        size = draw.randint(*sizes)
        begin = draw.randrange(self.source.nbytes - size + 1)
        return self.source[begin : begin + size]


def main() -> int:
    """Upload and print the figures; 1 if a check fails."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    soak = Soak(asked, engine, device.index)
    with soak.uploader:
        before = soak.reading()
        begun = time.perf_counter()
        soak.run(asked.calls // 10)
        early = soak.reading()
        soak.run(asked.calls - asked.calls // 10)
        seconds = time.perf_counter() - begun
        readings = (before, early, soak.reading())
    environment = read_environment(engine, device)
    counted = (dict(soak.calls), soak.nbytes, soak.wrong, seconds)
    result = ThreadsSoak(asked.to, asked.threads, device, environment, *counted, readings)
    print(page(result))
    return shared.conclude(result, asked.export_json, judge(result))


def page(result: ThreadsSoak) -> str:
    """The counts and the readings."""
    calls = ", ".join(f"{count:,} {name}" for name, count in result.calls.items())
    total = sum(result.calls.values())
    each = format_seconds(result.seconds / max(total, 1))
    counted = f"to {result.to} from {result.threads} threads: {total:,} calls ({calls}), {format_size(result.nbytes)}"
    rows = [
        [what, *(str(found[what]) if what == "blocks" else format_size(found[what]) for found in result.readings)]
        for what in (*HELD, "blocks")
    ]
    table = shared.page(result, ["in use", "before", "after a tenth", "at the end"], rows)
    return f"{counted}, {result.wrong} wrong, {format_seconds(result.seconds)}, {each} a call\n{table}"


def judge(result: ThreadsSoak) -> list[str]:
    """The failed checks, one sentence each."""
    wrong = [f"WRONG: {result.wrong} downloads had wrong bytes"] if result.wrong else []
    grown = [what for what, most in MAX_GROWN.items() if result.grown(what) > most]
    return wrong + [f"WRONG: {what} in use has grown by {result.grown(what):,}" for what in grown]


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", choices=["own", "torch", "jax", "cupy"], default="own")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--calls", type=int, default=1_000_000)
    shared.add_measuring_arguments(parser)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
