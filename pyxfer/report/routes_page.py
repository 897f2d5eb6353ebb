"""What can be measured here, and what cannot and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyxfer import model

from .terminal import Page
from .text import clean, device_text, memory_text


class Route(Protocol):
    """What this page needs to know of a route."""

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
        """Whether it can run here."""

    @property
    def reason(self) -> str:
        """Why it cannot."""


def print_routes(devices: Sequence[model.Device], routes: Sequence[Route], page: Page) -> None:
    """Devices, routes and modes: available, or why not."""
    page.line("Devices", style="bold")
    page.hanging([(f"  {_selector(device)}", _device_line(device)) for device in devices])
    page.heading("Routes")
    page.hanging([(f"  {clean(route.name)}", _route_line(route)) for route in routes])
    page.heading("Modes")
    page.hanging([(f"  {clean(mode)}", state) for mode, state in mode_states(routes).items()])


def mode_states(routes: Sequence[Route]) -> dict[str, str]:
    """A mode is available where one of its routes is; else the reason of the first of them."""
    states: dict[str, str] = {}
    for route in routes:
        if route.available or route.mode not in states:
            states[route.mode] = _state(route)
    return states


def _selector(device: model.Device) -> str:
    return "host" if device.runtime == "host" else str(device.index)


def _device_line(device: model.Device) -> str:
    words = f"{device_text(device)}, {memory_text(device.memory_bytes)}"
    return words if device.uuid.value is None else f"{words}, {clean(device.uuid.value)}"


def _route_line(route: Route) -> str:
    return f"{', '.join(route.direction)}: {_state(route)}" if route.available else _state(route)


def _state(route: Route) -> str:
    return "available" if route.available else f"not available: {clean(route.reason)}"
