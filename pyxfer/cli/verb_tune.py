"""`pyxfer tune`: the settings of a device's ring, found anew and kept."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pyxfer.errors import MeasurementError

from . import options as opt
from .failures import say

Limit = Annotated[str, typer.Option("--limit", metavar="TIME", help="How long it may last, such as 1s or 500ms.")]


def tune(
    device: opt.Device = "0", limit: Limit = "1s", require_gpu: opt.RequireGpu = False, json: opt.Json = False
) -> None:
    """Find by measuring how pageable memory is staged best on this host, and keep that for later programs.

    It is done without being asked when a program first stages anything. Do it anew where the machine was busy then.
    """
    import msgspec

    from pyxfer import native, units
    from pyxfer.machine.devices import find_device
    from pyxfer.report.ring_page import print_tuning
    from pyxfer.report.terminal import Page
    from pyxfer.report.text import device_text
    from pyxfer.staging import tuning

    limit_s = units.parse_duration(limit)
    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    found = find_device(choice.engine, device)
    chosen = tuning.tune_and_keep(choice.engine, found.index, limit_s=limit_s)
    if chosen.source != "tuned":
        raise MeasurementError(
            f"the limit of {units.format_seconds(limit_s)} left no time for a trial; give --limit 1s"
        )
    state = tuning.state_of(chosen, found.index)
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(state), indent=1).decode() + "\n")
        return
    page = Page(sys.stdout)
    page.line(device_text(found), style="bold")
    print_tuning(state, page)
