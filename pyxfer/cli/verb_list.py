"""`pyxfer list`: what can be measured here."""

from __future__ import annotations

import sys

from . import options as opt
from .failures import say


def list_all(json: opt.Json = False) -> None:
    """Devices, routes and modes: available, or why not."""
    import msgspec

    from pyxfer import native, raw
    from pyxfer.machine import devices
    from pyxfer.report.routes_page import mode_states, print_routes
    from pyxfer.report.terminal import Page

    choice = native.choose(0)
    if choice.reason:
        say(choice.reason)
    found = devices.list_devices(choice.engine)
    routes = raw.list_routes(choice.engine)
    if json:
        whole = {"devices": found, "routes": routes, "modes": mode_states(routes)}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(whole), indent=1).decode() + "\n")
    else:
        print_routes(found, routes, Page(sys.stdout))
