"""One process a framework, and the run that they make together."""

from pyxfer.workers.session import frameworks

__all__ = ["frameworks"]
