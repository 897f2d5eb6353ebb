"""The document of a tuning: a ring's settings, their source, and the trials that chose them."""

from __future__ import annotations

from typing import Literal

import msgspec

from pyxfer._document.machines import Fact, Moment, RingSource

RingFill = Literal["plain", "streaming", "demoting"]
"""Stores go through the caches, past them, or through them and at once on to the shared cache."""
CopyDirection = Literal["h2d", "d2h"]
Verdict = Literal["first", "faster", "smaller", "not faster", "given up", "cut short", "not tried"]

TUNING_SCHEMA_VERSION = 1


class RingSetup(msgspec.Struct, frozen=True):
    """The settings of a ring. All threads share its `slots`, each of one chunk."""

    threads: int
    chunk_bytes: int
    slots: int
    fill: RingFill
    spin_us: int

    @property
    def pinned_bytes(self) -> int:
        """Page-locked bytes of the ring."""
        return self.slots * self.chunk_bytes


class CopyRate(msgspec.Struct, frozen=True):
    """The median bandwidth of copies of one size in one direction."""

    direction: CopyDirection
    nbytes: int
    gbps: float


class TuningTrial(msgspec.Struct, frozen=True):
    """The trial of one candidate. `against_best`: its speed relative to the best before it, in the same rounds."""

    ring: RingSetup
    verdict: Verdict
    rates: tuple[CopyRate, ...] = ()
    against_best: float | None = None
    repeats: int = 0
    seconds: float = 0.0
    reason: str | None = None


class Tuned(msgspec.Struct, frozen=True):
    """The result of a tuning under a time limit and a budget of page-locked memory, with all trials."""

    taken_at: Moment
    ring: RingSetup
    budget_bytes: int
    trials: tuple[TuningTrial, ...]
    plain: tuple[CopyRate, ...]
    pays_from_bytes: Fact[int]
    limit_s: float
    seconds: float
    remarks: tuple[str, ...] = ()

    @property
    def timed(self) -> tuple[TuningTrial, ...]:
        """The trials that have figures."""
        return tuple(trial for trial in self.trials if trial.rates)

    @property
    def rates(self) -> tuple[CopyRate, ...]:
        """The rates of the chosen ring."""
        return next((trial.rates for trial in self.timed if trial.ring == self.ring), ())


class TuningKey(msgspec.Struct, frozen=True):
    """The conditions of a tuning. If any of them changes, the tuning does not apply."""

    host: str
    device: str
    driver: str
    cpus_usable: int
    numa_node: int | None
    link: str | None
    pyxfer: str


class KeptTuning(msgspec.Struct, frozen=True):
    """A tuning with its conditions."""

    key: TuningKey
    tuning: Tuned


class TuningFile(msgspec.Struct, frozen=True):
    """The file in which tunings are kept, the newest last."""

    schema_version: int
    tunings: tuple[KeptTuning, ...]


class RingState(msgspec.Struct, frozen=True):
    """The ring settings of one device, and their source."""

    device: int
    ring: RingSetup
    source: RingSource
    reason: str
    remarks: tuple[str, ...]
    tuning: Fact[Tuned]
    path: Fact[str]
