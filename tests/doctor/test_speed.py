"""Measured copies, compared with the peak, the known host, and page-locked memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor.cases import (
    H200_GBPS,
    LARGE,
    MIB,
    bare_metal,
    copies,
    copy,
    counters,
    found,
    h200,
    h200_link,
    health,
    one_node,
    only,
)
from samples import make_environment

from pyxfer._doctor import speed
from pyxfer._doctor.case import Case
from pyxfer._doctor.examine import examine, nearest_known
from pyxfer._document.examinations import Finding
from pyxfer._document.machines import Fact, Hop, Link, LinkState, Remark, Side, unknown
from pyxfer._document.runs import Measurement, Rate

PEAK = h200_link().h2d_peak_gbps.value or 0.0


def h2d(*measurements: Measurement) -> Finding:
    """The finding of the ceiling of h2d."""
    run = h200(measurements=measurements)
    return found(speed.ceilings, run, nearest=nearest_known(run).value)[0]


def test_a_share_whose_interval_crosses_a_limit_is_likely() -> None:
    rate = Rate(PEAK * 0.905, PEAK * 0.89, PEAK * 0.92)
    assert h2d(copy("h2d", 1.0, rate=Fact(rate))).sure == "likely"
    assert h2d(copy("h2d", PEAK * 0.95)).sure == "certain"


@pytest.mark.parametrize(("share", "status"), [(1.009, "fine"), (1.011, "suspicious"), (1.08, "suspicious")])
def test_a_figure_above_the_peak_is_suspicious(share: float, status: str) -> None:
    finding = h2d(copy("h2d", PEAK * share))
    assert finding.status == status
    assert ("the figure is wrong, or the shown link or MaxPayload" in finding.why) == (status == "suspicious")


@pytest.mark.parametrize("gbps", [63.8, 138.0, 190.0])
@pytest.mark.parametrize("unread", [(), ("h2d_peak_gbps",), ("h2d_peak_gbps", "raw_peak_gbps")])
def test_a_figure_that_no_state_of_the_link_can_carry_is_wrong(gbps: float, unread: tuple[str, ...]) -> None:
    link = msgspec.structs.replace(h200_link(), **{name: unknown("not read") for name in unread})
    run = h200(link=link, measurements=(copy("h2d", gbps),))
    nearest = nearest_known(run).value
    assert [each.status for each in found(speed.ceilings, run, nearest=nearest)] == ["wrong", "unknown"]
    assert found(speed.known_host, run, nearest=nearest) == []
    plain = h200(link=link, measurements=(copy("h2d", 55.0), copy("h2d", gbps, "pageable")))
    assert only(speed.pageable, plain, nearest=nearest).status == "wrong"


@pytest.mark.parametrize(("gbps", "status"), [(50.0, "suspicious"), (63.6, "suspicious"), (63.7, "wrong")])
def test_a_figure_that_the_shown_state_cannot_carry_and_another_can_is_suspicious(gbps: float, status: str) -> None:
    run = h200(link=h200_link(LinkState(1, 16)), measurements=(copy("h2d", gbps),))
    assert found(speed.ceilings, run)[0].status == status


def of(gbps: float, link: Link, side: Side = "h2d") -> Finding:
    """The finding of the ceiling of a side, of a host with this link that no known host is like."""
    return found(speed.ceilings, bare_metal(link=link, measurements=(copy(side, gbps),)))[side == "d2h"]


@pytest.mark.parametrize(
    ("generation", "side", "gbps", "status"),
    [
        (3, "h2d", 12.15, "fine"),  # P100
        *[(3, "h2d", 12.4, "fine"), (3, "d2h", 12.4, "fine")],  # V100
        *[(3, "h2d", 11.9, "suspicious"), (3, "h2d", 10.6, "suspicious"), (3, "h2d", 10.4, "wrong")],
        *[(4, "h2d", 24.8, "fine"), (4, "h2d", 25.2, "fine"), (4, "d2h", 25.2, "fine")],  # A10, A100
        *[(4, "h2d", 24.4, "suspicious"), (4, "h2d", 21.7, "suspicious"), (4, "h2d", 21.5, "wrong")],
        *[(5, "h2d", 55.4, "fine"), (5, "h2d", 52.7, "fine"), (5, "h2d", 52.5, "suspicious")],
        *[(5, "h2d", 49.8, "suspicious"), (5, "h2d", 49.6, "wrong")],
        *[(2, "h2d", 6.2, "fine"), (1, "h2d", 3.1, "fine")],
    ],
)
def test_each_generation_has_its_limits(generation: int, side: Side, gbps: float, status: str) -> None:
    state = LinkState(generation, 16)
    finding = of(gbps, h200_link(state, system_most=Fact(state), device_most=Fact(state)), side)
    assert (finding.status, finding.sure) == (status, "certain")


def test_the_limits_are_those_of_the_link_that_sets_the_peak() -> None:
    above = Hop("0000:3a:00.0", Fact(LinkState(4, 16)), Fact(LinkState(4, 16)))
    finding = of(25.2, h200_link(hops=(h200_link().hops[0], above)))
    assert finding.status == "fine"
    assert "PCIe 4.0 x16" in finding.expected


def unread_payload() -> Link:
    """A link whose MaxPayload only root can read."""
    return h200_link(max_payload_bytes=unknown("the rest takes root with CAP_SYS_ADMIN"))


@pytest.mark.parametrize(
    ("side", "gbps", "status", "sure"),
    [
        *[("h2d", 3.0, "wrong", "certain"), ("d2h", 3.0, "wrong", "certain")],
        *[("h2d", 46.0, "wrong", "certain"), ("h2d", 47.0, "suspicious", "likely")],
        *[("h2d", 49.2, "suspicious", "likely"), ("h2d", 52.5, "suspicious", "likely")],
        *[("h2d", 52.7, "fine", "likely"), ("h2d", 62.9, "fine", "likely")],
    ],
)
def test_without_root_a_ceiling_is_fine_at_the_usual_payload_and_wrong_at_the_smallest(
    side: Side, gbps: float, status: str, sure: str
) -> None:
    finding = of(gbps, unread_payload(), side)
    assert (finding.status, finding.sure) == (status, sure)
    assert "CAP_SYS_ADMIN" in finding.expected


def test_the_smallest_payload_explains_no_more_than_it_costs() -> None:
    assert "MaxPayload may be" not in of(48.9, unread_payload()).why
    assert "MaxPayload may be 128 bytes" in of(49.1, unread_payload()).why
    assert "not examined are" in of(49.1, h200_link()).why


def test_a_payload_that_the_other_direction_shows_bounds_both() -> None:
    measurements = (copy("h2d", 55.5), copy("d2h", 48.0))
    findings = found(speed.ceilings, bare_metal(link=unread_payload(), measurements=measurements))
    assert [each.status for each in findings] == ["fine", "wrong"]


def test_downloads_may_have_short_headers() -> None:
    finding = of(58.0, h200_link(), "d2h")
    assert finding.status == "fine"
    assert "57.61 GB/s" in finding.expected
    assert "58.45 GB/s with the 12-byte ones of addresses below 4 GiB" in finding.expected
    assert of(59.0, h200_link(), "d2h").status == "fine"
    assert of(59.1, h200_link(), "d2h").status == "suspicious"


@pytest.mark.parametrize(
    ("link", "side", "gbps", "peak", "share"),
    [
        (h200_link(), "h2d", 59.5, "58.45 GB/s, the protocol peak of PCIe 5.0 x16 at 256 B payload", "101.8 %"),
        (h200_link(), "d2h", 59.5, "58.45 GB/s, the protocol peak of PCIe 5.0 x16 at 256 B payload with", "101.8 %"),
        (unread_payload(), "h2d", 190.0, "63.02 GB/s, the raw peak of PCIe 5.0 x16", "301.5 %"),
    ],
)
def test_a_figure_above_the_peak_names_the_highest_peak(
    link: Link, side: Side, gbps: float, peak: str, share: str
) -> None:
    finding = of(gbps, link, side)
    assert finding.expected.startswith(f"no more than {peak}")
    assert f"{share} of {peak.partition(', ')[2]}" in finding.seen


@pytest.mark.parametrize(("low", "sure"), [(1.005, "likely"), (1.02, "certain")])
def test_a_figure_above_the_peak_is_certain_if_its_interval_is(low: float, sure: str) -> None:
    assert h2d(copy("h2d", 1.0, rate=Fact(Rate(PEAK * 1.05, PEAK * low, PEAK * 1.06)))).sure == sure


def test_a_virtual_machine_may_make_up_the_link_of_a_figure_above_the_peak() -> None:
    assert h2d(copy("h2d", PEAK * 1.05)).why.endswith("MaxPayload, which a virtual machine may make up")
    assert of(PEAK * 1.05, h200_link()).why.endswith("MaxPayload")


@pytest.mark.parametrize(
    ("share", "factors"),
    [(0.52, []), (0.505, [2]), (0.411, [2]), (0.409, []), (0.25, [4]), (0.2, []), (0.12, [8]), (0.1, []), (None, [])],
)
def test_a_low_share_is_explained_by_a_link_of_that_fraction(share: float | None, factors: list[int]) -> None:
    judged = copy("h2d", PEAK if share is None else PEAK * share)
    causes = speed.likely_causes(Case(h200()), judged, share)
    assert [cause.text.split(" of the lanes")[0] for cause in causes] == [f"a link with 1/{each}" for each in factors]


def on_nodes(near: int, far: int) -> dict[str, Any]:
    return {"placement": msgspec.structs.replace(one_node(), pages_by_node=Fact({"0": near, "1": far}))}


THROTTLED = make_environment(throttle_reasons=Fact(("idle", "hardware slowdown")))


@pytest.mark.parametrize(
    ("run", "health_parts", "cause"),
    [
        (on_nodes(50, 50), {}, ""),
        (on_nodes(49, 51), {}, "51.0 % of its memory is on another NUMA node than the device's (0)"),
        ({"environment": {"other_gpu_processes": Fact((71,))}}, {}, "other processes use this GPU at the same time"),
        ({"remarks": (Remark("contended", "another pyxfer"),)}, {}, "other processes use this GPU at the same time"),
        ({}, {"after": counters(7)}, ""),  # as many as the specification allows of 200 GB
        ({}, {"after": counters(8)}, "packets were sent again 8 times during the measurement"),
        ({}, {"iommu": Fact("identity")}, ""),
        ({}, {"iommu": Fact("DMA")}, "the IOMMU translates the device's addresses (domain DMA)"),
        ({"environment": {"throttle_reasons": Fact(("idle",))}}, {}, ""),
        ({"environment_after": THROTTLED}, {}, "the GPU's clocks were held down: hardware slowdown"),
    ],
)
def test_each_fault_of_the_host_can_explain_slow_copies(
    run: dict[str, Any], health_parts: dict[str, Any], cause: str
) -> None:
    causes = speed.likely_causes(Case(h200(**run), health(**health_parts)), copy("h2d", 45.0), None)
    assert [each.text for each in causes] == ([cause] if cause else [])


def test_clocks_that_were_held_down_before_and_after_are_one_cause() -> None:
    case = Case(h200(environment={"throttle_reasons": Fact(("sync boost",))}, environment_after=THROTTLED))
    assert [each.text for each in speed.likely_causes(case, copy("h2d", 45.0), None)] == [
        "the GPU's clocks were held down: sync boost"
    ]


def test_the_advice_is_that_of_the_first_cause() -> None:
    unsteady = copy("h2d", PEAK * 0.7, remarks=(Remark("drift", "it became slower"),))
    finding = found(speed.ceilings, h200(measurements=(unsteady,), **on_nodes(0, 100)))[0]
    assert finding.why.endswith("; the copies were not steady, so something disturbed them")
    assert (finding.do or "").startswith("keep memory and process near the device: numactl --cpunodebind=0")
    slow = copy("h2d", PEAK * 0.901, remarks=unsteady.remarks)
    run = h200(measurements=(slow,))
    known = only(speed.known_host, run, nearest=nearest_known(run).value)
    assert known.why.endswith("; the copies were not steady, so something disturbed them")


@pytest.mark.parametrize(
    ("run", "health_parts"),
    [
        (on_nodes(0, 100), {}),
        ({"environment": {"other_gpu_processes": Fact((71,))}}, {}),
        ({}, {"after": counters(8)}),
        ({"environment_after": THROTTLED}, {}),
    ],
)
def test_a_slow_copy_with_a_finding_of_its_cause_is_not_reported_against_the_known_host(
    run: dict[str, Any], health_parts: dict[str, Any]
) -> None:
    slow = h200(measurements=copies(0.948), **run)
    nearest = nearest_known(slow).value
    assert found(speed.known_host, slow, health=health(**health_parts), nearest=nearest) == []
    assert len(found(speed.known_host, h200(measurements=copies(0.948)), nearest=nearest)) == 2


@pytest.mark.parametrize("most", [LinkState(5, 16), LinkState(5, 8)], ids=["trained low", "by design"])
def test_a_narrow_port_above_is_not_compared_with_a_host_without_one(most: LinkState) -> None:
    above = Hop("0000:3a:00.0", Fact(LinkState(5, 8)), Fact(most))
    link = h200_link(hops=(h200_link().hops[0], above))
    run = bare_metal(link=link, measurements=copies(0.5, link=link))
    nearest = nearest_known(run).value
    assert nearest is not None
    assert not nearest.alike
    bad = [each for each in examine(run, health(), nearest) if each.status in ("wrong", "suspicious")]
    assert [each.code for each in bad] == ["path"]


def test_copies_above_the_peak_are_not_compared_further() -> None:
    run = h200(measurements=copies(2.5))
    nearest = nearest_known(run).value
    assert found(speed.known_host, run, nearest=nearest) == []
    assert {each.status for each in found(speed.pageable, run, nearest=nearest)} == {"unknown"}


def test_pageable_copies_above_the_peak_are_suspicious() -> None:
    run = h200(measurements=(copy("h2d", PEAK), copy("h2d", PEAK * 1.02, "pageable")))
    assert only(speed.pageable, run).status == "suspicious"


@pytest.mark.parametrize(("side", "nbytes"), [("h2d", MIB), ("h2d", 16 * MIB), ("d2h", LARGE)])
def test_unsteady_copies_of_other_cells_do_not_explain_a_ceiling(side: Side, nbytes: int) -> None:
    unsteady = copy(side, 20.0, nbytes=nbytes, remarks=(Remark("unstable", "it varies"),))
    finding = h2d(copy("h2d", PEAK * 0.475), unsteady)
    assert "steady" not in finding.why


def test_small_copies_leave_the_ceiling_unknown() -> None:
    finding = h2d(copy("h2d", PEAK * 0.8, nbytes=8 * MIB))
    assert finding.status == "unknown"
    assert "below 16 MiB" in finding.seen
    assert h2d(copy("h2d", PEAK * 0.95, nbytes=16 * MIB)).status == "fine"


def test_the_fastest_way_at_the_largest_size_is_the_ceiling() -> None:
    slow, small = copy("h2d", PEAK * 0.5, memory="registered"), copy("h2d", PEAK * 0.99, nbytes=64 * MIB)
    assert "95.0 % of the protocol peak" in h2d(small, slow, copy("h2d", PEAK * 0.95)).seen


@pytest.mark.parametrize("other", [{"mode": "staged"}, {"memory": "unknown", "route": "my_batches"}])
def test_staged_copies_and_callables_are_not_a_ceiling(other: dict[str, Any]) -> None:
    finding = h2d(copy("h2d", PEAK * 0.95, **other))
    assert (finding.status, finding.seen) == ("unknown", "the run has no h2d copy of page-locked memory")


def test_encrypted_copies_are_not_compared_with_the_peak() -> None:
    device = msgspec.structs.replace(h200().device, confidential=Fact(True))
    run = h200(device=device, measurements=copies(0.2))
    assert [finding.status for finding in found(speed.ceilings, run)] == ["unknown", "unknown"]


@pytest.mark.parametrize(("field", "kind"), [("mig", "a MIG instance"), ("vgpu", "a vGPU")])
def test_a_slow_part_of_a_gpu_is_suspicious(field: str, kind: str) -> None:
    device = msgspec.structs.replace(h200().device, **{field: Fact(True)})
    run = h200(device=device, measurements=copies(0.5))
    findings = found(speed.ceilings, run)
    assert [finding.status for finding in findings] == ["suspicious", "suspicious"]
    assert findings[0].why.startswith(f"{kind} shares its link")


def test_a_copy_without_a_result_gives_its_reason() -> None:
    assert h2d(copy("h2d", None)).seen == "not one trial was valid"
    assert h2d(copy("h2d", None, "pageable")).seen == "the run has no h2d copy of page-locked memory"


def test_without_a_peak_the_known_host_is_compared() -> None:
    link = msgspec.structs.replace(h200_link(), h2d_peak_gbps=unknown("MaxPayload is not known: no"))
    run = h200(link=link)
    nearest = nearest_known(run).value
    fine = found(speed.ceilings, run, nearest=nearest)[0]
    assert (fine.status, fine.sure) == ("fine", "likely")
    slow = h200(link=link, measurements=copies(0.9))
    assert found(speed.ceilings, slow, nearest=nearest)[0].status == "suspicious"


def test_a_size_that_the_known_host_lacks_is_not_compared_with_it() -> None:
    link = msgspec.structs.replace(h200_link(), h2d_peak_gbps=unknown("MaxPayload is not known: no"))
    measurements = (copy("h2d", 55.5, nbytes=48 * MIB),)
    without_peak, run = h200(link=link, measurements=measurements), h200(measurements=measurements)
    nearest = nearest_known(run).value
    ceiling = found(speed.ceilings, without_peak, nearest=nearest)[0]
    assert ceiling.status == "fine"  # by the bounds of the payload, not by the known host
    assert found(speed.known_host, run, nearest=nearest) == []


def test_without_a_peak_and_a_known_host_the_ceiling_is_unknown() -> None:
    reason = "host and device are joined chip to chip (NVLink-C2C), so no PCIe peak applies"
    link = msgspec.structs.replace(h200_link(), kind="c2c", h2d_peak_gbps=unknown(reason))
    assert found(speed.ceilings, h200(link=link))[0].seen == reason


@pytest.mark.parametrize(("share", "status"), [(1.0, "fine"), (0.951, "fine"), (0.949, "suspicious")])
def test_a_host_of_the_same_kind_is_compared_with_the_known_one(share: float, status: str) -> None:
    run = h200(measurements=copies(share * 1.0001))
    findings = found(speed.known_host, run, nearest=nearest_known(run).value)
    assert [finding.status for finding in findings] == [status, status]
    assert findings[0].expected.startswith("at least 95 % of ")


def test_another_kind_of_host_is_not_compared_with_the_known_one() -> None:
    device = msgspec.structs.replace(h200().device, name="NVIDIA A100-SXM4-80GB")
    run = h200(device=device, measurements=copies(0.5))
    assert found(speed.known_host, run, nearest=nearest_known(run).value) == []


@pytest.mark.parametrize(
    ("pinned", "gbps", "with_known", "without"),
    [
        (55.5, 10.0, "fine", "fine"),
        (55.5, 5.2, "fine", "fine"),
        (55.5, 5.0, "suspicious", "fine"),
        (55.5, 3.0, "suspicious", "fine"),
        (55.5, 2.9, "suspicious", "suspicious"),
        (10.0, 10.4, "fine", "fine"),
        (10.0, 10.6, "suspicious", "suspicious"),
    ],
)
def test_pageable_copies_are_compared_with_the_known_host_or_3_gbps_and_with_pinned_ones(
    pinned: float, gbps: float, with_known: str, without: str
) -> None:
    run = h200(measurements=(copy("h2d", pinned), copy("h2d", gbps, "pageable")))
    assert only(speed.pageable, run, nearest=nearest_known(run).value).status == with_known
    assert only(speed.pageable, run).status == without


@pytest.mark.parametrize(("nbytes", "compared"), [(8 * MIB, 0), (16 * MIB, 2)])
def test_small_copies_are_not_compared_with_other_figures(nbytes: int, compared: int) -> None:
    run = h200(measurements=copies(nbytes=nbytes))
    nearest = nearest_known(run).value
    assert len(found(speed.known_host, run, nearest=nearest)) == compared
    assert len(found(speed.pageable, run, nearest=nearest)) == compared


def test_pageable_copies_have_advice_for_their_direction() -> None:
    calls = ("pyxfer.upload", "pyxfer.download")
    for share in (1.0, 0.2):  # fine, and too slow
        run = h200(
            measurements=[
                copy(side, 55.5 if memory == "pinned" else 10.0 * share, memory) for side, memory in H200_GBPS
            ]
        )
        for finding, call in zip(found(speed.pageable, run), calls, strict=True):
            assert [each in (finding.do or "") for each in calls] == [each == call for each in calls]


@pytest.mark.parametrize(("gbps", "advised"), [(9.4, True), (9.6, False)])
def test_pageable_copies_as_fast_as_pinned_ones_have_no_advice(gbps: float, advised: bool) -> None:
    run = h200(measurements=(copy("h2d", 10.0), copy("h2d", gbps, "pageable")))
    assert (only(speed.pageable, run).do is not None) == advised


def test_wrong_contents_are_wrong_at_any_rate() -> None:
    whole = copy("h2d", 55.5), copy("h2d", 10.0, "pageable")
    run = h200(measurements=(*whole, copy("d2h", 55.4, verified=Fact(False))))
    finding = only(speed.contents, run)
    assert (finding.status, finding.seen) == ("wrong", "wrong in 1 of 3 measurements")
    assert found(speed.ceilings, run)[1].status == "unknown"


def test_pageable_and_pinned_copies_of_different_sizes_are_not_compared() -> None:
    run = h200(measurements=(copy("h2d", 55.5, nbytes=LARGE), copy("h2d", 10.0, "pageable", nbytes=64 * MIB)))
    assert found(speed.pageable, run, health=health()) == []
