"""The likely causes of slow cells, each with its evidence."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from baseline_samples import Slower, all_slow, make_sample, on_host, slow_pinned
from samples import MARKUP, MIB, make_device, make_environment, make_link, make_run

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Cause
from pyxfer._document.runs import Fact, Hop, Link, LinkState, Measurement, Placement, Remark, Run, unknown
from pyxfer._machine.pci import protocol_peak_gbps, raw_peak_gbps

GEN5_X16, GEN5_X8, GEN4_X16 = LinkState(5, 16), LinkState(5, 8), LinkState(4, 16)
HALF = 2.0
REMOTE = Placement(Fact(0), Fact("0-15"), Fact(1), Fact({"0": 3, "1": 4093}))


def causes(slower: Slower, b: Run | None = None, a: Run | None = None) -> list[Cause]:
    found = compare_samples(make_sample("A", run=a), make_sample("B", seed=2, run=b, slower=slower))
    return list(found.causes)


def first(slower: Slower, b: Run, a: Run | None = None) -> Cause:
    return causes(slower, b, a)[0]


def codes(slower: Slower, b: Run | None = None, a: Run | None = None) -> list[str]:
    return [cause.code for cause in causes(slower, b, a)]


def trained(state: LinkState, **overrides: Any) -> Link:
    """The link in this state, with the peaks that the model gives it."""
    raw = raw_peak_gbps(Fact(state))
    peaks = {"raw_peak_gbps": raw, "h2d_peak_gbps": protocol_peak_gbps(Fact(state), Fact(256), 20)}
    return make_link(**{"now": Fact(state), "under_load": Fact(state), **peaks, **overrides})


def environment(**overrides: Any) -> Run:
    return make_run(environment=make_environment(**overrides))


def pageable(factor: float) -> Slower:
    return lambda measurement: factor if measurement.memory == "pageable" else 1.0


def only(direction: str) -> Slower:
    return lambda measurement: 1.2 if measurement.direction == direction else 1.0


def test_without_a_slow_cell_there_are_no_causes() -> None:
    assert codes(all_slow(1.0), make_run(link=trained(GEN5_X8))) == []


def test_without_evidence_the_cause_is_unexplained() -> None:
    assert codes(all_slow(1.2)) == ["unexplained"]


def test_an_unexplained_loss_has_its_range() -> None:
    factors = {MIB: 1.2, 16 * MIB: 1.25, 256 * MIB: 1.5}
    (cause,) = causes(lambda measurement: factors[measurement.nbytes])
    assert re.search(r"the loss is 16\.\d % to 33\.\d %", cause.evidence)


# --- the link, the host and the device -------------------------------------------------------------------------------

UNREAD = make_link(now=unknown("no NVML"), under_load=unknown("no NVML"))
PORT = Hop("0000:17:01.0", Fact(LinkState(4, 8)), Fact(GEN5_X16))


def idle_link(state: LinkState) -> Link:
    return make_link(now=Fact(state), under_load=unknown("not read"))


def test_a_link_of_half_the_lanes_is_named_with_its_loss_and_a_fix() -> None:
    cause = first(slow_pinned(HALF), make_run(link=trained(GEN5_X8)))
    assert cause.code == "link-narrow"
    assert cause.text == "The link is trained at PCIe 5.0 x8, and it was PCIe 5.0 x16: it carries 50.0 % of that."
    assert cause.fix


@pytest.mark.parametrize(
    ("factor", "changed", "code", "word"),
    [
        (HALF, {"link": trained(GEN4_X16)}, "link-slow", "PCIe 4.0 x16"),
        (HALF, {"link": idle_link(LinkState(1, 8))}, "link-narrow", "PCIe 5.0 x8"),
        (HALF, {"link": UNREAD}, "link-lesser", "PCIe 5.0 x8 or PCIe 4.0 x16"),
        (4.0, {"link": UNREAD}, "link-lesser", "PCIe 5.0 x4 or PCIe 4.0 x8 or PCIe 3.0 x16"),
        (3.0, {"link": make_link(hops=(make_link().hops[0], PORT), narrowest_hop=Fact(PORT))}, "hop-narrow", PORT.pci),
        (1.07, {"link": make_link(max_payload_bytes=Fact(128))}, "payload", "128 bytes"),
        (1.3, {"placement": REMOTE}, "remote-node", "NUMA node 1"),
        (
            1.2,
            {"environment": make_environment(other_gpu_processes=Fact((4711,)))},
            "other-processes",
            "4711; there were none",
        ),
        (1.2, {"environment": make_environment(throttle_reasons=Fact(("idle", "power cap")))}, "throttled", ": power"),
        (3.0, {"device": make_device(confidential=Fact(True), uuid=Fact("GPU-2"))}, "confidential", "encrypted"),
    ],
)
def test_a_change_that_costs_bandwidth_is_the_first_cause(
    factor: float, changed: dict[str, Any], code: str, word: str
) -> None:
    cause = first(all_slow(factor), make_run(**changed))
    assert cause.code == code
    assert word in cause.text


@pytest.mark.parametrize(
    ("factor", "changed"),
    [
        (1.2, {"link": idle_link(LinkState(1, 16))}),
        (1.3, {"link": UNREAD}),
        (1.2, {"environment": make_environment(throttle_reasons=Fact(("idle",)))}),
    ],
)
def test_a_change_that_does_not_explain_the_loss_is_not_a_cause(factor: float, changed: dict[str, Any]) -> None:
    assert codes(all_slow(factor), make_run(**changed)) == ["unexplained"]


def test_smaller_read_requests_and_lost_ordering_are_named() -> None:
    before = make_link(max_read_request_bytes=Fact(4096), relaxed_ordering=Fact(True))
    after = make_link(max_read_request_bytes=Fact(512), relaxed_ordering=Fact(False))
    found = codes(all_slow(1.2), make_run(link=after), make_run(link=before))
    assert found[:2] == ["read-request", "relaxed-ordering"]


def test_unchanged_packets_are_not_a_cause() -> None:
    link = make_link(max_read_request_bytes=Fact(512), relaxed_ordering=Fact(True))
    assert codes(all_slow(1.2), make_run(link=link), make_run(link=link)) == ["unexplained"]


def test_a_rate_is_compared_with_the_most_that_the_slot_can_do() -> None:
    why: Any = unknown("no NVML")
    unread = {"now": why, "under_load": why, "device_most": why}
    slot_alone, neither = make_link(**unread), make_link(**unread, system_most=unknown("no sysfs"))
    assert codes(all_slow(HALF), make_run(link=slot_alone), make_run(link=slot_alone)) == ["link-lesser"]
    assert codes(all_slow(HALF), make_run(link=neither), make_run(link=neither)) == ["unexplained"]


def test_the_width_of_an_idle_link_is_not_compared_with_an_unknown_one() -> None:
    found = codes(all_slow(1.2), make_run(link=idle_link(LinkState(1, 8))), make_run(link=UNREAD))
    assert found == ["unexplained"]


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        ("no groups", "group 12, DMA", "iommu"),
        ("group 12, DMA-FQ", "group 12, DMA", "iommu"),
        ("group 12, DMA-FQ", "group 31, DMA-FQ", "unexplained"),
        ("group 12, DMA-FQ", "group 12, identity", "unexplained"),
        ("group 12, DMA-FQ", "group 12, identity; iommu=pt", "unexplained"),
        ("no groups", "group 12, identity", "unexplained"),
        ("group 12, identity", "no groups", "unexplained"),
    ],
)
def test_an_iommu_that_translates_differently_is_named(before: str, now: str, code: str) -> None:
    a, b = (environment(iommu=Fact(text)) for text in (before, now))
    assert codes(all_slow(1.2), b, a) == [code]


def test_memory_that_was_remote_before_is_not_a_cause() -> None:
    remote = make_run(placement=REMOTE)
    assert "remote-node" not in codes(all_slow(1.3), remote, remote)


def test_another_pyxfer_at_the_same_time_is_named() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=all_slow(1.2))
    contended = (Remark("contended", "Another pyxfer measured this device"),)
    runs = tuple(msgspec.structs.replace(run, remarks=contended) for run in b.runs)
    found = compare_samples(a, Sample("B", runs))
    assert found.causes[0].code == "contended"


@pytest.mark.parametrize(
    ("changed", "code", "text", "fix"),
    [
        ({"transparent_huge_pages": Fact("never")}, "huge-pages", "are never, and were madvise", "echo madvise >"),
        ({"cpus_usable": 4}, "fewer-processors", "may use 4 processors, and could use 16", "container"),
        ({"memory_bytes": Fact(64 * 1024**3)}, "memory-modules", "has 64 GiB of memory, and had 128", "dmidecode"),
        ({"cpu_governor": Fact("powersave")}, "governor", "is powersave, and was performance", "-g performance"),
    ],
)
def test_causes_of_slow_pageable_memory_are_named_only_if_it_is_slow(
    changed: dict[str, Any], code: str, text: str, fix: str
) -> None:
    before = environment(cpu_governor=Fact("performance"))
    after = environment(**{"cpu_governor": Fact("performance"), **changed})
    cause = first(pageable(1.2), after, before)
    assert cause.code == code
    assert text in cause.text
    assert fix in (cause.fix or "")
    assert code not in codes(slow_pinned(1.2), after, before)


def test_a_new_driver_is_named_only_without_a_more_certain_cause() -> None:
    new = make_environment(driver=Fact("580.1"))
    assert codes(all_slow(1.2), make_run(environment=new)) == ["driver"]
    assert "driver" not in codes(all_slow(HALF), make_run(environment=new, link=trained(GEN5_X8)))


# --- patterns of slow cells ------------------------------------------------------------------------------------------


def test_slow_pageable_memory_alone_points_to_the_host() -> None:
    assert "host-side" in codes(pageable(1.2))


def test_one_slow_direction_is_named() -> None:
    found = {cause.code: cause for cause in causes(only("d2h"))}
    assert "d2h" in found["one-direction"].text


def test_slow_small_copies_alone_point_to_the_fixed_cost() -> None:
    def small(measurement: Measurement) -> float:
        return 1.5 if measurement.nbytes == MIB else 1.0

    assert "fixed-cost" in codes(small)


def test_equally_slow_cells_have_no_pattern() -> None:
    assert codes(all_slow(1.2)) == ["unexplained"]


def test_markup_in_a_value_is_not_changed() -> None:
    cause = first(all_slow(1.2), environment(iommu=Fact(MARKUP)), environment(iommu=Fact("no groups")))
    assert MARKUP in cause.text


@pytest.mark.parametrize(
    "slower", [all_slow(1.5), only("d2h"), pageable(1.5), lambda m: 1.0 if m.nbytes > MIB else 1.5]
)
def test_causes_in_host_memory_do_not_mention_a_link(slower: Slower) -> None:
    host = on_host(make_run())
    found = causes(slower, host, host)
    assert found
    for cause in found:
        assert cause.code != "one-direction"
        assert not re.search("link|PCI|ASPM|IOMMU|doctor", f"{cause.text} {cause.evidence} {cause.fix}")
