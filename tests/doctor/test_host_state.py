"""The host around the link: limits, memory settings, clocks, other users, device memory and NUMA."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor.cases import MIB, bare_metal, copies, copy, far, found, h200, health, only, port

from pyxfer._doctor import host
from pyxfer._document.examinations import Bound, DeviceMemory, Finding, PortControl
from pyxfer._document.machines import Fact, Placement, Remark, unknown
from pyxfer._document.runs import Run

GIB = 1 << 30


@pytest.mark.parametrize(
    ("kind", "share", "status"),
    [
        ("none", 0.5, "fine"),
        ("identity", 0.5, "fine"),
        ("DMA", 1.0, "fine"),
        ("DMA", 0.9, "suspicious"),
        ("DMA-FQ", 0.9, "suspicious"),
    ],
)
def test_a_translating_iommu_is_suspicious_only_if_copies_are_slow(kind: str, share: float, status: str) -> None:
    run = bare_metal(measurements=copies(share))
    finding = only(host.iommu, run, health=health(iommu=Fact(kind)))
    assert finding.status == status
    assert ("iommu=pt" in (finding.do or "")) == (status == "suspicious")


@pytest.mark.parametrize(
    ("ports", "devices", "status"),
    [
        ((port(), port("0000:3a:00.0", redirects=True)), 8, "suspicious"),
        ((port(), port("0000:3a:00.0", redirects=True)), 1, "fine"),
        ((port(), port("0000:3a:00.0", redirects=False)), 8, "fine"),
        ((port(), port("0000:3a:00.0", redirects=None)), 8, "unknown"),
        ((port(),), 8, "unknown"),
    ],
)
def test_redirecting_ports_are_suspicious_if_there_are_several_devices(
    ports: tuple[PortControl, ...], devices: int, status: str
) -> None:
    finding = only(host.access_control, health=health(ports=ports, devices=devices))
    assert finding.status == status


def test_unreadable_ports_have_the_advice_to_run_as_root() -> None:
    ports = (port(), port("0000:3a:00.0", redirects=None))
    assert "as root" in (only(host.access_control, health=health(ports=ports)).do or "")


@pytest.mark.parametrize(
    ("mode", "iommu", "status"),
    [
        ("always", "DMA", "fine"),
        ("madvise", "DMA", "fine"),
        ("never", "none", "fine"),
        ("never", "identity", "fine"),
        ("never", "DMA", "suspicious"),
    ],
)
def test_small_pages_are_suspicious_only_if_addresses_are_translated(mode: str, iommu: str, status: str) -> None:
    run = h200(environment={"transparent_huge_pages": Fact(mode)})
    assert only(host.huge_pages, run, health=health(iommu=Fact(iommu))).status == status


@pytest.mark.parametrize(
    ("most", "nbytes", "status"),
    [(None, 16 * MIB, "fine"), (8 * MIB, 16 * MIB, "fine"), (8 * MIB, 4 * MIB, "suspicious"), (GIB, 16 * MIB, "fine")],
)
def test_a_lock_limit_is_suspicious_if_nothing_was_locked_beyond_it(most: int | None, nbytes: int, status: str) -> None:
    run = h200(measurements=copies(nbytes=nbytes))
    assert only(host.lock_limit, run, health=health(lock_limit_bytes=Fact(Bound(most)))).status == status


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


@pytest.mark.parametrize(
    ("memory", "cpus", "status"),
    [
        (None, None, "fine"),
        (8 * GIB, 4.0, "fine"),
        (8 * GIB - 1, 4.0, "suspicious"),
        (None, 3.5, "suspicious"),
    ],
)
def test_low_limits_of_a_container_are_suspicious(memory: int | None, cpus: float | None, status: str) -> None:
    limits = health(memory_limit_bytes=Fact(Bound(memory)), cpu_limit=Fact(Bound(cpus)))
    assert only(host.container, health=limits).status == status


def test_the_limits_of_a_container_are_shown() -> None:
    limits = health(memory_limit_bytes=Fact(Bound(2 * GIB)), cpu_limit=Fact(Bound(1.5)))
    assert only(host.container, health=limits).seen == ("docker, memory limited to 2.0 GiB, processors limited to 1.5")
    assert only(host.container).seen == "docker, memory and processors not limited"


@pytest.mark.parametrize(("size", "status"), [(GIB, "fine"), (GIB - 1, "suspicious"), (64 * MIB, "suspicious")])
def test_small_shared_memory_is_suspicious(size: int, status: str) -> None:
    assert only(host.shared_memory, health=health(shared_memory_bytes=Fact(size))).status == status


def test_a_virtual_machine_is_fine() -> None:
    finding = only(host.virtual_machine)
    assert (finding.status, finding.seen) == ("fine", "this is a virtual machine (Firecracker)")
    assert only(host.virtual_machine, bare_metal()).seen == "none: this is bare metal"
    unread = msgspec.structs.replace(h200().environment, virtual_machine=unknown("no cpuinfo"))
    assert only(host.virtual_machine, h200(environment=msgspec.structs.asdict(unread))).status == "unknown"


def test_a_saved_run_has_no_findings_of_limits() -> None:
    for rule in (host.iommu, host.lock_limit, host.container, host.shared_memory):
        assert found(rule, health=None) == []


def after(**environment: Any) -> Run:
    """The H200, with another environment after the copies."""
    run = h200()
    return msgspec.structs.replace(run, environment_after=msgspec.structs.replace(run.environment, **environment))


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ((), "fine"),
        (("idle",), "fine"),
        (("software power cap",), "suspicious"),
        (("idle", "hardware thermal slowdown"), "wrong"),
        (("hardware power brake",), "wrong"),
        (("unnamed reason 0x1000",), "suspicious"),
    ],
)
def test_the_status_depends_on_the_reasons_for_lower_clocks(reasons: tuple[str, ...], status: str) -> None:
    assert only(host.throttling, after(throttle_reasons=Fact(reasons))).status == status


def test_throttling_that_cannot_be_read_is_unknown() -> None:
    run = h200(environment={"throttle_reasons": unknown("NVML is not here")})
    assert only(host.throttling, run).seen == "NVML is not here"


@pytest.mark.parametrize(
    ("mode", "status"), [(Fact(True), "fine"), (Fact(False), "suspicious"), (unknown("Not Supported"), "unknown")]
)
def test_persistence_mode_should_be_on(mode: Fact[bool], status: str) -> None:
    assert only(host.persistence, h200(environment={"persistence": mode})).status == status


@pytest.mark.parametrize(
    ("others", "status"), [(Fact(()), "fine"), (Fact((4711,)), "suspicious"), (unknown("in a container"), "unknown")]
)
def test_other_processes_on_the_gpu_are_suspicious(others: Fact[tuple[int, ...]], status: str) -> None:
    assert only(host.sharing, h200(environment={"other_gpu_processes": others})).status == status


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


def memory(errors: int | None = 0, pending: bool | None = False, failed: bool | None = False) -> DeviceMemory:
    facts = [unknown("Not Supported") if value is None else Fact(value) for value in (errors, pending, failed)]
    return DeviceMemory(*facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (memory(), "fine"),
        (memory(1), "wrong"),
        (memory(0, False, True), "wrong"),
        (memory(0, True), "suspicious"),
        (memory(0, None, None), "fine"),
        (memory(None, None, None), "unknown"),
    ],
)
def test_the_status_depends_on_the_errors_of_the_device_memory(state: DeviceMemory, status: str) -> None:
    assert only(host.device_memory, health=health(device_memory=state)).status == status


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


@pytest.mark.parametrize(("count", "status"), [(16, "fine"), (1, "fine"), (0, "suspicious")])
def test_no_processor_near_the_device_is_suspicious(count: int, status: str) -> None:
    assert only(host.processors, health=health(cpus_near=Fact(count))).status == status


@pytest.mark.parametrize(
    ("gbps", "status"), [(57.0, "fine"), (57.3, "wrong"), (45.0, "fine"), (27.8, "fine"), (27.5, "suspicious")]
)
def test_far_memory_is_slower_but_not_below_half(gbps: float, status: str) -> None:
    assert only(host.far_memory, health=health(far=far(gbps, 50.0))).status == status


def test_far_memory_is_shown_as_a_share_of_near_memory() -> None:
    assert only(host.far_memory, health=health(far=far())).seen == (
        "node 1 reaches h2d 81.1 %, d2h 79.4 % of node 0 at 256 MiB"
    )
