"""From a window that has closed to its document: the ceilings are measured, the machine is read, and all is worked out.

The tracer has stopped by then, so that neither is in the window.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from pyxfer.machine.environment import read_environment
from pyxfer.machine.link import read_link
from pyxfer.model import Run
from pyxfer.watching.capacity import within_capacity
from pyxfer.watching.ceilings import NoCeilings, RunCeilings, measure_ceilings, saved_ceilings

if TYPE_CHECKING:
    from pyxfer.model import Link, Remark
    from pyxfer.model_watch import Watched
    from pyxfer.watching.place import Place
    from pyxfer.watching.window import Window

_NOT_ASKED = "no ceilings were asked for"


def tell_of(window: Window, place: Place, ceilings: Run | str | None, *, unchanged: bool = False) -> Watched:
    """All that a window says; `ceilings` are those of a run, measured now, or none.

    `unchanged`: the program is a script that knows nothing of being watched.
    """
    from pyxfer.watching.analysis import Machine, analyse

    window = within_capacity(window)
    choice, device = place.choice, place.device
    link = read_link(choice.engine, device)
    found, remarks = _ceilings(window, place, link, ceilings)
    machine = Machine(choice.runtime, choice.reason, device, link, read_environment(choice.engine, device))
    window = dataclasses.replace(window, remarks=(*window.remarks, *remarks))
    watched = analyse(window, found, machine, unchanged=unchanged)
    return msgspec.structs.replace(watched, ceiling_source=found.source)


def _ceilings(
    window: Window, place: Place, link: Link, ceilings: Run | str | None
) -> tuple[RunCeilings | NoCeilings, tuple[Remark, ...]]:
    if isinstance(ceilings, Run):
        return saved_ceilings(ceilings, window, place.device, link)
    return (NoCeilings(_NOT_ASKED), ()) if ceilings is None else measure_ceilings(window, place)
