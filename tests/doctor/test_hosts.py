"""Whole hosts, each with one fault: exactly the findings that it deserves; and the known hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from doctor.cases import (
    GEN5_X16,
    NO_CONFIG,
    bare_metal,
    copies,
    copy,
    counters,
    far,
    h200,
    h200_link,
    health,
    one_node,
    port,
    run_of,
)
from samples import make_environment

from pyxfer._doctor.examine import examine, nearest_known, references
from pyxfer._document.examinations import Bound, DeviceMemory, Finding, Health, PortControl, Reference
from pyxfer._document.machines import Fact, Hop, Link, LinkState, Side, unknown
from pyxfer._document.runs import Measurement, Run

ABOVE = "0000:18:00.0"
GEN5_X8, GEN4_X16 = LinkState(5, 8), LinkState(4, 16)
H200_PEAK_GBPS = 58.449
PAGEABLE_GBPS: dict[Side, float] = {"h2d": 9.0, "d2h": 15.0}


@dataclass(frozen=True)
class Host:
    """A host by what differs from a good one. `gbps`: of pinned copies both ways, if the link does not decide it."""

    bad: str = ""
    """The findings as root: `status code`, sorted, separated by commas."""
    user: str | None = None
    """The same as an ordinary user, if they differ."""
    gbps: float | None = None
    link: Mapping[str, Any] = field(default_factory=dict)
    state: LinkState = GEN5_X16
    above: Hop | None = None
    ports: tuple[PortControl, ...] = (port(), port(ABOVE))
    run: Mapping[str, Any] = field(default_factory=dict)
    health: Mapping[str, Any] = field(default_factory=dict)


def upper(working: LinkState, most: LinkState) -> Hop:
    return Hop(ABOVE, Fact(working), Fact(most))


def placed(near: int, away: int) -> Any:
    return msgspec.structs.replace(one_node(), pages_by_node=Fact({"0": near, "1": away}))


REPLAYED, SLOWED = counters(40_000), make_environment(throttle_reasons=Fact(("hardware slowdown",)))
HOSTS: dict[str, Host] = {
    "healthy": Host(),
    "healthy, idle at generation 1": Host(link={"now": Fact(LinkState(1, 16))}),
    "link x8 of x16": Host("wrong link", state=GEN5_X8),
    "slot is x8": Host("wrong slot", state=GEN5_X8, link={"system_most": Fact(GEN5_X8)}),
    "generation 4 under load": Host("wrong link", state=GEN4_X16),
    "stuck at generation 1": Host("wrong link", state=LinkState(1, 16)),
    "board of generation 4": Host("suspicious slot", state=GEN4_X16, link={"system_most": Fact(GEN4_X16)}),
    "uplink x8 of x16": Host("wrong path", above=upper(GEN5_X8, GEN5_X16)),
    "uplink x8 by design": Host("suspicious path", above=upper(GEN5_X8, GEN5_X8)),
    "payload 128 of 256": Host(
        "suspicious payload", "suspicious ceiling, suspicious ceiling", gbps=51.8, link={"max_payload_bytes": Fact(128)}
    ),
    "payload 256 of 512": Host("suspicious payload", "", ports=(port(most=512), port(ABOVE, most=512))),
    "relaxed ordering off": Host("suspicious ordering", "", link={"relaxed_ordering": Fact(False)}),
    "88 % of the peak": Host("suspicious ceiling, suspicious ceiling", gbps=0.88 * H200_PEAK_GBPS),
    "84 % of the peak": Host(
        "suspicious ceiling, wrong ceiling", "suspicious ceiling, suspicious ceiling", gbps=0.847 * H200_PEAK_GBPS
    ),
    "half of the peak": Host("wrong ceiling, wrong ceiling", gbps=27.8),
    "93 % of the known host": Host("suspicious known-host", "", gbps=52.75),
    "memory far away": Host(
        "wrong ceiling, wrong ceiling, wrong numa-memory", gbps=43.0, run={"placement": placed(0, 4096)}
    ),
    "memory far away without a loss": Host("suspicious numa-memory", run={"placement": placed(0, 4096)}),
    "another node is nearer": Host("wrong numa-far", health={"far": far(58.0, 58.0)}),
    "no processor near": Host("suspicious numa-processors", health={"cpus_near": Fact(0)}),
    "replays": Host("suspicious replays", health={"after": REPLAYED}),
    "replays that cost": Host(
        "suspicious ceiling, suspicious ceiling, suspicious replays", gbps=51.0, health={"after": REPLAYED}
    ),
    "fatal errors": Host("wrong link-errors", health={"after": counters(fatal=1)}),
    "IOMMU that costs": Host(
        "suspicious ceiling, suspicious ceiling, suspicious iommu", gbps=50.5, health={"iommu": Fact("DMA-FQ")}
    ),
    "IOMMU without a loss": Host(health={"iommu": Fact("DMA-FQ")}),
    "ACS with two GPUs": Host("suspicious acs", "", ports=(port(), port(ABOVE, redirects=True)), health={"devices": 2}),
    "slowed down": Host("wrong throttling", run={"environment_after": SLOWED}),
    "slowed down, 93 % of the known host": Host("wrong throttling", gbps=52.75, run={"environment_after": SLOWED}),
    "another user": Host("suspicious sharing", run={"environment": {"other_gpu_processes": Fact((71,))}}),
    "uncorrected memory error": Host(
        "wrong device-memory", health={"device_memory": DeviceMemory(Fact(1), Fact(False), Fact(False))}
    ),
    "persistence off": Host("suspicious persistence", run={"environment": {"persistence": Fact(False)}}),
    "little shared memory": Host("suspicious shared-memory", health={"shared_memory_bytes": Fact(64 << 20)}),
    "2 processors": Host("suspicious container", health={"cpu_limit": Fact(Bound(2.0))}),
}


def link_of(host: Host, root: bool) -> Link:
    hops = (h200_link(host.state).hops[0], *([] if host.above is None else [host.above]))
    names = () if root else ("max_payload_bytes", "relaxed_ordering")
    hidden: dict[str, Any] = {name: unknown(NO_CONFIG) for name in names}
    return h200_link(host.state, hops=hops, **{**host.link, **hidden})


def copies_of(host: Host) -> tuple[Measurement, ...]:
    if host.gbps is None:
        peak_gbps = link_of(host, root=True).h2d_peak_gbps.value or 0.0
        return copies(peak_gbps / H200_PEAK_GBPS, link=link_of(host, root=True))
    return tuple(
        copy(side, gbps, memory)
        for side, plain in PAGEABLE_GBPS.items()
        for memory, gbps in (("pinned", host.gbps), ("pageable", plain))
    )


def faults(host: Host, root: bool) -> str:
    ports = host.ports
    if not root:
        ports = tuple(port(each.pci, most=None, redirects=None) for each in ports)
    run = bare_metal(link=link_of(host, root), measurements=copies_of(host), **host.run)
    findings = examine(run, health(**{"ports": ports, **host.health}), nearest_known(run).value)
    return ", ".join(
        sorted(f"{each.status} {each.code}" for each in findings if each.status in ("wrong", "suspicious"))
    )


@pytest.mark.parametrize("root", [True, False], ids=["root", "user"])
@pytest.mark.parametrize("name", HOSTS)
def test_each_host_has_the_findings_of_its_fault_and_no_others(name: str, root: bool) -> None:
    host = HOSTS[name]
    assert faults(host, root) == (host.bad if root or host.user is None else host.user)


def findings(run: Run, seen: Health | None = None) -> tuple[Finding, ...]:
    return examine(run, seen, nearest_known(run).value)


def test_nothing_is_wrong_with_a_good_h200() -> None:
    found = findings(h200(), health())
    assert {each.status for each in found} == {"fine", "unknown"}
    assert {each.subject for each in found if each.status == "unknown"} == {"ACS", "NUMA far memory"}
    assert "this is a virtual machine (Firecracker)" in {each.seen for each in found}


def test_the_worst_findings_come_first() -> None:
    link = h200_link(LinkState(5, 8), relaxed_ordering=Fact(False))
    order = [each.status for each in findings(bare_metal(link=link), health())]
    assert order == sorted(order, key=["wrong", "suspicious", "unknown", "fine"].index)
    assert order[0] == "wrong"


def test_the_health_of_a_saved_run_is_unknown() -> None:
    (saved,) = [each for each in findings(h200()) if each.code == "health"]
    assert saved.status == "unknown"


def test_for_host_memory_only_the_host_is_examined() -> None:
    run = h200(runtime="host", runtime_reason="No usable GPU: none is visible.")
    codes = {each.code for each in findings(run, health())}
    assert codes == {*("link", "contents", "huge-pages", "lock-limit", "container", "shared-memory", "virtual-machine")}
    (link,) = [each for each in findings(run, health()) if each.code == "link"]
    assert "no link to examine: No usable GPU" in link.seen


def test_a_failed_run_is_unknown_with_its_failure() -> None:
    run = h200(ended="failed", failure="the device was lost", measurements=())
    seen = {each.code: each for each in findings(run, health())}
    assert seen["measurement"].seen == "the device was lost"
    assert seen["ceiling"].status == "unknown"


def test_every_finding_has_its_own_subject() -> None:
    subjects = [each.subject for each in findings(h200(), health())]
    assert len(subjects) == len(set(subjects))


H200 = next(each for each in references() if each.device == "NVIDIA H200")


def known(name: str, device: str, link: LinkState, payload: int = 256) -> Reference:
    return msgspec.structs.replace(H200, name=name, device=device, link=link, max_payload_bytes=payload)


A100 = known("an A100", "NVIDIA A100-SXM4-80GB", LinkState(4, 16))
SLOW = known("an H200 at Gen4", "NVIDIA H200", LinkState(4, 16))
SMALL = known("an H200 with small packets", "NVIDIA H200", GEN5_X16, 128)


def nearest(run: Run) -> str:
    found = nearest_known(run, (A100, SLOW, SMALL, H200)).value
    assert found is not None
    return found.reference.name


def test_a_known_host_has_the_run_of_its_figures() -> None:
    for reference in references():
        run = run_of(reference)
        assert run.device.name == reference.device
        best = run.ceiling("h2d", 256 << 20)
        assert best.gbps == reference.gbps("h2d", "pinned", 256 << 20)


def test_the_nearest_has_the_same_device_then_link_then_payload() -> None:
    assert nearest(h200()) == H200.name
    assert nearest(h200(link=h200_link(LinkState(4, 16)))) == "an H200 at Gen4"
    assert nearest(h200(link=h200_link(max_payload_bytes=Fact(128)))) == "an H200 with small packets"
    a100 = msgspec.structs.replace(h200().device, name="NVIDIA A100-SXM4-80GB")
    assert nearest(h200(device=a100)) == "an A100"


def test_an_unknown_device_is_nearest_to_a_similar_link() -> None:
    other = msgspec.structs.replace(h200().device, name="NVIDIA L40S")
    assert nearest(h200(device=other, link=h200_link(LinkState(4, 16)))) in ("an A100", "an H200 at Gen4")


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (h200(link=h200_link(LinkState(5, 8))), "PCIe 5.0 x8 here"),
        (h200(link=h200_link(max_payload_bytes=unknown("takes root"))), "MaxPayload unknown here"),
        (h200(device=msgspec.structs.replace(h200().device, mig=Fact(True))), "a part of a GPU here"),
        (h200(device=msgspec.structs.replace(h200().device, confidential=Fact(True))), "encrypted here"),
        (h200(device=msgspec.structs.replace(h200().device, name="NVIDIA H100 PCIe")), "NVIDIA H100 PCIe here"),
    ],
)
def test_differences_from_the_known_host_are_listed(run: Run, word: str) -> None:
    found = nearest_known(run).value
    assert found is not None
    assert not found.alike
    assert word in found.differs[0]


def test_without_a_pcie_link_there_is_no_nearest_host() -> None:
    link = msgspec.structs.replace(h200_link(), kind="c2c", raw_peak_gbps=unknown("joined chip to chip"))
    assert "joined chip to chip" in (nearest_known(h200(link=link)).reason or "")
