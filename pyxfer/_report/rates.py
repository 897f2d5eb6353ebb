"""Tables of rates, and the sections that the pages of most runs share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from rich.table import Table

from pyxfer import units
from pyxfer._blocks import choice
from pyxfer._doctor.case import SIDES
from pyxfer._document import machines, runs
from pyxfer._document.machines import describe
from pyxfer._document.sessions import TestMachine
from pyxfer._report.grid import Cell, Column, Grid, fields, number
from pyxfer._report.layout import Column as PageColumn
from pyxfer._report.layout import fitting_table, percent_cells, precision_cells, rate_cells
from pyxfer._report.notes import gather
from pyxfer._report.text import (
    Lines,
    clean,
    fact_text,
    machine_lines,
    rate_interval,
    remark_text,
    ring_text,
)

RATES_HEADING = "GB/s (1 GB = 1e9 bytes), medians; a letter leads to a note below"


def heading_lines(run: runs.Run) -> Lines:
    asked = run.parameters
    budget, took = units.format_seconds(asked.budget_s), units.format_seconds(run.duration_s)
    if run.workers or run.kind == "frameworks":
        budget = f"{budget} per worker"
    text = f"precision {units.format_percent(asked.precision)}, budget {budget}, seed {asked.seed}; took {took}"
    return [*machine_lines(run), ("asked", text)]


def ending_text(run: runs.Run) -> str:
    if run.ended == "interrupted":
        return "Interrupted: the page shows what was measured until then."
    if run.ended == "failed":
        return f"Failed: {clean(run.failure or 'no reason given').rstrip('.')}. The page shows what was measured."
    return ""


def has_times(run: runs.Run) -> bool:
    return any(measurement.summary is not None for measurement in run.measurements)


FITTED = ("route", "way", "t0", "B", "half at", "misfit")


def fits(run: runs.Run) -> list[Grid]:
    """The curves of the sizes of each route; without a fit the reason."""
    rows = []
    for curve in run.curves:
        facts = {
            "t0": (curve.latency_s, units.format_seconds),
            "B": (curve.asymptote_gbps, units.format_gbps),
            "half at": (curve.half_size, rounded_size),
            "misfit": (curve.worst_misfit, lambda share: units.format_percent(round(share, 3))),
        }
        missing = dict.fromkeys(fact.reason for fact, _ in facts.values() if fact.reason is not None)
        cells = {name: number(fact.value, say) for name, (fact, say) in facts.items()}
        rows.append({"route": route_text(curve, 40), "way": way(curve), **cells, "missing because": "; ".join(missing)})
    columns = tuple(Column(name, heading=name) for name in (*FITTED, "missing because"))
    return [Grid("Fits, t = t0 + n/B", columns, rows)] if rows else []


def locking_lines(run: runs.Run) -> Lines:
    lines: Lines = []
    for cost in run.locking:
        text, transfers, why = fact_text(cost.s_per_gib), cost.pays_after_transfers.value, cost.pays_after_transfers
        if cost.s_per_gib.value is not None:
            text = f"{cost.s_per_gib.value:.3g} s/GiB at {units.format_size(cost.nbytes)}"
            reason = clean(why.reason or "no reason given")
            never = "unknown when it pays" if "not measured" in reason else "never pays here"
            pays = f"{cost.pays_direction} transfers of that size until it pays: {transfers}"
            text = f"{text}; {f'{never}: {reason}' if transfers is None else pays}"
        lines.append((cost.memory, text))
    return lines


def ring_lines(run: runs.Run) -> Lines:
    if not any(measurement.mode == machines.STAGED for measurement in run.measurements):
        return []
    ring = run.ring.value
    if ring is None:
        return [("none", clean(run.ring.reason or "no reason given"))]
    return [
        ("settings", ring_text(ring)),
        ("made", f"in {units.format_seconds(ring.made_s)}, copies by {clean(ring.kernel)}"),
        ("from", clean(ring.reason)),
    ]


def peak_lines(link: machines.Link) -> Lines:
    if link.raw_peak_gbps.value is None and link.h2d_peak_gbps.value is None:
        return [("none", clean(link.raw_peak_gbps.reason or "no reason given"))]
    raw = fact_text(link.raw_peak_gbps, units.format_gbps)
    peaks = ((side, link.peak_gbps(side)) for side in SIDES)
    sides = ", ".join(f"{side} {fact_text(peak, units.format_gbps)}" for side, peak in peaks)
    payload = link.max_payload_bytes
    size = f"{payload.value} B payload" if payload.value is not None else f"payload {fact_text(payload)}"
    return [
        ("raw", f"{raw} each way: {_peak_state(link)}, without the line code"),
        ("protocol", f"{sides}: without the packet headers at {size}"),
    ]


def _peak_state(link: machines.Link) -> str:
    """The link state that the peak is computed from, and the hop that limits it if that is not the device's own."""
    state, when = link.under_load, "under load"
    if state.value is None:
        state, when = link.system_most, "at most, not seen under load"
    hop = link.narrowest_hop.value
    limit = f", limited by the link of {clean(hop.pci)} above it" if hop is not None and hop != link.hops[0] else ""
    return f"{fact_text(state, describe)} {when}{limit}"


def verified_text(run: runs.Run) -> str:
    # The notes on the table have the reasons of the others.
    verdicts = [m.verified for m in run.measurements if m.summary is not None or m.verified.value is False]
    if not verdicts:
        return "no measurements"
    counts = Counter(verdict.value for verdict in verdicts)
    unknown = Counter(clean(verdict.reason) for verdict in verdicts if verdict.reason is not None)
    parts = [f"correct in {counts[True]} of {len(verdicts)} measurements"]
    parts += [f"WRONG in {counts[False]}"] if counts[False] else []
    return "; ".join([*parts, *(f"not checked in {count} ({reason})" for reason, count in unknown.items())])


def invalid_lines(run: runs.Run) -> Lines:
    """The number of invalid trials by reason. A trial of a copy both ways is in three rows and counts once."""
    trials, reasons = set[Hashable](), dict[str, set[Hashable]]()
    for row in run.measurements:
        for trial in row.trials:
            executed = (row.worker, row.route, row.variant, row.direction, row.nbytes, trial.round)
            trials.add(executed)
            if trial.invalid is not None:
                reasons.setdefault(clean(trial.invalid), set()).add(executed)
    return [("invalid", f"{len(found)} of {len(trials)} trials: {reason}") for reason, found in reasons.items()]


def rounded_size(nbytes: float) -> str:
    """In KiB or MiB, as the sizes of the table have, with three digits."""
    kib = nbytes / 1024
    number, unit = (kib, "KiB") if kib < 1000 else (kib / 1024, "MiB")  # noqa: PLR2004 - three digits
    return f"{number:#.3g}".rstrip(".") + f" {unit}"


def way(row: runs.Measurement | runs.Curve) -> str:
    return f"both {row.side}" if row.direction == "both" else row.direction


def is_by_caller(m: runs.Measurement) -> bool:
    """Whether the table has what a caller gets: of modes whose calls take longer than their copies."""
    return m.has_both_clocks and m.mode != "async"


def shown_gbps(m: runs.Measurement) -> float | None:
    return m.caller_gbps if is_by_caller(m) else m.gbps


def half_width(m: runs.Measurement) -> float | None:
    shown = m.wall if is_by_caller(m) else m.summary
    return shown.relative_half_width if shown else None


def clock_line(run: runs.Run) -> str:
    rows = [m for m in run.measurements if m.has_both_clocks]
    if not rows:
        return ""
    many = " Modes of many calls have the caller's in their column." if any(map(is_by_caller, rows)) else ""
    return (
        "caller: the caller's clock, from the first call to the end of the last copy, with nothing queued before. "
        "Other figures of pinned copies are by the device's clock, and their calls are over when it starts."
        f"{many}"
    )


def rate_table(run: runs.Run, marks: Sequence[str], width: int) -> Table:
    rows = run.measurements
    both = [m if m.has_both_clocks else None for m in rows]
    values = {
        "caller": [None if m is None or is_by_caller(m) else m.caller_gbps for m in both],
        "device": [m.gbps if m is not None and is_by_caller(m) else None for m in both],
    }
    columns = [
        PageColumn(("route",), tuple(route_text(m, 60) for m in rows), left=True),
        PageColumn(("way",), tuple(way(m) for m in rows), left=True),
        PageColumn(("size",), tuple(map(size_text, rows))),
        PageColumn(("GB/s",), rate_cells([shown_gbps(m) for m in rows], "-"), tuple(marks)),
        *[PageColumn((clock,), rate_cells(rates)) for clock, rates in values.items()],
        PageColumn(("+-",), precision_cells([half_width(m) for m in rows])),
        PageColumn(("of peak",), percent_cells([m.of_peak for m in rows])),
        PageColumn(("of ceiling",), percent_cells([m.of_ceiling for m in rows])),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def worker_number(run: runs.Run, name: str | None) -> str:
    """The worker's number in the list below; names are too long for a table."""
    return next((str(number) for number, worker in enumerate(run.workers, start=1) if worker.name == name), "")


def route_text(row: runs.Measurement | runs.Curve, longest: int) -> str:
    name = clean(row.route, longest)
    return name if row.variant == "warm" else f"{name} ({row.variant})"


def size_text(row: runs.Measurement) -> str:
    """`64 KiB`; of blocks `4 KiB x 16`."""
    block = row.block_bytes
    return units.format_size(row.nbytes) if block is None else f"{units.format_size(block)} x {row.batch:,}"


# --- the table -------------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("worker_name", heading="worker", saved=False),
    *(Column(name, heading=name) for name in ("route", "direction", "side", "memory", "mode", "variant")),
    Column("nbytes", "whole", "size", units.format_size),
    Column("gbps", "number", "bandwidth", units.format_gbps),
    *(Column(name, "number") for name in ("low_gbps", "high_gbps")),
    Column("interval", heading="95 % interval", saved=False),
    Column("caller_gbps", "number", "caller gets", units.format_gbps),
    Column("of_ceiling", "number", "of ceiling", units.format_percent),
    Column("of_peak", "number", "of peak", units.format_percent),
    Column("median_s", "number", "median", units.format_seconds),
    *(Column(name, "number") for name in ("low_s", "high_s", "iqr_s", "mad_s", "min_s")),
    Column("n", "whole", "trials"),
    Column("dispatch_s", "number", "dispatch", units.format_seconds),
    *(Column(name, "number") for name in ("wall_s", "first_s")),
    Column("verified", "flag"),
    *(Column(name) for name in ("missing", "remarks")),
    Column("notes", heading="notes", saved=False),
    Column("worker"),
    *(Column(name, heading=name) for name in ("framework", "call")),
    Column("host_copies", "whole", "host copies"),
    *(Column(name, heading=name) for name in ("dma", "returns")),
    Column("batch", "whole", "batch"),
    Column("overhead_s", "number", "overhead", units.format_seconds),
    Column("faults", "number", "faults", "{:.0f}".format),
    Column("dma_s", "number", "DMA", units.format_seconds),
    Column("dma_bytes", "whole"),
    Column("dma_copies", "number"),
    Column("dma_source"),
    Column("dma_gbps", "number"),
    *(Column(name) for name in ("dma_missing", "runtime", "device", "host")),
    Column("taken_at", "moment"),
)


def measurements(run: runs.Run) -> Grid:
    marks, notes = gather(run)
    rows = [
        {**cells_of(m, run), "notes": mark or clean(m.rate.reason or "")}
        for m, mark in zip(run.measurements, marks, strict=True)
    ]
    few = None
    if run.kind == "blocks":
        fastest = {id(cell.best) for cells in choice.cells_of(run).values() for cell in cells}
        shown = [cells for m, cells in zip(run.measurements, rows, strict=True) if m.is_raw or id(m) in fastest]
        few = shown, f"The fastest method of each cell; data frames and CSV have all {len(rows)} rows."
    marked = [(note.mark or "-", note.text) for note in notes]
    return Grid("Measurements", COLUMNS, rows, marked, few=few, largest="nbytes")


def cells_of(m: runs.Measurement, place: runs.Run | TestMachine) -> dict[str, Any]:
    rate, dma = m.rate.value, m.dma.value
    crossed = {f"dma_{name}": value for name, value in fields(dma, "copies", "source", "gbps").items()}
    return {
        **fields(m, "route", "direction", "side", "memory", "mode", "variant", "nbytes"),
        **fields(rate, "gbps", "low_gbps", "high_gbps"),
        "interval": Cell(rate_interval(rate), None if rate is None else rate.low_gbps),
        **fields(m, "caller_gbps", "of_ceiling", "of_peak"),
        **fields(m.summary, "median_s", "low_s", "high_s", "iqr_s", "mad_s", "min_s", "n"),
        **fields(m, "dispatch_s", "wall_s", "first_s", "verified"),
        "missing": m.rate.reason,
        "remarks": "; ".join(map(remark_text, m.remarks)),
        # A raw row of a framework's worker has only the worker's name.
        **fields(m, "worker", "batch", "faults"),
        "worker_name": m.worker,
        **fields(m.route_info, "framework", "call", "host_copies", "dma", "returns"),
        "overhead_s": None if m.route_info is None else m.overhead_s,
        **crossed,
        "dma_s": None if dma is None else dma.seconds.value,
        "dma_bytes": None if dma is None else dma.nbytes,
        "dma_missing": m.dma.reason if dma is None else dma.seconds.reason,
        "runtime": place.runtime,
        "device": place.device.name,
        **fields(place.environment, "host", "taken_at"),
    }
