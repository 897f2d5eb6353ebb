"""Measures all methods in cells drawn by a seed, and compares the fastest with what a run of `pyxfer blocks` chooses.

    pyxfer blocks --export-json blocks.json
    python bench/block_winners.py blocks.json [--device 0] [--cells 60] [--rounds 15] [--seed N] [--export-json F]

A cell is a block size from 512 B to 4 MiB, a number of blocks, a direction and an order. It shares no code with the run
but the copies themselves: a call, a wait, and one clock. All methods of a cell take turns in shuffled rounds. The exit
status is 1 if the chosen method is not the fastest, nor within the noise of the fastest, in more than 5 % of the
cells, or if it takes 5 % longer than the fastest in any cell.
"""

from __future__ import annotations

import argparse
import math
import secrets
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

import pyxfer
from pyxfer._blocks.choice import Choices, thresholds_of
from pyxfer._blocks.mover import BlockMover, Pool
from pyxfer._document.blocks import BlockDirection
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import BlockOrder
from pyxfer._machine.environment import read_environment
from pyxfer.units import format_size

SMALLEST, LARGEST, MOST = 512, 4 << 20, 100_000
POOL_BYTES, POOL_PARTS = 2 << 30, 8
RUN = 16
PROMISED, LOSS = 0.95, 0.05
NOISE = 2
"""Half widths of the fastest method's median within which another is as fast: 2 standard errors."""


class Winner(msgspec.Struct, frozen=True):
    """One cell: the chosen method, and the seconds of each method in each round."""

    block_bytes: int
    blocks: int
    direction: str
    order: str
    chosen: str
    seconds: dict[str, list[float]]

    def median(self, method: str) -> float:
        """Of all rounds."""
        return statistics.median(self.seconds[method])

    @property
    def fastest(self) -> str:
        """The method with the least median."""
        return min(self.seconds, key=self.median)

    @property
    def loss(self) -> float:
        """How much longer the chosen method takes than the fastest."""
        return self.median(self.chosen) / self.median(self.fastest) - 1

    @property
    def agrees(self) -> bool:
        """Whether the chosen method is the fastest, or differs from it by no more than the noise of its pairs."""
        pairs = zip(self.seconds[self.chosen], self.seconds[self.fastest], strict=True)
        excess = [chosen - fastest for chosen, fastest in pairs]
        error = 1.25 * statistics.stdev(excess) / math.sqrt(len(excess))  # of a median
        return statistics.median(excess) <= NOISE * error


class Winners(msgspec.Struct, frozen=True):
    """All cells of one device, with the seed that drew them."""

    device: Device
    environment: Environment
    seed: int
    cells: tuple[Winner, ...]


def main() -> int:
    """Print a line for each cell; 1 if the choices are worse than promised."""
    asked = _arguments()
    choices = Choices(thresholds_of(pyxfer.Run.load(asked.run)))
    engine, device = shared.open_device(asked)
    chance = np.random.default_rng(asked.seed)
    mover = BlockMover(engine, device.index)
    # Written, because untouched pages would be one page of zeros.
    host = pyxfer.empty_pinned(asked.pool, np.uint8, "host" if device.runtime == "host" else device.index)
    host[:] = 1
    memory = engine.DeviceBuffer(asked.pool, device.index)
    try:
        found = [cell(chance, choices, mover, host, memory.address, asked.rounds) for _ in range(asked.cells)]
    finally:
        mover.close()
        memory.close()
    winners = Winners(device, read_environment(engine, device), asked.seed, tuple(found))
    print(
        shared.page(winners, ["block", "blocks", "way", "order", "chosen", "fastest", "loss", ""], [*map(line, found)])
    )
    agreeing, worst = sum(each.agrees for each in found), max(each.loss for each in found)
    first = sum(each.chosen == each.fastest for each in found)
    print(
        f"\nseed {asked.seed}: the chosen method is the fastest in {first} of {len(found)} cells, and not slower "
        f"beyond noise in {agreeing}; at worst it takes {worst:.1%} longer"
    )
    failed = ["The choices are worse than promised."] if agreeing < PROMISED * len(found) or worst > LOSS else []
    return shared.conclude(winners, asked.export_json, failed)


def cell(
    chance: np.random.Generator, choices: Choices, mover: BlockMover, host: NDArray[np.uint8], device: int, rounds: int
) -> Winner:
    """Draw a cell and measure all methods in it."""
    while True:
        size = 16 * round(math.exp(chance.uniform(math.log(SMALLEST), math.log(LARGEST))) / 16)
        count = round(math.exp(chance.uniform(0, math.log(MOST))))
        if size * count <= host.nbytes // POOL_PARTS:
            break
    direction: BlockDirection = "h2d" if chance.integers(2) else "d2h"
    order: BlockOrder = "runs" if count >= RUN and chance.integers(2) else "random"
    blocks = host.nbytes // size // RUN * RUN
    pools = Pool(host.ctypes.data, blocks, size, "pinned"), Pool(device, blocks, size, "device")
    source, destination = pools if direction == "h2d" else pools[::-1]
    methods = [method for method in mover.methods(source, destination, size) if method != "strided"]
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    for number in range(rounds + 1):
        for at in chance.permutation(len(methods)):
            lists = places(chance, blocks, count, order), places(chance, blocks, count, order)
            begin = time.perf_counter()
            mover.move(methods[at], source, destination, *lists, size, None, wait=True)
            if number:
                seconds[methods[at]].append(time.perf_counter() - begin)
    chosen = choices.method_for(direction, "pinned", size, count, order=order, possible=tuple(methods))
    return Winner(size, count, direction, order, str(chosen), seconds)


def places(chance: np.random.Generator, blocks: int, count: int, order: str) -> NDArray[np.int64]:
    """Blocks in random places, or runs of neighbours."""
    if order == "random":
        return chance.choice(blocks, count, replace=False)
    runs = chance.choice(blocks // RUN, -(-count // RUN), replace=False)
    return (runs[:, None] * RUN + np.arange(RUN)).reshape(-1)[:count]


def line(found: Winner) -> Sequence[str]:
    """The cells of a line."""
    words = format_size(found.block_bytes), f"{found.blocks:,}", found.direction, found.order
    return [*words, found.chosen, found.fastest, f"{found.loss:.1%}", "" if found.agrees else "slower"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run of pyxfer blocks of this device")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--pool", type=int, default=POOL_BYTES, help="bytes of each of the two pools")
    return parser.parse_args()


if __name__ == "__main__":
    shared.run_script(main)
