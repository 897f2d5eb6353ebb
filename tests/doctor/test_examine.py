"""Whole hosts: what is said of one that is right, and of each way in which one can be wrong."""

from __future__ import annotations

import pytest
from doctor.cases import bare_metal, copies, counters, h200, h200_link, health, port

from pyxfer._doctor.session import examine, nearest_known
from pyxfer._document.examinations import Finding, Health
from pyxfer._document.runs import Fact, LinkState, Placement, Run


def findings(run: Run, seen: Health | None = None) -> tuple[Finding, ...]:
    return examine(run, seen, nearest_known(run).value)


def wrong(run: Run, seen: Health | None = None) -> dict[str, Finding]:
    """What is neither fine nor unknown."""
    return {each.subject: each for each in findings(run, seen) if each.status in ("wrong", "suspicious")}


def test_nothing_is_wrong_with_an_h200_that_is_as_it_should_be() -> None:
    found = findings(h200(), health())
    assert {each.status for each in found} == {"fine", "unknown"}
    assert {each.subject for each in found if each.status == "unknown"} == {"ACS", "NUMA far memory"}
    assert "this is a virtual machine (Firecracker)" in {each.seen for each in found}


def test_an_h200_is_held_against_its_peak_and_the_known_one() -> None:
    seen = {each.subject: each.seen for each in findings(h200(), health())}
    assert seen["ceiling h2d"] == "55.55 GB/s at 256 MiB, 95.0 % of the protocol peak"
    assert seen["ceiling d2h"] == "55.41 GB/s at 256 MiB, 96.2 % of the protocol peak"
    assert seen["known host h2d"] == "100.0 % of what it reaches at 256 MiB"


@pytest.mark.parametrize("loaded", [LinkState(5, 8), LinkState(4, 16), LinkState(4, 8)])
def test_a_link_that_trained_low_is_the_one_thing_wrong(loaded: LinkState) -> None:
    found = wrong(bare_metal(link=h200_link(loaded)), health())
    assert set(found) == {"link"}
    assert found["link"].status == "wrong"


def test_memory_on_the_other_socket_is_the_cause_of_slow_copies() -> None:
    placement = Placement(Fact(0), Fact("32-63"), Fact(1), Fact({"1": 4096}))
    found = wrong(bare_metal(placement=placement, measurements=copies(0.78)), health())
    assert found["NUMA memory"].status == found["ceiling h2d"].status == "wrong"
    assert "100.0 % of its memory lay on another NUMA node" in found["ceiling h2d"].why
    assert "numactl" in (found["ceiling h2d"].do or "")


def test_packets_that_are_sent_again_are_the_cause_of_slow_copies() -> None:
    seen = health(after=counters(40_000), ports=(port(),))
    found = wrong(bare_metal(measurements=copies(0.9)), seen)
    assert found["replays"].status == "suspicious"
    assert "packets were sent again 40000 times" in found["ceiling h2d"].why


def test_a_new_kernels_iommu_is_the_cause_of_slow_copies() -> None:
    found = wrong(bare_metal(measurements=copies(0.9)), health(iommu=Fact("DMA-FQ")))
    assert "the IOMMU translates the device's addresses (domain DMA-FQ)" in found["ceiling d2h"].why
    assert found["IOMMU"].status == "suspicious"


def test_half_of_what_the_link_shows_gives_the_lesser_link_away() -> None:
    found = wrong(h200(measurements=copies(0.5)), health())
    assert "a link of 1/2 of this one's lanes" in found["ceiling h2d"].why
    assert "a hypervisor may show a better link than there is" in found["ceiling h2d"].why


def test_slow_copies_that_nothing_explains_say_so() -> None:
    found = wrong(bare_metal(measurements=copies(0.75)), health())
    assert found["ceiling h2d"].why == "nothing that was read explains it"


def test_the_gravest_stand_first() -> None:
    link = h200_link(LinkState(5, 8), relaxed_ordering=Fact(False))
    order = [each.status for each in findings(bare_metal(link=link), health())]
    assert order == sorted(order, key=["wrong", "suspicious", "unknown", "fine"].index)
    assert order[0] == "wrong"


def test_a_saved_run_tells_that_the_machine_itself_was_not_looked_at() -> None:
    (saved,) = [each for each in findings(h200()) if each.code == "health"]
    assert saved.status == "unknown"


def test_host_memory_is_no_link_and_only_the_host_is_examined() -> None:
    run = h200(runtime="host", runtime_reason="No usable GPU: none is visible.")
    codes = {each.code for each in findings(run, health())}
    assert codes == {*("link", "contents", "huge-pages", "lock-limit", "container", "shared-memory", "virtual-machine")}
    (link,) = [each for each in findings(run, health()) if each.code == "link"]
    assert "no link to examine: No usable GPU" in link.seen


def test_a_run_that_did_not_come_to_its_end_says_so() -> None:
    run = h200(ended="failed", failure="the device was lost", measurements=())
    seen = {each.code: each for each in findings(run, health())}
    assert seen["measurement"].seen == "the device was lost"
    assert seen["ceiling"].status == "unknown"


def test_every_finding_has_a_subject_of_its_own() -> None:
    subjects = [each.subject for each in findings(h200(), health())]
    assert len(subjects) == len(set(subjects))
