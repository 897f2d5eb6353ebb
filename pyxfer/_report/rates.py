"""Tables of rates, and the sections that the pages of most runs share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from rich.table import Table

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._report.layout import GAPS, Column, fitting_table, grid_width, pack, percent_cells, rate_cells, to_table
from pyxfer._report.notes import label_words
from pyxfer._report.text import Lines, clean, fact_text, link_state_text, machine_lines

RATES_HEADING = "GB/s (1 GB = 1e9 bytes), medians; a letter leads to a note below"
_CURVES_NAMED = 2
_IN_BRACKETS = re.compile(r" \([^)]*\)")
_SIDES: tuple[machines.Side, ...] = ("h2d", "d2h")


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


def fits_table(run: runs.Run) -> Table | None:
    curves = [curve for curve in run.curves if curve.latency_s.value is not None]
    if not curves:
        return None
    facts: dict[str, tuple[list[machines.Fact[float]], Callable[[float], str]]] = {
        "t0": ([curve.latency_s for curve in curves], units.format_seconds),
        "B": ([curve.asymptote_gbps for curve in curves], units.format_gbps),
        "half B at": ([curve.half_size for curve in curves], rounded_size),
    }
    columns = [
        Column(("route",), tuple(route_text(curve, 40) for curve in curves), left=True),
        Column(("way",), tuple(way(curve) for curve in curves), left=True),
    ]
    for name, (found, say) in facts.items():
        columns.append(Column((name,), tuple("-" if fact.value is None else say(fact.value) for fact in found)))
    misfits = percent_cells([curve.worst_misfit.value for curve in curves])
    return to_table([*columns, Column(("misfit",), misfits)], gap=2)


def fit_reasons(run: runs.Run) -> Lines:
    names: dict[tuple[str, str], list[str]] = {}
    for curve in run.curves:
        no_fit, no_rate = curve.latency_s.reason, curve.asymptote_gbps.reason
        what, missing = ("B", no_rate) if no_fit is None else ("fit", no_fit)
        if missing is not None:
            # Figures in brackets differ from curve to curve; without them the same reason is one line.
            reason = _IN_BRACKETS.sub("", clean(missing))
            names.setdefault((what, reason), []).append(f"{route_text(curve, 40)} {way(curve)}")
    lines: Lines = []
    for (what, reason), found in names.items():
        who = "all curves" if len(found) == len(run.curves) else f"{found[0]} and {len(found) - 1} more"
        who = ", ".join(found) if len(found) <= _CURVES_NAMED else who
        lines.append(("-", f"no {what} ({who}): {reason}"))
    return lines


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
    kernel = "" if ring.kernel == ring.fill else f" ({clean(ring.kernel)})"
    return [
        ("threads", str(ring.threads)),
        ("slots", f"{ring.slots} of {units.format_size(ring.chunk_bytes)}"),
        ("memory", f"{units.format_size(ring.pinned_bytes)} page-locked, made in {units.format_seconds(ring.made_s)}"),
        ("fill", f"{clean(ring.fill)}{kernel}"),
        ("settings", clean(ring.reason)),
    ]


def peak_lines(link: machines.Link) -> Lines:
    if link.raw_peak_gbps.value is None and link.h2d_peak_gbps.value is None:
        return [("none", clean(link.raw_peak_gbps.reason or "no reason given"))]
    raw = fact_text(link.raw_peak_gbps, units.format_gbps)
    peaks = ((side, link.peak_gbps(side)) for side in _SIDES)
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
    return f"{fact_text(state, link_state_text)} {when}{limit}"


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


_Key = tuple[str, ...]


def rate_tables(run: runs.Run, marks: Sequence[str], width: int) -> list[Table]:
    if not run.measurements:
        return []
    pivots = _pivots(run, marks, width) if run.kind == "ceiling" else None
    return [_rows(run, marks, width)] if pivots is None else pivots


def _pivots(run: runs.Run, marks: Sequence[str], width: int) -> list[Table] | None:
    """Directions side by side in as few tables as fit; None if a single direction does not fit."""
    sizes = sorted({measurement.nbytes for measurement in run.measurements})
    head = _size_column(sizes)
    directions = dict.fromkeys(m.direction for m in run.measurements)
    blocks = [_block(run, marks, direction, sizes) for direction in directions]
    other = _other_clock(run)
    if any(grid_width((head, *block), GAPS[-1]) > width for block in (*blocks, other)):
        return None
    tables = pack([head], blocks, width)
    return [fitting_table(columns, width) for columns in ((*tables, other) if other else tables)]


def _block(run: runs.Run, marks: Sequence[str], direction: str, sizes: Sequence[int]) -> list[Column]:
    places: dict[_Key, dict[int, int]] = {}
    # Both ways, only the sum counts, because neither side alone fills the link.
    best: dict[int, float] = {}
    for index, m in enumerate(run.measurements):
        if m.direction == direction:
            places.setdefault((way(m), *label_words(m, run)), {})[m.nbytes] = index
            if m.of_peak is not None and (direction != "both" or m.side == "sum"):
                best[m.nbytes] = max(best.get(m.nbytes, 0.0), m.of_peak)
    block = []
    for heading, at in places.items():
        values = [shown_gbps(run.measurements[at[size]]) if size in at else None for size in sizes]
        rates = rate_cells(values, ["-" if size in at else "" for size in sizes])
        block.append(Column(heading, rates, tuple(marks[at[size]] if size in at else "" for size in sizes)))
    return [*block, Column(("best", "of peak"), percent_cells([best.get(size) for size in sizes]))] if best else block


def _size_column(sizes: Sequence[int]) -> Column:
    return Column(("size",), tuple(map(units.format_size, sizes)))


def way(row: runs.Measurement | runs.Curve) -> str:
    return f"both {row.side}" if row.direction == "both" else row.direction


def is_by_caller(m: runs.Measurement) -> bool:
    """Whether the table has what a caller gets: of modes whose calls take longer than their copies."""
    return m.has_both_clocks and m.mode != "async"


def shown_gbps(m: runs.Measurement) -> float | None:
    return m.caller_gbps if is_by_caller(m) else m.gbps


def _other_clock(run: runs.Run) -> list[Column]:
    columns: dict[_Key, dict[int, float | None]] = {}
    for m in run.measurements:
        if m.has_both_clocks and (m.direction != "both" or m.side == "sum"):
            clock, value = ("device", m.gbps) if is_by_caller(m) else ("caller", m.caller_gbps)
            columns.setdefault((way(m), *label_words(m, run), clock), {})[m.nbytes] = value
    sizes = sorted({size for at in columns.values() for size in at})
    rates = [Column(heading, rate_cells([at.get(size) for size in sizes])) for heading, at in columns.items()]
    return [_size_column(sizes), *rates] if rates else []


def _clock_columns(rows: Sequence[runs.Measurement]) -> list[Column]:
    both = [m if m.has_both_clocks else None for m in rows]
    values = {
        "caller": [None if m is None or is_by_caller(m) else m.caller_gbps for m in both],
        "device": [m.gbps if m is not None and is_by_caller(m) else None for m in both],
    }
    return [Column((clock,), rate_cells(rates)) for clock, rates in values.items()]


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


def _rows(run: runs.Run, marks: Sequence[str], width: int) -> Table:
    rows = run.measurements
    halves = [half_width(m) for m in rows]
    cells = percent_cells(halves)
    columns = [
        Column(("route",), tuple(route_text(m, 60) for m in rows), left=True),
        Column(("way",), tuple(way(m) for m in rows), left=True),
        Column(("size",), tuple(units.format_size(m.nbytes) for m in rows)),
        Column(("GB/s",), rate_cells([shown_gbps(m) for m in rows], "-"), tuple(marks)),
        *_clock_columns(rows),
        Column(("+-",), tuple("> 100 %" if (h or 0.0) > 1 else cell for h, cell in zip(halves, cells, strict=True))),
        Column(("of peak",), percent_cells([m.of_peak for m in rows])),
        Column(("of ceiling",), percent_cells([m.of_ceiling for m in rows])),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def worker_number(run: runs.Run, name: str | None) -> str:
    """The worker's number in the list below; names are too long for a table."""
    return next((str(number) for number, worker in enumerate(run.workers, start=1) if worker.name == name), "")


def route_text(row: runs.Measurement | runs.Curve, longest: int) -> str:
    name = clean(row.route, longest)
    return f"{name} (fresh)" if row.variant == "fresh" else name
