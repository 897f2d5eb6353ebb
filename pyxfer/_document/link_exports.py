"""A links document as CSV and Markdown: one row for each figure."""

from __future__ import annotations

from collections.abc import Iterator

from pyxfer._document.exports import Cell, Rows, csv_table, escape_markdown, markdown_table
from pyxfer._document.links import Latency, LinkFlow, Links, SmallCopies, Traffic, end_name
from pyxfer._document.runs import Fact, Rate, Remark, Share
from pyxfer.units import format_gbps, format_percent, format_size

COLUMNS = (
    *("group", "case", "engine", "from", "to", "issued_by", "side", "beside", "nbytes", "peer_access", "node"),
    *(
        "gbps",
        "low_gbps",
        "high_gbps",
        "caller_gbps",
        "caller_low_gbps",
        "caller_high_gbps",
        "of_alone",
        "of_alone_low",
        "of_alone_high",
        "of_peak",
        "sum_alone_gbps",
    ),
    *("slowest_gbps", "least_overlap", "n", "verified"),
    *("ns", "low_ns", "high_ns", "p99_ns", "p99_low_ns", "p99_high_ns", "load", "load_gbps", "footprint_bytes", "hops"),
    *("fastest_ns", "slowest_ns", "missing", "remarks"),
)
Cells = dict[str, Cell]


def links_csv(run: Links) -> str:
    """One row for each stream of copies, each total, latency and way of small copies, with unrounded values."""
    return csv_table(*link_rows(run))


def link_rows(run: Links) -> Rows:
    """The columns, and one row for each stream of copies, each total, latency and way of small copies."""
    return COLUMNS, [tuple(cells.get(name) for name in COLUMNS) for cells in link_cells(run)]


def link_cells(run: Links) -> list[Cells]:
    """The rows by the names of their columns. A row of latency has a footprint, any other none."""
    rows = [cells for row in run.traffics for cells in _traffic_cells(row)]
    rows += [_latency_cells(row) for row in run.latencies]
    return rows + [_small_cells(row) for row in run.small]


def links_markdown(run: Links) -> str:
    """The notes on a run, and its figures with rounded values."""
    made = f"{run.environment.host}, {run.environment.taken_at}, pyxfer {run.environment.pyxfer}"
    names = ", ".join(dict.fromkeys(each.device.name for each in run.devices))
    heading = f"## {escape_markdown(f'Links of {len(run.devices)} x {names}, {made}')}\n"
    texts = [*([run.failure] if run.failure else []), *map(_remark, run.remarks)]
    notes = "".join(f"- {escape_markdown(text)}\n" for text in texts)
    copies = [_readable(cells) for row in run.traffics for cells in _traffic_cells(row)]
    copies += [_readable(_small_cells(row)) for row in run.small]
    header = (
        "group",
        "case",
        "engine",
        "from",
        "to",
        "beside",
        "size",
        "bandwidth",
        "caller gets",
        "of alone",
        "of peak",
        "notes",
    )
    loads = [_readable_latency(row) for row in run.latencies]
    latency_header = ("from", "to", "footprint", "load", "median", "p99", "notes")
    tables = [markdown_table(header, copies) if copies else "", markdown_table(latency_header, loads) if loads else ""]
    return "\n".join(filter(None, (heading, notes, *tables)))


def _traffic_cells(row: Traffic) -> Iterator[Cells]:
    for flow in row.flows:
        yield {**_common(row), **_flow_cells(flow, row)}
    if len(row.flows) > 1:
        yield {
            **_common(row),
            "side": "total",
            **_rate_cells(row.total),
            "sum_alone_gbps": row.sum_alone_gbps.value,
            "slowest_gbps": row.slowest_gbps.value,
        }


def _common(row: Traffic) -> Cells:
    return {
        "group": row.group,
        "case": row.case,
        "engine": row.engine,
        "nbytes": row.nbytes,
        "peer_access": row.peer_access,
        "node": row.node,
        "least_overlap": row.least_overlap,
        "n": len(row.valid),
        "remarks": "; ".join(map(_remark, row.remarks)),
    }


def _flow_cells(flow: LinkFlow, row: Traffic) -> Cells:
    others = [f"{end_name(each.source)} to {end_name(each.destination)}" for each in row.flows if each is not flow]
    return {
        "from": end_name(flow.source),
        "to": end_name(flow.destination),
        "issued_by": flow.device,
        "side": flow.side,
        "beside": ", ".join(others),
        **_rate_cells(flow.rate),
        **_share_cells(flow.alone_share),
        "of_peak": flow.peak_share.value,
        "verified": flow.verified.value,
    }


def _rate_cells(rate: Fact[Rate]) -> Cells:
    if rate.value is None:
        return {"missing": rate.reason}
    return {"gbps": rate.value.gbps, "low_gbps": rate.value.low_gbps, "high_gbps": rate.value.high_gbps}


def _share_cells(share: Fact[Share]) -> Cells:
    if share.value is None:
        return {}
    return {"of_alone": share.value.value, "of_alone_low": share.value.low, "of_alone_high": share.value.high}


def _latency_cells(row: Latency) -> Cells:
    p50, p99 = row.p50.value, row.p99.value
    return {
        "group": "latency" if row.node is None else "numa",
        "case": "latency",
        "from": end_name(row.target),
        "to": end_name(row.device),
        "issued_by": row.device,
        "node": row.node,
        "ns": None if p50 is None else p50.ns,
        "low_ns": None if p50 is None else p50.low_ns,
        "high_ns": None if p50 is None else p50.high_ns,
        "p99_ns": None if p99 is None else p99.ns,
        "p99_low_ns": None if p99 is None else p99.low_ns,
        "p99_high_ns": None if p99 is None else p99.high_ns,
        "load": row.load,
        "load_gbps": row.load_gbps.value,
        "footprint_bytes": row.footprint_bytes,
        "hops": row.hops,
        "fastest_ns": None if row.fastest.value is None else row.fastest.value.ns,
        "slowest_ns": None if row.slowest.value is None else row.slowest.value.ns,
        "n": sum(trial.invalid is None for trial in row.trials),
        "missing": row.p50.reason,
        "remarks": "; ".join(map(_remark, row.remarks)),
    }


def _small_cells(row: SmallCopies) -> Cells:
    ends = ("host", end_name(row.device))
    source, destination = ends if row.direction == "h2d" else ends[::-1]
    return {
        "group": "small",
        "case": f"{row.way} of {row.copies}",
        "engine": "ce",
        "from": source,
        "to": destination,
        "issued_by": row.device,
        "side": row.direction,
        "nbytes": row.nbytes,
        "n": len(row.seconds),
        "verified": row.verified.value,
        **_rate_cells(row.rate),
        **{f"caller_{name}": cell for name, cell in _rate_cells(row.caller_rate).items() if name != "missing"},
    }


def _readable(cells: Cells) -> tuple[Cell, ...]:
    gbps, caller, alone, peak, nbytes = (
        cells.get(name) for name in ("gbps", "caller_gbps", "of_alone", "of_peak", "nbytes")
    )
    notes = "; ".join(str(cells[name]) for name in ("missing", "remarks") if cells.get(name))
    return (
        *(cells.get(name) for name in ("group", "case", "engine")),
        cells.get("from") or "total",
        *(cells.get(name) for name in ("to", "beside")),
        format_size(nbytes) if isinstance(nbytes, int) else None,
        format_gbps(gbps) if isinstance(gbps, float) else None,
        format_gbps(caller) if isinstance(caller, float) else None,
        format_percent(alone) if isinstance(alone, float) else None,
        format_percent(peak) if isinstance(peak, float) else None,
        notes,
    )


def _readable_latency(row: Latency) -> tuple[Cell, ...]:
    p50, p99 = row.p50.value, row.p99.value
    return (
        end_name(row.target),
        end_name(row.device),
        format_size(row.footprint_bytes),
        format_percent(row.load),
        None if p50 is None else f"{p50.ns:.0f} ns",
        None if p99 is None else f"{p99.ns:.0f} ns",
        "; ".join([*([row.p50.reason] if row.p50.reason else []), *map(_remark, row.remarks)]),
    )


def _remark(remark: Remark) -> str:
    return f"{remark.text} ({remark.fix})" if remark.fix else remark.text
