"""The first page of links: a judgement, one table for the host and one for the GPUs, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyxfer._doctor.links import link_findings
from pyxfer._document.examinations import Finding, Status
from pyxfer._document.links import HOST_END, Links, Traffic
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._document.remark_codes import severity_of
from pyxfer._report import link_words
from pyxfer._report.layout import NONE, Column, Page, fitting_table, spread
from pyxfer._report.overview import OF_LINK, STYLES, Answer, footer, on_the_point
from pyxfer._report.text import Lines, clean, counted, link_text, remark_text, sentence

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
