"""Short trials on the host runtime, with several simulated GPUs.

Each stream runs only the copies that it has queued when the gate opens. Their times are those of the streams' own
clocks, so they are the same on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyxfer
from pyxfer._document.links import Links
from pyxfer._links import chases, traffic
from pyxfer._machine import devices
from pyxfer.native import Engine
from pyxfer.native._host import testing

GB = 1e9
QUEUED = 40
Measure = Callable[..., Links]


def shorten_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trial be the copies that are queued when the gate opens."""
    for name in ("LEAST_S", "CHECK_S", "MOST_S"):
        monkeypatch.setattr(traffic, name, 0.0)
    for name in ("DEPTH", "DEPTH_TOGETHER"):
        monkeypatch.setattr(traffic, name, QUEUED)
    monkeypatch.setattr(chases, "TRIAL_S", 0.0)
    monkeypatch.setattr(chases, "DEPTH", QUEUED)


@pytest.fixture
def measure(engine: Engine, as_gpu: Engine, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure links of simulated GPUs of 1 GB/s each, with short trials."""
    shorten_trials(monkeypatch)
    monkeypatch.setattr(devices, "is_host", lambda _: False)
    monkeypatch.setattr(chases, "LARGE_HOST_FOOTPRINT", 4 << 20)
    monkeypatch.setattr(chases, "LARGE_DEVICE_FOOTPRINT", 4 << 20)

    def run(count: int = 2, gbps: float = 1.0, **settings: Any) -> Links:
        testing.set_device_count(count)
        for device in range(count):
            testing.model_link_of(device, gbps * GB, 1e-6, gbps * GB, 1e-6)
        prepare = settings.pop("prepare", None)
        if prepare is not None:
            prepare()
        return pyxfer.links(**{"size": "256KiB", "engines": "ce", "budget_s": 0.1, "seed": 1, **settings})

    return run
