"""The figures of a run that follow from its trials and from the tables of routes."""

from __future__ import annotations

import msgspec

from pyxfer._ceiling import derived
from pyxfer._document.runs import Measurement, Run
from pyxfer._frameworks.registry import known_route


def derive_run(run: Run) -> Run:
    """The run with what follows from its trials, its link, its settings and the tables of routes."""
    found = derived.derive_run(run)
    return msgspec.structs.replace(found, measurements=tuple(map(_as_in_the_table, found.measurements)))


def _as_in_the_table(row: Measurement) -> Measurement:
    """A route that the package has goes one way, from or to one kind of memory."""
    route = None if row.route_info is None else known_route(row.route_info.framework, row.route)
    return row if route is None else msgspec.structs.replace(row, direction=route.direction, memory=route.memory)
