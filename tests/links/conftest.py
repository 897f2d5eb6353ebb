"""Short trials on the host runtime, with several simulated GPUs.

Each stream runs only the copies that it has queued when the gate opens. Their times are those of the streams' own
clocks, so they are the same on a busy machine. Links share uplinks by max-min fairness, with noise as on a busy host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

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
LINK, NVLINK = 55.0, 390.0
NOISE, OUTLIERS, OUTLIER_LOSS = 0.008, 0.04, 0.3


@dataclass
class Host:
    """Eight GPUs by default. `uplinks`: members and capacity of each shared uplink; `slow`: rates of other links."""

    count: int = 8
    uplinks: Sequence[tuple[Sequence[int], float]] = ()
    slow: Mapping[tuple[int, int], float] = field(default_factory=dict)
    link: float = LINK

    def rates(self, active: Sequence[int]) -> dict[int, float]:
        """The rate of each active GPU's link, water-filled."""
        found: dict[int, float] = {}
        waiting = set(active)
        while waiting:
            limits = [(self.slow.get((-1, gpu), self.link), {gpu}) for gpu in waiting]
            for members, capacity in self.uplinks:
                inside = waiting & set(members)
                left = capacity - sum(found.get(gpu, 0.0) for gpu in members)
                if inside:
                    limits.append((left / len(inside), inside))
            least, held = min(limits, key=lambda limit: limit[0])
            found |= dict.fromkeys(held, least)
            waiting -= held
        return found

    def beside(self, seed: int, rounds: int = 6) -> dict[tuple[int, int], list[float]]:
        """The sum of both rates of every pair, by round."""
        random = np.random.default_rng(seed)
        sums = {}
        for one, other in combinations(range(self.count), 2):
            both = self.rates([one, other])
            sums[one, other] = list(self._noisy(both[one], random, rounds) + self._noisy(both[other], random, rounds))
        return sums

    def alone(self, seed: int, rounds: int = 6) -> dict[int, list[float]]:
        """The rate of every GPU by itself, by round."""
        random = np.random.default_rng(seed + 1_000_000)
        return {gpu: list(self._noisy(self.rates([gpu])[gpu], random, rounds)) for gpu in range(self.count)}

    def pair_rates(self, seed: int, rounds: int = 6) -> dict[tuple[int, int], list[float]]:
        random = np.random.default_rng(seed)
        pairs = permutations(range(self.count), 2)
        return {pair: list(self._noisy(self.slow.get(pair, NVLINK), random, rounds)) for pair in pairs}

    @staticmethod
    def _noisy(rate: float, random: np.random.Generator, rounds: int) -> np.ndarray:
        noise = np.exp(random.normal(0, NOISE, rounds))
        lost = np.where(random.random(rounds) < OUTLIERS, 1 - OUTLIER_LOSS * random.random(rounds), 1.0)
        return rate * noise * lost


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
