"""What a long measurement says of itself while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyxfer.model import Run


@dataclass(frozen=True)
class Progress:
    """How far it is: `done` from 0 to 1."""

    phase: str
    done: float
    text: str


OnProgress = Callable[[Progress], None]


SaveTo = Callable[[Run], None]


def unsaved(_: Run) -> None:
    """Nobody wants it saved."""


def silent(_: Progress) -> None:
    """Nobody listens."""
