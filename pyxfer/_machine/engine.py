"""Which of the two engines this is."""

from __future__ import annotations

from pyxfer.native import Engine


def is_host(engine: Engine) -> bool:
    return engine.RUNTIME == "host"
