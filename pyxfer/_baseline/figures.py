"""The rows of a run or of links as cells with a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyxfer._baseline.cells import LINKS, cell_of
from pyxfer._document.baselines import AnyRun, Cell, CellDirection, CellSide
from pyxfer._document.links import HOST_END, LOAD_BYTES, Latency, LinkFlow, Links, SmallCopies, Traffic, end_name
from pyxfer._document.runs import Fact, Measurement, Rate

_MOST_NAMED = 2


@dataclass(frozen=True)
class Figure:
    """One row: its cell, the seconds and the rate of one transfer, or the reason why it has none.

    `moved_bytes`: what one transfer moves. `wrong`: the contents differed. `worker`: the process of a framework.
    `times_s`: the valid trials, if the row keeps them.
    """

    cell: Cell
    moved_bytes: int
    seconds: float | None
    low_s: float | None
    high_s: float | None
    rate: Rate | None
    missing: str
    wrong: bool = False
    worker: str | None = None
    times_s: tuple[float, ...] = ()

    @property
    def gbps(self) -> float | None:
        return None if self.rate is None else self.rate.gbps


def figures_of(run: AnyRun) -> Iterator[Figure]:
    """All rows of a run, or of links, in their order."""
    if not isinstance(run, Links):
        yield from map(_of_measurement, run.measurements)
        return
    for traffic in run.traffics:
        yield from _of_traffic(traffic)
    for latency in run.latencies:
        if not _repeats_another(latency):
            yield _of_latency(latency)
    yield from map(_of_small, run.small)


def _of_measurement(row: Measurement) -> Figure:
    summary = row.summary
    return Figure(
        cell=cell_of(row),
        moved_bytes=row.moved_bytes,
        seconds=None if summary is None else summary.median_s,
        low_s=None if summary is None else summary.low_s,
        high_s=None if summary is None else summary.high_s,
        rate=row.rate.value,
        missing=row.rate.reason or "it has no time",
        wrong=row.verified.value is False,
        worker=row.worker,
        times_s=tuple(trial.elapsed_s for trial in row.trials if trial.invalid is None),
    )


# --- links -----------------------------------------------------------------------------------------------------------


def _of_traffic(row: Traffic) -> Iterator[Figure]:
    """The total, and each stream where a handful of them is measured."""
    is_alone = len(row.flows) == 1
    if is_alone or _has_sides(row):
        for flow in row.flows:
            ends = f"{_end(flow.source, row)}>{_end(flow.destination, row)}"
            yield _of_rate(_cell(row, flow.side, ends), flow.rate, wrong=flow.verified.value is False)
    if not is_alone:
        wrong = any(flow.verified.value is False for flow in row.flows)
        yield _of_rate(_cell(row, "sum", _all_ends(row.flows)), row.total, wrong=wrong)


def _cell(row: Traffic, side: CellSide, ends: str) -> Cell:
    direction = _direction(row)
    memory = "device" if direction in ("peer", "local") else "pinned"
    route = f"{LINKS}.{row.group}.{row.case}.{row.engine}:{ends}"
    return Cell(route, direction, side, memory, row.engine, "warm", row.nbytes)


def _direction(row: Traffic) -> CellDirection:
    if row.group == "pairs":
        return "peer"
    if row.group == "local":
        return "local"
    if row.case == "both":
        return "both"
    return "h2d" if row.case.endswith("h2d") else "d2h"


def _has_sides(row: Traffic) -> bool:
    """Whether single streams are cells beside their total.

    Not where both directions run at once: how they share the link differs between processes, by 1.7 % on an H200, and
    their total by 0.7 %. Not in the many pairs of the interference map either, nor where all copy to one or to all.
    """
    both = row.case.startswith("both")
    return not both and (row.group == "host" or row.case in ("h2d", "d2h"))


def _end(end: int, row: Traffic) -> str:
    return f"node{row.node}" if end == HOST_END and row.node is not None else end_name(end)


def _all_ends(flows: Sequence[LinkFlow]) -> str:
    """What a total is of: `host>all`, `0+1`, `all>3`."""
    sources, destinations = ({getattr(flow, name) for flow in flows} for name in ("source", "destination"))
    if sources == destinations:
        return _named(sources - {HOST_END})
    return f"{_named(sources)}>{_named(destinations)}"


def _named(ends: Iterable[int]) -> str:
    known = sorted(ends)
    return "all" if len(known) > _MOST_NAMED else "+".join(map(end_name, known))


def _of_rate(cell: Cell, rate: Fact[Rate], *, wrong: bool) -> Figure:
    """The seconds are those of one copy of the cell's size at this rate."""
    found = rate.value
    seconds, low_s, high_s = (
        None if gbps is None or gbps <= 0 else cell.nbytes / gbps / 1e9
        for gbps in ((found.gbps, found.high_gbps, found.low_gbps) if found else (None, None, None))
    )
    missing = rate.reason or "it has no rate"
    return Figure(cell, cell.nbytes, seconds, low_s, high_s, found, missing, wrong)


def _repeats_another(row: Latency) -> bool:
    """Launches of few loads without a load on the link: they show the p99, and their median is that of the others."""
    return row.hops < row.places and row.load == 0


def _of_latency(row: Latency) -> Figure:
    target = "host" if row.node is None else f"node{row.node}"
    ends = f"{target if row.target == HOST_END else row.target}>{row.device}"
    memory = "pinned" if row.target == HOST_END else "device"
    case = f"load-{row.load * 100:.0f}" if row.load else "idle"
    route = f"{LINKS}.latency.{case}:{ends}"
    cell = Cell(route, "latency", "latency", memory, "chase", "warm", row.footprint_bytes)
    found = row.p50.value
    if found is None:
        return Figure(cell, LOAD_BYTES, None, None, None, None, row.p50.reason or "it has no latency")
    rate = Rate(LOAD_BYTES / found.ns, *(LOAD_BYTES / ns if ns else None for ns in (found.high_ns, found.low_ns)))
    low_s, high_s = (None if ns is None else ns * 1e-9 for ns in (found.low_ns, found.high_ns))
    return Figure(cell, LOAD_BYTES, found.ns * 1e-9, low_s, high_s, rate, "")


def _of_small(row: SmallCopies) -> Figure:
    ends = f"host>{row.device}" if row.direction == "h2d" else f"{row.device}>host"
    route = f"{LINKS}.small.{row.way}:{ends}"
    cell = Cell(route, row.direction, row.direction, "pinned", row.way, "warm", row.nbytes)
    return _of_rate(cell, row.rate, wrong=row.verified.value is False)
