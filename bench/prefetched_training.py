"""Compares a training loop fed by pyxfer.prefetch with one whose data is already on the GPU.

    python bench/prefetched_training.py [torch|tensorflow] [--device 0] [--blocks 30] [--export-json F]

The network of training_loops.py is trained on NumPy batches through pyxfer.prefetch and on the same batches in device
memory, in short alternating blocks. The cost of prefetching is the median ratio of neighbouring blocks.

The exit status is 1 if prefetching makes a step more than 3 % longer.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import shared
from training_loops import CLASSES, LOOPS, Shape
from watched_training import cost_text, device_word

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import Summary
from pyxfer._machine.environment import read_environment
from pyxfer._measure import stats
from pyxfer.units import format_seconds, format_size

WARM_UP = 20
BLOCK_STEPS = 16
MAX_COST = 0.03
STORED = 8


class Prefetched(msgspec.Struct, frozen=True):
    """Seconds of every step of both loops, by block."""

    framework: str
    device: Device
    environment: Environment
    shape: dict[str, int]
    batch_bytes: int
    resident_s: list[list[float]]
    prefetched_s: list[list[float]]

    def cost(self) -> Summary:
        """Duration of a prefetched step over that of a step with its data on the GPU."""
        pairs = zip(self.prefetched_s, self.resident_s, strict=True)
        return stats.summarise([statistics.median(block) / statistics.median(other) for block, other in pairs])


def main() -> int:
    """Train and print the table; 1 if prefetching costs too much."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    shape = Shape(asked.batch, asked.side, asked.width, 0)
    batches = stored_batches(asked.framework, shape)
    resident, prefetched = train(asked, shape, batches)
    result = Prefetched(
        asked.framework,
        device,
        read_environment(engine, device),
        {name: getattr(shape, name) for name in ("batch", "side", "width")},
        sum(part.nbytes for part in batches[0]),
        resident,
        prefetched,
    )
    shared.write_document(asked.export_json, result)
    print(page(result))
    if result.cost().median_s - 1 <= MAX_COST:
        return 0
    print(f"WRONG: {cost_text(result.cost())} is more than 3 %")
    return 1


def stored_batches(framework: str, shape: Shape) -> list[tuple[Any, Any]]:
    """Images in the layout of the framework, with labels, in pageable memory."""
    draw = np.random.default_rng(0)
    side = shape.side
    size = (shape.batch, 3, side, side) if framework == "torch" else (shape.batch, side, side, 3)
    return [
        (draw.integers(0, 256, size, np.uint8), draw.integers(0, CLASSES, shape.batch, np.int64)) for _ in range(STORED)
    ]


def train(
    asked: argparse.Namespace, shape: Shape, batches: Sequence[tuple[Any, Any]]
) -> tuple[list[list[float]], list[list[float]]]:
    """Run alternating blocks of both loops; return the seconds of their steps."""
    step = LOOPS[asked.framework](shape, device_word(asked.framework, asked.device))[1].step
    on_device = itertools.cycle([pyxfer.upload(batch, to=asked.framework, device=asked.device) for batch in batches])
    resident: list[list[float]] = []
    prefetched: list[list[float]] = []
    with pyxfer.prefetch(itertools.cycle(batches), to=asked.framework, device=asked.device) as coming:
        for stream in (on_device, coming):
            _steps(step, stream, WARM_UP)
        for number in range(asked.blocks):
            pairs = [(on_device, resident), (coming, prefetched)]
            for source, seconds in pairs if number % 2 == 0 else reversed(pairs):
                seconds.append(_steps(step, source, BLOCK_STEPS))
    return resident, prefetched


def _steps(step: Any, batches: Iterator[Any], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        begun = time.perf_counter()
        step(next(batches))
        seconds.append(time.perf_counter() - begun)
    return seconds


def page(result: Prefetched) -> str:
    """A table of the two loops."""
    rows = [
        [name, format_seconds(statistics.median(itertools.chain(*blocks))), cost]
        for name, blocks, cost in (
            ("data on the GPU", result.resident_s, "-"),
            ("pyxfer.prefetch", result.prefetched_s, cost_text(result.cost())),
        )
    ]
    table = shared.aligned(["loop", "a step", "longer"], rows)
    machine = shared.machine_line(result.device, result.environment)
    return f"{result.framework}, batches of {format_size(result.batch_bytes)}, {machine}\n\n{table}"


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("framework", choices=sorted(LOOPS), nargs="?", default="torch")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--width", type=int, default=80)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
