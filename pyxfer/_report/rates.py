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
from pyxfer._report.text import Lines, clean, fact_text, link_state_text, machine_lines, remark_text

RATES_HEADING = "GB/s (1 GB = 1e9 bytes), medians; a letter leads to a note below"
_CURVES_NAMED = 2
_IN_BRACKETS = re.compile(r" \([^)]*\)")
_SIDES: tuple[machines.Side, ...] = ("h2d", "d2h", "sum")


def heading_lines(run: runs.Run) -> Lines:
    return [*machine_lines(run), ("asked", _asked_text(run))]


def ending_text(run: runs.Run) -> str:
    """Why the run is incomplete, or an empty text."""
    if run.ended == "interrupted":
        return "Interrupted: the page shows what was measured until then."
    if run.ended == "failed":
        return f"Failed: {clean(run.failure or 'no reason given').rstrip('.')}. The page shows what was measured."
    return ""


def has_times(run: runs.Run) -> bool:
    """Whether any row was measured. If not, the tables would have only dashes."""
    return any(measurement.summary is not None for measurement in run.measurements)


def fits_table(run: runs.Run) -> Table | None:
    """`t = t0 + n/B` of every curve that has a fit."""
    curves = [curve for curve in run.curves if curve.latency_s.value is not None]
    if not curves:
        return None
    return to_table(
        [
            Column(("route",), tuple(route_text(curve, 40) for curve in curves), left=True),
            Column(("way",), tuple(way(curve) for curve in curves), left=True),
            _fact_column("t0", [curve.latency_s for curve in curves], units.format_seconds),
            _fact_column("B", [curve.asymptote_gbps for curve in curves], units.format_gbps),
            _fact_column("half B at", [curve.half_size for curve in curves], rounded_size),
            Column(("misfit",), percent_cells([curve.worst_misfit.value for curve in curves])),
        ],
        gap=2,
    )


def fit_reasons(run: runs.Run) -> Lines:
    """Why curves have no fit, or no B, one line per reason."""
    names: dict[tuple[str, str], list[str]] = {}
    for curve in run.curves:
        no_fit, no_rate = curve.latency_s.reason, curve.asymptote_gbps.reason
        what, missing = ("B", no_rate) if no_fit is None else ("fit", no_fit)
        if missing is not None:
            # Figures in brackets differ from curve to curve; without them the same reason is one line.
            reason = _IN_BRACKETS.sub("", clean(missing))
            names.setdefault((what, reason), []).append(f"{route_text(curve, 40)} {way(curve)}")
    return [
        ("-", f"no {what} ({_names_text(found, len(run.curves))}): {reason}") for (what, reason), found in names.items()
    ]


def _names_text(names: Sequence[str], of: int) -> str:
    if len(names) <= _CURVES_NAMED:
        return ", ".join(names)
    return "all curves" if len(names) == of else f"{names[0]} and {len(names) - 1} more"


def locking_lines(run: runs.Run) -> Lines:
    return [(cost.memory, _locking_text(cost)) for cost in run.locking]


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
    return [
        ("raw", f"{raw} each way: {_peak_state(link)}, without the line code"),
        ("protocol", _protocol_text(link)),
    ]


def verified_text(run: runs.Run) -> str:
    # The notes on the table have the reasons of the others.
    verdicts = [m.verified for m in run.measurements if m.summary is not None or m.verified.value is False]
    if not verdicts:
        return "no measurements"
    right = sum(verdict.value is True for verdict in verdicts)
    wrong = sum(verdict.value is False for verdict in verdicts)
    unknown = Counter(clean(verdict.reason) for verdict in verdicts if verdict.reason is not None)
    parts = [f"correct in {right} of {len(verdicts)} measurements"]
    if wrong:
        parts.append(f"WRONG in {wrong}")
    parts.extend(f"not checked in {count} ({reason})" for reason, count in unknown.items())
    return "; ".join(parts)


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


def remark_lines(run: runs.Run) -> Lines:
    return [("-", remark_text(remark)) for remark in (*run.link.remarks, *run.remarks)]


def _asked_text(run: runs.Run) -> str:
    asked = run.parameters
    precision = units.format_percent(asked.precision)
    budget, took = units.format_seconds(asked.budget_s), units.format_seconds(run.duration_s)
    if run.workers or run.kind == "frameworks":
        budget = f"{budget} per worker"
    return f"precision {precision}, budget {budget}, seed {asked.seed}; took {took}"


def _locking_text(cost: runs.LockingCost) -> str:
    if cost.s_per_gib.value is None:
        return fact_text(cost.s_per_gib)
    speed = f"{cost.s_per_gib.value:.3g} s/GiB at {units.format_size(cost.nbytes)}"
    if cost.pays_after_transfers.value is None:
        reason = clean(cost.pays_after_transfers.reason or "no reason given")
        does_it_pay = "unknown when it pays" if "not measured" in reason else "never pays here"
        return f"{speed}; {does_it_pay}: {reason}"
    return f"{speed}; {cost.pays_direction} transfers of that size until it pays: {cost.pays_after_transfers.value}"


def _peak_state(link: machines.Link) -> str:
    """The link state that the peak is computed from, and the hop that limits it if that is not the device's own."""
    state, when = link.under_load, "under load"
    if state.value is None:
        state, when = link.system_most, "at most, not seen under load"
    words = f"{fact_text(state, link_state_text)} {when}"
    hop = link.narrowest_hop.value
    if hop is not None and hop != link.hops[0]:
        words += f", limited by the link of {clean(hop.pci)} above it"
    return words


def _protocol_text(link: machines.Link) -> str:
    sides = ", ".join(
        f"{side} {fact_text(link.peak_gbps(side), units.format_gbps)}" for side in _SIDES if side != "sum"
    )
    payload = link.max_payload_bytes
    size = f"{payload.value} B payload" if payload.value is not None else f"payload {fact_text(payload)}"
    return f"{sides}: without the packet headers at {size}"


def _fact_column(name: str, facts: Sequence[machines.Fact[float]], say: Callable[[float], str]) -> Column:
    return Column((name,), tuple("-" if fact.value is None else say(fact.value) for fact in facts))


def rounded_size(nbytes: float) -> str:
    """In KiB or MiB, as the sizes of the table have, with three digits."""
    kib = nbytes / 1024
    number, unit = (kib, "KiB") if kib < 1000 else (kib / 1024, "MiB")  # noqa: PLR2004 - three digits
    return f"{number:#.3g}".rstrip(".") + f" {unit}"


_Key = tuple[str, ...]
# In rows without and with a column of workers.
_MAX_DECIMALS = (5, 3)

SORTS: dict[str, Callable[[runs.Measurement], tuple[str | float, ...]]] = {
    "size": lambda measurement: (measurement.nbytes,),
    "gbps": lambda measurement: (-(shown_gbps(measurement) or 0.0),),
    "route": lambda measurement: (measurement.route,),
    "direction": lambda measurement: (measurement.direction, measurement.side),
    "memory": lambda measurement: (measurement.memory,),
    "mode": lambda measurement: (measurement.mode,),
}


def rate_tables(run: runs.Run, marks: Sequence[str], width: int, sort: str | None) -> list[Table]:
    if not run.measurements:
        return []
    if sort is None and run.kind == "ceiling":
        tables = _pivots(run, marks, width)
        if tables is not None:
            return tables
    return [_rows(run, marks, width, sort)]


def _pivots(run: runs.Run, marks: Sequence[str], width: int) -> list[Table] | None:
    """Directions side by side in as few tables as fit; None if a single direction does not fit."""
    sizes = sorted({measurement.nbytes for measurement in run.measurements})
    head = _size_column(sizes)
    blocks = [
        _block(run, marks, direction, sizes) for direction in dict.fromkeys(m.direction for m in run.measurements)
    ]
    other = _other_clock(run)
    if any(grid_width((head, *block), GAPS[-1]) > width for block in (*blocks, other)):
        return None
    tables = pack([head], blocks, width)
    return [fitting_table(columns, width) for columns in ((*tables, other) if other else tables)]


def _size_column(sizes: Sequence[int]) -> Column:
    return Column(("size",), tuple(map(units.format_size, sizes)))


def _block(run: runs.Run, marks: Sequence[str], direction: str, sizes: Sequence[int]) -> list[Column]:
    columns: dict[_Key, dict[int, int]] = {}
    for index, measurement in enumerate(run.measurements):
        if measurement.direction == direction:
            columns.setdefault(_heading(measurement, run), {})[measurement.nbytes] = index
    block = [_rate_column(run, marks, key, at, sizes) for key, at in columns.items()]
    best = [_best_share(run, [at[size] for at in columns.values() if size in at]) for size in sizes]
    if any(share is not None for share in best):
        block.append(Column(("best", "of peak"), percent_cells(best)))
    return block


def _heading(measurement: runs.Measurement, run: runs.Run) -> _Key:
    """The way, the memory, and mode and variant if columns differ in them."""
    return (way(measurement), *label_words(measurement, run))


def way(row: runs.Measurement | runs.Curve) -> str:
    return f"both {row.side}" if row.direction == "both" else row.direction


def _rate_column(
    run: runs.Run, marks: Sequence[str], heading: _Key, at: dict[int, int], sizes: Sequence[int]
) -> Column:
    values = [shown_gbps(run.measurements[at[size]]) if size in at else None for size in sizes]
    missing = ["-" if size in at else "" for size in sizes]
    return Column(heading, rate_cells(values, missing), tuple(marks[at[size]] if size in at else "" for size in sizes))


def is_by_caller(m: runs.Measurement) -> bool:
    """Whether the table has what a caller gets: of modes whose calls take longer than their copies."""
    return m.has_both_clocks and m.mode != "async"


def shown_gbps(m: runs.Measurement) -> float | None:
    return m.caller_gbps if is_by_caller(m) else m.gbps


def _other_clock(run: runs.Run) -> list[Column]:
    """The rates by the clock that the other tables do not have, with their sizes; of both ways at once only the sum."""
    columns: dict[_Key, dict[int, float | None]] = {}
    for m in run.measurements:
        if m.has_both_clocks and (m.direction != "both" or m.side == "sum"):
            clock, value = ("device", m.gbps) if is_by_caller(m) else ("caller", m.caller_gbps)
            columns.setdefault((*_heading(m, run), clock), {})[m.nbytes] = value
    sizes = sorted({size for at in columns.values() for size in at})
    rates = [Column(heading, rate_cells([at.get(size) for size in sizes])) for heading, at in columns.items()]
    return [_size_column(sizes), *rates] if rates else []


def _clock_columns(run: runs.Run, chosen: Sequence[runs.Measurement]) -> list[Column]:
    """The rates by the clock that the other column does not have, under the name of that clock."""
    both = [m if m.has_both_clocks else None for m in chosen]
    values = {
        "caller": [None if m is None or is_by_caller(m) else m.caller_gbps for m in both],
        "device": [m.gbps if m is not None and is_by_caller(m) else None for m in both],
    }
    most = _MAX_DECIMALS[bool(run.workers)]
    return [Column((clock,), rate_cells(rates, most=most)) for clock, rates in values.items()]


def half_width(m: runs.Measurement) -> float | None:
    shown = m.wall if is_by_caller(m) else m.summary
    return shown.relative_half_width if shown else None


CLOCKS = (
    "caller: the caller's clock, from the first call to the end of the last copy, with nothing queued before. Other "
    "figures of pinned copies are by the device's clock, and their calls are over when it starts."
)


def clock_line(run: runs.Run) -> str:
    """Whose clock the figures have, if the tables have both; otherwise empty."""
    rows = [m for m in run.measurements if m.has_both_clocks]
    if not rows:
        return ""
    many = " Modes of many calls have the caller's in their column." if any(map(is_by_caller, rows)) else ""
    return f"{CLOCKS}{many}"


def _best_share(run: runs.Run, indices: Sequence[int]) -> float | None:
    """Both ways, only the sum counts, because neither side alone fills the link."""
    counted = [m for m in (run.measurements[i] for i in indices) if m.direction != "both" or m.side == "sum"]
    return max((m.of_peak for m in counted if m.of_peak is not None), default=None)


def _rows(run: runs.Run, marks: Sequence[str], width: int, sort: str | None) -> Table:
    order = list(range(len(run.measurements)))
    if sort is not None:
        key = SORTS[units.word_of(sort, SORTS, "--sort")]
        order.sort(key=lambda index: key(run.measurements[index]))
    chosen = [run.measurements[index] for index in order]
    halves = [half_width(m) for m in chosen]
    widths = list(zip(halves, percent_cells(halves), strict=True))
    columns = [
        Column(("route",), tuple(route_text(measurement, 60) for measurement in chosen), left=True),
        Column(("way",), tuple(way(measurement) for measurement in chosen), left=True),
        *_place_columns(run, chosen),
        Column(
            ("GB/s",),
            rate_cells([shown_gbps(m) for m in chosen], "-", most=_MAX_DECIMALS[bool(run.workers)]),
            tuple(marks[index] for index in order),
        ),
        *_clock_columns(run, chosen),
        Column(("+-",), tuple("> 100 %" if (width or 0.0) > 1 else cell for width, cell in widths)),
        Column(_words(run, "of peak"), percent_cells([m.of_peak for m in chosen])),
        Column(_words(run, "of ceiling"), percent_cells([m.of_ceiling for m in chosen])),
        Column(("worker",), tuple(worker_number(run, m.worker) for m in chosen)),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def worker_number(run: runs.Run, name: str | None) -> str:
    """The worker's number in the list below; names are too long for a table."""
    return next((str(number) for number, worker in enumerate(run.workers, start=1) if worker.name == name), "")


def _place_columns(run: runs.Run, chosen: Sequence[runs.Measurement]) -> list[Column]:
    """The size; for image batches the number of images."""
    if run.parameters.workload == "image-batch":
        batches = ("" if m.batch is None else str(m.batch) for m in chosen)
        return [Column(("batch",), tuple(batches))]
    return [Column(("size",), tuple(units.format_size(m.nbytes) for m in chosen))]


def _words(run: runs.Run, heading: str) -> tuple[str, ...]:
    """A heading in one line, or in narrow lines if the table has a column of workers."""
    return tuple(heading.split()) if run.workers else (heading,)


def route_text(row: runs.Measurement | runs.Curve, longest: int) -> str:
    name = clean(row.route, longest)
    return f"{name} (fresh)" if row.variant == "fresh" else name
