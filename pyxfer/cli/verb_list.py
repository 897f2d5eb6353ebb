"""`pyxfer list`: what can be measured here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer.errors import UsageError

from . import options as opt
from .failures import say

if TYPE_CHECKING:
    from pyxfer import native

What = Annotated[str | None, typer.Argument(metavar="[routes]", help="routes: those of the frameworks too.")]


def list_all(what: What = None, json: opt.Json = False) -> None:
    """Devices, routes and modes: available, or why not; with routes, every route of every framework."""
    from pyxfer.native import choose

    if what not in (None, "routes"):
        raise UsageError(f"pyxfer list knows no {what!r}; write pyxfer list, or pyxfer list routes.")
    choice = choose(0)
    if what is None:
        if choice.reason:
            say(choice.reason)
        _list_machine(choice, json)
    else:
        _list_routes(choice, json)


def _list_machine(choice: native.Choice, json: bool) -> None:
    from pyxfer import raw
    from pyxfer.machine import devices
    from pyxfer.report.routes_page import mode_states, print_routes
    from pyxfer.report.terminal import Page

    found = devices.list_devices(choice.engine)
    routes = raw.list_routes(choice.engine)
    if json:
        _write({"devices": found, "routes": routes, "modes": mode_states(routes)})
    else:
        print_routes(found, routes, Page(sys.stdout))


def _list_routes(choice: native.Choice, json: bool) -> None:
    from pyxfer.report.routes_page import print_framework_routes
    from pyxfer.report.terminal import Page
    from pyxfer.routes.listing import list_frameworks, list_routes

    if json:
        _write(list_routes())
    else:
        print_framework_routes(list_frameworks(choice), Page(sys.stdout))


def _write(value: object) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")
