"""Short trials on the host runtime, with several simulated GPUs.

Each stream runs only the copies that it has queued when the gate opens. Their times are those of the streams' own
clocks, so they are the same on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from links.wiring import Host

import pyxfer
from pyxfer._document.links import HOST_END, FlowPlan, Links
from pyxfer._links import chases, session, traffic
from pyxfer._links.plan import TrafficPlan
from pyxfer._links.resources import LinkResources
from pyxfer._machine import devices
from pyxfer.native import Engine
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native._cuda import Flow, FlowStamps

GB = 1e9
LATENCY_S = 1e-6
QUEUED = 40
Measure = Callable[..., Links]


def shorten_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trial be the copies that are queued when the gate opens."""
    for name in ("MIN_S", "CHECK_S", "MAX_S"):
        monkeypatch.setattr(traffic, name, 0.0)
    for name in ("DEPTH", "DEPTH_TOGETHER"):
        monkeypatch.setattr(traffic, name, QUEUED)
    monkeypatch.setattr(chases, "TRIAL_S", 0.0)
    monkeypatch.setattr(chases, "DEPTH", QUEUED)
    monkeypatch.setattr(session, "SIZES", (4 << 10,))


def share_uplinks(monkeypatch: pytest.MonkeyPatch, host: Host, beside_d2h: float = 1.0) -> None:
    """Let each run have the rates that its devices have on this host. Uploads lose beside downloads."""
    flow, run = LinkResources.flow, LinkResources.run
    plans: dict[Flow, FlowPlan] = {}

    def noting(resources: LinkResources, plan: FlowPlan, traffic: TrafficPlan, depth: int) -> Flow:
        made = flow(resources, plan, traffic, depth)
        plans[made] = plan
        return made

    def sharing(
        resources: LinkResources, flows: Sequence[Flow], devices: Sequence[int], seconds: float, *, gated: bool
    ) -> list[FlowStamps]:
        known = [plans[each] for each in flows]
        up = host.rates(sorted({each.destination for each in known if each.source == HOST_END}))
        down = host.rates(sorted({each.source for each in known if each.destination == HOST_END}))
        for device in devices:
            h2d, d2h = up.get(device, host.link), down.get(device, host.link)
            testing.model_link_of(device, (beside_d2h if down else 1.0) * h2d * GB, LATENCY_S, d2h * GB, LATENCY_S)
        return run(resources, flows, devices, seconds, gated=gated)

    monkeypatch.setattr(LinkResources, "flow", noting)
    monkeypatch.setattr(LinkResources, "run", sharing)


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
            testing.model_link_of(device, gbps * GB, LATENCY_S, gbps * GB, LATENCY_S)
        prepare = settings.pop("prepare", None)
        if prepare is not None:
            prepare()
        return pyxfer.links(**{"size": "256KiB", "engine": "ce", "budget": 0.1, "seed": 1, **settings})

    return run
