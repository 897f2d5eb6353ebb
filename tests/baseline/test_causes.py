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

GEN5_X16, GEN5_X8, GEN4_X16, GEN3_X16 = LinkState(5, 16), LinkState(5, 8), LinkState(4, 16), LinkState(3, 16)
HALF = 2.0


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


# --- the link --------------------------------------------------------------------------------------------------------


def test_a_link_of_half_the_lanes_is_named() -> None:
    cause = first(slow_pinned(HALF), make_run(link=trained(GEN5_X8)))
    assert cause.code == "link-narrow"
    assert cause.text == "The link is trained at PCIe 5.0 x8, and it was PCIe 5.0 x16: it carries 50.0 % of that."
    assert cause.fix


def test_a_link_of_a_lower_generation_is_named() -> None:
    cause = first(slow_pinned(HALF), make_run(link=trained(GEN4_X16)))
    assert (cause.code, "PCIe 4.0 x16" in cause.text) == ("link-slow", True)


def test_an_idle_link_of_a_low_generation_is_not_a_cause() -> None:
    idle = make_link(now=Fact(LinkState(1, 16)), under_load=unknown("not read"))
    assert "link-slow" not in codes(slow_pinned(1.2), make_run(link=idle))


def test_an_idle_link_with_fewer_lanes_is_a_cause() -> None:
    idle = make_link(now=Fact(LinkState(1, 8)), under_load=unknown("not read"))
    cause = first(slow_pinned(HALF), make_run(link=idle))
    assert (cause.code, "PCIe 5.0 x8" in cause.text) == ("link-narrow", True)


@pytest.mark.parametrize(
    ("factor", "words"),
    [(HALF, "PCIe 5.0 x8 or PCIe 4.0 x16"), (4.0, "PCIe 5.0 x4 or PCIe 4.0 x8 or PCIe 3.0 x16")],
)
def test_a_lesser_link_is_found_by_its_rate_if_its_state_cannot_be_read(factor: float, words: str) -> None:
    unread = make_link(now=unknown("no NVML"), under_load=unknown("no NVML"))
    cause = first(all_slow(factor), make_run(link=unread))
    assert cause.code == "link-lesser"
    assert words in cause.text
    assert "could not be read" in cause.evidence


def test_a_rate_that_no_lesser_link_has_is_not_a_cause() -> None:
    unread = make_link(now=unknown("no NVML"), under_load=unknown("no NVML"))
    assert "link-lesser" not in codes(all_slow(1.3), make_run(link=unread))


def test_a_narrower_port_above_the_device_is_named() -> None:
    own, above = make_link().hops[0], Hop("0000:17:01.0", Fact(LinkState(4, 8)), Fact(GEN5_X16))
    cause = first(all_slow(3.0), make_run(link=make_link(hops=(own, above), narrowest_hop=Fact(above))))
    assert (cause.code, "0000:17:01.0" in cause.text) == ("hop-narrow", True)


def test_smaller_packets_are_named() -> None:
    assert first(all_slow(1.07), make_run(link=make_link(max_payload_bytes=Fact(128)))).code == "payload"


def test_smaller_read_requests_and_lost_ordering_are_named() -> None:
    before = make_link(max_read_request_bytes=Fact(4096), relaxed_ordering=Fact(True))
    after = make_link(max_read_request_bytes=Fact(512), relaxed_ordering=Fact(False))
    found = codes(all_slow(1.2), make_run(link=after), make_run(link=before))
    assert found[:2] == ["read-request", "relaxed-ordering"]


def test_an_iommu_that_was_switched_on_is_named() -> None:
    cause = first(all_slow(1.2), environment(iommu=Fact("group 12, DMA")), environment(iommu=Fact("no groups")))
    assert (cause.code, cause.fix is not None and "iommu=pt" in cause.fix) == ("iommu", True)


def test_another_number_of_the_iommu_group_is_not_a_cause() -> None:
    a, b = environment(iommu=Fact("group 12, DMA-FQ")), environment(iommu=Fact("group 31, DMA-FQ"))
    assert codes(all_slow(1.2), b, a) == ["unexplained"]


@pytest.mark.parametrize(
    ("before", "now"),
    [("DMA-FQ", "identity"), ("DMA-FQ", "identity; iommu=pt"), (None, "identity"), ("identity", None)],
)
def test_an_iommu_that_does_not_translate_is_not_a_cause(before: str | None, now: str | None) -> None:
    a, b = (environment(iommu=Fact(f"group 12, {kind}" if kind else "no groups")) for kind in (before, now))
    assert codes(all_slow(1.2), b, a) == ["unexplained"]


def test_another_kind_of_translation_is_named() -> None:
    a, b = environment(iommu=Fact("group 12, DMA-FQ")), environment(iommu=Fact("group 12, DMA"))
    assert codes(all_slow(1.2), b, a) == ["iommu"]


# --- the host and the device -----------------------------------------------------------------------------------------


def test_memory_on_the_other_node_is_named() -> None:
    remote = Placement(Fact(0), Fact("0-15"), Fact(1), Fact({"0": 3, "1": 4093}))
    cause = first(all_slow(1.3), make_run(placement=remote))
    assert cause.code == "remote-node"
    assert "NUMA node 1, and the GPU is at node 0" in cause.text
    assert "numactl --cpunodebind=0 --membind=0" in (cause.fix or "")


def test_memory_that_was_remote_before_is_not_a_cause() -> None:
    remote = make_run(placement=Placement(Fact(0), Fact("0-15"), Fact(1), Fact({"1": 4096})))
    assert "remote-node" not in codes(all_slow(1.3), remote, remote)


def test_other_processes_on_the_gpu_are_named() -> None:
    cause = first(all_slow(1.2), environment(other_gpu_processes=Fact((4711,))))
    assert (cause.code, "4711" in cause.text) == ("other-processes", True)


def test_another_pyxfer_at_the_same_time_is_named() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=all_slow(1.2))
    contended = (Remark("contended", "Another pyxfer measured this device"),)
    runs = tuple(msgspec.structs.replace(run, remarks=contended) for run in b.runs)
    found = compare_samples(a, Sample("B", runs))
    assert found.causes[0].code == "contended"


def test_throttling_is_named_and_idling_is_not() -> None:
    hot = environment(throttle_reasons=Fact(("idle", "hardware thermal slowdown")))
    cause = first(all_slow(1.2), hot)
    assert cause.code == "throttled"
    assert "hardware thermal slowdown" in cause.text
    assert "idle" not in cause.text
    assert codes(all_slow(1.2), environment(throttle_reasons=Fact(("idle",)))) == ["unexplained"]


def test_confidential_computing_is_named() -> None:
    assert first(all_slow(3.0), make_run(device=make_device(confidential=Fact(True), uuid=Fact("GPU-2")))).code == (
        "confidential"
    )


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"transparent_huge_pages": Fact("never")}, "huge-pages"),
        ({"cpus_usable": 4}, "fewer-processors"),
        ({"memory_bytes": Fact(64 * 1024**3)}, "memory-modules"),
        ({"cpu_governor": Fact("powersave")}, "governor"),
    ],
)
def test_causes_of_slow_pageable_memory_are_named_only_if_it_is_slow(changed: dict[str, Any], code: str) -> None:
    before = environment(cpu_governor=Fact("performance"))
    after = environment(**{"cpu_governor": Fact("performance"), **changed})
    assert first(pageable(1.2), after, before).code == code
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
