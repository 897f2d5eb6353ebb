"""The page of `pyxfer list`: available devices, routes and modes, and the reasons for the others."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from pyxfer._document import machines
from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._report.layout import Page
from pyxfer._report.text import clean, device_text, memory_text

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
