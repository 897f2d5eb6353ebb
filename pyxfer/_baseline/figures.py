"""The rows of a run or of links as cells with a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyxfer._document.baselines import AnyRun
from pyxfer._document.cells import Cell, cell_of, cell_of_flow, cell_of_latency, cell_of_small, cell_of_total
from pyxfer._document.links import LOAD_BYTES, Latency, Links, Traffic
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Measurement, Rate


@dataclass(frozen=True)
class Figure:
    """One row: its cell, the seconds and the rate of one transfer, or the reason why it has none.

    `moved_bytes`: what one transfer moves. `wrong`: the contents differed. `worker`: the process of a framework.
    `times_s`: the valid trials, if the row keeps them.
    """

    cell: Cell
    moved_bytes: int
    seconds: float | None
    rate: Rate | None
    missing: str
    wrong: bool = False
    worker: str | None = None
    times_s: tuple[float, ...] = ()

    @property
    def gbps(self) -> float | None:
        return None if self.rate is None else self.rate.gbps


def figures_of(run: AnyRun) -> Iterator[Figure]:
    if not isinstance(run, Links):
        yield from map(_of_measurement, run.measurements)
        return
    for traffic in run.traffics:
        # The total, and each stream where a handful of them is measured.
        is_alone = len(traffic.flows) == 1
        if is_alone or _has_sides(traffic):
            for flow in traffic.flows:
                yield _of_rate(cell_of_flow(traffic, flow), flow.rate, wrong=flow.verified.value is False)
        if not is_alone:
            wrong = any(flow.verified.value is False for flow in traffic.flows)
            yield _of_rate(cell_of_total(traffic), traffic.total, wrong=wrong)
    for latency in run.latencies:
        # Launches of few loads without a load on the link show the p99, and their median is that of the others.
        if latency.hops >= latency.places or latency.load:
            yield _of_latency(latency)
    for small in run.small:
        yield _of_rate(cell_of_small(small), small.rate, wrong=small.verified.value is False)


def _of_measurement(row: Measurement) -> Figure:
    return Figure(
        cell=cell_of(row),
        moved_bytes=row.moved_bytes,
        seconds=row.elapsed_s,
        rate=row.rate.value,
        missing=row.rate.reason or "it has no time",
        wrong=row.verified.value is False,
        worker=row.worker,
        times_s=tuple(trial.elapsed_s for trial in row.trials if trial.invalid is None),
    )


def _has_sides(row: Traffic) -> bool:
    """Whether single streams are cells beside their total.

    Not where both directions run at once: how they share the link differs between processes, by 1.7 % on an H200, and
    their total by 0.7 %. Not in the many pairs of the interference map either, nor where all copy to one or to all.
    """
    both = row.case.startswith("both")
    return not both and (row.group == "host" or row.case in ("h2d", "d2h"))


def _of_rate(cell: Cell, rate: Fact[Rate], *, wrong: bool) -> Figure:
    """The seconds are those of one copy of the cell's size at this rate."""
    found = rate.value
    seconds = cell.nbytes / found.gbps / 1e9 if found is not None and found.gbps > 0 else None
    return Figure(cell, cell.nbytes, seconds, found, rate.reason or "it has no rate", wrong)


def _of_latency(row: Latency) -> Figure:
    cell, found = cell_of_latency(row), row.p50.value
    if found is None:
        return Figure(cell, LOAD_BYTES, None, None, row.p50.reason or "it has no latency")
    rate = Rate(LOAD_BYTES / found.ns, *(LOAD_BYTES / ns if ns else None for ns in (found.high_ns, found.low_ns)))
    return Figure(cell, LOAD_BYTES, found.ns * 1e-9, rate, "")
