"""Tunings of a ring with figures like those of an H200 host."""

from __future__ import annotations

from typing import Any

import msgspec

from pyxfer._document.machines import Fact
from pyxfer._document.tunings import CopyRate, RingSetup, RingState, Tuned, TuningKey, TuningTrial

MIB = 1 << 20
SIZES = (4 * MIB, 24 * MIB, 96 * MIB)


def make_key(**overrides: Any) -> TuningKey:
    key = TuningKey("host", "GPU-6a1f2c3d", "580.1, CUDA 13000", 16, 0, "PCIe 5.0 x16", "0.1.0")
    return msgspec.structs.replace(key, **overrides)


def make_rates(h2d: tuple[float, ...], d2h: tuple[float, ...]) -> tuple[CopyRate, ...]:
    rows = zip(SIZES, h2d, d2h, strict=True)
    return tuple(rate for size, up, down in rows for rate in (CopyRate("h2d", size, up), CopyRate("d2h", size, down)))


def make_tuned(**overrides: Any) -> Tuned:
    eight = RingSetup(8, 64 << 10, 512, "streaming", 20)
    fifteen = RingSetup(15, 64 << 10, 512, "demoting", 20)
    slow, fast = make_rates((20, 30, 35), (22, 31, 36)), make_rates((25, 37, 47), (28, 41, 49))
    plain = make_rates((9, 11, 12.5), (5, 7, 7.5))
    trials = (
        TuningTrial(eight, "first", slow, None, 5, 0.08),
        TuningTrial(fifteen, "faster", fast, 1.28, 5, 0.07),
        TuningTrial(
            msgspec.structs.replace(fifteen, fill="plain"), "not tried", reason="the limit left no time for it"
        ),
    )
    tuned = Tuned("2026-11-21T21:46:00+00:00", fifteen, 256 * MIB, trials, plain, Fact(256 << 10), 1.0, 0.91)
    return msgspec.structs.replace(tuned, **overrides)


def make_state(**overrides: Any) -> RingState:
    tuned = make_tuned()
    reason = "cached on 2026-11-21 from 2 trials in 910 ms"
    state = RingState(0, tuned.ring, "cached", reason, (), Fact(tuned), Fact("/home/user/.cache/pyxfer/ring.json"))
    return msgspec.structs.replace(state, **overrides)
