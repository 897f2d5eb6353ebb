"""The findings of whole hosts: a good one, and one with each kind of fault."""

from __future__ import annotations

import pytest
from doctor.cases import bare_metal, copies, counters, h200, h200_link, health, port

from pyxfer._doctor.session import examine, nearest_known
from pyxfer._document.examinations import Finding, Health
from pyxfer._document.runs import Fact, LinkState, Placement, Run


def findings(run: Run, seen: Health | None = None) -> tuple[Finding, ...]:
    return examine(run, seen, nearest_known(run).value)


def wrong(run: Run, seen: Health | None = None) -> dict[str, Finding]:
    """The findings that are wrong or suspicious, by subject."""
    return {each.subject: each for each in findings(run, seen) if each.status in ("wrong", "suspicious")}


def test_nothing_is_wrong_with_a_good_h200() -> None:
    found = findings(h200(), health())
    assert {each.status for each in found} == {"fine", "unknown"}
    assert {each.subject for each in found if each.status == "unknown"} == {"ACS", "NUMA far memory"}
    assert "this is a virtual machine (Firecracker)" in {each.seen for each in found}


def test_an_h200_is_compared_with_its_peak_and_the_known_one() -> None:
    seen = {each.subject: each.seen for each in findings(h200(), health())}
    assert seen["ceiling h2d"] == "55.55 GB/s at 256 MiB, 95.0 % of the protocol peak"
    assert seen["ceiling d2h"] == "55.41 GB/s at 256 MiB, 96.2 % of the protocol peak"
    assert seen["known host h2d"] == "100.0 % of what it reaches at 256 MiB"


@pytest.mark.parametrize("loaded", [LinkState(5, 8), LinkState(4, 16), LinkState(4, 8)])
def test_a_link_that_trained_lower_is_the_only_fault(loaded: LinkState) -> None:
    found = wrong(bare_metal(link=h200_link(loaded)), health())
    assert set(found) == {"link"}
    assert found["link"].status == "wrong"


def test_memory_on_the_other_socket_explains_slow_copies() -> None:
    placement = Placement(Fact(0), Fact("32-63"), Fact(1), Fact({"1": 4096}))
    found = wrong(bare_metal(placement=placement, measurements=copies(0.78)), health())
    assert found["NUMA memory"].status == found["ceiling h2d"].status == "wrong"
    assert "100.0 % of its memory is on another NUMA node" in found["ceiling h2d"].why
    assert "numactl" in (found["ceiling h2d"].do or "")


def test_replays_explain_slow_copies() -> None:
    seen = health(after=counters(40_000), ports=(port(),))
    found = wrong(bare_metal(measurements=copies(0.9)), seen)
    assert found["replays"].status == "suspicious"
    assert "packets were sent again 40000 times" in found["ceiling h2d"].why


def test_a_translating_iommu_explains_slow_copies() -> None:
    found = wrong(bare_metal(measurements=copies(0.9)), health(iommu=Fact("DMA-FQ")))
    assert "the IOMMU translates the device's addresses (domain DMA-FQ)" in found["ceiling d2h"].why
    assert found["IOMMU"].status == "suspicious"


def test_half_the_bandwidth_points_to_half_the_link() -> None:
    found = wrong(h200(measurements=copies(0.5)), health())
    assert "a link with 1/2 of the lanes" in found["ceiling h2d"].why
    assert "a hypervisor may show a better link than there is" in found["ceiling h2d"].why


def test_slow_copies_may_be_unexplained() -> None:
    found = wrong(bare_metal(measurements=copies(0.75)), health())
    assert "explains" in found["ceiling h2d"].why


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
