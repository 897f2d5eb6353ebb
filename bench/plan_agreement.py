"""Measures moves of shapes drawn by a seed, and compares each with what `pyxfer.plan_offload` predicts.

    pyxfer blocks --export-json blocks.json
    python bench/plan_agreement.py blocks.json [--device 0] [--shapes 60] [--rounds 15] [--seed N] [--pool 8GiB]
        [--export-json F]

A shape is a size of blocks from 512 B to 4 MiB and a number of them, both drawn on logarithmic scales, in random places
of two pools. The prediction has storing and loading; each is measured with the method that the plan names, from the
call to the arrival. All shapes are moved once a round in another order, so that none is measured in a tight loop, and
the times are medians. The exit status is 1 if fewer than 90 % of the predictions are within 10 % of the measured time.
A shape that the plan refuses counts as one that is not.

Then all shapes are measured again, in other pools. The last line says how many of the first measurements are within
10 % of the second ones: no prediction can agree more often than the machine agrees with itself.
"""

from __future__ import annotations

import argparse
import math
import secrets
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import shared

import pyxfer
from pyxfer._blocks.mover import BlockMover
from pyxfer._blocks.plans import BlockPlan
from pyxfer._blocks.trials import BlockResources, Moves
from pyxfer._document.machines import Device, Environment
from pyxfer._document.offloads import Move
from pyxfer._machine.environment import read_environment
from pyxfer._machine.numa import bind, device_node
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.units import format_percent, format_seconds, format_size, size_of

SMALLEST, LARGEST, MAX_BLOCKS = 512, 4 << 20, 100_000
WORD = 16
NEAR, PROMISED = 0.1, 0.9
PATIENCE_S = 60.0
POOL_PARTS = 8
"""Of a pool a shape has at most this part, so that its places are random."""


class Agreement(msgspec.Struct, frozen=True):
    """One shape: the predicted seconds with their interval, and those of both measurements.

    `wrong`: contents differed.
    """

    block_bytes: int
    blocks: int
    methods: tuple[str, ...]
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    again_s: float
    wrong: bool

    @property
    def repeats(self) -> bool:
        """Whether the two measurements are as near to each other as a prediction has to be."""
        return abs(self.measured_s / self.again_s - 1) <= NEAR

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s

    @property
    def near(self) -> bool:
        """Whether the prediction is as good as promised."""
        return abs(self.ratio - 1) <= NEAR and not self.wrong


class Agreements(msgspec.Struct, frozen=True):
    """All shapes of one device, with the seed that drew them."""

    device: Device
    environment: Environment
    seed: int
    shapes: tuple[Agreement, ...]


def main() -> int:
    """Print one line per shape; 1 if too few are near."""
    asked = _arguments()
    run = pyxfer.Run.load(asked.run)
    engine, device = shared.open_device(asked)
    pool = size_of(asked.pool, "--pool")
    chosen = drawn(asked.seed, asked.shapes, pool // POOL_PARTS)
    plans = plans_of(run, chosen)
    with bind(engine, device_node(device)):
        first, second = (measure(plans, engine, device.index, pool, asked.rounds, asked.seed + n) for n in range(2))
    shapes = [agreement(*each) for each in zip(plans, first, second, strict=True)]
    found = Agreements(device, read_environment(engine, device), asked.seed, tuple(shapes))
    near, inside, repeating = (sum(found) for found in zip(*map(marks, shapes), strict=True))
    header = ["block", "blocks", "methods", "predicted", "measured", "ratio", ""]
    print(shared.page(found, header, [cells(each) for each in shapes]))
    refused = len(chosen) - len(shapes)
    said = f"{near} of {len(chosen)} within {NEAR:.0%}, {inside} within the interval, {refused} refused"
    print(f"\nseed {asked.seed}: {said}")
    print(f"of the measurements themselves {repeating} of {len(shapes)} are within {NEAR:.0%} of a second one")
    return shared.conclude(found, asked.export_json, [] if near >= PROMISED * len(chosen) else ["Too few are near."])


def table(documents: Sequence[Agreements]) -> str:
    """A row for each machine."""
    within = f"within {format_percent(NEAR)}"
    header = ["machine", "seed", "shapes", within, "within the interval", f"measured again {within}"]
    rows = [
        [
            escape_markdown(shared.machine_line(each.device, each.environment)),
            str(each.seed),
            str(len(each.shapes)),
            *(str(sum(found)) for found in zip(*map(marks, each.shapes), strict=True)),
        ]
        for each in documents
    ]
    return markdown_table(header, rows)


def marks(shape: Agreement) -> tuple[bool, bool, bool]:
    """Whether it is as near as promised, within the interval, and as near to itself."""
    return shape.near, shape.low_s <= shape.measured_s <= shape.high_s, shape.repeats


def drawn(seed: int, shapes: int, most_bytes: int) -> list[tuple[int, int]]:
    """Sizes and numbers of blocks."""
    chance, found = np.random.default_rng(seed), list[tuple[int, int]]()
    while len(found) < shapes:
        size = WORD * round(math.exp(chance.uniform(math.log(SMALLEST), math.log(LARGEST))) / WORD)
        count = round(math.exp(chance.uniform(0, math.log(MAX_BLOCKS))))
        if size * count <= most_bytes:
            found.append((size, count))
    return found


def plans_of(run: pyxfer.Run, shapes: Sequence[tuple[int, int]]) -> list[pyxfer.OffloadPlan]:
    """The plans of the shapes that are not refused."""
    found = []
    for block_bytes, blocks in shapes:
        try:
            found.append(pyxfer.plan_offload(block_bytes, blocks, 1.0, run=run))
        except UsageError as error:
            print(error)
    return found


class Shape:
    """Both moves of a plan, with their times."""

    def __init__(self, plan: pyxfer.OffloadPlan, resources: BlockResources) -> None:
        self._moves = [_moves(plan, move, resources) for move in plan.moves]
        self.is_right = sum(moves.verify()[0] for moves in self._moves) == len(self._moves)  # verifies each
        self._times: list[list[float]] = [[] for _ in self._moves]

    def move(self, number: int) -> None:
        """One trial of each."""
        for moves, times in zip(self._moves, self._times, strict=True):
            (trial,) = moves.trial(number).values()
            times.append(trial.elapsed_s)

    @property
    def seconds(self) -> float:
        """The sum of the medians."""
        return sum(map(statistics.median, self._times))


def _moves(plan: pyxfer.OffloadPlan, move: Move, resources: BlockResources) -> Moves:
    cell = BlockPlan(move.direction, "pinned", move.method, "random", plan.block_bytes, plan.blocks)
    return Moves(cell, resources, None, seed=0)


def measure(
    plans: Sequence[pyxfer.OffloadPlan], engine: Engine, device: int, pool: int, rounds: int, seed: int
) -> list[Shape]:
    """Move all shapes once a round, in pools of their own."""
    chance, resources = np.random.default_rng(seed), BlockResources(engine, device, PATIENCE_S)
    try:
        resources.make_pools(["pinned"], pool)
        resources.use(BlockMover(engine, device))
        shapes = [Shape(plan, resources) for plan in plans]
        for number in range(rounds):
            for place in chance.permutation(len(shapes)):
                shapes[place].move(number)
    finally:
        resources.close()
    return shapes


def agreement(plan: pyxfer.OffloadPlan, first: Shape, second: Shape) -> Agreement:
    """The prediction beside both measurements."""
    methods = tuple(move.method for move in plan.moves)
    times = plan.seconds, plan.low_s, plan.high_s, first.seconds, second.seconds
    return Agreement(plan.block_bytes, plan.blocks, methods, *times, not (first.is_right and second.is_right))


def cells(found: Agreement) -> Sequence[str]:
    """The cells of a line."""
    doubt = "WRONG CONTENTS" if found.wrong else "" if found.near else "not near"
    methods = "/".join(dict.fromkeys(found.methods))
    times = format_seconds(found.predicted_s), format_seconds(found.measured_s)
    return [format_size(found.block_bytes), f"{found.blocks:,}", methods, *times, f"{found.ratio:.3f}", doubt]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run of pyxfer blocks of this device")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--shapes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--pool", default="8GiB", help="size of each of the two pools")
    return parser.parse_args()


if __name__ == "__main__":
    shared.run_script(main)
