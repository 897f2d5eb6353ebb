"""The measurements as tables: sizes down and memories across where that fits, else one row a measurement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from rich.table import Table

from pyxfer import units
from pyxfer._document import runs
from pyxfer._report.layout import GAPS, Column, fitting_table, grid_width, pack, percent_cells, rate_cells, to_table
from pyxfer._report.notes import label_words
from pyxfer._report.text import clean, device_text, fact_text, link_state_text, link_text, remark_text
from pyxfer.errors import UsageError

# The one place that says what a GB is.
RATES_HEADING = "GB/s (1 GB = 1e9 bytes), medians; a letter leads to a note below"
_CURVES_NAMED = 2
_IN_BRACKETS = re.compile(r" \([^)]*\)")
_SIDES: tuple[runs.Side, ...] = ("h2d", "d2h", "sum")


def heading_lines(run: runs.Run) -> list[tuple[str, str]]:
    """What was measured, where, and how well."""
    environment = run.environment
    versions = [f"pyxfer {clean(environment.pyxfer)}"]
    lines = [("device", device_text(run.device))]
    if run.runtime == "cuda":
        versions += [f"CUDA runtime {clean(environment.cuda_runtime)}", f"driver {fact_text(environment.driver)}"]
        lines.append(("link", link_text(run.link)))
    lines.append(("host", f"{clean(environment.host)}, {clean(environment.taken_at)}"))
    lines.append(("with", ", ".join(versions)))
    lines.append(("asked", _asked_text(run)))
    return lines


def ending_text(run: runs.Run) -> str:
    """Why a run is not whole, or nothing."""
    if run.ended == "interrupted":
        return "Interrupted: what follows is what was measured until then."
    if run.ended == "failed":
        return f"Failed: {clean(run.failure or 'no reason given').rstrip('.')}. What follows was measured before."
    return ""


def fits_table(run: runs.Run) -> Table | None:
    """`t = t0 + n/B` of each curve that has one."""
    curves = [curve for curve in run.curves if curve.latency_s.value is not None]
    if not curves:
        return None
    return to_table(
        [
            Column(("route",), tuple(_curve_name(curve) for curve in curves), left=True),
            Column(("way",), tuple(_curve_way(curve) for curve in curves), left=True),
            _fact_column("t0", [curve.latency_s for curve in curves], units.format_seconds),
            _fact_column("B", [curve.asymptote_gbps for curve in curves], units.format_gbps),
            _fact_column("half B at", [curve.half_bytes for curve in curves], _rounded_size),
            Column(("misfit",), percent_cells([curve.worst_misfit.value for curve in curves])),
        ],
        gap=2,
    )


def fit_reasons(run: runs.Run) -> list[tuple[str, str]]:
    """Why a curve has no fit, one line a reason."""
    names: dict[str, list[str]] = {}
    for curve in run.curves:
        if curve.latency_s.reason is not None:
            # What stands in brackets is one curve's own figure, and would keep the same reason from being one line.
            reason = _IN_BRACKETS.sub("", clean(curve.latency_s.reason))
            names.setdefault(reason, []).append(f"{_curve_name(curve)} {_curve_way(curve)}")
    return [("-", f"no fit of {_names_text(who, len(run.curves))}: {reason}") for reason, who in names.items()]


def _names_text(names: Sequence[str], of: int) -> str:
    """One or two by name, more by their number."""
    if len(names) <= _CURVES_NAMED:
        return ", ".join(names)
    return "any curve" if len(names) == of else f"{names[0]} and {len(names) - 1} more"


def locking_lines(run: runs.Run) -> list[tuple[str, str]]:
    """What page-locking costs, and when that has paid."""
    return [(cost.memory, _locking_text(cost)) for cost in run.locking]


def ring_lines(run: runs.Run) -> list[tuple[str, str]]:
    """What staged copies went through, and where its settings come from; or why there was none."""
    if not any(measurement.mode == runs.STAGED for measurement in run.measurements):
        return []
    ring = run.ring.value
    if ring is None:
        return [("none", clean(run.ring.reason or "no reason given"))]
    threads = f"{ring.threads} thread{'' if ring.threads == 1 else 's'}"
    slots = f"{ring.slots} slots of {units.format_size(ring.chunk_bytes)}"
    return [
        ("made of", f"{threads}, {slots}, {units.format_size(ring.pinned_bytes)} page-locked; {_fill_text(ring)}"),
        ("settings", f"{clean(ring.reason)}; made in {units.format_seconds(ring.made_s)}"),
    ]


def peak_lines(link: runs.Link) -> list[tuple[str, str]]:
    """What the link could do on paper, and from what that is computed; or why there is no peak."""
    if link.raw_peak_gbps.value is None and link.h2d_peak_gbps.value is None:
        return [("none", clean(link.raw_peak_gbps.reason or "no reason given"))]
    raw = fact_text(link.raw_peak_gbps, units.format_gbps)
    return [
        ("raw", f"{raw} each way: {_peak_state(link)}, less the line code"),
        ("protocol", _protocol_text(link)),
    ]


def verified_text(run: runs.Run) -> str:
    """Whether what arrived is what was sent."""
    verdicts = [measurement.verified for measurement in run.measurements]
    if not verdicts:
        return "nothing was measured"
    right = sum(verdict.value is True for verdict in verdicts)
    wrong = sum(verdict.value is False for verdict in verdicts)
    unknown = Counter(clean(verdict.reason) for verdict in verdicts if verdict.reason is not None)
    parts = [f"the contents arrived whole in {right} of {len(verdicts)} measurements"]
    if wrong:
        parts.append(f"WRONG in {wrong}")
    parts.extend(f"not checked in {count}: {reason}" for reason, count in unknown.items())
    return "; ".join(parts)


def invalid_lines(run: runs.Run) -> list[tuple[str, str]]:
    """Trials that do not count, by reason. One trial of a copy both ways is in three rows, and counts once."""
    trials, reasons = set[Hashable](), dict[str, set[Hashable]]()
    for row in run.measurements:
        for trial in row.trials:
            executed = (row.worker, row.route, row.variant, row.direction, row.nbytes, trial.round)
            trials.add(executed)
            if trial.invalid is not None:
                reasons.setdefault(clean(trial.invalid), set()).add(executed)
    return [("invalid", f"{len(found)} of {len(trials)} trials: {reason}") for reason, found in reasons.items()]


def remark_lines(run: runs.Run) -> list[tuple[str, str]]:
    """What holds for the whole run."""
    return [("-", remark_text(remark)) for remark in (*run.link.remarks, *run.remarks)]


def _asked_text(run: runs.Run) -> str:
    asked = run.parameters
    precision = units.format_percent(asked.precision)
    budget, took = units.format_seconds(asked.budget_s), units.format_seconds(run.duration_s)
    if run.workers or run.kind == "frameworks":
        budget = f"{budget} a worker"
    return f"medians to {precision} within {budget}, seed {asked.seed}; took {took}"


def _locking_text(cost: runs.LockingCost) -> str:
    each = f"{fact_text(cost.s_per_gib, _three_digits)} s/GiB at {units.format_size(cost.nbytes)}"
    if cost.s_per_gib.value is None:
        return fact_text(cost.s_per_gib)
    if cost.pays_after_transfers.value is None:
        return f"{each}; pays after: {clean(cost.pays_after_transfers.reason or 'no reason given')}"
    count = cost.pays_after_transfers.value
    transfers = f"{cost.pays_direction} transfer{'' if count == 1 else 's'}"
    return f"{each}; pays after {count} {transfers} of that size"


def _fill_text(ring: runs.Ring) -> str:
    """How its threads copy; the kernel's name where that says more."""
    kernel = "" if ring.kernel == ring.fill else f" ({clean(ring.kernel)})"
    return f"{clean(ring.fill)} stores{kernel}"


def _peak_state(link: runs.Link) -> str:
    """The state that the peak was computed from, and the hop that sets it where that is not the device's own."""
    state, when = link.under_load, "under load"
    if state.value is None:
        state, when = link.system_most, "at most, not seen under load"
    words = f"{fact_text(state, link_state_text)} {when}"
    hop = link.narrowest_hop.value
    if hop is not None and hop != link.hops[0]:
        words += f", narrowed by the link of {clean(hop.pci)} above it"
    return words


def _protocol_text(link: runs.Link) -> str:
    sides = ", ".join(
        f"{side} {fact_text(link.peak_gbps(side), units.format_gbps)}" for side in _SIDES if side != "sum"
    )
    payload = link.max_payload_bytes
    return f"{sides}: less the packet headers at " + (
        f"{payload.value} B payload" if payload.value is not None else f"a payload that is {fact_text(payload)}"
    )


def _curve_name(curve: runs.Curve) -> str:
    name = clean(curve.route, longest=40)
    return f"{name} (fresh)" if curve.variant == "fresh" else name


def _curve_way(curve: runs.Curve) -> str:
    return f"both {curve.side}" if curve.direction == "both" else curve.direction


def _fact_column(name: str, facts: Sequence[runs.Fact[float]], say: Callable[[float], str]) -> Column:
    return Column((name,), tuple("-" if fact.value is None else say(fact.value) for fact in facts))


def _rounded_size(nbytes: float) -> str:
    return units.format_size(float(f"{nbytes:.3g}"))


def _three_digits(value: float) -> str:
    return f"{value:.3g}"


_Key = tuple[str, ...]
# Of the rows, without and with a column for their workers.
_MOST_DECIMALS = (5, 3)

SORTS: dict[str, Callable[[runs.Measurement], tuple[str | float, ...]]] = {
    "size": lambda measurement: (measurement.nbytes,),
    "gbps": lambda measurement: (-(measurement.gbps or 0.0),),
    "route": lambda measurement: (measurement.route,),
    "direction": lambda measurement: (measurement.direction, measurement.side),
    "memory": lambda measurement: (measurement.memory,),
    "mode": lambda measurement: (measurement.mode,),
}


def rate_tables(run: runs.Run, marks: Sequence[str], width: int, sort: str | None) -> list[Table]:
    """Every rate of the run, with the mark that leads to its note."""
    if not run.measurements:
        return []
    if sort is None and run.kind == "ceiling":
        tables = _pivots(run, marks, width)
        if tables is not None:
            return tables
    return [_rows(run, marks, width, sort)]


def _pivots(run: runs.Run, marks: Sequence[str], width: int) -> list[Table] | None:
    """Blocks of directions packed side by side into as few tables as fit; None where one direction alone does not."""
    sizes = sorted({measurement.nbytes for measurement in run.measurements})
    head = Column(("size",), tuple(units.format_size(size) for size in sizes))
    blocks = [
        _block(run, marks, direction, sizes) for direction in dict.fromkeys(m.direction for m in run.measurements)
    ]
    if any(grid_width((head, *block), GAPS[-1]) > width for block in blocks):
        return None
    return [fitting_table(columns, width) for columns in pack([head], blocks, width)]


def _block(run: runs.Run, marks: Sequence[str], direction: str, sizes: Sequence[int]) -> list[Column]:
    """The columns of one direction, and what share of the peak the best of them reaches."""
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
    """One line each: the way, the memory, and mode and variant where they tell columns apart."""
    return (_way(measurement), *label_words(measurement, run))


def _way(measurement: runs.Measurement) -> str:
    return f"both {measurement.side}" if measurement.direction == "both" else measurement.direction


def _rate_column(
    run: runs.Run, marks: Sequence[str], heading: _Key, at: dict[int, int], sizes: Sequence[int]
) -> Column:
    values = [run.measurements[at[size]].gbps if size in at else None for size in sizes]
    missing = ["-" if size in at else "" for size in sizes]
    return Column(heading, rate_cells(values, missing), tuple(marks[at[size]] if size in at else "" for size in sizes))


def _best_share(run: runs.Run, indices: Sequence[int]) -> float | None:
    """Of a transfer both ways the two sides together count, because neither side alone fills the link."""
    counted = [m for m in (run.measurements[i] for i in indices) if m.direction != "both" or m.side == "sum"]
    return max((m.of_peak for m in counted if m.of_peak is not None), default=None)


def _rows(run: runs.Run, marks: Sequence[str], width: int, sort: str | None) -> Table:
    """One row a measurement."""
    order = list(range(len(run.measurements)))
    if sort is not None:
        key = _sort_key(sort)
        order.sort(key=lambda index: key(run.measurements[index]))
    chosen = [run.measurements[index] for index in order]
    columns = [
        Column(("route",), tuple(_route(measurement) for measurement in chosen), left=True),
        Column(("way",), tuple(_way(measurement) for measurement in chosen), left=True),
        *_place_columns(run, chosen),
        Column(
            ("GB/s",),
            rate_cells([m.gbps for m in chosen], ["-"] * len(chosen), most=_MOST_DECIMALS[bool(run.workers)]),
            tuple(marks[index] for index in order),
        ),
        Column(("+-",), percent_cells([m.summary.relative_half_width if m.summary else None for m in chosen])),
        Column(_words(run, "of peak"), percent_cells([m.of_peak for m in chosen])),
        Column(_words(run, "of ceiling"), percent_cells([m.of_ceiling for m in chosen])),
        Column(("wor-", "ker"), tuple(worker_number(run, m.worker) for m in chosen)),
    ]
    return fitting_table([column for column in columns if any(column.cells)], width)


def worker_number(run: runs.Run, name: str | None) -> str:
    """What leads from a row to the list of the run's workers, whose names are too long for a table."""
    return next((str(number) for number, worker in enumerate(run.workers, start=1) if worker.name == name), "")


def _place_columns(run: runs.Run, chosen: Sequence[runs.Measurement]) -> list[Column]:
    """The size; of image batches the images, which say it too."""
    if run.parameters.workload == "image-batch":
        batches = ("" if m.batch is None else str(m.batch) for m in chosen)
        return [Column(("batch",), tuple(batches))]
    return [Column(("size",), tuple(units.format_size(m.nbytes) for m in chosen))]


def _words(run: runs.Run, heading: str) -> tuple[str, ...]:
    """A heading in one line, or in narrow ones where a run has columns more."""
    return tuple(heading.split()) if run.workers else (heading,)


def _sort_key(sort: str) -> Callable[[runs.Measurement], tuple[str | float, ...]]:
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {clean(sort)!r}: choose one of {', '.join(SORTS)}, such as --sort gbps")
    return SORTS[sort]


def _route(measurement: runs.Measurement) -> str:
    """The route's name, which says memory and mode; the variant where it is not the usual one."""
    name = clean(measurement.route, longest=60)
    return f"{name} (fresh)" if measurement.variant == "fresh" else name
