"""Copies blocks from several threads for a long time and checks that contents are correct and memory does not grow.

    python bench/blocks_soak.py [--to own|torch] [--blocks 1000000] [--threads 4] [--export-json F]

Each thread copies blocks from its pool in host memory to its pool on the device, in random places, and back to a third
pool, by methods and block sizes that change. The third pool is compared as a whole, so that a byte outside of the named
blocks counts as well. Meanwhile a thread trains with PyTorch, or uploads arrays if the pools are pyxfer's own.

The exit status is 1 if a byte is wrong or if memory has grown by more than the largest pool.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import shared
from upload_soak import HELD, MIB, held

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._machine.engine import is_host
from pyxfer._machine.environment import read_environment
from pyxfer._upload.api import shared_uploader
from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native import Engine
from pyxfer.units import format_seconds, format_size

BLOCK_BYTES = (48, 512, 4096, 16384)
METHODS = ("auto", "kernel", "batch", "loop", "packed")
POOL_BYTES = 8 * MIB
MAX_TURN = 2000  # blocks of one call


class Soak(msgspec.Struct, frozen=True):
    """The document."""

    to: str
    device: Device
    environment: Environment
    threads: int
    blocks: int
    nbytes: int
    calls: int
    wrong: tuple[str, ...]
    steps_beside: int
    seconds: float
    early_bytes: dict[str, int]
    late_bytes: dict[str, int]

    def grown_bytes(self, what: str) -> int:
        """Growth between a tenth of the blocks and the end."""
        return self.late_bytes[what] - self.early_bytes[what]


class Copying:
    """What the threads share: how many blocks are left, and what went wrong."""

    def __init__(self, engine: Engine, device: int, to: str, blocks: int) -> None:
        self.engine = engine
        self.device = device
        self.to = to
        self.left = blocks
        self.nbytes = self.calls = 0
        self.wrong: list[str] = []
        self._turn = threading.Lock()

    def claim(self, most: int) -> int:
        """How many blocks to copy next."""
        with self._turn:
            taken = min(most, self.left)
            self.left -= taken
            return taken

    def count(self, nbytes: int) -> None:
        """Note a call."""
        with self._turn:
            self.calls += 1
            self.nbytes += nbytes

    def run(self, number: int) -> None:
        """What one thread does: it copies to the device and back, and compares, until no block is left."""
        try:
            draw = np.random.default_rng(number)
            memory = draw.integers(0, 256, POOL_BYTES, np.uint8)
            ordinary, locked = memory, pyxfer.empty_pinned(POOL_BYTES, np.uint8, self._name())
            locked[...] = memory
            back = pyxfer.empty_pinned(POOL_BYTES, np.uint8, self._name())
            turn = number
            with self._own_stream():
                while self.left and not self.wrong:
                    turn += 1
                    block_bytes = BLOCK_BYTES[turn % len(BLOCK_BYTES)]
                    method = METHODS[turn // len(BLOCK_BYTES) % len(METHODS)]
                    source = ordinary if method == "packed" else locked
                    self._there_and_back(draw, source, back, block_bytes, method)
        except Exception as error:  # noqa: BLE001 - the page shows it
            self.wrong.append(f"thread {number}: {error!r}")

    def _own_stream(self) -> AbstractContextManager[object]:
        """PyTorch's current stream is otherwise the legacy one, which the driver's batch call refuses."""
        if self.to != "torch":
            return nullcontext()
        import torch

        return torch.cuda.stream(torch.cuda.Stream(self.device))  # type: ignore[no-any-return]

    def _name(self) -> int | str:
        return "host" if is_host(self.engine) else self.device

    def _pool(self, blocks: int, block_bytes: int) -> Any:
        if self.to == "torch":
            import torch

            return torch.empty((blocks, block_bytes), dtype=torch.uint8, device=f"cuda:{self.device}")
        return DeviceArray(DevicePool(self.engine, self.device, 0), (blocks, block_bytes), np.dtype(np.uint8))

    def _there_and_back(self, draw: Any, source: Any, back: Any, block_bytes: int, method: Any) -> None:
        blocks = POOL_BYTES // block_bytes
        count = self.claim(int(draw.integers(1, min(MAX_TURN, blocks))))
        if not count:
            return
        rows = source[: blocks * block_bytes].reshape(blocks, block_bytes)
        to_rows = back[: blocks * block_bytes].reshape(blocks, block_bytes)
        back[...] = 170
        pool = self._pool(blocks, block_bytes)
        first, middle, last = (draw.permutation(blocks)[:count] for _ in range(3))
        pyxfer.copy_blocks(rows, pool, first, middle, method=method, block=bool(count % 2))
        pyxfer.copy_blocks(pool, to_rows, middle, last, method=method)
        expected = np.full_like(back, 170)
        expected[: blocks * block_bytes].reshape(blocks, block_bytes)[last] = rows[first]
        if not np.array_equal(back, expected):
            self.wrong.append(f"{np.count_nonzero(back != expected)} bytes, {method}, {count} of {block_bytes} bytes")
        self.count(2 * count * block_bytes)


class Beside:
    """The work in the other thread."""

    def __init__(self, copying: Copying) -> None:
        self._copying = copying
        self._done = threading.Event()
        self.steps = 0
        self._thread = threading.Thread(target=self._train if copying.to == "torch" else self._upload)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _train(self) -> None:
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
        model.to(f"cuda:{self._copying.device}")
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        batch = torch.randn(2048, 1024, device=f"cuda:{self._copying.device}")
        while not self._done.is_set():
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            if not torch.isfinite(loss).item():
                self._copying.wrong.append("the training diverged")
                return
            self.steps += 1

    def _upload(self) -> None:
        copying = self._copying
        target = Target(DevicePool(copying.engine, copying.device, 0))
        uploader = shared_uploader("host" if is_host(copying.engine) else copying.device)
        x = np.random.default_rng(0).integers(0, 256, MIB, np.uint8)
        while not self._done.is_set():
            if not np.array_equal(uploader.download(uploader.upload(x, target)), x):
                copying.wrong.append("an upload beside the copies")
                return
            self.steps += 1


def main() -> int:
    """Copy and print the page; 1 if a check fails."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    copying = Copying(engine, device.index, asked.to, asked.blocks)
    uploader = shared_uploader("host" if is_host(engine) else device.index)
    begun, early = time.perf_counter(), dict.fromkeys(HELD, 0)
    threads = [threading.Thread(target=copying.run, args=(number,)) for number in range(asked.threads)]
    with Beside(copying) as beside:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if copying.left > asked.blocks * 9 // 10:
                early = held(engine, device.index, uploader)
            time.sleep(0.05)
    seconds = time.perf_counter() - begun
    late = held(engine, device.index, uploader)
    result = Soak(
        asked.to,
        device,
        read_environment(engine, device),
        asked.threads,
        asked.blocks,
        copying.nbytes,
        copying.calls,
        tuple(copying.wrong),
        beside.steps,
        seconds,
        early,
        late,
    )
    shared.write_document(asked.export_json, result)
    print(
        f"to {result.to}, {shared.machine_line(result.device, result.environment)}\n\n{shared.aligned(*table(result))}"
    )
    wrong = judge(result)
    print("\n".join(wrong))
    return 1 if wrong else 0


def table(result: Soak) -> tuple[list[str], list[list[str]]]:
    """Header and the one row."""
    header = ["blocks", "threads", "calls", "in all", "time", "steps beside", "wrong", *(f"{what} +" for what in HELD)]
    grown = [format_size(max(0, result.grown_bytes(what))) for what in HELD]
    row = [
        f"{result.blocks:,}",
        str(result.threads),
        f"{2 * result.calls:,}",
        format_size(result.nbytes),
        format_seconds(result.seconds),
        f"{result.steps_beside:,}",
        str(len(result.wrong)),
    ]
    return header, [[*row, *grown]]


def judge(result: Soak) -> list[str]:
    """The failed checks, one sentence each."""
    limit = 2 * POOL_BYTES * result.threads
    return [f"WRONG: {text}" for text in result.wrong] + [
        f"WRONG: {what} memory has grown by {format_size(result.grown_bytes(what))}"
        for what in HELD
        if result.grown_bytes(what) > limit
    ]


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", choices=["own", "torch"], default="own")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=4)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
