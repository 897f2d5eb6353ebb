"""Runs and baselines for stores, made of the sample run."""

from __future__ import annotations

from typing import Any

from samples import make_device, make_environment, make_measurement, make_run

from pyxfer._baseline.fingerprints import fingerprint_of
from pyxfer._document.baselines import Baseline
from pyxfer._document.runs import Fact, Run, Share


def run_at(day: int = 1, host: str = "node-7", gpu: str | None = None, slower: float = 1.0, **overrides: Any) -> Run:
    """A run of that day of January 2026, with one measurement."""
    environment = make_environment(host=host, taken_at=f"2026-01-{day:02}T08:30:00+00:00")
    device = make_device() if gpu is None else make_device(uuid=Fact(gpu))
    copy = make_measurement(slower=slower, ceiling_share=Fact(Share(1.0, 1.0, 1.0)))
    given = {"environment": environment, "device": device, "measurements": (copy,)}
    return make_run(**{**given, **overrides})


def make_baseline(
    name: str = "default", host: str = "node-7", labels: dict[str, str] | None = None, runs: tuple[Run, ...] = ()
) -> Baseline:
    """A baseline of three processes."""
    made_of = runs or tuple(run_at(day, host) for day in (1, 2, 3))
    return Baseline(name, fingerprint_of(made_of[0]), "2026-01-04T00:00:00+00:00", labels or {}, made_of)
