"""Routes and frameworks as `pyxfer list` shows them."""

from __future__ import annotations

import msgspec

from pyxfer._document.printing import ShortRepr
from pyxfer._document.runs import Direction, Memory


class RouteStatus(ShortRepr, msgspec.Struct, frozen=True):
    """A route, and whether it is available here.

    `framework`: `raw` for copies without one. `mode`: how raw copies are issued, else `framework`. `call`: the code
    that a user writes. `usual`: whether most users write it.
    """

    name: str
    framework: str
    direction: tuple[Direction, ...]
    memory: Memory
    mode: str
    host_copies: int
    returns: str
    call: str
    usual: bool
    available: bool
    reason: str

    def _summary(self) -> str:
        return f"{self.name}, {', '.join(self.direction)}: {'available' if self.available else self.reason}"


class FrameworkStatus(msgspec.Struct, frozen=True):
    """A framework according to its installed packages, and its routes. `reason`: why it cannot use a GPU, or empty."""

    name: str
    title: str
    version: str | None
    reason: str
    routes: tuple[RouteStatus, ...]
