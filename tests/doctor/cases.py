"""Hosts to examine: a measured H200, and changed copies of it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any

import msgspec
from samples import make_device, make_environment, make_link, make_measurement, make_run

from pyxfer._doctor.case import Case, Findings
from pyxfer._document import codec, machines
from pyxfer._document.examinations import (
    Bound,
    Counters,
    DeviceMemory,
    FarRates,
    Finding,
    Health,
    PortControl,
    PortErrors,
    Reference,
)
from pyxfer._document.machines import Fact, LinkState, Side, unknown
from pyxfer._document.runs import Measurement, Rate, Run
from pyxfer._machine.link import with_load
from pyxfer._measure import stats

MIB = 1 << 20
LARGE = 256 * MIB
GEN5_X16 = LinkState(5, 16)
NO_CONFIG = "only the first 64 bytes of the configuration space are readable"

H200_PEAK_GBPS = 58.449
# Pinned and pageable copies of 256 MiB, measured in November 2026, GB/s.
H200_GBPS: dict[tuple[Side, str], float] = {
    ("h2d", "pinned"): 55.55,
    ("d2h", "pinned"): 55.41,
    ("h2d", "pageable"): 10.2,
    ("d2h", "pageable"): 18.9,
}


def copy(side: Side, gbps: float | None, memory: str = "pinned", nbytes: int = LARGE, **overrides: Any) -> Measurement:
    """A measurement of one way at one size, with a narrow interval, or without a result."""
    rate: Fact[Rate] = unknown("not one trial was valid")
    summary = None
    peak = make_link().peak_gbps(side).value or 1.0
    if gbps is not None:
        summary = stats.summarise([nbytes / gbps / 1e9 * (1 + step / 1e4) for step in (0, 3, -2, 1, -4, 2, -3, 4, -1)])
        rate = Fact(stats.rate(nbytes, summary))
    made = make_measurement(
        side=side,
        route=f"raw.{memory}",
        memory=memory,
        bracket="drained",
        mode="memcpy" if memory == "pageable" else "async",
        rate=rate,
        summary=summary,
        peak_share=unknown("no result") if gbps is None else Fact(gbps / peak),
    )
    return msgspec.structs.replace(made, **{"nbytes": nbytes, "moved_bytes": nbytes, "trials": (), **overrides})


def copies(share: float = 1.0, nbytes: int = LARGE, link: machines.Link | None = None) -> tuple[Measurement, ...]:
    """All four ways of the H200, with pinned copies at a share of its bandwidth."""
    made = (copy(side, _reached(side, memory, share), memory, nbytes) for side, memory in H200_GBPS)
    link = link or make_link()
    return tuple(
        msgspec.structs.replace(row, peak_share=Fact((row.gbps or 0.0) / (link.peak_gbps(row.side).value or 1.0)))
        for row in made
    )


def _reached(side: Side, memory: str, share: float) -> float:
    pinned = H200_GBPS[side, "pinned"] * share
    return pinned if memory == "pinned" else min(H200_GBPS[side, memory], 0.8 * pinned)


def _share_of_h200(link: machines.Link) -> float:
    """The peak of a link over that of the H200's own."""
    return (link.h2d_peak_gbps.value or H200_PEAK_GBPS) / H200_PEAK_GBPS


def h200_link(loaded: LinkState = GEN5_X16, **overrides: Any) -> machines.Link:
    """The H200's link in a state under load, with the peaks that the model gives it."""
    fields = {
        "max_read_request_bytes": Fact(4096),
        "relaxed_ordering": Fact(True),
        "now": Fact(loaded),
        "hops": (machines.Hop("0000:00:06.0", Fact(loaded), Fact(GEN5_X16)),),
    }
    return with_load(make_link(**{**fields, **overrides}), Fact(loaded))


def h200(**overrides: Any) -> Run:
    """The run of an H200 in a virtual machine with one NUMA node, with changed fields."""
    fields = {"host": "vm", "iommu": Fact("no groups"), "virtual_machine": Fact("Firecracker")}
    environment = make_environment(**{**fields, **overrides.pop("environment", {})})
    link = overrides.pop("link", h200_link())
    measurements = (
        overrides.pop("measurements") if "measurements" in overrides else copies(_share_of_h200(link), link=link)
    )
    return make_run(
        **{
            "device": make_device(pci=Fact("0000:00:06.0")),
            "link": link,
            "environment": environment,
            "environment_after": environment,
            "placement": one_node(),
            "measurements": measurements,
            "remarks": (),
            "curves": (),
            "locking": (),
            **overrides,
        }
    )


def bare_metal(**overrides: Any) -> Run:
    """The same without a hypervisor."""
    more = {"virtual_machine": Fact("none"), **overrides.pop("environment", {})}
    return h200(environment=more, **{"environment_after": None, **overrides})


def one_node() -> machines.Placement:
    alone = "not bound: this machine shows one NUMA node with CPUs, so there is nothing to choose"
    return machines.Placement(Fact(0), unknown(alone), unknown(alone), Fact({"0": 4096}))


def counters(replays: int | None = 0, ports: tuple[PortErrors, ...] = (), **counts: int | None) -> Counters:
    """Error counters; None is a counter that cannot be read."""
    named = {"replay_rollovers": 0, "correctable": 0, "nonfatal": 0, "fatal": 0, **counts, "replays": replays}
    return Counters(**{name: _count(number) for name, number in named.items()}, ports=ports)


def port_errors(pci: str, correctable: int | None = 0, nonfatal: int | None = 0, fatal: int | None = 0) -> PortErrors:
    return PortErrors(pci, _count(correctable), _count(nonfatal), _count(fatal))


def port(pci: str = "0000:00:06.0", most: int | None = 256, redirects: bool | None = False) -> PortControl:
    return PortControl(pci, Fact(256), unknown(NO_CONFIG) if most is None else Fact(most), _known(redirects, NO_CONFIG))


def far(h2d: float = 45.0, d2h: float = 44.0) -> Fact[FarRates]:
    return Fact(FarRates(0, 1, LARGE, {"h2d": 55.5, "d2h": 55.4}, {"h2d": h2d, "d2h": d2h}))


def health(**overrides: Any) -> Health:
    """The health of a host without faults; 0.2 TB crossed the link between the readings."""
    good = Health(
        before=counters(),
        after=counters(),
        moved_bytes=200 * 10**9,
        ports=(port(),),
        iommu=Fact("none"),
        lock_limit_bytes=Fact(Bound()),
        memory_limit_bytes=Fact(Bound()),
        cpu_limit=Fact(Bound()),
        cpus_near=Fact(16),
        shared_memory_bytes=Fact(64 << 30),
        device_memory=DeviceMemory(Fact(0), Fact(False), Fact(False)),
        devices=1,
        far=unknown("this machine shows one NUMA node with CPUs, so there is no other to compare with"),
    )
    return msgspec.structs.replace(good, **overrides)


def found(rule: Callable[[Case], Findings], run: Run | None = None, **more: Any) -> list[Finding]:
    """The findings of a rule, by default on a good H200."""
    return list(rule(Case(h200() if run is None else run, more.get("health", health()), more.get("nearest"))))


def only(rule: Callable[[Case], Findings], run: Run | None = None, **more: Any) -> Finding:
    """The one finding of a rule."""
    (finding,) = found(rule, run, **more)
    return finding


def _count(number: int | None) -> Fact[int]:
    return unknown("Not Supported") if number is None else Fact(number)


def _known(flag: bool | None, why_not: str) -> Fact[bool]:
    return unknown(why_not) if flag is None else Fact(flag)


def run_of(reference: Reference) -> Run:
    """The run of a known host, which comes with the package."""
    data = (resources.files("pyxfer") / "references" / reference.document).read_bytes()
    return codec.decode(Run, data, reference.document)
