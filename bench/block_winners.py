"""Measures all methods in cells drawn by a seed, and compares the fastest with what a run of `pyxfer blocks` chooses.

    pyxfer blocks --export-json blocks.json
    python bench/block_winners.py blocks.json [--device 0] [--cells 60] [--rounds 15] [--seed N] [--pool 8GiB]
        [--export-json F]

A cell is a block size from 512 B to 4 MiB, a number of blocks, a direction and an order. It shares no code with the run
but the copies themselves: a call, a wait, and one clock. All methods of a cell take turns in shuffled rounds. The exit
status is 1 if the chosen method is not the fastest, nor within the noise of the fastest, in more than 5 % of the
cells, or if it takes 5 % longer than the fastest in any cell.

After all cells each is measured a second time. The last line says how good the choices would be that the first
measurement makes for the second one: no run can choose better than that.
"""

from __future__ import annotations

import argparse
import math
import secrets
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import shared
from msgspec.structs import replace
from numpy.typing import NDArray

import pyxfer
from pyxfer._blocks.choice import Choices, thresholds_of
from pyxfer._blocks.mover import BlockMover, Pool
from pyxfer._document.blocks import BlockDirection, BlockMethod
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import BlockOrder
from pyxfer._machine.environment import read_environment
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer.units import format_percent, format_size, size_of

SMALLEST, LARGEST, MAX_BLOCKS = 512, 4 << 20, 100_000
POOL_PARTS = 8
FEW_BYTES, MORE_ROUNDS = 1 << 20, 4
"""Cells of few bytes, whose calls take tens of microseconds, have this multiple of rounds."""
RUN = 16
PROMISED, LOSS = 0.95, 0.05
NOISE = 2
"""Half widths of the fastest method's median within which another is as fast: 2 standard errors."""


class Cell(NamedTuple):
    """What is moved."""

    block_bytes: int
    blocks: int
    direction: BlockDirection
    order: BlockOrder


class Winner(msgspec.Struct, frozen=True):
    """One cell: the chosen method, and the seconds of each method in each round."""

    block_bytes: int
    blocks: int
    direction: BlockDirection
    order: BlockOrder
    chosen: BlockMethod
    seconds: dict[BlockMethod, list[float]]

    def median(self, method: BlockMethod) -> float:
        """Of all rounds."""
        return statistics.median(self.seconds[method])

    @property
    def fastest(self) -> BlockMethod:
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
    """All cells of one device, with the seed that drew them.

    `again`: the second measurement of each, in which the chosen method is the fastest of the first.
    """

    device: Device
    environment: Environment
    seed: int
    cells: tuple[Winner, ...]
    again: tuple[Winner, ...]


def main() -> int:
    """Print a line for each cell; 1 if the choices are worse than promised."""
    asked = _arguments()
    choices = Choices(thresholds_of(pyxfer.Run.load(asked.run)))
    engine, device = shared.open_device(asked)
    chance = np.random.default_rng(asked.seed)
    mover = BlockMover(engine, device.index)
    pool = size_of(asked.pool, "--pool")
    host = pyxfer.empty_pinned(pool, np.uint8, "host" if device.runtime == "host" else device.index)
    memory = engine.DeviceBuffer(pool, device.index)
    pools = Pools(mover, host, memory.address, chance)
    try:
        cells = [drawn(chance, host.nbytes // POOL_PARTS) for _ in range(asked.cells)]
        found = [winner(each, choices, pools, asked.rounds) for each in cells]
        again = [repeated(first, pools.seconds(cell, asked.rounds)) for cell, first in zip(cells, found, strict=True)]
    finally:
        mover.close()
        memory.close()
    winners = Winners(device, read_environment(engine, device), asked.seed, tuple(found), tuple(again))
    print(
        shared.page(winners, ["block", "blocks", "way", "order", "chosen", "fastest", "loss", ""], [*map(line, found)])
    )
    agreeing, worst = sum(each.agrees for each in found), max(each.loss for each in found)
    print(f"\nseed {asked.seed}: the choices of the run: {summary(found)}")
    print(f"choices of this measurement for a second one: {summary(again)}")
    failed = ["The choices are worse than promised."] if agreeing < PROMISED * len(found) or worst > LOSS else []
    return shared.conclude(winners, asked.export_json, failed)


def drawn(chance: np.random.Generator, most_bytes: int) -> Cell:
    """A cell whose blocks are at most `most_bytes`."""
    while True:
        size = 16 * round(math.exp(chance.uniform(math.log(SMALLEST), math.log(LARGEST))) / 16)
        count = round(math.exp(chance.uniform(0, math.log(MAX_BLOCKS))))
        if size * count <= most_bytes:
            break
    direction: BlockDirection = "h2d" if chance.integers(2) else "d2h"
    return Cell(size, count, direction, "runs" if count >= RUN and chance.integers(2) else "random")


class Pools:
    """Where blocks are moved, and what moves them."""

    def __init__(self, mover: BlockMover, host: NDArray[np.uint8], device: int, chance: np.random.Generator) -> None:
        self._mover, self._host, self._device, self._chance = mover, host, device, chance

    def seconds(self, cell: Cell, rounds: int) -> dict[BlockMethod, list[float]]:
        """Measure all methods, which take turns."""
        size, mover, chance = cell.block_bytes, self._mover, self._chance
        blocks = self._host.nbytes // size // RUN * RUN
        pools = Pool(self._host.ctypes.data, blocks, size, "pinned"), Pool(self._device, blocks, size, "device")
        source, destination = pools if cell.direction == "h2d" else pools[::-1]
        methods = [method for method in mover.methods(source, destination, size) if method != "strided"]
        seconds: dict[BlockMethod, list[float]] = {method: [] for method in methods}
        for number in range(rounds * (MORE_ROUNDS if size * cell.blocks <= FEW_BYTES else 1) + 1):
            for at in chance.permutation(len(methods)):
                at_source, at_destination = (places(chance, blocks, cell.blocks, cell.order) for _ in range(2))
                begin = time.perf_counter()
                mover.move(methods[at], source, destination, at_source, at_destination, size, None, wait=True)
                if number:
                    seconds[methods[at]].append(time.perf_counter() - begin)
        return seconds


def winner(cell: Cell, choices: Choices, pools: Pools, rounds: int) -> Winner:
    """Measure all methods, and ask for the choice."""
    seconds = pools.seconds(cell, rounds)
    size, count, direction, order = cell
    chosen = choices.method_for(direction, "pinned", size, count, order=order, possible=tuple(seconds))
    if chosen is None:
        raise SystemExit(f"The run has no cell near {count} blocks of {format_size(size)}.")
    return Winner(*cell, chosen, seconds)


def repeated(first: Winner, seconds: dict[BlockMethod, list[float]]) -> Winner:
    """The second measurement, and the choice that follows from the first."""
    return replace(first, chosen=first.fastest, seconds=seconds)


def summary(cells: Sequence[Winner]) -> str:
    """How good the choices are."""
    fastest, agreeing, worst = counts(cells)
    return f"the fastest in {fastest} of {len(cells)}, not slower beyond noise in {agreeing}, at worst {worst} longer"


def table(documents: Sequence[Winners]) -> str:
    """A row for each machine."""
    header = [
        "machine",
        "seed",
        "cells",
        "the choice is the fastest",
        "not slower beyond noise",
        "at worst longer",
        "choices of the measurement",
    ]
    rows = [
        [
            escape_markdown(shared.machine_line(each.device, each.environment)),
            str(each.seed),
            str(len(each.cells)),
            *counts(each.cells),
            ", ".join(counts(each.again)),
        ]
        for each in documents
    ]
    return markdown_table(header, rows)


def counts(cells: Sequence[Winner]) -> list[str]:
    """In how many the choice is the fastest, in how many it is not shown to be slower, and the largest loss."""
    fastest, agreeing = sum(each.chosen == each.fastest for each in cells), sum(each.agrees for each in cells)
    return [str(fastest), str(agreeing), format_percent(max(each.loss for each in cells))]


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
    parser.add_argument("--pool", default="8GiB", help="size of each of the two pools")
    return parser.parse_args()


if __name__ == "__main__":
    shared.run_script(main)
