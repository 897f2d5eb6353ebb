"""The pages of `pyxfer compare`, `history` and `baseline`; a comparison as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from xml.etree import ElementTree

from pyxfer import units
from pyxfer._document import wording
from pyxfer._document.baselines import (
    Baseline,
    CellComparison,
    Comparison,
    Difference,
    History,
    HistoryChange,
    HistoryGroup,
    HistoryPoint,
    KeptBaseline,
)
from pyxfer._document.links import LOAD_BYTES
from pyxfer._document.runs import Fact
from pyxfer._document.wording import (
    NANO,
    cause_text,
    doubts,
    headline,
    interval_text,
    is_latency,
    left_out,
    nanoseconds_text,
    overall_text,
    shown,
    signed_change,
)
from pyxfer._report.layout import Column, Page, fitting_table, rate_cells
from pyxfer._report.text import HOST_MEMORY, clean, escaped, fact_text, remark_text, sentence, yes_no

_STYLES = {"SLOW": "bold red", "FAST": "bold green", "SAME": "bold green", "AMBIGUOUS": "bold yellow"}
_MOST_DOUBTS = 4
_WHOLE = 2000


def print_comparison(comparison: Comparison, page: Page) -> None:
    """The whole page, with the verdict first."""
    page.line(clean(headline(comparison), longest=_WHOLE), style=_STYLES[comparison.verdict])
    page.line(f"Overall {clean(overall_text(comparison))}.")
    _differences(comparison, page)
    _cells(comparison, page)
    _causes(comparison, page)
    _notes(comparison, page)


def _differences(comparison: Comparison, page: Page) -> None:
    matter = [difference for difference in comparison.differences if difference.matters]
    others = [difference for difference in comparison.differences if not difference.matters]
    if matter:
        page.heading("Differences that may cost bandwidth")
        page.hanging(map(_difference, matter))
    if others:
        page.heading("Other differences" if matter else "Differences that cost no bandwidth")
        page.hanging(map(_difference, others))


def _difference(difference: Difference) -> tuple[str, str]:
    a, b = escaped(difference.a) or "nothing", escaped(difference.b) or "nothing"
    return f"  {clean(difference.what)}", f"{a} -> {b}"


def _cells(comparison: Comparison, page: Page) -> None:
    found, others = shown(comparison)
    rows = sorted(found, key=_order)
    a, b = _short(comparison.a, "A"), _short(comparison.b, "B")
    page.line()
    names = [f"{letter} is {clean(name)}" for letter, name in (("A", comparison.a), ("B", comparison.b))]
    if (a, b) != (comparison.a, comparison.b) and "A" in (a, b):
        page.line(f"{', '.join(names)}.")
    rates = [row for row in rows if not is_latency(row)]
    if rates:
        ends = [rate_cells([fact.value for fact in side], [""] * len(rates)) for side in _sides(rates, "gbps")]
        page.show(fitting_table(_comparison_columns(rates, (a, b), "GB/s", ends), page.columns))
    latencies = [row for row in rows if is_latency(row)]
    if latencies:
        page.heading("Latencies of one load; twice the latency is a change of -50 %")
        ends = [tuple(nanoseconds_text(fact.value) for fact in side) for side in _sides(latencies, "s")]
        page.show(fitting_table(_comparison_columns(latencies, (a, b), "ns", ends), page.columns))
    if others:
        page.line(f"{others} --export-json has all.")


def _sides(rows: Sequence[CellComparison], unit: str) -> list[list[Fact[float]]]:
    return [[getattr(row, f"{side}_{unit}") for row in rows] for side in ("a", "b")]


def _comparison_columns(
    rows: Sequence[CellComparison], names: tuple[str, str], unit: str, ends: Sequence[Sequence[str]]
) -> list[Column]:
    return [
        Column(("cell",), tuple(escaped(row.text) for row in rows), left=True),
        *(Column((name, unit), tuple(side)) for name, side in zip(names, ends, strict=True)),
        Column(("change",), tuple(signed_change(row.ratio.value) for row in rows)),
        Column(("interval",), tuple(interval_text(row) for row in rows)),
        Column(("verdict",), tuple(_verdict(row) for row in rows), left=True),
    ]


def _verdict(row: CellComparison) -> str:
    return f"{row.verdict}, confirmed" if row.confirmed else row.verdict


def _order(row: CellComparison) -> tuple[str, str, str, str, int]:
    cell = row.cell
    if cell.is_of_links:
        return "", "", "", "", 0  # as measured, because numbers of GPUs do not sort as text
    return cell.direction, cell.side, cell.memory, f"{cell.case} {cell.mode} {cell.variant}", cell.nbytes


def _short(name: str, letter: str) -> str:
    """A heading that is not wider than the figures."""
    first = clean(name).partition(" ")[0]
    return first if first in ("baseline", "now") else letter


def _causes(comparison: Comparison, page: Page) -> None:
    if not comparison.causes:
        return
    page.heading("Likely causes, the most certain first")
    for cause in comparison.causes:
        lines = [("  -", sentence(clean(cause.text))), ("", f"Seen: {clean(cause.evidence)}.")]
        if cause.fix:
            lines.append(("", f"To do: {clean(cause.fix)}."))
        page.hanging(lines)


def _notes(comparison: Comparison, page: Page) -> None:
    doubtful = doubts(comparison)
    if doubtful:
        page.heading("Undecided")
        _list(doubtful[:_MOST_DOUBTS], page)
        if len(doubtful) > _MOST_DOUBTS:
            page.line(f"  and {len(doubtful) - _MOST_DOUBTS} more; --export-json has all")
    missing = left_out(comparison)
    if missing:
        page.heading("Not compared")
        _list([f"{_first(cells)}: {why}" for why, cells in missing.items()], page)
    if comparison.remarks:
        page.heading("Remarks")
        _list([wording.remark_text(remark) for remark in comparison.remarks], page)


def _first(cells: Sequence[str]) -> str:
    rest = len(cells) - _MOST_DOUBTS
    return ", ".join(cells[:_MOST_DOUBTS]) + (f" and {rest} more" if rest > 0 else "")


def _list(lines: Sequence[str], page: Page) -> None:
    page.hanging(("  -", clean(line, longest=_WHOLE)) for line in lines)


_SUITE = "pyxfer baseline check"
# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(comparison: Comparison) -> bytes:
    """A confirmed SLOW is a failure; an undecided, unconfirmed or uncompared cell is skipped."""
    counts = {"tests": len(comparison.cells), "failures": 0, "errors": 0, "skipped": 0}
    suite = ElementTree.Element("testsuite", name=_SUITE)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(comparison):
        ElementTree.SubElement(properties, "property", name=name, value=legal(value))
    for row in comparison.cells:
        case = ElementTree.SubElement(suite, "testcase", classname=_class(row), name=legal(row.text))
        if row.confirmed:
            counts["failures"] += 1
            failure = ElementTree.SubElement(case, "failure", type="SLOW", message=legal(_message(row)))
            failure.text = legal("\n".join(map(cause_text, comparison.causes)))
        elif row.verdict in ("SLOW", "AMBIGUOUS"):
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", type=row.verdict, message=legal(_message(row)))
        ElementTree.SubElement(case, "system-out").text = legal(_figures(row))
    ElementTree.SubElement(suite, "system-out").text = legal(headline(comparison))
    return junit_document(suite, counts)


def junit_document(suite: ElementTree.Element, counts: Mapping[str, int]) -> bytes:
    """The file of one suite. `counts`: its cases by outcome."""
    whole = ElementTree.Element("testsuites", name=suite.get("name", ""))
    for element in (suite, whole):
        for key, count in counts.items():
            element.set(key, str(count))
    whole.append(suite)
    ElementTree.indent(whole)
    text: bytes = ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _properties(comparison: Comparison) -> list[tuple[str, str]]:
    differences = [(f"differs: {found.what}", f"{found.a} -> {found.b}") for found in comparison.differences]
    remarks = [(f"remark: {remark.code}", wording.remark_text(remark)) for remark in comparison.remarks]
    sides = [("a", comparison.a), ("b", comparison.b), ("tolerance", repr(comparison.tolerance))]
    return [*sides, *((legal(name), value) for name, value in (*differences, *remarks))]


def _class(row: CellComparison) -> str:
    """CI systems group test cases by the text before the last dot."""
    return legal(f"pyxfer.{row.cell.direction}.{row.cell.memory}")


def _message(row: CellComparison) -> str:
    unsure = "not confirmed: " if row.verdict == "SLOW" and not row.confirmed else ""
    return f"{unsure}{row.why}"


def _figures(row: CellComparison) -> str:
    if row.ratio.value is None:
        return row.why
    facts, unit = ((row.a_s, row.b_s), "ns") if is_latency(row) else ((row.a_gbps, row.b_gbps), "GB/s")
    factor = NANO if is_latency(row) else 1
    rates = " -> ".join("unknown" if fact.value is None else f"{fact.value * factor:.3f}" for fact in facts)
    return f"{row.verdict}: {rates} {unit}, {signed_change(row.ratio.value)} (95 % {interval_text(row)})"


def legal(text: str) -> str:
    """The text with the characters that XML cannot hold as Python escapes."""
    return _NOT_IN_XML.sub(lambda found: repr(found.group())[1:-1], text)


MOST_TABLES = 6
MOST_ROWS = 100
_STRIP = 11
# On most hosts a smaller change is noise, which must not fill the strip.
_LEAST_SCALE = 0.05
_LONGEST_HOST = 24


def print_history(history: History, page: Page) -> None:
    """All groups, after the remarks on the whole history."""
    for remark in history.remarks:
        page.line(sentence(remark_text(remark)))
    if len(history.groups) > MOST_TABLES:
        _print_lines(history.groups, page)
        return
    for group in history.groups:
        _print_group(group, page)


def _print_group(group: HistoryGroup, page: Page) -> None:
    worker = f", worker {escaped(group.worker)}" if group.worker else ""
    page.heading(f"{clean(group.cell_text)} on {escaped(group.host)}, {_device_text(group)}{worker}")
    for remark in group.remarks:
        page.line(sentence(remark_text(remark)))
    page.line(f"points: {len(group.points)}, median {_figure(group.median_gbps, group)}")
    for change in group.changes:
        page.line(f"{change_text(change, group)} since {moment_text(change.taken_at)[:16]}, run {clean(change.run_id)}")
    if not group.changes:
        page.line(without_change(group))
    points = group.points[-MOST_ROWS:]
    if len(points) < len(group.points):
        page.line(f"Only the newest {len(points)} are shown; --export-csv has all.")
    scale = _scale([point.change for point in points])
    columns = [
        Column(("time (UTC)",), tuple(moment_text(point.taken_at)[:16] for point in points), left=True),
        Column(("ns" if _is_latency(group) else "GB/s",), _figures_of(points, group)),
        Column(("95 % interval",), _intervals(points, group)),
        Column(("to median",), tuple(_change(point.change) for point in points)),
        Column((_strip_heading(scale),), tuple(_strip(point.change, scale) for point in points), left=True),
        Column(("run",), tuple(clean(point.run_id) for point in points), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def _is_latency(group: HistoryGroup) -> bool:
    return group.cell.direction == "latency"


def _figure(gbps: float, group: HistoryGroup | None) -> str:
    """`55.01 GB/s`, or of a latency `1180.2 ns`."""
    if group is not None and _is_latency(group):
        return wording.format_latency(LOAD_BYTES / gbps / NANO)
    return units.format_gbps(gbps)


def _figures_of(points: Sequence[HistoryPoint], group: HistoryGroup) -> tuple[str, ...]:
    if _is_latency(group):
        return tuple(nanoseconds_text(point.median_s) for point in points)
    return rate_cells([point.gbps for point in points], [""] * len(points))


def change_text(change: HistoryChange, group: HistoryGroup | None = None) -> str:
    """`3.0 % slower, 53.36 GB/s instead of 55.01 GB/s`; of a latency, whose `group` tells it, in nanoseconds."""
    word = "slower" if change.share < 0 else "faster"
    rates = f"{_figure(change.after_gbps, group)} instead of {_figure(change.before_gbps, group)}"
    return f"{units.format_percent(abs(change.share))} {word}, {rates}"


def group_text(group: HistoryGroup) -> str:
    """The last change of a history, or that it has none."""
    name = f"{clean(group.cell_text)} on {escaped(group.host)}"
    if not group.changes:
        return f"{name}: {without_change(group)}, median {_figure(group.median_gbps, group)}"
    last, count = group.changes[-1], len(group.changes)
    which = f"{count} changes, the last " if count > 1 else ""
    return f"{name}: {which}{change_text(last, group)} since {moment_text(last.taken_at)[:16]}"


def without_change(group: HistoryGroup) -> str:
    """That a history drifts, has no change, or why none could be found."""
    count = "1 run" if len(group.points) == 1 else f"{len(group.points)} runs"
    if group.drift is not None:
        word = "slower" if group.drift < 0 else "faster"
        return f"a drift, no step: {units.format_percent(abs(group.drift))} {word} over {count}"
    limit = group.limit.value
    if limit is None:
        return f"whether it changed is not known from {count}: {clean(group.limit.reason or '')}"
    loss = f"a loss of {units.format_percent(limit.loss)} for {limit.runs} runs or longer"
    return f"no change in {count}; {loss} would have been found"


def _device_text(group: HistoryGroup) -> str:
    if group.runtime == "host":
        return HOST_MEMORY
    gpu = group.gpu.value
    return escaped(group.device if gpu is None or ", " in gpu else gpu)


def _print_lines(groups: Sequence[HistoryGroup], page: Page) -> None:
    """The newest point of each group beside the group's median, the largest loss first."""
    ordered = sorted(groups, key=lambda group: group.points[-1].change)
    newest = [group.points[-1] for group in ordered]
    scale = _scale([point.change for point in newest])
    texts = {group.cell_text for group in groups}
    of_cell = f" of {clean(groups[0].cell_text)}" if len(texts) == 1 else ""
    page.heading(f"Newest of {len(groups)} histories{of_cell} and its change to their median; --host shows one")
    columns = [
        Column(("host",), tuple(escaped(group.host, _LONGEST_HOST) for group in ordered), left=True),
        Column(("GPU",), tuple(gpu_text(group) for group in ordered), left=True),
        *(_cell_column(ordered) if len(texts) > 1 else []),
        Column(("points",), tuple(str(len(group.points)) for group in ordered)),
        Column(("GB/s",), rate_cells([point.gbps for point in newest], [""] * len(newest))),
        Column(("to median",), tuple(_change(point.change) for point in newest)),
        Column((_strip_heading(scale),), tuple(_strip(point.change, scale) for point in newest), left=True),
    ]
    page.show(fitting_table(columns, page.columns))


def _cell_column(groups: Sequence[HistoryGroup]) -> list[Column]:
    return [Column(("cell",), tuple(clean(group.cell_text) for group in groups), left=True)]


def _intervals(points: Sequence[HistoryPoint], group: HistoryGroup) -> tuple[str, ...]:
    missing = [""] * len(points)
    if _is_latency(group):
        ends = [(point.high_gbps, point.low_gbps) for point in points]
        return tuple(f"{LOAD_BYTES / high:.1f} to {LOAD_BYTES / low:.1f}" if low and high else "" for high, low in ends)
    lows = rate_cells([point.low_gbps for point in points], missing)
    highs = rate_cells([point.high_gbps for point in points], missing)
    return tuple(f"{low} to {high}" if low and high else "" for low, high in zip(lows, highs, strict=True))


def _change(change: float) -> str:
    return f"{(change - 1) * 100:+.1f} %"


def _scale(changes: Sequence[float]) -> float:
    """The change at the ends of the strip: the largest of these, rounded up to 5 %, at most 100 %."""
    furthest = max((abs(change - 1) for change in changes), default=0.0)
    steps = max(1, -(-furthest // _LEAST_SCALE))
    return min(steps * _LEAST_SCALE, 1.0)


def _strip(change: float, scale: float) -> str:
    """A star between both ends, left of the middle for a loss."""
    middle = _STRIP // 2
    place = middle + round(max(-1.0, min((change - 1) / scale, 1.0)) * middle)
    return "".join("*" if at == place else "|" if at == middle else "." for at in range(_STRIP))


def _strip_heading(scale: float) -> str:
    end = f"{scale * 100:.0f} %"
    return f"-{end}".ljust(_STRIP - len(end) - 1) + f"+{end}"


_LONGEST_NAME, _GPU_CHARACTERS = 20, 12


@dataclass(frozen=True)
class CellLine:
    """A cell and its bandwidth in each process that measured it."""

    text: str
    gbps: tuple[float, ...]


def print_baselines(kept: Sequence[KeptBaseline], shown: str, page: Page) -> None:
    """One line for each name on each machine."""
    page.line(f"Baselines in {clean(shown)}: {len(kept)}", style="bold")
    columns = {
        "name": [escaped(baseline.name, _LONGEST_NAME) for baseline in kept],
        "host": [escaped(baseline.fingerprint.host, _LONGEST_HOST) for baseline in kept],
        "GPU": [gpu_text(baseline.fingerprint) for baseline in kept],
        "made (UTC)": [moment_text(baseline.made_at)[:16] for baseline in kept],
        "runs": [str(len(baseline.run_ids)) for baseline in kept],
        "id": [baseline.id for baseline in kept],
    }
    left = {"name", "host", "GPU", "made (UTC)", "id"}
    made = [Column((name,), tuple(cells), left=name in left) for name, cells in columns.items()]
    page.show(fitting_table(made, page.columns))


def print_baseline(baseline: Baseline, lines: Sequence[CellLine], page: Page, kept: KeptBaseline | None = None) -> None:
    """The machine, the processes and the cells, with the ids of the store if `kept` has them."""
    page.line(f"{escaped(baseline.name)}: {escaped(baseline.fingerprint.host)}", style="bold")
    page.hanging(
        [
            *([("baseline", _id_text(kept))] if kept else []),
            ("made", moment_text(baseline.made_at)),
            *_machine_lines(baseline),
        ]
    )
    if baseline.labels:
        page.heading("Labels")
        page.hanging([(escaped(name, 40), escaped(value)) for name, value in sorted(baseline.labels.items())])
    page.heading("Processes")
    taken = [moment_text(run.environment.taken_at) for run in baseline.processes]
    names = kept.run_ids if kept else [str(number) for number in range(1, len(taken) + 1)]
    page.hanging(list(zip(names, taken, strict=False)))
    if lines:
        page.heading("GB/s of the median, the slowest and the fastest process")
        page.show(fitting_table(_cell_columns(lines), page.columns))


def moment_text(moment: str) -> str:
    """`2025-11-21 08:30:00`, in UTC as in documents."""
    return escaped(moment.replace("T", " ").removesuffix("+00:00").partition(".")[0], 32)


class Machine(Protocol):
    """The device of a host, as fingerprints and histories have it."""

    @property
    def runtime(self) -> str:
        """`cuda` or `host`."""

    @property
    def device(self) -> str:
        """The name of the device."""

    @property
    def gpu(self) -> Fact[str]:
        """The UUID of the GPU."""


def gpu_text(machine: Machine) -> str:
    """The end of the GPU's UUID, which identifies it in a narrow column; of several GPUs their number."""
    if machine.runtime == "host":
        return "host memory"
    if machine.gpu.value is not None and ", " in machine.gpu.value:
        return f"{machine.gpu.value.count(', ') + 1} GPUs"
    if machine.gpu.value is None:
        return escaped(machine.device, _GPU_CHARACTERS + 3)
    uuid = escaped(machine.gpu.value)
    return uuid if len(uuid) <= _GPU_CHARACTERS else f"...{uuid[-_GPU_CHARACTERS:]}"


def _id_text(kept: KeptBaseline) -> str:
    earlier = f", earlier ones of this name: {kept.earlier}" if kept.earlier else ""
    return f"{kept.id}{earlier}"


def _machine_lines(baseline: Baseline) -> list[tuple[str, str]]:
    one = baseline.fingerprint
    if one.runtime == "host":
        return [("device", HOST_MEMORY), ("CPU", fact_text(one.cpu))]
    return [
        ("device", clean(one.device)),
        ("GPU", fact_text(one.gpu)),
        ("link", fact_text(one.link_now) if one.link_kind == "pcie" else clean(one.link_kind)),
        ("CPU", fact_text(one.cpu)),
        ("MIG", fact_text(one.mig, yes_no)),
        ("confidential", fact_text(one.confidential, yes_no)),
        ("virtual", fact_text(one.virtual_machine)),
        ("driver", fact_text(one.driver_major)),
        ("CUDA", fact_text(one.runtime_major)),
    ]


def _cell_columns(lines: Sequence[CellLine]) -> list[Column]:
    middle = [sorted(line.gbps)[len(line.gbps) // 2] for line in lines]
    rates = {
        ("median",): middle,
        ("slowest",): [min(line.gbps) for line in lines],
        ("fastest",): [max(line.gbps) for line in lines],
    }
    missing = [""] * len(lines)
    return [
        Column(("cell",), tuple(clean(line.text) for line in lines), left=True),
        *(Column(heading, rate_cells(values, missing)) for heading, values in rates.items()),
        Column(("processes",), tuple(str(len(line.gbps)) for line in lines)),
    ]
