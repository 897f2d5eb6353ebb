"""Runs of several processes on one machine, with given noise within and between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from pages import host_run
from samples import MIB, make_environment, make_parameters, make_run

from pyxfer._baseline.samples import Sample
from pyxfer._document import machines, runs
from pyxfer._document.baselines import CellComparison, Comparison
from pyxfer._document.cells import Cell
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Direction, Measurement, Run
from pyxfer._measure import stats

SIZES = (MIB, 16 * MIB, 256 * MIB)
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")
GBPS = {"pinned": 55.0, "pageable": 9.0}
TRIALS = 15

Slower = Callable[[Measurement], float]


def as_usual(measurement: Measurement) -> float:
    """The unchanged time."""
    del measurement
    return 1.0


def make_copies(
    rng: np.random.Generator,
    *,
    between: float = 0.001,
    within: float = 0.001,
    slower: Slower = as_usual,
    directions: Sequence[Direction] = DIRECTIONS,
    memories: Sequence[str] = ("pinned", "pageable"),
    sizes: Sequence[int] = SIZES,
) -> tuple[Measurement, ...]:
    """The measurements of one process, with noise of each cell and of each trial."""
    return tuple(
        _measured(direction, memory, nbytes, rng, between, within, slower)
        for direction in directions
        for memory in memories
        for nbytes in sizes
    )


def make_processes(count: int = 3, seed: int = 1, *, run: Run | None = None, **noise: Any) -> tuple[Run, ...]:
    """Runs of several processes on the machine of `run`, each with its own noise."""
    rng = np.random.default_rng(seed)
    kept = make_run() if run is None else run
    parameters = make_parameters(directions=DIRECTIONS, sizes_bytes=SIZES)
    return tuple(
        msgspec.structs.replace(
            kept,
            measurements=make_copies(rng, **noise),
            curves=(),
            locking=(),
            parameters=msgspec.structs.replace(parameters, seed=parameters.seed + place),
            remarks=(),
        )
        for place in range(count)
    )


def make_sample(name: str = "A", count: int = 3, seed: int = 1, **noise: Any) -> Sample:
    return Sample(name, make_processes(count, seed, **noise))


def slow_pinned(factor: float) -> Slower:
    """Multiplies the times of page-locked memory by the factor."""
    return lambda measurement: factor if measurement.memory == "pinned" else 1.0


def all_slow(factor: float) -> Slower:
    """Multiplies all times by the factor."""
    return lambda measurement: factor


def row_of(
    comparison: Comparison, direction: str = "h2d", memory: str = "pinned", nbytes: int = 16 * MIB
) -> CellComparison:
    found = [
        row
        for row in comparison.cells
        if (row.cell.direction, row.cell.memory, row.cell.nbytes) == (direction, memory, nbytes)
    ]
    assert len(found) == 1
    return found[0]


def verdicts(comparison: Comparison) -> dict[Cell, str]:
    return {row.cell: row.verdict for row in comparison.cells}


def on_host(run: Run) -> Run:
    """The run, measured in host memory."""
    device = msgspec.structs.replace(run.device, runtime="host", uuid=machines.unknown("no GPU"), name="host memory")
    return msgspec.structs.replace(host_run(run), device=device)


def named_host(host: str) -> machines.Environment:
    return make_environment(host=host)


def _measured(
    direction: Direction,
    memory: str,
    nbytes: int,
    rng: np.random.Generator,
    between: float,
    within: float,
    slower: Slower,
) -> Measurement:
    mode = "memcpy" if memory == "pageable" else "async"
    bare = make_copy(direction, memory, mode, nbytes)
    usual_s = (nbytes / GBPS[memory] / 1e9 + 5e-6) * slower(bare) * np.exp(between * rng.standard_normal())
    return timed(bare, [float(s) for s in usual_s * np.exp(within * rng.standard_normal(TRIALS))])


def make_copy(direction: Direction, memory: str, mode: str, nbytes: int, **overrides: Any) -> Measurement:
    """A raw copy without a time."""
    reason: Any = machines.unknown("not timed")
    measurement = Measurement(
        route=f"raw.{memory}-{mode}",
        direction=direction,
        side="sum" if direction == "both" else direction,
        memory=memory,
        mode=mode,
        variant="warm",
        bracket="drained" if mode == "memcpy" else "gated",
        nbytes=nbytes,
        moved_bytes=nbytes,
        rate=reason,
        peak_share=reason,
        ceiling_share=reason,
        verified=Fact(True),
        first_s=reason,
    )
    return msgspec.structs.replace(measurement, **overrides)


def timed(measurement: Measurement, seconds: Sequence[float]) -> Measurement:
    """The measurement with these trials."""
    summary = stats.summarise(seconds)
    return msgspec.structs.replace(
        measurement,
        summary=summary,
        rate=Fact(stats.rate(measurement.moved_bytes, summary)),
        trials=tuple(runs.Trial(round=i, elapsed_s=s) for i, s in enumerate(seconds)),
    )
