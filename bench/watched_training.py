"""Shows on this machine what a watch says of a real training loop, whether its prediction holds, and what it costs.

    python bench/watched_training.py [torch|tensorflow] [--device 0] [--steps 40] [--blocks 25] [--export-json F]

A small convolutional network is trained twice: on batches made between the steps, in pageable memory, and on batches
made ahead and sent from page-locked memory. A watch of each says what it is bound by. Then short blocks of steps
without a watch, in its window, and after its window take turns, those without first and last by turns, so that all
three see the same machine; what a watch costs is the median of the blocks, each against its own without one.

Exit status 1 where the first loop is not bound by its input or the second is, where the predicted gain is off by more
than a fifth of the real one, or where watching costs more than 2 %.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import shared
from training_loops import LOOPS, Loop, Shape

import pyxfer
from pyxfer._document.runs import Device, Environment, Summary
from pyxfer._document.watches import Watched
from pyxfer._machine.environment import read_environment
from pyxfer._measure import stats
from pyxfer.native import HOST
from pyxfer.units import format_seconds

SKIPPED = 10
BLOCK_STEPS = 8
MOST_COST = 0.02
PREDICTED_WITHIN = 0.2

Phase = Literal["unwatched", "watched", "after"]
PHASES: tuple[Phase, ...] = ("unwatched", "watched", "after")


class Trained(msgspec.Struct, frozen=True):
    """One loop: what a watch said of it, and the seconds of its steps in each phase, block by block."""

    loop: str
    steps_s: dict[str, list[list[float]]]
    watched: Watched
    faults: dict[str, list[float]] = {}
    """Page faults a step, block by block: the memory of batches is trimmed and taken anew as the heap has it."""

    def summary(self, phase: Phase) -> Summary:
        """All steps of a phase."""
        return stats.summarise([second for block in self.steps_s[phase] for second in block])

    def cost(self, phase: Phase) -> Summary:
        """How many times as long a step takes as without a watch: of the blocks, each against its own."""
        pairs = zip(self.steps_s[phase], self.steps_s["unwatched"], strict=True)
        return stats.summarise([statistics.median(block) / statistics.median(plain) for block, plain in pairs])

    @property
    def input_bound(self) -> bool:
        """Whether the watch says so."""
        return self.watched.verdict.bound_by in ("input", "link")


class Training(msgspec.Struct, frozen=True):
    """Both loops of one framework."""

    framework: str
    device: Device
    environment: Environment
    shape: dict[str, int]
    loops: tuple[Trained, ...]

    @property
    def real_gain_s(self) -> float:
        """What the second loop saves in a step, unwatched."""
        usual, ahead = (loop.summary("unwatched").median_s for loop in self.loops)
        return usual - ahead

    @property
    def predicted_gain_s(self) -> float | None:
        """What the watch of the first predicts for the best change to its input."""
        gains = [advice.gain_s for advice in self.loops[0].watched.advice if advice.code in INPUT_ADVICE]
        return max(gains, default=None)


INPUT_ADVICE = ("pin-and-prefetch", "prefetch", "pin")


def main() -> int:
    """Train, print, and judge."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    shape = Shape(asked.batch, asked.side, asked.width, asked.workers)
    loops = LOOPS[asked.framework](shape, device_word(asked.framework, asked.device))
    trained = tuple(train(loop, asked) for loop in loops)
    result = Training(
        asked.framework,
        device,
        read_environment(engine, device),
        {name: getattr(shape, name) for name in ("batch", "side", "width", "workers")},
        trained,
    )
    shared.write_document(asked.export_json, result)
    print(page(result))
    wrong = judge(result)
    print("\n".join(wrong))
    return 1 if wrong else 0


def train(loop: Loop, asked: argparse.Namespace) -> Trained:
    """One watch, and blocks of the three phases in turn, over one stream of batches."""
    batches = loop.batches()
    _steps(loop, batches, SKIPPED)
    seconds: dict[str, list[list[float]]] = {phase: [] for phase in PHASES}
    faults: dict[str, list[float]] = {phase: [] for phase in PHASES}

    def block(phase: Phase, watch: Any = None) -> None:
        before = _page_faults()
        seconds[phase].append(_steps(loop, batches, BLOCK_STEPS, watch))
        faults[phase].append((_page_faults() - before) / BLOCK_STEPS)

    for number in range(asked.blocks):
        plain_first = number % 2 == 0
        if plain_first:
            block("unwatched")
        with pyxfer.watch(steps=BLOCK_STEPS, device=asked.device) as watch:
            block("watched", watch)
            block("after", watch)
        if not plain_first:
            block("unwatched")
    with pyxfer.watch(steps=asked.steps, device=asked.device) as reported:  # last: workers have long been started
        _steps(loop, batches, asked.steps, reported)
    return Trained(loop.name, seconds, reported.result, faults)


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _steps(loop: Loop, batches: Iterator[Any], count: int, watch: Any = None) -> list[float]:
    """Seconds of each, with the making of its batch."""
    seconds = []
    for _ in range(count):
        begun = time.perf_counter()
        batch = next(batches)
        if watch is None:
            loop.step(batch)
        else:
            with watch.step():
                loop.step(batch)
        seconds.append(time.perf_counter() - begun)
    return seconds


def page(result: Training) -> str:
    """A table of the phases, what the watch says of each loop, and the gain."""
    rows = []
    for loop in result.loops:
        medians = [format_seconds(loop.summary(phase).median_s) for phase in PHASES]
        costs = [cost_text(loop.cost(phase)) for phase in PHASES[1:]]
        rows.append([loop.loop, *medians, *costs])
    table = shared.aligned(["loop", *PHASES, "watching costs", "after costs"], rows)
    table += "".join(f"\n{loop.loop}: {faults_text(loop)}" for loop in result.loops)
    verdicts = [f"{loop.loop}: {loop.watched.verdict.text}" for loop in result.loops]
    predicted = "none" if result.predicted_gain_s is None else format_seconds(result.predicted_gain_s)
    gain = f"gain a step: predicted {predicted}, real {format_seconds(result.real_gain_s)}"
    machine = shared.machine_line(result.device, result.environment)
    return "\n".join([f"{result.framework}, {machine}", "", table, "", *verdicts, gain])


def faults_text(loop: Trained) -> str:
    """The medians of a phase's blocks."""
    medians = [f"{statistics.median(found):.0f} {phase}" for phase, found in loop.faults.items()]
    return f"page faults a step: {', '.join(medians) or 'not counted'}"


def cost_text(times: Summary) -> str:
    """A cost as a share of the step, with its interval where there are blocks enough for one."""
    cost = f"{_more(times.median_s)} %"
    if times.low_s is None or times.high_s is None:
        return cost
    return f"{cost} ({_more(times.low_s)} to {_more(times.high_s)})"


def _more(times: float) -> str:
    return f"{100 * (times - 1):+.1f}"


def judge(result: Training) -> list[str]:
    """What is not as it should be."""
    usual, ahead = result.loops
    wrong = []
    if not usual.input_bound:
        wrong.append("WRONG: the usual loop is not said to be bound by its input")
    if ahead.input_bound:
        wrong.append("WRONG: the loop with batches made ahead is said to be bound by its input")
    real, predicted = result.real_gain_s, result.predicted_gain_s
    if predicted is None or abs(predicted - real) > PREDICTED_WITHIN * abs(real):
        wrong.append("WRONG: the predicted gain is off by more than a fifth of the real one")
    for loop in result.loops:
        for phase in PHASES[1:]:
            if loop.cost(phase).median_s - 1 > MOST_COST:
                wrong.append(f"WRONG: {loop.loop}, {phase}: {cost_text(loop.cost(phase))} is more than 2 %")
    return wrong


def device_word(framework: str, device: int | str) -> str:
    """A device as the framework writes it."""
    if framework == "torch":
        return "cpu" if device == HOST else f"cuda:{device}"
    return "/CPU:0" if device == HOST else f"/GPU:{device}"


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("framework", choices=sorted(LOOPS), nargs="?", default="torch")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--blocks", type=int, default=25)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--width", type=int, default=80)
    parser.add_argument("--workers", type=int, default=8)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)
