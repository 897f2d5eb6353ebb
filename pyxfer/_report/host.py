"""The pages of a machine: the card of `pyxfer`, and those of `pyxfer info` and `pyxfer list`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len, set_cell_size

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._document.tunings import RingState
from pyxfer._report import rates as sections
from pyxfer._report.layout import Column, Page, to_table
from pyxfer._report.notes import gather
from pyxfer._report.rates import peak_lines
from pyxfer._report.text import (
    Lines,
    clean,
    device_text,
    environment_lines,
    fact_text,
    link_state_text,
    link_text,
    memory_text,
    remark_text,
    yes_no,
)
from pyxfer._report.tune import ring_lines


def print_machine(
    devices: Sequence[machines.Device],
    links: Sequence[machines.Link],
    placements: Sequence[machines.Placement],
    rings: Sequence[RingState],
    environment: machines.Environment,
    page: Page,
) -> None:
    for device, link, placement, ring in zip(devices, links, placements, rings, strict=True):
        page.line(device_text(device), style="bold")
        page.hanging(_indented(_device_lines(device)))
        page.section(f"Link: {link_text(link)}", _indented(_link_lines(link, device)))
        page.section("Placement", _indented(_placement_lines(placement)))
        page.section("Ring for staging pageable memory", _indented(ring_lines(ring)))
        page.line()
    page.line("Environment", style="bold")
    page.hanging(_indented(environment_lines(environment)))


def _indented(lines: Lines) -> Lines:
    return [(f"  {name}", text) for name, text in lines]


def _device_lines(device: machines.Device) -> Lines:
    memory = [("memory", memory_text(device.memory_bytes))]
    if device.runtime == "host":
        return [("name", clean(device.name)), *memory]
    return [
        ("name", clean(device.name)),
        *memory,
        ("UUID", fact_text(device.uuid)),
        ("PCI address", fact_text(device.pci)),
        ("compute capability", fact_text(device.compute_capability)),
        ("copy engines", fact_text(device.copy_engines)),
        ("MIG instance", fact_text(device.mig, yes_no)),
        ("vGPU", fact_text(device.vgpu, yes_no)),
        ("confidential computing", fact_text(device.confidential, yes_no)),
    ]


def _link_lines(link: machines.Link, device: machines.Device) -> Lines:
    if device.runtime == "host":
        return [("peaks", "none: nothing crosses a link")]
    peaks = [(f"{name} peak", text) for name, text in peak_lines(link)]
    return [
        ("now", fact_text(link.now, link_state_text)),
        ("under load", fact_text(link.under_load, link_state_text)),
        ("device at most", fact_text(link.device_most, link_state_text)),
        ("device in this slot", fact_text(link.system_most, link_state_text)),
        ("MaxPayload", fact_text(link.max_payload_bytes, units.format_size)),
        ("MaxReadReq", fact_text(link.max_read_request_bytes, units.format_size)),
        ("relaxed ordering", fact_text(link.relaxed_ordering, yes_no)),
        *((f"hop {clean(hop.pci)}", _hop_text(hop)) for hop in link.hops),
        ("narrowest hop", fact_text(link.narrowest_hop, lambda hop: hop.pci)),
        *peaks,
        *(("remark", remark_text(remark)) for remark in link.remarks),
    ]


def _hop_text(hop: machines.Hop) -> str:
    return f"now {fact_text(hop.now, link_state_text)}, at most {fact_text(hop.most, link_state_text)}"


def _placement_lines(placement: machines.Placement) -> Lines:
    return [
        ("NUMA node of the device", fact_text(placement.device_node)),
        ("CPUs for measuring", fact_text(placement.cpus)),
        ("memory from node", fact_text(placement.memory_node)),
    ]


# Below this share of the ceiling the card suggests comparing kinds of memory.
_PAGEABLE_IS_SLOW = 0.8

_Row = tuple[str, dict[str, runs.Measurement]]


def print_host_card(run: runs.Run, page: Page) -> None:
    page.hanging(sections.heading_lines(run), style="bold")
    if sections.ending_text(run):
        page.line()
        page.line(sections.ending_text(run), style="bold red")
    rows = _rows(run)
    shown = tuple({id(m): m for _, measurements in rows for m in measurements.values()}.values())
    marks, notes = gather(msgspec.structs.replace(run, measurements=shown))
    if rows and sections.has_times(run):
        page.line()
        page.show(to_table(_columns(run, rows, dict(zip(map(id, shown), marks, strict=True))), gap=2))
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    page.section("Remarks", sections.remark_lines(run))
    page.heading("Try next")
    for command, why in suggestions(run):
        page.line(f"  {command}", style="bold")
        page.line(f"    {why}")


def suggestions(run: runs.Run) -> list[tuple[str, str]]:
    found = []
    if run.runtime == "host":
        found.append(("pyxfer list", "why no GPU is used here"))
    if run.link.remarks:
        found.append(("pyxfer info", "every part of the link, and the one that limits it"))
    share = _pageable_share(run)
    if share is not None and share < _PAGEABLE_IS_SLOW:
        reaches = f"pageable memory reaches {units.format_percent(share)} of the ceiling; shows when pinning pays"
        found.append(("pyxfer ceiling --memories pageable,pinned,registered", reaches))
    if any(remark.fix and "budget" in remark.fix for m in run.measurements for remark in m.remarks):
        found.append(("pyxfer ceiling --budget 60s", "steadier values from more rounds"))
    found.append(("pyxfer ceiling --export-json run.json", "all sizes from 4 KiB to 256 MiB, saved to a file"))
    return found


def _rows(run: runs.Run) -> list[_Row]:
    sizes = sorted({m.nbytes for m in run.measurements})
    if not sizes:
        return []
    large, small = units.format_size(sizes[-1]), units.format_size(sizes[0])
    rows = [
        (f"ceiling at {large}", _best(run, sizes[-1])),
        (f"pageable at {large}", _best(run, sizes[-1], "pageable")),
    ]
    if len(sizes) > 1:
        rows.append((f"ceiling at {small}", _best(run, sizes[0])))
    return [row for row in rows if row[1]]


def _best(run: runs.Run, nbytes: int, memory: str | None = None) -> dict[str, runs.Measurement]:
    """The fastest row of each direction at a size; both ways, by the sum of the sides."""
    best: dict[str, runs.Measurement] = {}
    for m in run.measurements:
        counts = m.nbytes == nbytes and m.variant == "warm" and (m.direction != "both" or m.side == "sum")
        if counts and memory in (None, m.memory) and (m.gbps or 0.0) >= _gbps(best.get(m.direction)):
            best[m.direction] = m
    return best


def _gbps(measurement: runs.Measurement | None) -> float:
    return 0.0 if measurement is None else measurement.gbps or 0.0


def _columns(run: runs.Run, rows: Sequence[_Row], marks: dict[int, str]) -> list[Column]:
    """A column per direction, with a share below each measured rate."""
    names = _names(run, rows)
    columns = [Column(("GB/s (1 GB = 1e9 bytes)",), tuple(names), left=True)]
    for direction in run.parameters.directions:
        cells = [(cell, "") for cell in _peak_cells(run, direction)]
        for name, measurements in rows:
            measurement = measurements.get(direction)
            cells.append((_rate_cell(measurement), marks.get(id(measurement), "")))
            if _share_name(run, name) is not None:
                cells.append((_share_cell(measurement, name), ""))
        columns.append(Column((direction,), tuple(cell for cell, _ in cells), tuple(mark for _, mark in cells)))
    return columns


def _names(run: runs.Run, rows: Sequence[_Row]) -> list[str]:
    names = ["raw peak", "protocol peak"] if _has_peaks(run) else []
    for name, _ in rows:
        share = _share_name(run, name)
        names += [name] if share is None else [name, f"  {share}"]
    return names


def _share_name(run: runs.Run, name: str) -> str | None:
    if name.startswith("pageable"):
        return "of the ceiling"
    return "of the protocol peak" if _has_peaks(run) else None


def _has_peaks(run: runs.Run) -> bool:
    return run.link.raw_peak_gbps.value is not None


def _peak_cells(run: runs.Run, direction: runs.Direction) -> list[str]:
    if not _has_peaks(run):
        return []
    raw = run.link.raw_peak_gbps.value
    sides: machines.Side = "sum" if direction == "both" else direction
    doubled = None if raw is None else raw * (2 if direction == "both" else 1)
    return [_number(doubled), _number(run.link.peak_gbps(sides).value)]


def _rate_cell(measurement: runs.Measurement | None) -> str:
    return "" if measurement is None else _number(measurement.gbps)


def _share_cell(measurement: runs.Measurement | None, name: str) -> str:
    if measurement is None:
        return ""
    share = measurement.of_ceiling if name.startswith("pageable") else measurement.of_peak
    return "-" if share is None else f"{share * 100:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _pageable_share(run: runs.Run) -> float | None:
    sizes = [m.nbytes for m in run.measurements]
    shares = [m.of_ceiling for m in _best(run, max(sizes, default=0), "pageable").values() if m.of_ceiling is not None]
    return min(shares, default=None)


# --- routes ----------------------------------------------------------------------------------------------------------

_LONGEST_NAME = 40
_LONGEST_WORD = 14


def print_routes(devices: Sequence[machines.Device], routes: Sequence[RouteStatus], page: Page) -> None:
    page.line("Devices", style="bold")
    page.hanging([(f"  {_selector(device)}", _device_line(device)) for device in devices])
    page.heading("Routes")
    page.hanging([(f"  {clean(route.name)}", _route_line(route)) for route in routes])
    page.heading("Modes")
    page.hanging([(f"  {clean(mode)}", state) for mode, state in mode_states(routes).items()])


def print_framework_routes(groups: Sequence[FrameworkStatus], page: Page) -> None:
    page.line("> marks the usual call")
    rows = [_cells(route) for group in groups for route in group.routes]
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    for group in groups:
        page.heading(_framework_heading(group))
        for route in group.routes:
            padded = [set_cell_size(cell, width) for cell, width in zip(_cells(route), widths, strict=True)]
            page.line("  ".join(padded).rstrip())
            lines = [clean(route.call)]
            # The heading has the reason that applies to the whole framework.
            if route.reason != group.reason:
                lines.append(_state(route))
            page.hanging([("   ", line) for line in lines])


def mode_states(routes: Sequence[RouteStatus]) -> dict[str, str]:
    """A mode is available if one of its routes is; else it has the reason of its first route."""
    states: dict[str, str] = {}
    for route in routes:
        if route.available or route.mode not in states:
            states[route.mode] = _state(route)
    return states


def _selector(device: machines.Device) -> str:
    return "host" if device.runtime == "host" else str(device.index)


def _device_line(device: machines.Device) -> str:
    words = f"{device_text(device)}, {memory_text(device.memory_bytes)}"
    return words if device.uuid.value is None else f"{words}, {clean(device.uuid.value)}"


def _framework_heading(group: FrameworkStatus) -> str:
    title, version = clean(group.title), clean(group.version or "")
    name = f"{title} {version}".rstrip()
    reason = clean(group.reason)
    for prefix in (f"{name} ", f"{title} "):
        reason = reason.removeprefix(prefix)
    return f"{name}: {reason.removeprefix('is ') or 'available'}"


def _cells(route: RouteStatus) -> tuple[str, ...]:
    copies = f"host copies {route.host_copies}"
    name, memory = clean(route.name, longest=_LONGEST_NAME), clean(route.memory, longest=_LONGEST_WORD)
    directions = clean(", ".join(route.direction), longest=_LONGEST_WORD)
    name = f"{'>' if route.usual else ' '} {name}"
    return name, directions, memory, copies, f"returns {clean(route.returns, longest=_LONGEST_WORD)}"


def _route_line(route: RouteStatus) -> str:
    return f"{', '.join(route.direction)}: {_state(route)}" if route.available else _state(route)


def _state(route: RouteStatus) -> str:
    return "available" if route.available else f"not available: {clean(route.reason)}"
