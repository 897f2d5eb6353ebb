"""Export runs, watches and comparisons as CSV and Markdown.

Cells are data: text is escaped, so that no spreadsheet executes it and no renderer formats it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pyxfer._document.baselines import CellComparison, Comparison
from pyxfer._document.fleets import Fleet
from pyxfer._document.runs import Fact, Link, Measurement, Remark, Run, Worker
from pyxfer._document.watches import STEP_PARTS, CopyClass, Parts, Watched
from pyxfer._document.wording import (
    NANO,
    cause_text,
    doubts,
    format_latency,
    headline,
    interval_text,
    is_latency,
    left_out,
    overall_text,
    part_words,
    remark_text,
    shown,
    signed_change,
    size_text,
    slow_text,
    sum_text,
    unseen_reason,
)
from pyxfer.errors import UsageError
from pyxfer.units import format_gbps, format_percent, format_seconds, format_size

Cell = str | int | float | bool | None
Rows = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


# --- rows as text ----------------------------------------------------------------------------------------------------

# A spreadsheet executes a cell that begins with one of these as a formula; with East Asian input also the wide forms.
_FORMULA = re.compile(r"[=+\-@\t\n\uff0b\uff0d\uff1d\uff20]")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
# A line break ends a table row, and other control characters change the state of a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NUMBER = re.compile(r"(-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?( [A-Za-z/%]{1,4})?)?")


def csv_table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Comma-separated values with one header line; None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_inert(cell) for cell in row] for row in rows)
    return out.getvalue()


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A Markdown table. Columns of numbers, with or without a unit, are aligned right."""
    body = [[escape_markdown(cell) for cell in row] for row in rows]
    columns = [[row[place] for row in body] for place in range(len(header))]
    rule = ["---:" if any(column) and all(map(_NUMBER.fullmatch, column)) else "---" for column in columns]
    lines = [[escape_markdown(name) for name in header], rule, *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def escape_markdown(cell: Cell) -> str:
    """Text on one line that a Markdown renderer shows literally."""
    if cell is None:
        return ""
    return _MARKUP.sub(r"\\\1", _CONTROL.sub(" ", str(cell)))


def _inert(cell: Cell) -> Cell:
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r\n", "\n").replace("\r", "\n")  # csv leaves a bare return unquoted up to Python 3.12
    return "'" + text if _FORMULA.match(text) else text


def _remark(remark: Remark) -> str:
    return f"{remark.text} ({remark.fix})" if remark.fix else remark.text


# --- runs ------------------------------------------------------------------------------------------------------------

_FRAMEWORK_COLUMNS = ("worker", "framework", "call", "host_copies", "dma", "returns", "batch", "overhead_s", "faults")
_RUN_COLUMNS = (
    *("route", "direction", "side", "memory", "mode", "variant", "nbytes"),
    *("gbps", "low_gbps", "high_gbps", "caller_gbps", "of_ceiling", "of_peak"),
    *("median_s", "low_s", "high_s", "iqr_s", "mad_s", "min_s", "n"),
    *("dispatch_s", "wall_s", "first_s", "verified", "missing", "remarks"),
    *_FRAMEWORK_COLUMNS,
    *("dma_s", "dma_bytes", "dma_copies", "dma_source", "dma_gbps", "dma_missing"),
    *("runtime", "device", "host", "taken_at"),
)
_READABLE_RUN_COLUMNS = (
    *("route", "direction", "side", "memory", "mode", "variant", "size"),
    *("bandwidth", "95 % interval", "of ceiling", "of peak", "notes"),
)
_READABLE_FRAMEWORK_COLUMNS = (
    *("worker", "framework", "call", "host copies", "dma", "returns", "batch", "overhead", "faults"),
)


def run_csv(run: Run) -> str:
    """One row per measurement, with all its values unrounded."""
    return csv_table(*run_rows(run))


def run_rows(run: Run) -> Rows:
    """The columns, and one row per measurement."""
    where = {"runtime": run.runtime, "device": run.device.name, **_fields(run.environment, "host", "taken_at")}
    rows = [{**_run_cells(measurement), **where} for measurement in run.measurements]
    return _RUN_COLUMNS, [_in_run_columns(cells) for cells in rows]


def _in_run_columns(cells: Mapping[str, Cell]) -> tuple[Cell, ...]:
    if unplaced := cells.keys() - set(_RUN_COLUMNS):
        raise KeyError(f"no column has the name {', '.join(sorted(unplaced))}")
    return tuple(cells.get(name) for name in _RUN_COLUMNS)


def run_markdown(run: Run) -> str:
    """The notes on a run, and one row per measurement with rounded values."""
    made = f"{run.environment.taken_at}, pyxfer {run.environment.pyxfer}"
    heading = f"## {escape_markdown(f'{run.device.name}, {_link_words(run.link)}, {made}')}\n"
    notes = "".join(f"- {escape_markdown(note)}\n" for note in _notes(run))
    readable = [_readable_row(measurement) for measurement in run.measurements]
    header: tuple[str, ...] = _READABLE_RUN_COLUMNS
    if run.kind == "frameworks" or run.workers:
        header = (*header, *_READABLE_FRAMEWORK_COLUMNS)
        readable = [(*row, *_readable_framework_row(m)) for row, m in zip(readable, run.measurements, strict=True)]
    return "\n".join(filter(None, (heading, notes, markdown_table(header, readable), _parts_markdown(run))))


def _parts_markdown(run: Run) -> str:
    """The breakdown of an explained route, or why it is not known; empty for any other run."""
    row = next((m for m in run.measurements if m.route == run.parameters.explained and m.variant == "warm"), None)
    if run.kind != "explain" or row is None:
        return ""
    heading = f"### Where the time of {escape_markdown(row.route)} goes\n\n"
    breakdown = row.breakdown.value
    if row.verified.value is False:
        return f"{heading}Its contents were wrong, so its times mean nothing.\n"
    if breakdown is None:
        return f"{heading}Not known: {escape_markdown(row.breakdown.reason or 'no reason given')}\n"
    timed = "" if row.elapsed_s is None else f"; without tracing it takes {format_seconds(row.elapsed_s)}"
    whole_s = breakdown.elapsed_s
    lines = [*((part.name, part.seconds) for part in breakdown.parts), ("one traced transfer", whole_s)]
    cells = [(name, format_seconds(seconds), format_percent(seconds / (whole_s or 1.0))) for name, seconds in lines]
    return f"{heading}One traced transfer{timed}.\n\n{markdown_table(('part', 'time', 'of it'), cells)}"


def _run_cells(measurement: Measurement) -> dict[str, Cell]:
    """The cells of a row by column; an empty cell may be left out."""
    m = measurement
    return {
        **_fields(m, "route", "direction", "side", "memory", "mode", "variant", "nbytes"),
        **_fields(m.rate.value, "gbps", "low_gbps", "high_gbps"),
        **_fields(m, "caller_gbps", "of_ceiling", "of_peak"),
        **_fields(m.summary, "median_s", "low_s", "high_s", "iqr_s", "mad_s", "min_s", "n"),
        **_fields(m, "dispatch_s", "wall_s", "first_s", "verified"),
        "missing": m.rate.reason,
        "remarks": "; ".join(map(_remark, m.remarks)),
        # A raw row of a framework's worker has only the worker's name.
        **_fields(m, "worker", "batch", "faults"),
        **_fields(m.nature, "framework", "call", "host_copies", "dma", "returns"),
        "overhead_s": None if m.nature is None else m.overhead_s,
        **_dma_cells(m),
    }


def _dma_cells(measurement: Measurement) -> dict[str, Cell]:
    dma = measurement.dma.value
    if dma is None:
        return {"dma_missing": measurement.dma.reason}
    return {
        "dma_s": dma.seconds.value,
        "dma_bytes": dma.nbytes,
        "dma_copies": dma.copies,
        "dma_source": dma.source,
        "dma_gbps": dma.gbps,
        "dma_missing": dma.seconds.reason,
    }


def _fields(struct: object | None, *names: str) -> dict[str, Cell]:
    """Fields of a struct; nothing if there is none."""
    return {} if struct is None else {name: _cell(getattr(struct, name)) for name in names}


def _cell(value: Cell | Fact[Any]) -> Cell:
    """An unknown fact is an empty cell; its reason is left out."""
    if isinstance(value, Fact):
        known: Cell = value.value
        return known
    return value


def _readable_row(measurement: Measurement) -> tuple[Cell, ...]:
    m, rate = measurement, measurement.rate.value
    interval = None
    if rate and rate.low_gbps is not None and rate.high_gbps is not None:
        interval = f"{format_gbps(rate.low_gbps).removesuffix(' GB/s')} to {format_gbps(rate.high_gbps)}"
    shares = (None if share is None else format_percent(share) for share in (m.of_ceiling, m.of_peak))
    notes = "; ".join([*([m.rate.reason] if m.rate.reason else []), *map(_remark, m.remarks)])
    size, bandwidth = format_size(m.nbytes), format_gbps(rate.gbps) if rate else None
    return m.route, m.direction, m.side, m.memory, m.mode, m.variant, size, bandwidth, interval, *shares, notes


def _readable_framework_row(measurement: Measurement) -> tuple[Cell, ...]:
    cells = _run_cells(measurement)
    if measurement.nature is not None and measurement.overhead_s is not None:
        cells["overhead_s"] = format_seconds(measurement.overhead_s)
    return tuple(cells.get(name) for name in _FRAMEWORK_COLUMNS)


def _notes(run: Run) -> list[str]:
    ended = {
        "complete": [],
        "interrupted": ["This run was interrupted before its end."],
        "failed": ["This run failed before its end."],
    }[run.ended]
    failure = [run.failure] if run.failure else []
    host = [run.runtime_reason] if run.runtime == "host" and run.runtime_reason else []
    workers = [_worker_note(worker) for worker in run.workers if worker.ended != "complete"]
    return [*ended, *failure, *host, *workers, *map(_remark, (*run.link.remarks, *run.remarks))]


def _worker_note(worker: Worker) -> str:
    ended = "was not available" if worker.ended == "unavailable" else f"ended as {worker.ended}"
    return f"The worker {worker.name} {ended}: {worker.reason or 'no reason given'}"


def _link_words(link: Link) -> str:
    if link.kind == "none":
        return "no link"
    name = {"pcie": "PCIe", "c2c": "NVLink-C2C", "nvlink": "NVLink", "unknown": "link unknown"}[link.kind]
    state = link.under_load.value or link.now.value
    return f"{name} {state.generation}.0 x{state.width}" if state and link.kind == "pcie" else name


# --- watches ---------------------------------------------------------------------------------------------------------

_PART_COLUMNS = tuple(f"{name.replace(' ', '_')}_s" for name in STEP_PARTS)
_CALL_COLUMNS = ("what", "call", "line", "range", "count", "seconds", "nbytes", "per_step")
_RANGE_COLUMNS = ("name", "source", "count", "seconds", "share", "busy_s", "h2d_bytes", "d2h_bytes")
_COPY_COLUMNS = (
    *("way", "memory", "least_bytes", "below_bytes", "count", "nbytes", "timed_bytes", "seconds"),
    *("gbps", "ceiling_share", "hidden_share"),
)


def watch_csv(watched: Watched, table: str = "steps") -> str:
    """The table `steps`, `copies`, `calls` or `ranges`, with unrounded values."""
    return _escape_surrogates(csv_table(*watch_rows(watched, table)))


def watch_rows(watched: Watched, table: str) -> Rows:
    """The columns and rows of the table `steps`, `copies`, `calls` or `ranges`."""
    if table not in _WATCH_TABLES:
        raise UsageError(f"a watch has no table {table!r}; choose one of {', '.join(_WATCH_TABLES)}")
    return _WATCH_TABLES[table](watched)


def watch_markdown(watched: Watched) -> str:
    """The verdict, the parts of the period, copies, calls, ranges and advice, with rounded values."""
    environment, device = watched.environment, watched.device
    made = f"{environment.taken_at}, pyxfer {environment.pyxfer}"
    heading = f"## {escape_markdown(f'{device.name}, {made}')}\n"
    further = [text for text in (slow_text(watched), unseen_reason(watched)) if text]
    texts = [watched.verdict.text, *watched.verdict.evidence, *further, *map(_remark, watched.remarks)]
    sections = [heading, "".join(f"- {escape_markdown(text)}\n" for text in texts)]
    for name, header, readable in readable_watch(watched):
        if readable:
            sections.append(f"### {name}\n\n{markdown_table(header, readable)}")
    return _escape_surrogates("\n".join(sections))


def _steps(watched: Watched) -> Rows:
    header = ("number", "at_s", "thread", "period_s", *_PART_COLUMNS, "hidden_h2d_s", "hidden_d2h_s", "slow")
    steps = watched.steps.each
    return header, [(step.number, step.at_s, step.thread, *_cells(step.parts), step.slow) for step in steps]


def _cells(parts: Parts) -> tuple[Cell, ...]:
    known = dict(parts.named())
    return parts.period_s, *(known.get(name) for name in STEP_PARTS), parts.hidden_h2d_s, parts.hidden_d2h_s


def _copies(watched: Watched) -> Rows:
    activity = watched.activity.value
    return _COPY_COLUMNS, _struct_rows(activity.copies if activity is not None else (), _COPY_COLUMNS)


def _calls(watched: Watched) -> Rows:
    activity = watched.activity.value
    return _CALL_COLUMNS, _struct_rows(activity.surprises if activity is not None else (), _CALL_COLUMNS)


def _ranges(watched: Watched) -> Rows:
    return _RANGE_COLUMNS, _struct_rows(watched.ranges, _RANGE_COLUMNS)


_WATCH_TABLES: Mapping[str, Callable[[Watched], Rows]] = {
    "steps": _steps,
    "copies": _copies,
    "calls": _calls,
    "ranges": _ranges,
}


def _struct_rows(structs: Sequence[msgspec.Struct], names: Sequence[str]) -> list[tuple[Cell, ...]]:
    return [tuple(_fields(row, *names).values()) for row in structs]


def readable_watch(watched: Watched) -> list[tuple[str, tuple[str, ...], list[tuple[Cell, ...]]]]:
    """The name, columns and rounded rows of each table."""
    parts, activity = watched.parts, watched.activity.value
    shares: list[tuple[Cell, ...]] = [
        (part_words(parts)[name], format_seconds(seconds), format_percent(parts.share(name)))
        for name, seconds in parts.named()
    ]
    copies = [_readable_copies(row) for row in activity.copies] if activity is not None else []
    calls: list[tuple[Cell, ...]] = [
        (call.call, call.line.value or call.line.reason, call.range, call.count, format_seconds(call.seconds))
        for call in (activity.surprises if activity is not None else ())
    ]
    gains: list[tuple[Cell, ...]] = [
        (advice.text, format_seconds(advice.gain_s), format_percent(advice.gain_share), advice.worked_out)
        for advice in watched.advice
    ]
    ranges: list[tuple[Cell, ...]] = [
        (row.name, row.count, format_seconds(row.seconds), format_percent(row.share)) for row in watched.ranges
    ]
    line = activity.timeline if activity is not None else None
    lanes: list[tuple[Cell, ...]] = []
    if line is not None:
        lanes = [
            (lane.what, format_seconds(lane.busy_s), format_percent(line.share(lane)), len(lane.spans))
            for lane in line.lanes
        ]
    return [
        ("Parts of the period", ("part", "time", "share"), shares),
        ("Timeline, by all records", ("work", "busy", "of the stretch", "spans drawn"), lanes),
        ("Copies", ("way", "memory", "size", "count", "bytes", "bandwidth", "of ceiling", "hidden"), copies),
        ("Calls inside steps", ("call", "line", "range", "count", "time"), calls),
        ("Ranges", ("name", "count", "time", "of the window"), ranges),
        ("Next steps (predicted)", ("what", "gain a period", "share", "worked out"), gains),
    ]


def _readable_copies(row: CopyClass) -> tuple[Cell, ...]:
    shares = (None if share is None else format_percent(share) for share in (row.of_ceiling, row.hidden_share.value))
    bandwidth = None if row.gbps.value is None else format_gbps(row.gbps.value)
    return row.way, row.memory, size_text(row), row.count, sum_text(row.nbytes), bandwidth, *shares


def _escape_surrogates(text: str) -> str:
    """Escape names that are not UTF-8 as the JSON does; they could not be written to a file otherwise."""
    return text.encode(errors="backslashreplace").decode()


# --- comparisons -----------------------------------------------------------------------------------------------------

_COMPARED_COLUMNS = (
    *("text", "verdict", "ratio", "low", "high", "a_gbps", "b_gbps", "a_s", "b_s", "a_processes", "b_processes"),
    *("confirmed", "assumed", "why"),
)
_COMPARISON_COLUMNS = ("cell", "A", "B", "change", "95 % interval", "verdict")


def comparison_rows(comparison: Comparison) -> Rows:
    """The columns, and one row per cell."""
    rows = _struct_rows(comparison.cells, _COMPARED_COLUMNS)
    return ("cell", *_COMPARED_COLUMNS[1:], "a", "b"), [(*row, comparison.a, comparison.b) for row in rows]


def comparison_markdown(comparison: Comparison) -> str:
    """The verdict, the differences, a row per compared cell, and the likely causes."""
    a, b, overall = map(escape_markdown, (comparison.a, comparison.b, overall_text(comparison)))
    lines = [f"**{escape_markdown(headline(comparison))}**", "", f"A is {a}, B is {b}. Overall {overall}.", ""]
    lines += _listed("Differences", [f"{row.what}: {row.a}, now {row.b}" for row in comparison.differences])
    rows, others = shown(comparison)
    lines += [markdown_table(_COMPARISON_COLUMNS, [_comparison_row(row) for row in rows])]
    lines += [others, ""] if others else []
    lines += _listed("Likely causes", [cause_text(cause) for cause in comparison.causes])
    lines += _listed("Uncertain", doubts(comparison))
    lines += _listed("Not compared", [f"{', '.join(cells)}: {why}" for why, cells in left_out(comparison).items()])
    lines += _listed("To know", [remark_text(remark) for remark in comparison.remarks])
    return "\n".join(lines).rstrip("\n") + "\n"


def _comparison_row(row: CellComparison) -> tuple[Cell, ...]:
    facts = (row.a_s, row.b_s) if is_latency(row) else (row.a_gbps, row.b_gbps)
    format_figure = format_latency if is_latency(row) else format_gbps
    rates = (None if fact.value is None else format_figure(fact.value) for fact in facts)
    return row.text, *rates, signed_change(row.ratio.value), interval_text(row), row.verdict


def _listed(name: str, items: Sequence[str]) -> list[str]:
    return [f"{name}:", "", *(f"- {escape_markdown(item)}" for item in items), ""] if items else []


def comparison_benchmarks(comparison: Comparison) -> list[dict[str, Cell]]:
    """The bandwidth of B in each cell as github-action-benchmark reads it, with `tool: customBiggerIsBetter`.

    Of a latency the loads per second, because a larger number has to be better.
    """
    return [
        {"name": row.text, **_larger_is_better(row), "extra": _beside_a(comparison, row)}
        for row in comparison.cells
        if row.b_gbps.value is not None
    ]


def _larger_is_better(row: CellComparison) -> dict[str, Cell]:
    if is_latency(row) and row.b_s.value:
        return {"unit": "million loads/s", "value": 1e-6 / row.b_s.value}
    return {"unit": "GB/s", "value": row.b_gbps.value}


def comparison_metrics(comparison: Comparison) -> dict[str, dict[str, dict[str, float]]]:
    """The bandwidth of B in each cell in Bencher's metric format, in bytes per second; latencies in nanoseconds."""
    return {row.text: _metric(row) for row in comparison.cells if row.b_gbps.value is not None}


def _metric(row: CellComparison) -> dict[str, dict[str, float]]:
    if is_latency(row):
        return {"latency": {"value": (row.b_s.value or 0.0) * NANO}}
    return {"bandwidth": {"value": (row.b_gbps.value or 0.0) * 1e9}}


def _beside_a(comparison: Comparison, row: CellComparison) -> str:
    """`SAME, -0.5 % (-1.2 to +0.2 %) against monday`."""
    interval = interval_text(row)
    words = [row.verdict, f"{signed_change(row.ratio.value)}{f' ({interval})' if interval else ''}"]
    return f"{', '.join(filter(None, words))} against {_CONTROL.sub(' ', comparison.a)}"


# --- fleets -----------------------------------------------------------------------------------------------------------


_FLEET_COLUMNS = ("host", "state", "verdict", "cohort", "cell", "unit", "value", "usual", "loss", "confirmed", "source")


def fleet_rows(fleet: Fleet) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    """One row for each host and cell, and one without a cell for a host that has no figures.

    `loss` is that of a flagged cell, as it is stated, and `confirmed` whether it was low again.
    """
    rows: list[tuple[Cell, ...]] = []
    for host in fleet.hosts:
        head = (host.host, host.state, host.verdict, host.cohort)
        losses = {loss.cell: loss for loss in host.losses}
        cells = () if host.cohort is None else fleet.cohorts[host.cohort].cells
        for cell, value in zip(cells, host.values, strict=True):
            found = losses.get(cell.cell)
            verdict = (None, None) if found is None else (found.stated, found.confirmed)
            rows.append((*head, cell.cell.text, cell.unit, value, cell.usual.value, *verdict, host.source))
        if not cells:
            rows.append((*head, None, None, None, None, None, None, host.source))
    return _FLEET_COLUMNS, rows
