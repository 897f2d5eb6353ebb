"""The page of `pyxfer list`: available devices, routes and modes, and the reasons for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.cells import cell_len, set_cell_size

from pyxfer._document import runs
from pyxfer._report.layout import Page
from pyxfer._report.text import clean, device_text, memory_text

_LONGEST_NAME = 40
_LONGEST_WORD = 14


class Route(Protocol):
    """A raw route."""

    @property
    def name(self) -> str:
        """Such as `raw.pinned-async`."""

    @property
    def direction(self) -> tuple[str, ...]:
        """The directions it knows."""

    @property
    def mode(self) -> str:
        """How it issues its copies."""

    @property
    def available(self) -> bool:
        """Whether it can run on this machine."""

    @property
    def reason(self) -> str:
        """Why it is not available."""


class FrameworkRoute(Protocol):
    """A route of a framework."""

    @property
    def name(self) -> str:
        """Such as `torch.to`."""

    @property
    def direction(self) -> tuple[str, ...]:
        """The directions it knows."""

    @property
    def memory(self) -> str:
        """The kind of host memory."""

    @property
    def host_copies(self) -> int:
        """Copies on the host before the driver's own."""

    @property
    def returns(self) -> str:
        """When the call returns: `done`, `staged` or `queued`."""

    @property
    def call(self) -> str:
        """The code that a user writes."""

    @property
    def usual(self) -> bool:
        """Whether most users write this call."""

    @property
    def available(self) -> bool:
        """Whether it can run on this machine."""

    @property
    def reason(self) -> str:
        """Why it is not available."""


class FrameworkRoutes(Protocol):
    """A framework and its routes."""

    @property
    def title(self) -> str:
        """The framework's name as its project spells it."""

    @property
    def version(self) -> str | None:
        """The installed version."""

    @property
    def reason(self) -> str:
        """Why it cannot use a GPU, or an empty text."""

    @property
    def routes(self) -> Sequence[FrameworkRoute]:
        """In the order of the framework's table."""


def print_routes(devices: Sequence[runs.Device], routes: Sequence[Route], page: Page) -> None:
    """Devices, routes and modes, with the reason if one is not available."""
    page.line("Devices", style="bold")
    page.hanging([(f"  {_selector(device)}", _device_line(device)) for device in devices])
    page.heading("Routes")
    page.hanging([(f"  {clean(route.name)}", _route_line(route)) for route in routes])
    page.heading("Modes")
    page.hanging([(f"  {clean(mode)}", state) for mode, state in mode_states(routes).items()])


def print_framework_routes(groups: Sequence[FrameworkRoutes], page: Page) -> None:
    """Every framework with its state, and its routes with the code that they time."""
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


def mode_states(routes: Sequence[Route]) -> dict[str, str]:
    """A mode is available if one of its routes is; else it has the reason of its first route."""
    states: dict[str, str] = {}
    for route in routes:
        if route.available or route.mode not in states:
            states[route.mode] = _state(route)
    return states


def _selector(device: runs.Device) -> str:
    return "host" if device.runtime == "host" else str(device.index)


def _device_line(device: runs.Device) -> str:
    words = f"{device_text(device)}, {memory_text(device.memory_bytes)}"
    return words if device.uuid.value is None else f"{words}, {clean(device.uuid.value)}"


def _framework_heading(group: FrameworkRoutes) -> str:
    title, version = clean(group.title), clean(group.version or "")
    name = f"{title} {version}".rstrip()
    reason = clean(group.reason)
    for prefix in (f"{name} ", f"{title} "):
        reason = reason.removeprefix(prefix)
    return f"{name}: {reason.removeprefix('is ') or 'available'}"


def _cells(route: FrameworkRoute) -> tuple[str, ...]:
    copies = f"host copies {route.host_copies}"
    name, memory = clean(route.name, longest=_LONGEST_NAME), clean(route.memory, longest=_LONGEST_WORD)
    directions = clean(", ".join(route.direction), longest=_LONGEST_WORD)
    name = f"{'>' if route.usual else ' '} {name}"
    return name, directions, memory, copies, f"returns {clean(route.returns, longest=_LONGEST_WORD)}"


def _route_line(route: Route) -> str:
    return f"{', '.join(route.direction)}: {_state(route)}" if route.available else _state(route)


def _state(route: Route | FrameworkRoute) -> str:
    return "available" if route.available else f"not available: {clean(route.reason)}"
