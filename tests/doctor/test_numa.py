"""Memory and processors, compared with the device's NUMA node."""

from __future__ import annotations

import pytest
from doctor.cases import bare_metal, copies, far, found, h200, health, only

from pyxfer._doctor import host
from pyxfer._document.examinations import Finding
from pyxfer._document.runs import Fact, Placement, unknown


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


def test_processors_that_cannot_be_counted_are_unknown() -> None:
    assert only(host.processors, health=health(cpus_near=unknown("no sysfs"))).seen == "no sysfs"


@pytest.mark.parametrize(
    ("gbps", "status"), [(57.0, "fine"), (57.3, "wrong"), (45.0, "fine"), (27.8, "fine"), (27.5, "suspicious")]
)
def test_far_memory_is_slower_but_not_below_half(gbps: float, status: str) -> None:
    assert only(host.far_memory, health=health(far=far(gbps, 50.0))).status == status


def test_far_memory_is_shown_as_a_share_of_near_memory() -> None:
    assert only(host.far_memory, health=health(far=far())).seen == (
        "node 1 reaches h2d 81.1 %, d2h 79.4 % of node 0 at 256 MiB"
    )


def test_one_node_has_no_far_memory() -> None:
    assert "one NUMA node" in only(host.far_memory).seen
    assert found(host.far_memory, h200(), health=None) == []
