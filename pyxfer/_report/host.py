"""The pages of a machine: `pyxfer info` and `pyxfer list`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from pyxfer import units
from pyxfer._document import machines
from pyxfer._document.machines import describe
from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._document.tunings import RingState
from pyxfer._report.layout import Page
from pyxfer._report.rates import peak_lines
from pyxfer._report.text import (
    Lines,
    clean,
    device_text,
    environment_lines,
    fact_text,
    link_text,
    memory_text,
    remark_lines,
)
from pyxfer._report.tune import ring_lines
from pyxfer.units import yes_no


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
        page.section("Placement", _indented(_placement_lines(placement, device)))
        page.section("Ring for staging pageable memory", _indented(ring_lines(ring)))
        page.line()
    page.line("Environment", style="bold")
    page.hanging(_indented(environment_lines(environment)))


def _indented(lines: Lines) -> Lines:
    return [(f"  {name}", text) for name, text in lines]


def _device_lines(device: machines.Device) -> Lines:
    lines = [("name", clean(device.name)), ("memory", memory_text(device.memory_bytes))]
    if device.runtime == "host":
        return lines
    return [
        *lines,
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
    hops = [(f"hop {clean(hop.pci)}", f"now {_state_of(hop.now)}, at most {_state_of(hop.most)}") for hop in link.hops]
    return [
        ("now", _state_of(link.now)),
        ("under load", _state_of(link.under_load)),
        ("device at most", _state_of(link.device_most)),
        ("device in this slot", _state_of(link.system_most)),
        ("MaxPayload", fact_text(link.max_payload_bytes, units.format_size)),
        ("MaxReadReq", fact_text(link.max_read_request_bytes, units.format_size)),
        ("relaxed ordering", fact_text(link.relaxed_ordering, yes_no)),
        *hops,
        ("narrowest hop", fact_text(link.narrowest_hop, lambda hop: hop.pci)),
        *((f"{name} peak", text) for name, text in peak_lines(link)),
        *remark_lines(link.remarks, "remark"),
    ]


def _state_of(fact: machines.Fact[machines.LinkState]) -> str:
    return fact_text(fact, describe)


def _placement_lines(placement: machines.Placement, device: machines.Device) -> Lines:
    if device.runtime == "host":
        return [("CPUs for measuring", "any: no device is near one of them")]
    return [
        ("NUMA node of the device", fact_text(placement.device_node)),
        ("CPUs for measuring", fact_text(placement.cpus)),
        ("memory from node", fact_text(placement.memory_node)),
    ]


# --- routes ----------------------------------------------------------------------------------------------------------


def print_routes(devices: Sequence[machines.Device], routes: Sequence[RouteStatus], page: Page) -> None:
    lines = []
    for device in devices:
        selector = "host" if device.runtime == "host" else str(device.index)
        uuid = "" if device.uuid.value is None else f", {clean(device.uuid.value)}"
        lines.append((f"  {selector}", f"{device_text(device)}, {memory_text(device.memory_bytes)}{uuid}"))
    page.line("Devices", style="bold")
    page.hanging(lines)
    page.heading("Routes")
    ways = [f"{', '.join(route.direction)}: " if route.available else "" for route in routes]
    page.hanging([(f"  {clean(r.name)}", f"{way}{_state(r)}") for r, way in zip(routes, ways, strict=True)])
    page.heading("Modes")
    page.hanging([(f"  {clean(mode)}", state) for mode, state in mode_states(routes).items()])


def print_framework_routes(groups: Sequence[FrameworkStatus], page: Page) -> None:
    page.line("> marks the usual call")
    rows = [_cells(route) for group in groups for route in group.routes]
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    for group in groups:
        title, reason = clean(group.title), clean(group.reason)
        name = f"{title} {clean(group.version or '')}".rstrip()
        for prefix in (f"{name} ", f"{title} ", "is "):
            reason = reason.removeprefix(prefix)
        page.heading(f"{name}: {reason or 'available'}")
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


def _cells(route: RouteStatus) -> tuple[str, ...]:
    name, memory = clean(route.name, longest=40), clean(route.memory, longest=14)
    directions, returns = clean(", ".join(route.direction), longest=14), clean(route.returns, longest=14)
    mark = ">" if route.usual else " "
    return f"{mark} {name}", directions, memory, f"host copies {route.host_copies}", f"returns {returns}"


def _state(route: RouteStatus) -> str:
    return "available" if route.available else f"not available: {clean(route.reason)}"
