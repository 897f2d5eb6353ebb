"""What a request measures, and which requests are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pyxfer._document.links import GROUPS, HOST_END
from pyxfer._links import plan as links_plan
from pyxfer._links.plan import LinksRequest, latencies, make_request, traffics
from pyxfer.errors import UsageError


def request(groups: Any = GROUPS, **changes: Any) -> LinksRequest:
    settings = {"devices": None, "engines": ("ce", "sm"), "size": None, "precision": 0.005, "budget": None, "seed": 1}
    return make_request(groups=groups, **{**settings, **changes})


def cases(devices: int, groups: Any = GROUPS, nodes: int = 1, **changes: Any) -> Counter[tuple[str, str, str]]:
    plans = traffics(request(groups, **changes), range(devices), range(nodes))
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
    brief = replace(request(("together",)), brief=True)
    eight = traffics(brief, range(8), range(2))
    alone = [(plan.group, plan.case, *plan.devices) for plan in eight if len(plan.flows) == 1]
    assert alone == [("host", case, device) for device in range(8) for case in ("h2d", "d2h")]
    assert [(plan.group, plan.case, plan.engine, len(plan.flows)) for plan in eight[len(alone) :]] == [
        ("together", "h2d", "ce", 8),
        ("together", "d2h", "ce", 8),
        ("pairs", "ring", "ce", 8),
    ]
    (one,) = traffics(brief, [0], range(2))
    assert (one.group, one.case, {flow.side for flow in one.flows}) == ("host", "both", {"h2d", "d2h"})
    assert [(plan.device, plan.target) for plan in latencies(brief, range(8), range(2))] == [
        (device, HOST_END) for device in range(8)
    ]


def test_above_sixteen_gpus_pairs_are_a_sample() -> None:
    found = cases(32, engines="ce")
    assert found["pairs", "read", "ce"] == 240
    assert found["together", "beside-h2d", "ce"] == 120
    assert found["pairs", "all-pairs", "ce"] == 0


def test_one_gpu_has_no_pairs_and_together_brings_the_copies_alone_that_it_is_compared_with() -> None:
    assert {group for group, _, _ in cases(1)} == {"host", "local"}
    assert {group for group, _, _ in cases(2, "together")} == {"host", "together"}


def test_a_read_is_issued_by_its_reader_and_a_write_by_its_writer() -> None:
    for plan in traffics(request("pairs"), [3, 5], []):
        for flow in plan.flows:
            if plan.case.endswith("read"):
                assert flow.device == flow.destination
            else:
                assert flow.device == flow.source
            assert plan.peer_access == (plan.case != "through-host")


def test_numa_needs_two_nodes() -> None:
    assert not cases(2, "numa")
    assert cases(2, "numa", nodes=2)["numa", "h2d", "ce"] == 4
    assert {plan.node for plan in latencies(request("numa"), [0], [0, 1])} == {0, 1}


def test_latencies_are_of_host_peers_and_the_gpu_itself_under_each_load() -> None:
    found = latencies(request("latency"), [0, 1], [0])
    assert len({plan.name for plan in found}) == len(found)
    assert {(plan.device, plan.target) for plan in found} == {(a, b) for a in (0, 1) for b in (HOST_END, 0, 1)}
    assert {plan.load for plan in found if plan.target == HOST_END} == {0.0, 0.5, 1.0}
    assert {plan.load for plan in found if plan.target == plan.device} == {0.0}


def test_the_budget_grows_with_the_gpus_and_the_size_replaces_both_defaults() -> None:
    assert [request().parameters(range(count)).budget_s for count in (1, 2, 8)] == [15.0, 30.0, 120.0]
    assert request(budget="9s").parameters(range(8)).budget_s == 9.0
    assert (request().host_bytes, request().peer_bytes) == (links_plan.HOST_BYTES, links_plan.PEER_BYTES)
    assert request(size="1MiB").host_bytes == request(size="1MiB").peer_bytes == 1 << 20
    assert request(devices="0, 1").devices == ("0", "1")
    assert request(devices=3).devices == (3,)
    assert request().parameters([4, 5]).devices == (4, 5)


def test_copies_are_small_where_kernels_are_interpreted_unless_their_size_is_given() -> None:
    def sizes(asked: LinksRequest) -> set[int]:
        fitted = asked.fitted(1 << 40, 2, interpreted=True)
        return {fitted.host_bytes, fitted.peer_bytes, fitted.local_bytes}

    assert sizes(request()) == {links_plan.INTERPRETED_BYTES}
    assert sizes(request(size="4MiB")) == {4 << 20}


@pytest.mark.parametrize(
    ("case", "group"),
    [
        ("host_to_device_memcpy_ce", "host"),
        ("all_to_host_bidirectional_memcpy_sm", "together"),
        ("device_to_device_memcpy_read_ce", "pairs"),
        ("one_to_all_write_sm", "pairs"),
        ("device_local_copy", "local"),
        ("host_device_latency_sm", "latency"),
        ("device_to_device_latency_sm", "latency"),
    ],
)
def test_a_group_may_be_named_by_a_test_case_of_nvbandwidth(case: str, group: str) -> None:
    assert request(f"{case},small").groups == (group, "small")


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
