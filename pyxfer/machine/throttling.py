"""What held a GPU's clocks down, of the reasons that the driver gives."""

from __future__ import annotations

from pyxfer.model import Environment

IDLE = "idle"
"""The driver's reason for a GPU that nobody uses just then; a run that leaves the GPU to its workers finds it so."""


def held_down_by(environment: Environment | None) -> tuple[str, ...]:
    """The reasons but idleness, which is none; nothing where they are not known."""
    reasons = environment.throttle_reasons.value if environment is not None else None
    return tuple(reason for reason in reasons or () if reason != IDLE)
