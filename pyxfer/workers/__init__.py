"""One process a framework, and the run that they make together."""

from pyxfer.workers.explaining import explain
from pyxfer.workers.session import frameworks

__all__ = ["explain", "frameworks"]
