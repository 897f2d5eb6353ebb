"""What a request measures, and which requests are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pyxfer._document.links import GROUPS, HOST_END, LinksParameters
from pyxfer._links import plan as links_plan
from pyxfer._links.plan import LinksRequest, latencies, make_request, traffics
from pyxfer.errors import UsageError


def request(groups: Any = GROUPS, **changes: Any) -> LinksRequest:
    settings = {"devices": None, "engines": ("ce", "sm"), "size": None, "precision": 0.005, "budget": None, "seed": 1}
    return make_request(groups=groups, **{**settings, **changes})


def parameters(devices: Sequence[int], groups: Any = GROUPS, **changes: Any) -> LinksParameters:
    return request(groups, **changes).parameters(devices, 1 << 40, interpreted=False)


def cases(devices: int, groups: Any = GROUPS, nodes: int = 1) -> Counter[tuple[str, str, str]]:
    plans = traffics(parameters(range(devices), groups), range(nodes))
    assert len({plan.name for plan in plans}) == len(plans)
    return Counter((plan.group, plan.case, plan.engine) for plan in plans)


def test_two_gpus_have_every_case_of_a_pair() -> None:
    found = cases(2)
    for engine in ("ce", "sm"):
        assert [found["host", case, engine] for case in ("h2d", "d2h", "both")] == [2, 2, 2]
        assert [found["together", case, engine] for case in ("h2d", "d2h", "both")] == [1, 1, 1]
        assert [found["pairs", case, engine] for case in ("read", "write", "both-read", "both-write")] == [2, 2, 1, 1]
        assert found["local", "copy", engine] == 2
    assert found["pairs", "through-host", "ce"] == 2
    assert not any(case in ("ring", "all-pairs", "all-to-one-read", "beside-h2d") for _, case, _ in found)


def test_more_gpus_have_patterns_and_an_interference_map() -> None:
    found = cases(4)
    assert [found["pairs", case, "sm"] for case in ("read", "both-write", "all-to-one-read", "one-to-all-write")] == [
        *(12, 6, 4, 4)
    ]
    assert found["pairs", "ring", "ce"] == found["pairs", "all-pairs", "ce"] == 1
    assert [found["together", f"beside-{side}", "ce"] for side in ("h2d", "d2h")] == [6, 6]
    assert found["together", "beside-h2d", "sm"] == 0


def test_a_brief_request_has_few_rows_that_show_every_gpu_and_both_ways_of_it() -> None:
    eight = traffics(parameters(range(8), "together"), range(2), brief=True)
    alone = [(plan.group, plan.case, *plan.devices) for plan in eight if len(plan.flows) == 1]
    assert alone == [("host", case, device) for device in range(8) for case in ("h2d", "d2h")]
    assert [(plan.group, plan.case, plan.engine, len(plan.flows)) for plan in eight[len(alone) :]] == [
        ("together", "h2d", "ce", 8),
        ("together", "d2h", "ce", 8),
        ("pairs", "ring", "ce", 8),
    ]
    (one,) = traffics(parameters([0], "together"), range(2), brief=True)
    assert (one.group, one.case, {flow.side for flow in one.flows}) == ("host", "both", {"h2d", "d2h"})
    found = latencies(parameters(range(8), "together"), range(2), brief=True)
    assert [(plan.device, plan.target) for plan in found] == [(device, HOST_END) for device in range(8)]


def test_all_pairs_of_many_gpus_are_measured_but_not_at_once() -> None:
    found = cases(12)
    assert [found["pairs", "read", "ce"], found["together", "beside-h2d", "ce"]] == [132, 66]
    assert found["pairs", "all-pairs", "ce"] == 0


def test_one_gpu_has_no_pairs_and_together_brings_the_copies_alone_that_it_is_compared_with() -> None:
    assert {group for group, _, _ in cases(1)} == {"host", "local"}
    assert {group for group, _, _ in cases(2, "together")} == {"host", "together"}


def test_a_read_is_issued_by_its_reader_and_a_write_by_its_writer() -> None:
    for plan in traffics(parameters([3, 5], "pairs"), []):
        for flow in plan.flows:
            if plan.case.endswith("read"):
                assert flow.device == flow.destination
            else:
                assert flow.device == flow.source
            assert plan.peer_access == (plan.case != "through-host")


def test_numa_needs_two_nodes() -> None:
    assert not cases(2, "numa")
    assert cases(2, "numa", nodes=2)["numa", "h2d", "ce"] == 4
    assert {plan.node for plan in latencies(parameters([0], "numa"), [0, 1])} == {0, 1}


def test_latencies_are_of_host_peers_and_the_gpu_itself_under_each_load() -> None:
    found = latencies(parameters([0, 1], "latency"), [0])
    assert len({plan.name for plan in found}) == len(found)
    assert {(plan.device, plan.target) for plan in found} == {(a, b) for a in (0, 1) for b in (HOST_END, 0, 1)}
    assert {plan.load for plan in found if plan.target == HOST_END} == {0.0, 0.5, 1.0}
    assert {plan.load for plan in found if plan.target == plan.device} == {0.0}


def test_the_budget_grows_with_the_gpus() -> None:
    assert [parameters(range(count)).budget_s for count in (1, 2, 8)] == [15.0, 30.0, 120.0]
    assert parameters(range(8), budget="9s").budget_s == 9.0
    assert request(devices="0, 1").devices == ("0", "1")
    assert request(devices=3).devices == (3,)


@pytest.mark.parametrize(
    ("size", "free_bytes", "interpreted", "sizes"),
    [
        (None, 1 << 40, False, (links_plan.HOST_BYTES, links_plan.PEER_BYTES, links_plan.LOCAL_BYTES)),
        (None, 1 << 30, False, (64 << 20, 64 << 20, 128 << 20)),
        (None, 1 << 40, True, (links_plan.INTERPRETED_BYTES,) * 3),
        ("4MiB", 1 << 30, True, (4 << 20,) * 3),
    ],
)
def test_copies_fit_into_the_free_memory_unless_their_size_is_given(
    size: str | None, free_bytes: int, interpreted: bool, sizes: tuple[int, int, int]
) -> None:
    found = request(size=size).parameters([4, 5], free_bytes, interpreted=interpreted)
    assert found.devices == (4, 5)
    assert (found.host_bytes, found.peer_bytes, found.local_bytes) == sizes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("groups", "everything"), ("groups", ""), ("engines", "tma"), ("precision", 0), ("budget", -1), ("seed", -1)],
        *[("size", "1MiB,2MiB"), ("size", "1000"), ("size", "4KiB")],
        *[("devices", ""), ("devices", "0,"), ("devices", ())],
    ],
)
def test_invalid_arguments_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError):
        request(**{name: value})
