"""Runs of links: the page with a sentence, tables with shares, and what limits what; one table of all figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pyxfer._document import links as documents
from pyxfer._document.links import HOST_END, Links, Traffic, end_name
from pyxfer._document.machines import HOST_MEMORY, Fact
from pyxfer._document.runs import Rate
from pyxfer._report import link_words
from pyxfer._report.grid import Column as GridColumn
from pyxfer._report.grid import Grid, fields
from pyxfer._report.layout import NONE, Page
from pyxfer._report.link_charts import charts_of_links
from pyxfer._report.link_overview import MATRIX_FROM, answer, print_link_overview, print_matrix, remedies
from pyxfer._report.overview import BADGES
from pyxfer._report.report import INTERVALS, Badge, Caption, Report, Section
from pyxfer._report.text import Lines, clean, fact_text, link_text, remark_text
from pyxfer._report.text import sentence as as_sentence
from pyxfer.units import format_gbps, format_percent, format_seconds, format_size

T = TypeVar("T")


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
    _print_host(run, page)
    _print_together(run, page)
    _print_interference(run, page)
    _print_pairs(run, page)
    _print_local(run, page)
    _print_latency(run, page)
    _print_numa(run, page)
    _print_small(run, page)
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


# --- cells -----------------------------------------------------------------------------------------------------------


def _gbps(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"  # noqa: PLR2004


def _percent(value: float | None) -> str:
    return NONE if value is None else format_percent(value)


def _total(row: Traffic | None) -> str:
    return _gbps(None if row is None else row.gbps)


def _flow(row: Traffic | None, side: str) -> documents.LinkFlow | None:
    return None if row is None else next((flow for flow in row.flows if flow.side == side), None)


def _alone(flow: documents.LinkFlow | None) -> float | None:
    return None if flow is None or flow.alone_share.value is None else flow.alone_share.value.value


def _cells(found: Iterable[T | None], say: Callable[[T], str]) -> list[str]:
    return [NONE if each is None else say(each) for each in found]


# --- tables ----------------------------------------------------------------------------------------------------------


def _print_host(run: Links, page: Page) -> None:
    devices = list(dict.fromkeys(row.flows[0].device for row in run.traffics if row.group == "host"))
    columns: list[tuple[str, list[str]]] = [("", [f"GPU {device}" for device in devices])]
    for engine, name in (("ce", ""), ("sm", "kernel\n")):
        for side in ("h2d", "d2h"):
            single = [_flow(link_words.host_row(run, side, device, engine), side) for device in devices]
            columns.append((f"{name}{side}", _cells(single, lambda flow: _gbps(flow.gbps))))
            if engine == "ce":
                columns.append(("of\npeak", _cells(single, lambda flow: _percent(flow.peak_share.value))))
        both = [link_words.host_row(run, "both", device, engine) for device in devices]
        for side in ("h2d", "d2h"):
            flows = [_flow(row, side) for row in both]
            columns.append((f"{name}both,\n{side}", _cells(flows, lambda flow: _gbps(flow.gbps))))
    page.table(columns, ("",), "Host and each GPU, one at a time, GB/s (1 GB = 1e9 bytes)")


def _print_together(run: Links, page: Page) -> None:
    rows, numbers = link_words.together(run), link_words.numbers(run)
    columns = [
        ("", [link_words.case_text(row) for row in rows]),
        ("together", [_gbps(row.gbps) for row in rows]),
        ("sum of\nseparate", [_gbps(row.sum_alone_gbps.value) for row in rows]),
        ("share", [_percent(link_words.share_of_sum(row)) for row in rows]),
        ("slowest", [_gbps(row.slowest_gbps.value) for row in rows]),
        *(
            (f"GPU {number}\nkeeps", [_keeps(row, number) for row in rows])
            for number in numbers
            if len(numbers) < MATRIX_FROM
        ),
        ("least\noverlap", [NONE if row.least_overlap is None else f"{row.least_overlap:.3f}" for row in rows]),
    ]
    page.table(columns, ("",), f"Host and all {len(numbers)} GPUs at once, GB/s")


def _keeps(row: Traffic, device: int) -> str:
    shares = [_alone(flow) for flow in row.flows if flow.device == device]
    return "/".join("-" if share is None else f"{share * 100:.0f}" for share in shares) + " %" if any(shares) else NONE


def _print_interference(run: Links, page: Page) -> None:
    sharing, numbers = run.sharing, link_words.numbers(run)
    if sharing is None or len(numbers) < 3:  # noqa: PLR2004 - two are in the table above
        return
    directions: tuple[documents.HostDirection, ...] = ("h2d", "d2h")
    for direction in directions:
        shares = [[sharing.keep(own, beside, direction) for own in numbers] for beside in numbers]
        cells = [["" if share is None else f"{share * 100:.0f}" for share in line] for line in shares]
        if any(cell for line in cells for cell in line):
            page.heading(f"What a GPU keeps beside another one, {direction}, %")
            print_matrix(page, "beside", numbers, cells)


def _print_pairs(run: Links, page: Page) -> None:
    ends, numbers = link_words.peer_ends(run), link_words.numbers(run)
    if len(numbers) < MATRIX_FROM:
        _print_pair_lines(run, ends, page)
    for case in ("read", "write") if ends and len(numbers) >= MATRIX_FROM else ():
        for engine, name in (("ce", ""), ("sm", ", kernel")):
            cells = [[_total(link_words.found(run, "pairs", case, engine, (a, b))) for a in numbers] for b in numbers]
            if any(cell != NONE for line in cells for cell in line):
                page.heading(f"GPU to GPU, {case}{name}, GB/s: from the GPU of the line to that of the column")
                print_matrix(page, "from", numbers, cells)
    _print_patterns(run, page)


def _print_pair_lines(run: Links, ends: Sequence[tuple[int, int]], page: Page) -> None:
    columns: list[tuple[str, list[str]]] = [("", [f"{a} to {b}" for a, b in ends])]
    for engine, name in (("ce", ""), ("sm", "kernel\n")):
        for case in ("read", "write"):
            rows = [link_words.found(run, "pairs", case, engine, each) for each in ends]
            columns.append((f"{name}{case}", [_total(row) for row in rows]))
            if engine == "ce":
                columns.append(("of\npeak", _cells(rows, lambda row: _percent(row.flows[0].peak_share.value))))
    rows = [link_words.found(run, "pairs", "through-host", "ce", each) for each in ends]
    columns.append(("through\nhost", [_total(row) for row in rows]))
    page.table(columns, ("",), "GPU to GPU, one pair at a time, GB/s")


def _print_patterns(run: Links, page: Page) -> None:
    rows = [row for row in run.traffics if row.group == "pairs" and len(row.flows) > 1]
    if len(run.devices) >= MATRIX_FROM:  # every pair both ways would be a line
        rows = [row for row in rows if not row.case.startswith("both")]
    least = [min((share for flow in row.flows if (share := _alone(flow)) is not None), default=None) for row in rows]
    columns = [
        ("", [_pattern_name(row) for row in rows]),
        ("together", [_gbps(row.gbps) for row in rows]),
        ("sum of\nseparate", [_gbps(row.sum_alone_gbps.value) for row in rows]),
        ("slowest", [_gbps(row.slowest_gbps.value) for row in rows]),
        ("least\nkept", [_percent(share) for share in least]),
    ]
    page.table(columns, ("",), "Several GPUs to each other at once, GB/s")


def _pattern_name(row: Traffic) -> str:
    name, first = link_words.case_text(row), row.flows[0]
    if row.case.startswith("both"):
        return f"{first.source} and {first.destination}, both ways, {name.removeprefix('both-')}"
    place = f", to {first.destination}" if row.case.startswith("all-to-one") else ""
    place = f", from {first.source}" if row.case.startswith("one-to-all") else place
    kernel = ", kernel" * (row.engine == "sm")
    return f"{name.removesuffix(kernel)}{place}{kernel}"


def _print_local(run: Links, page: Page) -> None:
    numbers = list(dict.fromkeys(row.flows[0].device for row in run.traffics if row.group == "local"))
    copied, by_kernel = (
        [link_words.found(run, "local", "copy", engine, (n, n)) for n in numbers] for engine in ("ce", "sm")
    )
    columns = [
        ("", [f"GPU {number}" for number in numbers]),
        ("copied", [_total(row) for row in copied]),
        ("read plus\nwritten", [_gbps(None if row is None or row.gbps is None else 2 * row.gbps) for row in copied]),
        ("kernel\ncopied", [_total(row) for row in by_kernel]),
    ]
    page.table(columns, ("",), "Inside a GPU, GB/s")


def _print_latency(run: Links, page: Page) -> None:
    rows = [row for row in run.latencies if row.node is None]
    pairs = list(dict.fromkeys((row.device, row.target) for row in rows))

    def cells(large: bool | None, quick: bool | None, load: float, part: str = "p50") -> list[str]:
        return [_ns(link_words.latency_row(rows, pair, large, quick, load), part) for pair in pairs]

    names = [f"GPU {device} from {'itself' if target == device else _place(target)}" for device, target in pairs]
    columns = [
        ("", names),
        ("near", cells(False, False, 0.0)),
        ("far", cells(True, False, 0.0)),
        ("idle\np50", cells(False, True, 0.0)),
        ("\np99", cells(False, True, 0.0, "p99")),
        ("50 %\np50", cells(False, True, 0.5)),
        ("load\np99", cells(False, True, 0.5, "p99")),
        ("100 %\np50", cells(False, True, 1.0)),
        ("load\np99", cells(False, True, 1.0, "p99")),
    ]
    page.table(columns, ("",), "Latency of dependent loads, ns")
    if pairs:
        _explain_latency(rows, page)


def _explain_latency(rows: Sequence[documents.Latency], page: Page) -> None:
    measured = [row for row in rows if row.ns is not None]
    if measured:
        small, large = (pick(row.footprint_bytes for row in measured) for pick in (min, max))
        hops = min(row.hops for row in measured)
        page.line(
            f"near: within {format_size(small)}; far: as many lines within up to {format_size(large)} "
            f"(reach of the TLB); under load: means of {hops} loads."
        )
    for row in rows:
        if row.fastest.value is not None and row.slowest.value is not None:
            fastest, slowest = row.fastest.value.ns, row.slowest.value.ns
            page.line(
                f"GPU {row.device} from {_place(row.target)}: {fastest:.0f} ns on the fastest multiprocessor, "
                f"{slowest:.0f} ns on the slowest of {len(row.multiprocessor_ns)}."
            )


def _place(target: int) -> str:
    return "the host" if target == HOST_END else f"GPU {target}"


def _ns(row: documents.Latency | None, part: str) -> str:
    fact: Fact[documents.Chased] | None = None if row is None else row.p50 if part == "p50" else row.p99
    return NONE if fact is None or fact.value is None else f"{fact.value.ns:.0f}"


def _print_numa(run: Links, page: Page) -> None:
    rows = [row for row in run.traffics if row.group == "numa"]
    places = sorted({(row.flows[0].device, row.node) for row in rows if row.node is not None})
    near = {each.device.index: each.node.value for each in run.devices}

    def cells(case: str) -> list[str]:
        return [
            next((_total(row) for row in rows if (row.flows[0].device, row.node, row.case) == (*place, case)), NONE)
            for place in places
        ]

    def latency(place: tuple[int, int]) -> str:
        return next((_ns(row, "p50") for row in run.latencies if (row.device, row.node) == place), NONE)

    names = [f"GPU {device}, node {node}{' (near)' if near.get(device) == node else ''}" for device, node in places]
    columns = [("", names), ("h2d", cells("h2d")), ("d2h", cells("d2h")), ("ns", [latency(p) for p in places])]
    page.table(columns, ("",), "Host memory of each NUMA node, GB/s and ns")


def _print_small(run: Links, page: Page) -> None:
    keys = list(dict.fromkeys((row.device, row.nbytes) for row in run.small))

    def cells(direction: str, way: str, *, caller: bool) -> list[str]:
        known = {
            (row.device, row.nbytes): row.caller_gbps if caller else row.gbps
            for row in run.small
            if (row.direction, row.mode) == (direction, way)
        }
        return [_gbps(known.get(key)) for key in keys]

    names = [f"GPU {device}, {format_size(nbytes)}" for device, nbytes in keys]
    for caller, heading in (
        (True, "Small copies, GB/s that a caller gets: a queue of calls, or one call for a batch"),
        (False, "Small copies by the device's clock, GB/s: all called before the first begins"),
    ):
        columns = [(f"{d}\n{way}", cells(d, way, caller=caller)) for d in ("h2d", "d2h") for way in ("queue", "batch")]
        page.table([("", names), *columns], ("",), heading)
        if caller and any(row.caller_gbps is not None for row in run.small):
            page.line("A caller's time is from the first call to the end of the last copy, with nothing queued before.")


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
    notes += [as_sentence(remark_text(remark)) for remark in link_words.remarks(run)]
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
            "Each load waits for the one before it. Under load, copies run in the direction of the loaded bytes; "
            "quantiles are of means of few loads. A thin line is the 95 % interval.",
        ),
    },
    table=lambda run, _: Grid("Links", _COLUMNS, _rows(run)),
)
