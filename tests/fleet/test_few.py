"""Fewer than five hosts: a known host, the peak or each other."""

from __future__ import annotations

import msgspec
import pytest
from fleet_samples import arrivals, by_name, judged, make_cell, make_host, make_hosts, slow_names

from pyxfer._document.fleets import CohortCell, HostReport
from pyxfer._fleet.judge import hosts_to_confirm, judge

PINNED = "h2d:gpu0:pinned:256MiB"
SMALL = "h2d:gpu0:pinned:4KiB"
PAGEABLE = "h2d:gpu0:pageable:256MiB"
OTHER = {"link capability": "PCIe 4.0 x16"}


def cells_of(*hosts: HostReport) -> dict[str, CohortCell]:
    (cohort,) = judge(arrivals(list(hosts))).cohorts
    return {cell.cell.text: cell for cell in cohort.cells}


def with_peak(host: str, value: float, peak: float = 28.0) -> HostReport:
    return make_host(host, {}, cells=(make_cell(PINNED, value, peak),), facts=OTHER)


def test_one_host_is_held_against_a_known_host_with_its_gpu_and_link() -> None:
    cell = cells_of(make_host("a", {PINNED: 55.0}))[PINNED]
    assert cell.judged_by == "known host"
    assert cell.usual.value == pytest.approx(55.5, abs=0.1)
    assert cell.detection_limit.value == pytest.approx(0.05, abs=0.005)


def test_a_host_far_below_a_known_host_is_slow_when_it_stays() -> None:
    assert slow_names(judged([make_host("a", {PINNED: 27.0}), make_host("b", {PINNED: 55.0})])) == ["a"]


def test_pageable_memory_has_more_room() -> None:
    hosts = [make_host("a", {PINNED: 55.0, PAGEABLE: 7.0}), make_host("b", {PINNED: 55.0, PAGEABLE: 3.0})]
    assert slow_names(judged(hosts)) == ["b"]


def test_without_a_known_host_pinned_copies_are_held_against_the_peak() -> None:
    hosts = [with_peak("a", 26.0), with_peak("b", 13.0)]
    assert cells_of(*hosts)[PINNED].judged_by == "peak"
    assert slow_names(judged(hosts)) == ["b"]


def test_three_hosts_without_a_peak_are_compared_with_each_other() -> None:
    hosts = [make_host(name, {SMALL: rate}, facts=OTHER) for name, rate in (("a", 10.0), ("b", 5.0), ("c", 10.1))]
    assert cells_of(*hosts)[SMALL].judged_by == "few hosts"
    assert set(hosts_to_confirm(judge(arrivals(hosts)))) == {"a", "b", "c"}
    assert slow_names(judged(hosts)) == ["b"]


def test_three_unequal_hosts_have_no_slow_one() -> None:
    hosts = [make_host(name, {SMALL: rate}, facts=OTHER) for name, rate in (("a", 10.0), ("b", 8.0), ("c", 12.0))]
    assert slow_names(judged(hosts)) == []


def test_two_hosts_of_which_nothing_is_known_are_not_judged() -> None:
    hosts = [make_host(name, {SMALL: rate}, facts=OTHER) for name, rate in (("a", 10.0), ("b", 5.0))]
    fleet = judged(hosts)
    assert {host.verdict for host in fleet.hosts} == {"not judged"}
    assert by_name(fleet)["a"].reason
    assert fleet.cohorts[0].cells[0].judged_by == "none"


def test_a_wide_interval_is_no_loss() -> None:
    unsure = make_cell(PINNED, 52.0, width=0.2)
    host = msgspec.structs.replace(make_host("a", {}), cells=(unsure,))
    assert slow_names(judged([host])) == []


def test_equal_hosts_that_are_all_slow_are_told() -> None:
    slow = [make_host(f"n{number}", {PINNED: 27.0 + number / 1000}) for number in range(20)]
    (remark,) = judge(arrivals(slow)).cohorts[0].remarks
    assert remark.code == "all-slow"
    assert PINNED in remark.text
    assert judge(arrivals(make_hosts(20))).cohorts[0].remarks == ()


def test_hosts_far_below_their_peak_are_told() -> None:
    (remark,) = (
        judge(arrivals([with_peak(f"n{number}", 13.0 + number / 1000) for number in range(20)])).cohorts[0].remarks
    )
    assert "what the link could do" in remark.text
