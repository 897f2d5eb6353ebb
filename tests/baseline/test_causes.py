"""The differences between two sides, and the likely causes of slow cells, each with its evidence."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from baseline_samples import Slower, all_slow, make_sample, on_host, slow_pinned
from samples import MIB, make_device, make_environment, make_link, make_run

from pyxfer._baseline.causes import differences, most_pages_on
from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Cause, Difference
from pyxfer._document.machines import Fact, Hop, Link, LinkState, Placement, Remark, unknown
from pyxfer._document.runs import Measurement, Run
from pyxfer._machine.pci import protocol_peak_gbps, raw_peak_gbps
from pyxfer.units import format_percent

GEN5_X16, GEN5_X8, GEN4_X16 = LinkState(5, 16), LinkState(5, 8), LinkState(4, 16)
HALF = 2.0
REMOTE = Placement(Fact(0), Fact("0-15"), Fact(1), Fact({"0": 3, "1": 4093}))


def causes(slower: Slower, b: Run | None = None, a: Run | None = None, **cells: Any) -> list[Cause]:
    found = compare_samples(make_sample("A", run=a, **cells), make_sample("B", seed=2, run=b, slower=slower, **cells))
    return list(found.causes)


def first(slower: Slower, b: Run, a: Run | None = None) -> Cause:
    return causes(slower, b, a)[0]


def codes(slower: Slower, b: Run | None = None, a: Run | None = None, **cells: Any) -> list[str]:
    return [cause.code for cause in causes(slower, b, a, **cells)]


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


def test_without_evidence_the_cause_is_unexplained() -> None:
    assert codes(all_slow(1.2)) == ["unexplained"]


def test_an_unexplained_loss_has_its_range() -> None:
    sizes = {MIB: 0, 16 * MIB: 1, 256 * MIB: 2}

    def slower(measurement: Measurement) -> float:
        return 1.2 + 0.1 * (4 * sizes[measurement.nbytes] + 2 * (measurement.direction == "h2d"))

    found = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slower))
    lost = [1 - 1 / (row.ratio.value or 1.0) for row in found.cells]
    (cause,) = found.causes
    assert cause.evidence.endswith(f"the loss is {format_percent(min(lost))} to {format_percent(max(lost))}")
    assert "pyxfer doctor" in (cause.fix or "")


def test_a_cause_is_in_the_last_run_of_each_side() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=all_slow(1.2))
    narrow = make_run(link=trained(GEN5_X8)).link

    def with_link(sample: Sample, place: int) -> Sample:
        runs = list(sample.runs)
        runs[place] = msgspec.structs.replace(runs[place], link=narrow)
        return Sample(sample.name, tuple(runs))

    assert [cause.code for cause in compare_samples(a, with_link(b, 2)).causes] == ["link-narrow"]
    assert [cause.code for cause in compare_samples(with_link(a, 2), with_link(b, 2)).causes] == ["unexplained"]
    for place in (0, 1):
        assert [cause.code for cause in compare_samples(a, with_link(b, place)).causes] == ["unexplained"]
        assert [cause.code for cause in compare_samples(with_link(a, place), with_link(b, 2)).causes] == ["link-narrow"]


# --- the link, the host and the device -------------------------------------------------------------------------------

UNREAD = make_link(now=unknown("no NVML"), under_load=unknown("no NVML"))
PORT = Hop("0000:17:01.0", Fact(LinkState(4, 8)), Fact(GEN5_X16))


UNREAD_PORT = Hop(PORT.pci, unknown("no sysfs"), unknown("no sysfs"))
OWN = make_link().hops[0]
SLOW_OWN = Hop(OWN.pci, PORT.now, PORT.now)


def idle_link(state: LinkState) -> Link:
    return make_link(now=Fact(state), under_load=unknown("not read"))


def test_a_link_of_half_the_lanes_is_named_with_its_loss_and_a_fix() -> None:
    cause = first(slow_pinned(HALF), make_run(link=trained(GEN5_X8)))
    assert cause.code == "link-narrow"
    assert cause.text == "The link is trained at PCIe 5.0 x8, and it was PCIe 5.0 x16: it carries 50.0 % of that."
    assert cause.evidence.endswith("read under load")
    assert cause.fix
    idle = first(slow_pinned(HALF), make_run(link=idle_link(LinkState(1, 8))))
    assert idle.evidence.endswith("read idle; an idle link keeps its width")


def test_a_link_whose_earlier_state_is_unknown_is_compared_with_its_slot_and_device() -> None:
    before = make_run(link=UNREAD)
    (cause, *_) = causes(slow_pinned(HALF), make_run(link=trained(GEN5_X8)), before)
    assert cause.code == "link-narrow"
    assert "device and slot can do PCIe 5.0 x16" in cause.text
    why: Any = unknown("no sysfs")
    for overrides, code in (
        ({"system_most": Fact(GEN5_X8)}, "unexplained"),
        ({"system_most": why, "device_most": Fact(GEN5_X16)}, "link-narrow"),
        ({"system_most": why, "device_most": why}, "unexplained"),
    ):
        assert codes(all_slow(1.2), make_run(link=trained(GEN5_X8, **overrides)), before) == [code]


@pytest.mark.parametrize(
    ("factor", "changed", "code", "word"),
    [
        (HALF, {"link": trained(GEN4_X16)}, "link-slow", "PCIe 4.0 x16"),
        (HALF, {"link": idle_link(LinkState(1, 8))}, "link-narrow", "PCIe 5.0 x8"),
        (3.0, {"link": make_link(hops=(make_link().hops[0], PORT), narrowest_hop=Fact(PORT))}, "hop-narrow", PORT.pci),
        (1.07, {"link": make_link(max_payload_bytes=Fact(128))}, "payload", "fewer bytes"),
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
        (HALF, {"link": UNREAD}),
        (HALF, {}),
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


def known(value: Any) -> Any:
    return unknown("not read") if value is None else Fact(value)


def of(field: str, value: Any) -> Run:
    """A run with this value in its device, environment or link; None could not be read."""
    if field in ("confidential", "mig"):
        return make_run(device=make_device(**{field: known(value)}))
    if field in ("virtual_machine", "iommu"):
        return environment(**{field: known(value)})
    return make_run(link=make_link(**{field: known(value)}))


@pytest.mark.parametrize(
    ("field", "before", "now", "code"),
    [
        ("max_payload_bytes", None, 128, "unexplained"),
        ("max_payload_bytes", 256, None, "unexplained"),
        ("max_read_request_bytes", None, 512, "unexplained"),
        ("max_read_request_bytes", 4096, None, "unexplained"),
        ("relaxed_ordering", None, False, "unexplained"),
        ("relaxed_ordering", True, None, "unexplained"),
        ("relaxed_ordering", False, True, "unexplained"),
        ("confidential", False, True, "confidential"),
        ("confidential", True, True, "unexplained"),
        ("confidential", None, True, "unexplained"),
        ("mig", False, True, "mig"),
        ("mig", True, True, "unexplained"),
        ("mig", None, True, "unexplained"),
        ("mig", True, False, "unexplained"),
        ("virtual_machine", "none", "kvm", "virtual-machine"),
        ("virtual_machine", "xen", "kvm", "unexplained"),
        ("virtual_machine", None, "kvm", "unexplained"),
        ("virtual_machine", "kvm", "none", "unexplained"),
        ("iommu", "no groups", "group 12, DMA", "iommu"),
        ("iommu", "group 12, DMA-FQ", "group 12, DMA", "iommu"),
        ("iommu", "group 12, DMA-FQ", "group 31, DMA-FQ", "unexplained"),
        ("iommu", "group 12, DMA-FQ", "group 12, identity", "unexplained"),
        ("iommu", "group 12, DMA-FQ", "group 12, identity; iommu=pt", "unexplained"),
        ("iommu", "no groups", "group 12, identity", "unexplained"),
        ("iommu", "group 12, identity", "no groups", "unexplained"),
        ("iommu", None, "group 12, DMA", "unexplained"),
        ("iommu", "no groups", None, "unexplained"),
    ],
)
def test_a_setting_is_a_cause_if_both_sides_know_it_and_it_became_worse(
    field: str, before: Any, now: Any, code: str
) -> None:
    assert codes(all_slow(1.2), of(field, now), of(field, before)) == [code]


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ((), (4711,), "4711; there were none before"),
        ((1,), (1, 4711), "1, 4711; there were 1 before"),
        ((1,), (4711,), None),
        ((1, 2), (4711,), None),
    ],
)
def test_more_processes_than_before_are_named(before: tuple[int, ...], now: tuple[int, ...], text: str | None) -> None:
    a, b = (environment(other_gpu_processes=Fact(pids)) for pids in (before, now))
    (cause,) = causes(all_slow(1.2), b, a)
    assert cause.code == ("unexplained" if text is None else "other-processes")
    assert (text or "") in cause.text


def test_clocks_that_were_held_back_after_the_run_are_a_cause() -> None:
    after = make_run(environment_after=make_environment(throttle_reasons=Fact(("thermal",))))
    assert codes(all_slow(1.2), after) == ["throttled"]
    assert codes(all_slow(1.2), after, after) == ["unexplained"]


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        (Fact(OWN), Fact(PORT), "hop-narrow"),
        (Fact(PORT), Fact(PORT), "unexplained"),
        (Fact(OWN), Fact(SLOW_OWN), "unexplained"),
        (unknown("no sysfs"), Fact(PORT), "unexplained"),
        (Fact(OWN), unknown("no sysfs"), "unexplained"),
        (Fact(UNREAD_PORT), Fact(PORT), "unexplained"),
        (Fact(OWN), Fact(UNREAD_PORT), "unexplained"),
    ],
)
def test_a_port_above_the_device_that_has_become_slower_is_named(before: Fact[Hop], now: Fact[Hop], code: str) -> None:
    a, b = (
        make_run(link=make_link(hops=(own, PORT), narrowest_hop=hop)) for own, hop in ((OWN, before), (SLOW_OWN, now))
    )
    assert codes(all_slow(1.2), b, a) == [code]


def test_memory_that_was_remote_before_is_not_a_cause() -> None:
    remote = make_run(placement=REMOTE)
    assert "remote-node" not in codes(all_slow(1.3), remote, remote)


@pytest.mark.parametrize(
    ("node", "pages_before", "pages", "evidence"),
    [
        (0, {"0": 9}, {"1": 9}, "the nodes of the pages of the measured buffers; it was on node 0"),
        (0, None, {"1": 9}, "the nodes of the pages of the measured buffers"),
        (0, {"0": 9}, None, None),
        (None, {"0": 9}, {"1": 9}, None),
    ],
)
def test_memory_is_remote_if_its_node_and_that_of_the_gpu_are_known(
    node: int | None, pages_before: dict[str, int] | None, pages: dict[str, int] | None, evidence: str | None
) -> None:
    why: Any = unknown("no NUMA")
    a, b = (
        make_run(placement=Placement(why if node is None else Fact(node), why, why, why if on is None else Fact(on)))
        for on in (pages_before, pages)
    )
    (cause,) = causes(all_slow(1.2), b, a)
    assert cause.code == ("unexplained" if evidence is None else "remote-node")
    assert evidence in (cause.evidence, None)


def test_another_pyxfer_at_the_same_time_is_named() -> None:
    a, b = make_sample("A"), make_sample("B", seed=2, slower=all_slow(1.2))
    contended = (Remark("contended", "Another pyxfer measured this device"),)
    runs = tuple(msgspec.structs.replace(run, remarks=contended) for run in b.runs)
    found = compare_samples(a, Sample("B", runs))
    assert found.causes[0].code == "contended"


@pytest.mark.parametrize(
    ("changed", "code", "evidence", "fix"),
    [
        (
            {"transparent_huge_pages": Fact("never")},
            "huge-pages",
            "transparent huge pages: madvise before, and never now",
            "echo madvise >",
        ),
        ({"cpus_usable": 4}, "fewer-processors", "processors usable: 16 before, and 4 now", "container"),
        (
            {"memory_bytes": Fact(round(1023.6 * 1024**3))},
            "memory-modules",
            "memory, GiB: 2048 before, and 1024 now",
            "dmidecode",
        ),
        (
            {"cpu_governor": Fact("powersave")},
            "governor",
            "CPU governor: performance before, and powersave now",
            "-g performance",
        ),
    ],
)
def test_causes_of_slow_pageable_memory_are_named_only_if_it_is_slow(
    changed: dict[str, Any], code: str, evidence: str, fix: str
) -> None:
    known = {"cpu_governor": Fact("performance"), "memory_bytes": Fact(round(2047.7 * 1024**3))}
    before, after = environment(**known), environment(**{**known, **changed})
    cause = first(pageable(1.2), after, before)
    assert (cause.code, cause.evidence) == (code, evidence)
    assert fix in (cause.fix or "")
    assert code not in codes(slow_pinned(1.2), after, before)
    assert code not in codes(pageable(1.2), after, after)


def test_a_new_driver_is_named_only_without_a_more_certain_cause() -> None:
    new = make_environment(driver=Fact("580.1"))
    assert codes(all_slow(1.2), make_run(environment=new)) == ["driver"]
    lacking = environment(driver=unknown("no driver"))
    assert codes(all_slow(1.2), make_run(environment=new), lacking) == ["unexplained"]
    assert "driver" not in codes(all_slow(HALF), make_run(environment=new, link=trained(GEN5_X8)))


# --- patterns of slow cells ------------------------------------------------------------------------------------------


def test_slow_pageable_memory_alone_points_to_the_host() -> None:
    cause = next(cause for cause in causes(pageable(1.2)) if cause.code == "host-side")
    assert "not in the link" in cause.text
    assert "host-side" not in codes(pageable(1.2), memories=("pageable",))


def test_one_slow_direction_is_named() -> None:
    found = {cause.code: cause for cause in causes(only("d2h"))}
    assert "d2h" in found["one-direction"].text
    assert codes(all_slow(1.2), directions=("d2h",)) == ["unexplained"]
    assert "one-direction" not in codes(lambda measurement: 1.2 if measurement.direction == "d2h" else 1 / 0.97)


def test_slow_small_copies_alone_point_to_the_fixed_cost() -> None:
    def up_to(nbytes: int) -> Slower:
        return lambda measurement: 1.5 if measurement.nbytes <= nbytes else 1.0

    sizes = (MIB, 4 * MIB - 1, 4 * MIB, 256 * MIB)
    found = {cause.code: cause for cause in causes(up_to(sizes[1]), sizes=sizes[:3])}
    assert found["fixed-cost"].evidence.startswith("copies below 4 MiB have lost")
    assert "ASPM" in (found["fixed-cost"].fix or "")
    assert "fixed-cost" not in codes(up_to(sizes[2]), sizes=sizes)
    assert "fixed-cost" not in codes(slow_pinned(1.2))


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


# --- differences ------------------------------------------------------------------------------------------------------

FAR_PORT = Hop("0000:17:01.0", Fact(LinkState(4, 8)), Fact(LinkState(5, 16)))


def found(b: Run, a: Run | None = None) -> tuple[Difference, ...]:
    return differences([make_run() if a is None else a], [b])


def test_equal_machines_have_no_differences() -> None:
    assert found(make_run()) == ()


def test_time_and_temperature_are_not_differences() -> None:
    later = make_environment(taken_at="2031-01-01T00:00:00+00:00", temperature_c=Fact(80))
    assert found(make_run(environment=later)) == ()


GIB = 1024**3
KNOWN = make_run(
    environment=make_environment(
        cpu_governor=Fact("performance"), iommu=Fact("no groups"), virtual_machine=Fact("none")
    ),
    link=make_link(max_read_request_bytes=Fact(4096), relaxed_ordering=Fact(True)),
)
"""A run in which all values are known."""


def changed(part: str, **overrides: Any) -> Run:
    """The known run with other values of its environment, device, link, placement or parameters."""
    return msgspec.structs.replace(KNOWN, **{part: msgspec.structs.replace(getattr(KNOWN, part), **overrides)})


@pytest.mark.parametrize(
    ("what", "matters", "a", "b", "now"),
    [
        ("host", False, "node-7", "node-8", changed("environment", host="node-8")),
        ("link", True, "PCIe 5.0 x16", "PCIe 4.0 x8", changed("link", under_load=Fact(LinkState(4, 8)))),
        ("narrowest hop", True, "0000:19:00.0", "0000:17:01.0", changed("link", narrowest_hop=Fact(FAR_PORT))),
        ("payload, bytes", True, "256", "128", changed("link", max_payload_bytes=Fact(128))),
        ("relaxed ordering", True, "yes", "no", changed("link", relaxed_ordering=Fact(False))),
        ("NUMA node of the memory", True, "0", "1", changed("placement", pages_by_node=Fact({"0": 3, "1": 4}))),
        ("IOMMU", True, "no groups", "DMA-FQ", changed("environment", iommu=Fact("group 12, DMA-FQ"))),
        ("memory, GiB", True, "128", "1024", changed("environment", memory_bytes=Fact(round(1023.6 * GIB)))),
        (
            "clocks held back",
            True,
            "none",
            "power cap and thermal",
            changed("environment", throttle_reasons=Fact(("power cap", "thermal"))),
        ),
        ("other processes on the GPU", True, "none", "2", changed("environment", other_gpu_processes=Fact((1, 7)))),
        ("kernel", True, "6.8.0", "6.9", changed("environment", kernel="6.9")),
        ("requested precision", False, "0.5 %", "1 %", changed("parameters", precision=0.01)),
        ("budget, s", False, "30", "5", changed("parameters", budget_s=5.0)),
    ],
)
def test_a_difference_has_both_values_and_whether_it_may_cost_bandwidth(
    what: str, matters: bool, a: str, b: str, now: Run
) -> None:
    assert found(now, KNOWN) == (Difference(what, a, b, matters),)


@pytest.mark.parametrize(
    ("placement", "node"),
    [
        (Placement(Fact(0), Fact("0-3"), Fact(2), Fact({"0": 3, "1": 4})), 1),
        (Placement(Fact(0), Fact("0-3"), Fact(2), unknown("no numa_maps")), 2),
        (Placement(Fact(0), Fact("0-3"), Fact(2), Fact({"N1": 4})), None),
        (Placement(Fact(0), Fact("0-3"), Fact(2), Fact({"\u0661": 4})), None),
        (Placement(Fact(0), Fact("0-3"), unknown("no mempolicy"), unknown("no numa_maps")), None),
    ],
)
def test_the_node_with_most_pages_is_a_number(placement: Placement, node: int | None) -> None:
    assert most_pages_on(placement) == node


def test_differences_that_matter_come_first() -> None:
    both = make_run(environment=make_environment(host="node-8", kernel="6.9"))
    assert [difference.matters for difference in found(both)] == [True, False]


def test_a_value_that_one_side_does_not_know_is_not_a_difference() -> None:
    assert found(make_run(link=make_link(max_payload_bytes=unknown("no root")))) == ()


def test_a_difference_has_the_values_of_all_processes() -> None:
    runs = [make_run(environment=make_environment(kernel=kernel)) for kernel in ("6.8.0", "6.9", "6.9")]
    assert differences([make_run()], runs) == (Difference("kernel", "6.8.0", "6.8.0, 6.9", matters=True),)
