"""Address translation, memory settings, limits, and virtual machines."""

from __future__ import annotations

import msgspec
import pytest
from doctor.cases import MIB, bare_metal, copies, copy, found, h200, health, only, port

from pyxfer._doctor import host
from pyxfer._document.examinations import Bound, PortControl
from pyxfer._document.runs import Fact, unknown

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


def test_an_iommu_that_cannot_be_read_is_unknown() -> None:
    assert only(host.iommu, health=health(iommu=unknown("no such file"))).seen == "no such file"


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


def test_huge_pages_that_cannot_be_read_are_unknown() -> None:
    run = h200(environment={"transparent_huge_pages": unknown("no sysfs")})
    assert only(host.huge_pages, run).status == "unknown"


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


def test_missing_shared_memory_is_unknown() -> None:
    missing = health(shared_memory_bytes=unknown("/dev/shm cannot be looked at"))
    assert only(host.shared_memory, health=missing).status == "unknown"


def test_a_virtual_machine_is_fine() -> None:
    finding = only(host.virtual_machine)
    assert (finding.status, finding.seen) == ("fine", "this is a virtual machine (Firecracker)")
    assert only(host.virtual_machine, bare_metal()).seen == "none: this is bare metal"
    unread = msgspec.structs.replace(h200().environment, virtual_machine=unknown("no cpuinfo"))
    assert only(host.virtual_machine, h200(environment=msgspec.structs.asdict(unread))).status == "unknown"


def test_a_saved_run_has_no_findings_of_limits() -> None:
    for rule in (host.iommu, host.lock_limit, host.container, host.shared_memory):
        assert found(rule, health=None) == []
