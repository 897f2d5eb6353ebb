"""Watches a training loop, compares the predicted gain with the measured one, and measures the cost of watching.

    python bench/watched_training.py [torch|tensorflow] [--device 0] [--steps 40] [--blocks 25] [--export-json F]

A small convolutional network is trained in two loops: on batches made between the steps, in pageable memory, and on
batches made ahead and sent from page-locked memory. A watch of each loop reports what it is bound by. Short blocks of
steps without a watch, in its window and after its window alternate, so that the machine is in the same state for all
three; the unwatched block is first in one turn and last in the next. The cost of watching is the median ratio of a
block to the unwatched block of the same turn.

The exit status is 1 if the first loop is not bound by its input or the second is, if the predicted gain differs from
the measured one by more than a fifth, or if watching costs more than 2 %.
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
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import Summary
from pyxfer._document.watches import Watched
from pyxfer._machine.environment import read_environment
from pyxfer._measure import stats
from pyxfer.native import HOST
from pyxfer.units import format_seconds

SKIPPED = 10
BLOCK_STEPS = 8
MAX_COST = 0.02
PREDICTED_WITHIN = 0.2

Phase = Literal["unwatched", "watched", "after"]
PHASES: tuple[Phase, ...] = ("unwatched", "watched", "after")


class Trained(msgspec.Struct, frozen=True):
    """One loop: its watch, and the seconds of its steps by phase and block."""

    loop: str
    steps_s: dict[str, list[list[float]]]
    watched: Watched
    faults: dict[str, list[float]] = {}
    """Page faults per step, by block; they depend on whether the heap returns the memory of batches."""

    def summary(self, phase: Phase) -> Summary:
        """Statistics of all steps of a phase."""
        return stats.summarise([second for block in self.steps_s[phase] for second in block])

    def cost(self, phase: Phase) -> Summary:
        """Duration of a step over that of an unwatched one, for each pair of blocks of the same turn."""
        pairs = zip(self.steps_s[phase], self.steps_s["unwatched"], strict=True)
        return stats.summarise([statistics.median(block) / statistics.median(plain) for block, plain in pairs])

    @property
    def input_bound(self) -> bool:
        """Whether the watch reports that the input or the link limits the loop."""
        return self.watched.verdict.bound_by in ("input", "link")


class Training(msgspec.Struct, frozen=True):
    """The document: both loops of one framework."""

    framework: str
    device: Device
    environment: Environment
    shape: dict[str, int]
    loops: tuple[Trained, ...]

    @property
    def real_gain_s(self) -> float:
        """Difference between the unwatched steps of the two loops."""
        usual, ahead = (loop.summary("unwatched").median_s for loop in self.loops)
        return usual - ahead

    @property
    def predicted_gain_s(self) -> float | None:
        """The largest gain that the watch of the first loop predicts for a change to its input."""
        gains = [advice.gain_s for advice in self.loops[0].watched.advice if advice.code in INPUT_ADVICE]
        return max(gains, default=None)


INPUT_ADVICE = ("pin-and-prefetch", "prefetch", "pin")


def main() -> int:
    """Train and print the table; 1 if a check fails."""
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
    """Run alternating blocks of the three phases, then one longer watch for the report."""
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
    # The reported watch is last, when the workers of the loader have started.
    with pyxfer.watch(steps=asked.steps, device=asked.device) as reported:
        _steps(loop, batches, asked.steps, reported)
    return Trained(loop.name, seconds, reported.result, faults)


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _steps(loop: Loop, batches: Iterator[Any], count: int, watch: Any = None) -> list[float]:
    """Seconds of each step, including the making of its batch."""
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
    """The table of the phases, the verdict on each loop, and the gain."""
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
    """Median page faults per step in each phase."""
    medians = [f"{statistics.median(found):.0f} {phase}" for phase, found in loop.faults.items()]
    return f"page faults a step: {', '.join(medians) or 'not counted'}"


def cost_text(times: Summary) -> str:
    """A cost in percent of the step, with its interval if there are enough blocks."""
    cost = f"{_more(times.median_s)} %"
    if times.low_s is None or times.high_s is None:
        return cost
    return f"{cost} ({_more(times.low_s)} to {_more(times.high_s)})"


def _more(times: float) -> str:
    return f"{100 * (times - 1):+.1f}"


def judge(result: Training) -> list[str]:
    """The failed checks, one sentence each."""
    usual, ahead = result.loops
    wrong = []
    if not usual.input_bound:
        wrong.append("WRONG: the watch does not report that the usual loop is bound by its input")
    if ahead.input_bound:
        wrong.append("WRONG: the watch reports that the loop with batches made ahead is bound by its input")
    real, predicted = result.real_gain_s, result.predicted_gain_s
    if predicted is None or abs(predicted - real) > PREDICTED_WITHIN * abs(real):
        wrong.append("WRONG: the predicted gain differs from the measured one by more than a fifth")
    for loop in result.loops:
        for phase in PHASES[1:]:
            if loop.cost(phase).median_s - 1 > MAX_COST:
                wrong.append(f"WRONG: {loop.loop}, {phase}: {cost_text(loop.cost(phase))} is more than 2 %")
    return wrong


def device_word(framework: str, device: int | str) -> str:
    """The device in the framework's notation."""
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
