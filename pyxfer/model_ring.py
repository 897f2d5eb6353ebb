"""The part of the document that is about the ring of staged copies; `pyxfer.model` offers it too."""

from __future__ import annotations

from typing import Literal

import msgspec

STAGED = "staged"
"""The mode of raw copies that go through a ring."""
NOT_STAGED = "nothing was staged"

RingSource = Literal["given", "cached", "tuned", "default"]


class Ring(msgspec.Struct, frozen=True):
    """The ring that a run's staged copies went through: `threads` that shared `slots` of `chunk_bytes`.

    `fill` is how its threads were to copy, `kernel` what this processor has for that. `source`: where the settings come
    from, and `reason` why from there. `made_s`: page-locking its memory and starting its threads.
    """

    threads: int
    chunk_bytes: int
    slots: int
    fill: str
    kernel: str
    spin_us: int
    pinned_bytes: int
    source: RingSource
    reason: str
    made_s: float
