"""Runs of links: the page with a sentence, tables with shares, and what limits what; one table of all figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyxfer._doctor.links import link_findings
from pyxfer._document import links as documents
from pyxfer._document.examinations import Finding, Status
from pyxfer._document.links import HOST_END, Links, Traffic, end_name
from pyxfer._document.machines import HOST_MEMORY, Fact
from pyxfer._document.remark_codes import severity_of
from pyxfer._document.runs import Rate
from pyxfer._report import link_words
from pyxfer._report.grid import Column as GridColumn
from pyxfer._report.grid import Grid, fields, picked
from pyxfer._report.layout import NONE, Column, Page, fitting_table, spread
from pyxfer._report.link_charts import charts_of_links
from pyxfer._report.overview import BADGES, OF_LINK, STYLES, Answer, footer, on_the_point
from pyxfer._report.report import INTERVALS, Badge, Caption, Report, Section
from pyxfer._report.text import Lines, clean, counted, fact_text, link_text, remark_text, sentence
from pyxfer.units import format_gbps, format_percent, format_seconds, format_size


def print_links(run: Links, page: Page) -> None:
    if not page.details:
        print_link_overview(run, page)
        return
    style = "yellow" if run.ended != "complete" else "bold" if run.runtime == "host" else "bold green"
    page.line(link_words.sentence(run), style=style)
    if run.runtime == "host":
        page.line(f"These figures are of {HOST_MEMORY}.")
    page.line()
    page.hanging(heading_lines(run), style="bold")
    rows = _rows(run)
    for group, (heading, names) in _TABLES.items():
        own = [row for row in rows if row["group"] == group]
        picked(heading, _COLUMNS, names.split(), own).print_on(page)
    for name, lines in _sections(run):
        page.section(name, lines)


def heading_lines(run: Links) -> Lines:
    lines: Lines = []
    for each in run.devices:
        name = HOST_MEMORY if each.device.runtime == "host" else clean(each.device.name)
        words = [name, *([link_text(each.link)] if run.runtime == "cuda" else [])]
        if each.nvlink_gbps.value is not None:
            words.append(f"{each.nvlinks.value} NVLinks, {each.nvlink_gbps.value:.0f} GB/s each way")
        lines.append((f"GPU {each.device.index}", ", ".join(words)))
    host, taken_at, version = map(clean, (run.environment.host, run.environment.taken_at, run.environment.pyxfer))
    ended = "" if run.ended == "complete" else f", {run.ended} before its end"
    lines += [("host", f"{host}, {taken_at}, pyxfer {version}"), ("took", f"{format_seconds(run.duration_s)}{ended}")]
    return [*lines, ("failure", clean(run.failure))] if run.failure else lines


MATRIX_FROM = 4
"""Fewer GPUs have a line a pair instead of a matrix."""


def answer(run: Links) -> Answer:
    bad = _bad(run)
    status: Status = "unknown"
    if run.ended != "complete":
        verdict = f"the run was {run.ended} before its end"
    elif bad:
        worst = bad[0]
        status, verdict = worst.status, f"{clean(worst.subject)}: {clean(worst.seen, 300)}"
        verdict += f" ({len(bad) - 1} more below)" if len(bad) > 1 else ""
    elif run.runtime == "host":
        verdict = "these figures say nothing of a GPU"
    elif any(finding.status == "fine" and finding.code == "ceiling" for finding in link_findings(run)):
        status, verdict = "fine", f"{'the link is' if len(run.devices) == 1 else 'the links are'} fine"
    else:
        verdict = ""
    said = f"{_place_text(run)}: {verdict}" if verdict else _place_text(run)
    return Answer(status, f"{sentence(said)} {link_words.sentence(run)}")


_OF_LINKS = OF_LINK | {"links-contents", "shared-uplink", "together", "slow-link", "no-nvlink", "another-way"}


def _bad(run: Links) -> list[Finding]:
    found = [finding for finding in link_findings(run) if finding.code in _OF_LINKS]
    return [finding for finding in found if finding.status in ("wrong", "suspicious")]


def remedies(run: Links) -> Lines:
    subjects: dict[str, list[str]] = {}
    for finding in _bad(run):
        if finding.do:
            subjects.setdefault(finding.do, []).append(clean(finding.subject))
    return [("  -", f"{'; '.join(names)}: {sentence(clean(do, 300))}") for do, names in subjects.items()]


def _place_text(run: Links) -> str:
    """`2 x NVIDIA H200, PCIe 5.0 x16, 256 B payload`; of different GPUs only their number."""
    if run.runtime == "host":
        return HOST_MEMORY
    places = dict.fromkeys(f"{clean(each.device.name)}, {link_text(each.link)}" for each in run.devices)
    count = "" if len(run.devices) == 1 else f"{len(run.devices)} x "
    return f"{count}{next(iter(places))}" if len(places) == 1 else counted(len(run.devices), "GPU")


def print_link_overview(run: Links, page: Page) -> None:
    found = answer(run)
    page.line(clean(found.text, 2000), style=STYLES[found.status])
    if run.failure:
        page.line(sentence(clean(run.failure)), style="bold red")
    page.section("To do", remedies(run))
    _print_host(run, page)
    _print_pairs(run, page)
    page.line()
    doubtful = [each for each in link_words.remarks(run) if severity_of(each.code) in ("fault", "doubt")]
    doubts = [sentence(remark_text(each)) for each in doubtful]
    for text in [*_latency_texts(run), *_small_texts(run), *link_words.first_limits(run), *doubts]:
        page.line(text)
    page.section("Next", [("  pyxfer links --details", "all figures; --report page.html draws them")])
    page.line()
    page.line(footer(run))


def _print_host(run: Links, page: Page) -> None:
    devices = list(dict.fromkeys(row.flows[0].device for row in run.traffics if row.group == "host"))
    if not devices:
        return
    cases = {"h2d": "h2d", "d2h": "d2h", "both": "both, sum"}
    alone = {case: [link_words.host_row(run, case, device) for device in devices] for case in cases}
    together = [link_words.found(run, "together", case) for case in cases]
    rows = {f"GPU {device}": [_total(alone[case][place]) for case in cases] for place, device in enumerate(devices)}
    if any(together):
        rows[f"all {len(run.devices)} at once"] = [_total(row) for row in together]
        rows["  of the sum"] = [NONE if row is None else _share(link_words.share_of_sum(row)) for row in together]
    peaks = [[row.flows[0].peak_share.value for row in alone[side] if row is not None] for side in ("h2d", "d2h")]
    least = [min((peak for peak in found if peak is not None), default=None) for found in peaks]
    if least != [None, None]:
        rows["of peak, least"] = [*map(_share, least), ""]
    columns = [Column(("",), tuple(rows), left=True)]
    for place, head in enumerate(cases.values()):
        columns.append(Column((head,), on_the_point([row[place] for row in rows.values()])))
    page.heading("Host and GPU, GB/s (1 GB = 1e9 bytes)")
    page.show(fitting_table(columns, page.columns))


def _total(row: Traffic | None) -> str:
    return NONE if row is None else link_words.rate_text(row.total)


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value * 100:.0f} %"


def _print_pairs(run: Links, page: Page) -> None:
    ends, numbers = link_words.peer_ends(run), link_words.numbers(run)
    if ends and len(numbers) >= MATRIX_FROM:
        page.heading("GPU to GPU, read, GB/s")
        lines = [[_total(link_words.found(run, "pairs", "read", "ce", (a, b))) for a in numbers] for b in numbers]
        head = Column(("from",), tuple(f"GPU {number}" for number in numbers), left=True)
        body = [Column((f"to {b}",), on_the_point(line)) for b, line in zip(numbers, lines, strict=True)]
        for table in spread([head], body, [], page.columns):
            page.show(table)
    elif ends:
        cases = {"read": "read", "write": "write", "through-host": "through host"}
        columns: list[tuple[str, Sequence[str]]] = [("", [f"{a} to {b}" for a, b in ends])]
        for case, name in cases.items():
            cells = [_total(link_words.found(run, "pairs", case, "ce", each)) for each in ends]
            columns.append((name, on_the_point(cells)))
        page.table(columns, ("",), "GPU to GPU, GB/s")


def _latency_texts(run: Links) -> Iterator[str]:
    places: dict[str, list[float]] = {}
    for row in run.latencies:
        quick = link_words.latency_row(run.latencies, (row.device, row.target), quick=True, load=0.0)
        if row is quick and row.node is None and row.p50.value is not None:
            where = "host" if row.target == HOST_END else "its own" if row.target == row.device else "another GPU's"
            places.setdefault(where, []).append(row.p50.value.ns)
    words = []
    for where, found in places.items():
        ends = dict.fromkeys((f"{min(found):.0f}", f"{max(found):.0f}"))
        words.append(f"{' to '.join(ends)} ns from {where} memory")
    if words:
        who = "One load" if run.runtime == "host" else "One load by a GPU"
        yield f"{who} takes {', '.join(words)} (median, nothing else runs)."


def _small_texts(run: Links) -> Iterator[str]:
    first = run.devices[0].device.index
    rows = [row for row in run.small if row.device == first and row.direction == "h2d" and row.caller_gbps is not None]
    if not rows:
        return
    least = min(row.nbytes for row in rows)
    rates = {row.mode: link_words.rate_text(row.caller_rate) for row in rows if row.nbytes == least}
    if {"queue", "batch"} <= rates.keys():
        yield (
            f"Copies of {least >> 10} KiB to GPU {first}: a caller gets {rates['queue']} GB/s from one call each, "
            f"{rates['batch']} from one call for many."
        )


# --- the table -------------------------------------------------------------------------------------------------------


_COLUMNS = (
    *(GridColumn(name, heading=name) for name in ("group", "case", "engine", "source", "target")),
    GridColumn("issued_by", "whole"),
    GridColumn("side", heading="side"),
    GridColumn("beside", heading="beside"),
    GridColumn("nbytes", "whole", "size", format_size),
    GridColumn("peer_access", "flag"),
    GridColumn("node", "whole", "node"),
    GridColumn("gbps", "number", "bandwidth", format_gbps),
    *(GridColumn(name, "number") for name in ("low_gbps", "high_gbps")),
    GridColumn("caller_gbps", "number", "caller gets", format_gbps),
    *(GridColumn(name, "number") for name in ("caller_low_gbps", "caller_high_gbps")),
    GridColumn("of_alone", "number", "of alone", format_percent),
    *(GridColumn(name, "number") for name in ("of_alone_low", "of_alone_high")),
    GridColumn("of_peak", "number", "of peak", format_percent),
    GridColumn("sum_alone_gbps", "number", "sum of separate", format_gbps),
    *(GridColumn(name, "number") for name in ("slowest_gbps", "least_overlap")),
    GridColumn("n", "whole"),
    GridColumn("verified", "flag"),
    GridColumn("ns", "number", "median", "{:.0f} ns".format),
    *(GridColumn(name, "number") for name in ("low_ns", "high_ns")),
    GridColumn("p99_ns", "number", "p99", "{:.0f} ns".format),
    *(GridColumn(name, "number") for name in ("p99_low_ns", "p99_high_ns")),
    GridColumn("load", "number", "load", format_percent),
    GridColumn("load_gbps", "number", "copied beside it", format_gbps),
    GridColumn("footprint_bytes", "whole", "within", format_size),
    GridColumn("hops", "whole", "loads in a launch"),
    *(GridColumn(name, "number") for name in ("fastest_ns", "slowest_ns")),
    *(GridColumn(name, heading=name) for name in ("missing", "remarks")),
)
_COPIES = "case engine source target side gbps of_alone of_peak sum_alone_gbps"
# The tables of a page by the group of their rows, and their columns.
_TABLES = {
    "host": ("Host and each GPU, one at a time", _COPIES),
    "together": ("Host and all GPUs at once", _COPIES),
    "pairs": ("GPU to GPU", _COPIES),
    "local": ("Inside a GPU", _COPIES),
    "latency": ("Latency of dependent loads", "source target load load_gbps footprint_bytes hops ns p99_ns"),
    "numa": ("Host memory of each NUMA node", "case source target node gbps of_peak ns"),
    "small": ("Small copies, by the device's clock and for a caller", "case source target nbytes gbps caller_gbps"),
}
_Row = dict[str, Any]
_LETTERED = "A cell with a letter has no figure; the letter's line says why."


def _grids(run: Links) -> list[Grid]:
    rows = _rows(run)
    return [
        Grid("Copies", _COLUMNS, [row for row in rows if row["case"] != "latency"]),
        Grid("Latency", _COLUMNS, [row for row in rows if row["case"] == "latency"]),
    ]


def _rows(run: Links) -> list[_Row]:
    rows = [row for traffic in run.traffics for row in _traffic_rows(traffic)]
    return [*rows, *map(_latency_cells, run.latencies), *map(_small_row, run.small)]


def _traffic_rows(traffic: Traffic) -> Iterator[_Row]:
    common = {
        **fields(traffic, "group", "case", "engine", "nbytes", "peer_access", "node", "least_overlap"),
        "n": len(traffic.valid),
        "remarks": "; ".join(map(remark_text, traffic.remarks)),
    }
    for flow in traffic.flows:
        yield {**common, **_flow_cells(flow, traffic)}
    if len(traffic.flows) > 1:
        sums = fields(traffic, "sum_alone_gbps", "slowest_gbps")
        yield {**common, "side": "total", **_rate_cells(traffic.total), **sums}


def _flow_cells(flow: documents.LinkFlow, traffic: Traffic) -> _Row:
    others = [f"{end_name(each.source)} to {end_name(each.destination)}" for each in traffic.flows if each is not flow]
    share = flow.alone_share.value
    return {
        "source": end_name(flow.source),
        "target": end_name(flow.destination),
        "issued_by": flow.device,
        "beside": ", ".join(others),
        **fields(flow, "side", "verified"),
        **_rate_cells(flow.rate),
        **({"of_alone": share.value, "of_alone_low": share.low, "of_alone_high": share.high} if share else {}),
        "of_peak": flow.peak_share.value,
    }


def _rate_cells(rate: Fact[Rate], of: str = "") -> _Row:
    known = {f"{of}{name}": value for name, value in fields(rate.value, "gbps", "low_gbps", "high_gbps").items()}
    return known if rate.value is not None or of else {"missing": rate.reason}


def _latency_cells(row: documents.Latency) -> _Row:
    quantiles = {"": row.p50.value, "p99_": row.p99.value}
    names = ("ns", "low_ns", "high_ns")
    return {
        "group": "latency" if row.node is None else "numa",
        "case": "latency",
        "source": end_name(row.target),
        "target": end_name(row.device),
        "issued_by": row.device,
        **{f"{of}{name}": value for of, each in quantiles.items() for name, value in fields(each, *names).items()},
        **fields(row, "node", "load", "load_gbps", "footprint_bytes", "hops"),
        "fastest_ns": row.fastest.value and row.fastest.value.ns,
        "slowest_ns": row.slowest.value and row.slowest.value.ns,
        "n": sum(trial.invalid is None for trial in row.trials),
        "missing": row.p50.reason,
        "remarks": "; ".join(map(remark_text, row.remarks)),
    }


def _small_row(row: documents.SmallCopies) -> _Row:
    ends = ("host", end_name(row.device))
    source, destination = ends if row.direction == "h2d" else ends[::-1]
    return {
        "group": "small",
        "case": f"{row.mode} of {row.copies}",
        "engine": "ce",
        "source": source,
        "target": destination,
        "issued_by": row.device,
        "side": row.direction,
        "n": len(row.seconds),
        **fields(row, "nbytes", "verified"),
        **_rate_cells(row.rate),
        **_rate_cells(row.caller_rate, "caller_"),
    }


def _badge(run: Links) -> tuple[Badge, str]:
    flows = [flow for row in run.traffics for flow in row.flows]
    if any(fact.value is False for fact in (*(flow.verified for flow in flows), *(row.verified for row in run.small))):
        return "bad", "wrong contents"
    if run.ended != "complete":
        return ("bad" if run.ended == "failed" else "doubtful"), run.ended
    if run.runtime == "host":
        return "none", "host memory"
    return BADGES[answer(run).status]


def _sections(run: Links) -> list[Section]:
    missing = [fact_text(each.kernels_s) for each in run.devices if each.kernels_s.value is None]
    notes = [*link_words.trait_texts(run), *dict.fromkeys(f"No kernels: {text}" for text in missing)]
    notes += [sentence(remark_text(remark)) for remark in link_words.remarks(run)]
    named = {"What limits what": link_words.limits(run), "Notes": notes}
    return [(name, [("-", text) for text in texts]) for name, texts in named.items()]


REPORT = Report(
    struct=Links,
    title=lambda _: "pyxfer links",
    page=print_links,
    headline=lambda run: clean(answer(run).text, 2000),
    badge=_badge,
    heading=heading_lines,
    advice=lambda run: [(text, "") for _, text in remedies(run)],
    grids=_grids,
    sections=_sections,
    charts=charts_of_links,
    captions={
        "host": Caption(
            "Each GPU and the host",
            f"One GPU at a time. {INTERVALS} The peak is that of the link after its packet headers.",
        ),
        "interference": Caption(
            "What a GPU keeps beside another one",
            "The share of a GPU's rate alone that it keeps while the other one copies in the same direction. "
            f"{_LETTERED}",
        ),
        "pairs": Caption("GPU to GPU", f"One pair at a time, GB/s. {_LETTERED}"),
        "numa": Caption(
            "GPUs and NUMA nodes", f"One GPU at a time with page-locked memory of one node, GB/s. {_LETTERED}"
        ),
        "latency": Caption(
            "Latency of dependent loads",
            "Each load waits for the one before it. Beside it, copies run in the direction of the loaded bytes, at a "
            "share of the link's rate. A thin line is the 95 % interval of the median.",
        ),
    },
    table=lambda run, _: Grid("Links", _COLUMNS, _rows(run)),
)
