"""Raw copies: the ceiling of a link, and any callable timed beside it."""

from pyxfer.raw.measuring import measure
from pyxfer.raw.session import ceiling
from pyxfer.raw.ways import RouteStatus, list_routes

__all__ = ["RouteStatus", "ceiling", "list_routes", "measure"]
