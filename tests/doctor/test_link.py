"""The link and the host around it: states, slot, ports, packets, errors, limits, clocks, other users, memory, NUMA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from doctor.cases import (
    GEN5_X16,
    LARGE,
    MIB,
    bare_metal,
    copies,
    copy,
    counters,
    far,
    found,
    h200,
    h200_link,
    health,
    only,
    port,
    port_errors,
)

from pyxfer._doctor import host
from pyxfer._doctor import link as links
from pyxfer._doctor.case import Case, Findings
from pyxfer._document.examinations import Bound, DeviceMemory, Finding, Health, PortControl, PortErrors
from pyxfer._document.machines import Fact, Hop, Link, LinkState, Placement, Remark, unknown
from pyxfer._document.runs import Run
from pyxfer._machine.link import with_load
from pyxfer._measure import stats

GEN4_X16, GEN5_X8 = LinkState(4, 16), LinkState(5, 8)


def of_link(loaded: LinkState = GEN5_X16, **link: Any) -> Finding:
    return only(links.link, bare_metal(link=h200_link(loaded, **link)))


def test_an_idle_link_of_a_lower_generation_is_fine() -> None:
    finding = of_link(now=Fact(LinkState(1, 16)))
    assert finding.status == "fine"
    assert "PCIe 1.0 x16 while idle" in finding.seen


@pytest.mark.parametrize(
    ("state", "cause"), [(GEN5_X8, "only 8 of 16 lanes came up"), (GEN4_X16, "it trained at generation 4 of 5")]
)
def test_a_link_below_what_slot_and_device_can_do_is_wrong(state: LinkState, cause: str) -> None:
    finding = of_link(state)
    assert (finding.status, finding.sure) == ("wrong", "certain")
    assert only(links.link, h200(link=h200_link(state))).sure == "likely"
    assert finding.why.startswith(cause)
    assert ";" not in finding.why
    assert finding.do


def behind(now: LinkState, most: LinkState) -> tuple[Hop, Hop]:
    return Hop("0000:3b:00.0", Fact(GEN5_X16), Fact(GEN5_X16)), Hop("0000:3a:00.0", Fact(now), Fact(most))


UNREAD: Fact[Any] = unknown("it cannot be read")
STATUSES: list[tuple[Callable[[Case], Findings], Link, Health, str]] = [
    (links.link, with_load(h200_link(), UNREAD), health(), "unknown"),
    (links.slot, h200_link(device_most=UNREAD), health(), "unknown"),
    (links.path, h200_link(hops=behind(GEN5_X16, GEN5_X16)), health(), "fine"),
    (links.path, h200_link(hops=behind(GEN5_X8, GEN5_X16)), health(), "wrong"),
    (links.path, h200_link(hops=behind(GEN4_X16, GEN4_X16)), health(), "suspicious"),
    (links.path, h200_link(hops=()), health(), "unknown"),
    (links.ordering, h200_link(relaxed_ordering=UNREAD), health(), "unknown"),
    # The specification allows 18 wrong bits in 1 TB, and 7 in the 200 GB of these hosts.
    (links.replays, h200_link(), health(moved_bytes=10**12), "fine"),
    (links.replays, h200_link(), health(after=counters(18), moved_bytes=10**12), "fine"),
    (links.replays, h200_link(), health(after=counters(19), moved_bytes=10**12), "suspicious"),
    (links.replays, h200_link(), health(after=counters(4, replay_rollovers=1), moved_bytes=10**12), "wrong"),
    (links.replays, h200_link(), health(after=counters(None)), "unknown"),
    (links.link_errors, h200_link(), health(after=counters(nonfatal=1)), "wrong"),
    (links.link_errors, h200_link(), health(after=counters(correctable=7)), "fine"),
    (links.link_errors, h200_link(), health(after=counters(correctable=8)), "suspicious"),
]


@pytest.mark.parametrize(("rule", "state", "seen", "status"), STATUSES)
def test_the_status_depends_on_the_state_of_the_link(
    rule: Callable[[Case], Findings], state: Link, seen: Health, status: str
) -> None:
    finding = only(rule, bare_metal(link=state), health=seen)
    assert (finding.status, "0000:3a:00.0" in finding.seen) == (
        status,
        len(state.hops) == 2 and status in ("wrong", "suspicious"),
    )


@pytest.mark.parametrize(
    ("gbps", "other", "status"),
    [
        *[(4.1, {}, "suspicious"), (4.03, {}, "wrong"), (3.9, {}, "wrong")],
        *[(50.0, {"nbytes": 16 * MIB}, "suspicious"), (50.0, {"nbytes": 8 * MIB}, "wrong")],
        (50.0, {"verified": unknown("not compared")}, "wrong"),
        (50.0, {"route": "torch.to"}, "wrong"),
        (50.0, {"side": "sum", "direction": "both"}, "wrong"),
    ],
)
def test_a_link_slower_than_its_verified_raw_copies_is_suspicious(
    gbps: float, other: dict[str, Any], status: str
) -> None:
    """PCIe 1.0 x16 carries 4 GB/s."""
    summary = stats.summarise([other.get("nbytes", LARGE) / gbps / 1e9] * 9)
    fast = msgspec.structs.replace(copy("h2d", None), **{"verified": Fact(True), "summary": summary, **other})
    finding = only(links.link, bare_metal(link=h200_link(LinkState(1, 16)), measurements=(fast,)))
    assert (finding.status, finding.sure) == (status, "certain")


def test_another_kind_of_link_is_unknown_and_not_checked_further() -> None:
    reason = "host and device are joined by NVLink, so no PCIe peak applies"
    link = msgspec.structs.replace(h200_link(), kind="nvlink", raw_peak_gbps=unknown(reason))
    assert only(links.link, h200(link=link)).seen == reason
    for rule in (links.slot, links.path, links.payload, links.ordering):
        assert found(rule, h200(link=link)) == []


def behind_port(now: LinkState, gbps: float | None, device_now: LinkState = GEN5_X16) -> Finding:
    """The path of a host with a port above the device that was read in `now`, and copies at this bandwidth, or none."""
    hops = (Hop("0000:3b:00.0", Fact(device_now), Fact(GEN5_X16)), Hop("0000:3a:00.0", Fact(now), Fact(GEN5_X16)))
    link = h200_link(hops=hops, now=Fact(device_now))
    return only(links.path, bare_metal(link=link, measurements=(copy("h2d", gbps, verified=Fact(True)),)))


@pytest.mark.parametrize("device_now", [GEN5_X16, LinkState(1, 16)])
def test_a_port_that_has_lost_lanes_is_wrong_also_if_it_was_read_idle(device_now: LinkState) -> None:
    finding = behind_port(LinkState(1, 8), 27.7, device_now)
    assert (finding.status, finding.sure) == ("wrong", "certain")
    assert finding.seen == "the link of 0000:3a:00.0, above the device, is PCIe 5.0 x8"
    assert "8 of 16 lanes" in finding.why
    assert "generation" not in finding.why


def test_a_port_that_idles_by_itself_is_fine_and_said() -> None:
    finding = behind_port(LinkState(1, 16), 55.5)
    assert (finding.status, finding.sure) == ("fine", "likely")
    assert "that of 0000:3a:00.0 was at PCIe 1.0 x16 while idle" in finding.seen


def test_a_port_of_a_lower_generation_than_it_can_have_is_wrong_if_no_copy_is_faster() -> None:
    finding = behind_port(LinkState(3, 16), 12.4)
    assert (finding.status, finding.sure) == ("wrong", "likely")
    assert "PCIe 3.0 x16" in finding.seen
    assert behind_port(LinkState(3, 16), 12.4, device_now=LinkState(1, 16)).status == "fine"  # all were idle
    assert behind_port(LinkState(3, 16), 15.8).status == "fine"
    assert behind_port(LinkState(3, 16), None).status == "fine"


def test_a_path_without_fault_says_how_many_links_were_seen() -> None:
    hops = tuple(Hop(f"0000:{bus}:00.0", Fact(GEN5_X16), Fact(GEN5_X16)) for bus in ("3b", "3a"))
    two = only(links.path, bare_metal(link=h200_link(hops=hops)))
    assert (two.seen, two.sure) == ("2 links, none narrower than its own", "certain")
    one = only(links.path, h200(link=h200_link(hops=hops[:1])))
    assert (one.seen, one.sure) == ("one link, as far as a virtual machine shows", "possible")


@pytest.mark.parametrize(("now", "most", "status"), [(256, 256, "fine"), (128, 256, "suspicious"), (256, 128, "fine")])
def test_a_payload_below_the_limit_of_every_port_is_suspicious(now: int, most: int, status: str) -> None:
    run = bare_metal(link=h200_link(max_payload_bytes=Fact(now)))
    finding = only(links.payload, run, health=health(ports=(port(most=512), port("0000:00:01.0", most=most))))
    assert finding.status == status
    assert finding.seen == f"MaxPayload {now} bytes, headers take {'13.5' if now == 128 else '7.2'} % of the link"
    assert ("pci=pcie_bus_perf" in (finding.do or "")) == (status == "suspicious")


@pytest.mark.parametrize("ports", [(), (port(most=None),), (port(most=512), port(most=None))])
def test_without_the_limits_of_ports_only_the_smallest_payload_is_suspicious(ports: tuple[PortControl, ...]) -> None:
    closed = health(ports=ports)
    small, usual = h200_link(max_payload_bytes=Fact(128)), h200_link(max_payload_bytes=Fact(256))
    finding = only(links.payload, bare_metal(link=small), health=closed)
    assert (finding.status, finding.sure) == ("suspicious", "possible")
    assert finding.why.startswith("most ports can take 256 bytes, whose headers would take 7.2 %; here ")
    assert only(links.payload, bare_metal(link=usual), health=closed).status == "fine"


@pytest.mark.parametrize(
    ("h2d", "d2h", "status", "least"),
    [
        (55.55, 55.41, "fine", 256),
        (55.2, 20.0, "fine", 256),
        (20.0, 55.2, "fine", 256),
        (54.9, 54.9, "unknown", 128),  # 54.5 GB/s and 1 % for the clock are what 128 bytes carry
        (30.0, 30.0, "unknown", 128),
        (60.0, 55.0, "fine", 512),
        (70.0, 55.0, "unknown", 128),  # faster than the link, so the figure or the link is wrong
    ],
)
def test_copies_bound_a_payload_that_cannot_be_read(h2d: float, d2h: float, status: str, least: int) -> None:
    link = h200_link(max_payload_bytes=unknown("takes root"))
    run = bare_metal(link=link, measurements=(copy("h2d", h2d), copy("d2h", d2h)))
    finding = only(links.payload, run)
    assert (finding.status, Case(run).least_payload_bytes) == (status, least)
    assert (f"at least {least} bytes" in finding.seen) == (status == "fine")
    assert "as root" in (finding.do or "")


@pytest.mark.parametrize("changed", [{"measurements": ()}, {"measurements": (copy("h2d", 55.5, nbytes=8 << 20),)}])
def test_without_large_copies_a_payload_that_cannot_be_read_is_unknown(changed: dict[str, Any]) -> None:
    run = h200(link=h200_link(max_payload_bytes=unknown("takes root")), **changed)
    assert only(links.payload, run).status == "unknown"


TB = 10**12


def of_replays(count: int | None, moved_bytes: int = TB, before: int = 0, rollovers: int = 0) -> Finding:
    grown = None if count is None else before + count
    seen = health(before=counters(before), after=counters(grown, replay_rollovers=rollovers), moved_bytes=moved_bytes)
    return only(links.replays, health=seen)


def test_the_allowed_errors_grow_with_the_bytes() -> None:
    assert [links.most_errors(nbytes) for nbytes in (0, TB // 8, TB)] == [0, 5, 18]


@pytest.mark.parametrize("terabytes", [1, 10, 60, 62, 63, 100, 1000])
def test_the_allowed_errors_are_three_deviations_above_the_mean(terabytes: int) -> None:
    mean = 8 * terabytes
    assert mean + 2.8 * math.sqrt(mean) <= links.most_errors(terabytes * TB) <= mean + 3.7 * math.sqrt(mean)


def test_replays_are_shown_per_terabyte() -> None:
    assert "19 sent again while 300 GB crossed, 63.3 per TB" in of_replays(19, moved_bytes=3 * TB // 10).seen


def test_earlier_replays_are_shown_and_not_judged() -> None:
    finding = of_replays(0, before=70_000)
    assert finding.status == "fine"
    assert finding.seen.endswith("; 70000 before")


def test_a_counter_that_was_reset_is_unknown() -> None:
    seen = health(before=counters(9), after=counters(2))
    finding = only(links.replays, health=seen)
    assert (finding.status, finding.seen) == ("unknown", "the count went from 9 to 2, so it was reset in between")


def test_without_moved_bytes_no_error_is_allowed() -> None:
    assert of_replays(1, moved_bytes=0).status == "suspicious"
    assert "nothing crossed" in of_replays(0, moved_bytes=0).seen


def of_errors(before: Health, **after: object) -> Finding:
    return only(links.link_errors, health=health(before=before.before, after=counters(**after)))  # type: ignore[arg-type]


def errors(**after: object) -> Finding:
    ports = (port_errors("0000:3b:00.0"), port_errors("0000:3a:01.0"))
    return of_errors(health(before=counters(ports=ports)), **{"ports": ports, **after})


def test_no_error_is_fine_with_the_number_of_places() -> None:
    assert (errors().status, errors().seen) == ("fine", "no error, counted in 3 places")
    assert errors(correctable=7).seen == "7 corrected, none uncorrected, counted in 3 places"


def test_only_places_that_can_be_read_are_counted() -> None:
    one = counters(nonfatal=None, fatal=None, ports=(port_errors("0000:3b:00.0", None, None, None),))
    assert only(links.link_errors, health=health(before=one, after=one)).seen == "no error, counted in 1 place"


@pytest.mark.parametrize("kind", ["nonfatal", "fatal"])
def test_an_uncorrected_error_of_a_port_is_wrong_and_names_the_port(kind: str) -> None:
    ports = (port_errors("0000:3b:00.0"), port_errors("0000:3a:01.0", **{kind: 1}))
    finding = errors(ports=ports)
    assert finding.status == "wrong"
    assert "1 at 0000:3a:01.0" in finding.seen


def test_earlier_errors_are_not_judged() -> None:
    ports = (port_errors("0000:3b:00.0", 900, 3, 1),)
    before = health(before=counters(correctable=900, nonfatal=3, ports=ports))
    assert of_errors(before, correctable=900, nonfatal=3, ports=ports).status == "fine"


def test_without_counters_errors_are_unknown() -> None:
    silent = PortErrors("0000:3b:00.0", *[unknown("no AER")] * 3)
    nothing = counters(correctable=None, nonfatal=None, fatal=None, ports=(silent,))
    finding = only(links.link_errors, health=health(before=nothing, after=nothing))
    assert (finding.status, finding.seen) == ("unknown", "Not Supported")


def test_a_saved_run_has_no_counters() -> None:
    assert found(links.replays, health=None) == found(links.link_errors, health=None) == []


GIB = 1 << 30


def after(reasons: tuple[str, ...]) -> Run:
    """The H200, with these reasons for lower clocks after the copies."""
    run = h200()
    environment = msgspec.structs.replace(run.environment, throttle_reasons=Fact(reasons))
    return msgspec.structs.replace(run, environment_after=environment)


def around(**environment: Any) -> Run:
    return h200(environment=environment)


def memory(errors: int | None = 0, pending: bool | None = False, failed: bool | None = False) -> DeviceMemory:
    facts = [unknown("Not Supported") if value is None else Fact(value) for value in (errors, pending, failed)]
    return DeviceMemory(*facts)  # type: ignore[arg-type]


REDIRECTING, HIDDEN = port("0000:3a:00.0", redirects=True), port("0000:3a:00.0", redirects=None)
HOST_STATUSES: list[tuple[Callable[[Case], Findings], Run | None, dict[str, Any], str]] = [
    # A translating IOMMU costs something only if copies are slow.
    (host.iommu, bare_metal(measurements=copies(0.9)), {"iommu": Fact("DMA")}, "suspicious"),
    (host.access_control, None, {"ports": (port(), REDIRECTING), "devices": 1}, "fine"),
    (host.access_control, None, {"ports": (port(), port("0000:3a:00.0")), "devices": 8}, "fine"),
    (host.access_control, None, {"ports": (port(), HIDDEN), "devices": 8}, "unknown"),
    (host.access_control, None, {"ports": (port(),), "devices": 8}, "unknown"),
    # Small pages cost something only if addresses are translated.
    (host.huge_pages, around(transparent_huge_pages=Fact("always")), {"iommu": Fact("DMA")}, "fine"),
    (host.huge_pages, around(transparent_huge_pages=Fact("never")), {"iommu": Fact("none")}, "fine"),
    (host.huge_pages, around(transparent_huge_pages=Fact("never")), {"iommu": Fact("DMA")}, "suspicious"),
    # A lock limit is suspicious if nothing was locked beyond it.
    (host.lock_limit, h200(measurements=copies(nbytes=16 * MIB)), {"lock_limit_bytes": Fact(Bound())}, "fine"),
    (host.lock_limit, h200(measurements=copies(nbytes=16 * MIB)), {"lock_limit_bytes": Fact(Bound(8 * MIB))}, "fine"),
    (
        host.lock_limit,
        h200(measurements=copies(nbytes=4 * MIB)),
        {"lock_limit_bytes": Fact(Bound(8 * MIB))},
        "suspicious",
    ),
    (host.lock_limit, h200(measurements=copies(nbytes=16 * MIB)), {"lock_limit_bytes": Fact(Bound(GIB))}, "fine"),
    (host.container, None, {"memory_limit_bytes": Fact(Bound(8 * GIB)), "cpu_limit": Fact(Bound(4.0))}, "fine"),
    (host.container, None, {"memory_limit_bytes": Fact(Bound(8 * GIB - 1))}, "suspicious"),
    (host.container, None, {"cpu_limit": Fact(Bound(3.5))}, "suspicious"),
    (host.shared_memory, None, {"shared_memory_bytes": Fact(GIB)}, "fine"),
    (host.shared_memory, None, {"shared_memory_bytes": Fact(GIB - 1)}, "suspicious"),
    (host.throttling, after(()), {}, "fine"),
    (host.throttling, after(("idle",)), {}, "fine"),
    (host.throttling, after(("software power cap",)), {}, "suspicious"),
    (host.throttling, after(("idle", "hardware thermal slowdown")), {}, "wrong"),
    (host.throttling, after(("unnamed reason 0x1000",)), {}, "suspicious"),
    (host.throttling, around(throttle_reasons=UNREAD), {}, "unknown"),
    (host.persistence, around(persistence=UNREAD), {}, "unknown"),
    (host.sharing, around(other_gpu_processes=UNREAD), {}, "unknown"),
    (host.virtual_machine, around(virtual_machine=UNREAD), {}, "unknown"),
    (host.device_memory, None, {"device_memory": memory(0, False, True)}, "wrong"),
    (host.device_memory, None, {"device_memory": memory(0, True)}, "suspicious"),
    (host.device_memory, None, {"device_memory": memory(0, None, None)}, "fine"),
    (host.device_memory, None, {"device_memory": memory(None, None, None)}, "unknown"),
    (host.processors, None, {"cpus_near": Fact(1)}, "fine"),
    # Far memory is slower, but not below half.
    (host.far_memory, None, {"far": far(57.0, 50.0)}, "fine"),
    (host.far_memory, None, {"far": far(57.3, 50.0)}, "wrong"),
    (host.far_memory, None, {"far": far(27.8, 50.0)}, "fine"),
    (host.far_memory, None, {"far": far(27.5, 50.0)}, "suspicious"),
]


@pytest.mark.parametrize(("rule", "run", "parts", "status"), HOST_STATUSES)
def test_the_status_depends_on_the_state_of_the_host(
    rule: Callable[[Case], Findings], run: Run | None, parts: dict[str, Any], status: str
) -> None:
    assert only(rule, run, health=health(**parts)).status == status


def test_unreadable_ports_have_the_advice_to_run_as_root() -> None:
    ports = (port(), port("0000:3a:00.0", redirects=None))
    assert "as root" in (only(host.access_control, health=health(ports=ports)).do or "")


def test_a_lock_limit_is_wrong_if_page_locking_failed() -> None:
    run = h200(measurements=(copy("h2d", None, rate=unknown("out of page-locked memory")),))
    finding = only(host.lock_limit, run, health=health(lock_limit_bytes=Fact(Bound(64 * 1024))))
    assert finding.status == "wrong"
    assert "out of page-locked memory" in finding.why
    assert "memlock=-1" in (finding.do or "")


def test_without_a_gpu_the_lock_limit_is_fine() -> None:
    run = h200(runtime="host")
    finding = only(host.lock_limit, run, health=health(lock_limit_bytes=Fact(Bound(64 * 1024))))
    assert (finding.status, finding.seen) == ("fine", "ulimit -l is 64 KiB")


def test_the_limits_of_a_container_are_shown() -> None:
    limits = health(memory_limit_bytes=Fact(Bound(2 * GIB)), cpu_limit=Fact(Bound(1.5)))
    assert only(host.container, health=limits).seen == ("docker, memory limited to 2.0 GiB, processors limited to 1.5")
    assert only(host.container).seen == "docker, memory and processors not limited"


def test_a_virtual_machine_is_fine() -> None:
    finding = only(host.virtual_machine)
    assert (finding.status, finding.seen) == ("fine", "this is a virtual machine (Firecracker)")
    assert only(host.virtual_machine, bare_metal()).seen == "none: this is bare metal"


def test_a_saved_run_has_no_findings_of_limits() -> None:
    for rule in (host.iommu, host.lock_limit, host.container, host.shared_memory):
        assert found(rule, health=None) == []


def test_another_pyxfer_is_found_even_if_processes_cannot_be_seen() -> None:
    remark = Remark("contended", "Another pyxfer measured this device at the same time (process 7).")
    run = h200(environment={"other_gpu_processes": unknown("in a container")}, remarks=(remark,))
    finding = only(host.sharing, run)
    assert (finding.status, finding.seen) == ("suspicious", remark.text.rstrip("."))


@pytest.mark.parametrize(
    ("field", "code"), [("mig", "part-of-gpu"), ("vgpu", "part-of-gpu"), ("confidential", "confidential")]
)
def test_a_partial_or_encrypted_device_is_fine(field: str, code: str) -> None:
    device = msgspec.structs.replace(h200().device, **{field: Fact(True)})
    finding = only(host.partial_device, h200(device=device))
    assert (finding.code, finding.status) == (code, "fine")


def placed(pages: dict[str, int], node: int | None = 0, share: float = 1.0) -> Finding:
    device_node: Fact[int] = unknown("the firmware names no NUMA node") if node is None else Fact(node)
    placement = Placement(device_node, Fact("0-31"), Fact(1), Fact(pages))
    return only(host.numa_memory, bare_metal(placement=placement, measurements=copies(share)))


@pytest.mark.parametrize(("near", "status"), [(1000, "fine"), (990, "fine"), (989, "suspicious"), (0, "suspicious")])
def test_memory_away_from_the_device_is_suspicious(near: int, status: str) -> None:
    assert placed({"0": near, "1": 1000 - near}).status == status


def test_memory_away_from_the_device_is_wrong_if_copies_are_slow() -> None:
    finding = placed({"1": 1000}, share=0.8)
    assert finding.status == "wrong"
    assert "0 % of it on node 0" in finding.seen
    assert "numactl --cpunodebind=0 --membind=0" in (finding.do or "")


def test_pages_without_a_node_are_left_out() -> None:
    assert placed({"0": 10, "untouched": 1000}).status == "fine"


def test_a_device_without_a_node_is_unknown() -> None:
    assert placed({"0": 10}, node=None).seen == "the firmware names no NUMA node"


def test_the_finding_has_the_reason_why_the_thread_was_not_bound() -> None:
    why = "not bound: none of the CPUs of NUMA node 0 (0-31) is among those allowed here (32-63)"
    run = bare_metal(placement=Placement(Fact(0), unknown(why), unknown(why), Fact({"1": 9})))
    assert why in only(host.numa_memory, run).why


def test_far_memory_is_shown_as_a_share_of_near_memory() -> None:
    assert only(host.far_memory, health=health(far=far())).seen == (
        "node 1 reaches h2d 81.1 %, d2h 79.4 % of node 0 at 256 MiB"
    )
