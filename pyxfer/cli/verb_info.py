"""`pyxfer info`: devices, links and everything that a result needs to be believed."""

from __future__ import annotations

import sys

from . import options as opt
from .failures import say


def info(json: opt.Json = False) -> None:
    """Devices, their links and this machine; nothing is measured."""
    import msgspec

    from pyxfer import native
    from pyxfer.machine import devices, environment, link, numa
    from pyxfer.report.machine_page import print_machine
    from pyxfer.report.terminal import Page
    from pyxfer.staging import tuning

    choice = native.choose(0)
    if choice.reason:
        say(choice.reason)
    engine = choice.engine
    found = devices.list_devices(engine)
    links = tuple(link.read_link(engine, device) for device in found)
    surroundings = environment.read_environment(engine, found[0])
    placements = []
    for device in found:
        with numa.bind(engine, numa.device_node(device)) as placement:
            placements.append(placement)
    rings = [
        tuning.state_of(tuning.settings_for(engine, device.index, may_tune=False), device.index) for device in found
    ]
    if json:
        whole = {
            "devices": found,
            "links": links,
            "placements": placements,
            "rings": rings,
            "environment": surroundings,
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(whole), indent=1).decode() + "\n")
    else:
        print_machine(found, links, placements, rings, surroundings, Page(sys.stdout))
