"""Links of several processes of a simulated host: the rates of an H200 host with noise between the processes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from link_samples import RateOf, h200_rate, make_links
from samples import make_environment

from pyxfer._baseline.samples import Sample
from pyxfer._document.links import FlowPlan, Links
from pyxfer._links.plan import TrafficPlan

SPREAD = 0.003
GROUPS = ("host", "together", "pairs", "local")


def make_processes(
    count: int = 3, seed: int = 1, gpus: int = 2, rate_of: RateOf = h200_rate, spread: float = SPREAD, **overrides: Any
) -> tuple[Links, ...]:
    """The documents of `count` processes, one after the other."""
    return tuple(make_process(number, seed, gpus, rate_of, spread, **overrides) for number in range(count))


def make_process(
    number: int, seed: int, gpus: int = 2, rate_of: RateOf = h200_rate, spread: float = SPREAD, **overrides: Any
) -> Links:
    random = np.random.default_rng((seed, number))

    def noisy(plan: TrafficPlan, flow: FlowPlan) -> float:
        return float(rate_of(plan, flow) * np.exp(random.normal(0, spread)))

    environment = make_environment(taken_at=f"2025-11-21T08:{seed:02}:{number:02}+00:00")
    given = {"groups": GROUPS, "environment": environment, "duration_s": 20.0 + number, **overrides}
    return make_links(gpus, noisy, **given)


def make_sample(name: str, **settings: Any) -> Sample:
    return Sample(name, make_processes(**settings))


def slow_pair(source: int, destination: int, factor: float = 0.5) -> RateOf:
    """The copies from one GPU to another are slower, however they run."""

    def rate(plan: TrafficPlan, flow: FlowPlan) -> float:
        lost = (flow.source, flow.destination) == (source, destination)
        return h200_rate(plan, flow) * (factor if lost else 1.0)

    return rate


def shared_uplink(*gpus: int) -> RateOf:
    """GPUs that copy from the host at the same time share one link."""

    def rate(plan: TrafficPlan, flow: FlowPlan) -> float:
        beside = [each for each in plan.flows if each.side == "h2d" and each.device in gpus]
        return h200_rate(plan, flow) / (len(beside) if flow in beside else 1)

    return rate


def without_nvlinks(links: Links, gpu: int, nvlinks: int) -> Links:
    """The links with fewer active NVLinks of one GPU."""
    devices = tuple(
        msgspec.structs.replace(each, nvlinks=msgspec.structs.replace(each.nvlinks, value=nvlinks))
        if each.device.index == gpu
        else each
        for each in links.devices
    )
    return msgspec.structs.replace(links, devices=devices)
