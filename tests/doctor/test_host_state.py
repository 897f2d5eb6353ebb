"""The host around the link: limits, memory settings, clocks, other users, device memory and NUMA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from doctor.cases import MIB, bare_metal, copies, copy, far, found, h200, health, only, port

from pyxfer._doctor import host
from pyxfer._doctor.case import Case, Findings
from pyxfer._document.examinations import Bound, DeviceMemory, Finding
from pyxfer._document.machines import Fact, Placement, Remark, unknown
from pyxfer._document.runs import Run

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


UNREAD: Fact[Any] = unknown("it cannot be read")
REDIRECTING, HIDDEN = port("0000:3a:00.0", redirects=True), port("0000:3a:00.0", redirects=None)
STATUSES: list[tuple[Callable[[Case], Findings], Run | None, dict[str, Any], str]] = [
    # A translating IOMMU costs something only if copies are slow.
    (host.iommu, bare_metal(measurements=copies(0.5)), {"iommu": Fact("none")}, "fine"),
    (host.iommu, bare_metal(), {"iommu": Fact("DMA")}, "fine"),
    (host.iommu, bare_metal(measurements=copies(0.9)), {"iommu": Fact("DMA")}, "suspicious"),
    (host.access_control, None, {"ports": (port(), REDIRECTING), "devices": 8}, "suspicious"),
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
    (host.persistence, around(persistence=Fact(True)), {}, "fine"),
    (host.persistence, around(persistence=UNREAD), {}, "unknown"),
    (host.sharing, around(other_gpu_processes=Fact(())), {}, "fine"),
    (host.sharing, around(other_gpu_processes=UNREAD), {}, "unknown"),
    (host.virtual_machine, around(virtual_machine=UNREAD), {}, "unknown"),
    (host.device_memory, None, {"device_memory": memory()}, "fine"),
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


@pytest.mark.parametrize(("rule", "run", "parts", "status"), STATUSES)
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
