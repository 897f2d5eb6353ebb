"""Waking the link: an idle link runs at its lowest generation, and takes traffic to leave it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyxfer.model import Fact, LinkState

if TYPE_CHECKING:
    from pyxfer.native._cuda import Copier, Lane

LEAST_S = 0.05
MOST_S = 2.0
STEADY_READINGS = 3
QUEUED = 8
WAKE_BYTES = 16 << 20


def wake_link(
    copier: Copier,
    lane: Lane,
    read_state: Callable[[], Fact[LinkState]],
    cancelled: Callable[[], bool],
    *,
    gated: bool,
) -> Fact[LinkState]:
    """Copy until the link's state has been the same for several readings under load; returns that state."""
    begun = time.perf_counter()
    steady = 0
    last = read_state()
    while not cancelled():
        if gated:
            copier.gated("async", lane, QUEUED, 0, 0)
        else:
            copier.on_stream("async", lane, 0)
        now = read_state()
        steady = steady + 1 if now == last else 0
        last = now
        spent = time.perf_counter() - begun
        if (spent >= LEAST_S and steady >= STEADY_READINGS) or spent >= MOST_S:
            break
    return last
