"""Differences between the machines of two sides, and whether they can cost bandwidth."""

from __future__ import annotations

from typing import Any

import pytest
from samples import make_device, make_environment, make_link, make_parameters, make_run

from pyxfer._baseline.causes import differences
from pyxfer._document.baselines import Difference
from pyxfer._document.runs import Fact, LinkState, Run, unknown


def found(b: Run, a: Run | None = None) -> tuple[Difference, ...]:
    return differences([a or make_run()], [b])


def test_equal_machines_have_no_differences() -> None:
    assert found(make_run()) == ()


def test_time_and_temperature_are_not_differences() -> None:
    later = make_environment(taken_at="2031-01-01T00:00:00+00:00", temperature_c=Fact(80))
    assert found(make_run(environment=later)) == ()


@pytest.mark.parametrize(
    ("changed", "what", "a", "b"),
    [
        ({"link": make_link(under_load=Fact(LinkState(4, 8)))}, "link", "PCIe 5.0 x16", "PCIe 4.0 x8"),
        ({"link": make_link(max_payload_bytes=Fact(128))}, "payload, bytes", "256", "128"),
        ({"device": make_device(pci=Fact("0000:3b:00.0"))}, "slot (PCI address)", "0000:19:00.0", "0000:3b:00.0"),
        ({"environment": make_environment(kernel="6.9")}, "kernel", "6.8.0", "6.9"),
        ({"environment": make_environment(memory_bytes=Fact(64 << 30))}, "memory, GiB", "128", "64"),
        ({"environment": make_environment(other_gpu_processes=Fact((1,)))}, "other processes on the GPU", "none", "1"),
    ],
)
def test_a_difference_that_may_cost_bandwidth_has_both_values(
    changed: dict[str, Any], what: str, a: str, b: str
) -> None:
    assert found(make_run(**changed)) == (Difference(what, a, b, matters=True),)


@pytest.mark.parametrize(
    ("what", "before", "now"),
    [
        ("device", {"device": make_device(name="H100")}, {"device": make_device(name="H200")}),
        ("MIG", {"device": make_device(mig=Fact(False))}, {"device": make_device(mig=Fact(True))}),
        ("vGPU", {"device": make_device(vgpu=Fact(False))}, {"device": make_device(vgpu=Fact(True))}),
        (
            "confidential computing",
            {"device": make_device(confidential=Fact(False))},
            {"device": make_device(confidential=Fact(True))},
        ),
        (
            "virtual machine",
            {"environment": make_environment(virtual_machine=Fact("none"))},
            {"environment": make_environment(virtual_machine=Fact("kvm"))},
        ),
        (
            "relaxed ordering",
            {"link": make_link(relaxed_ordering=Fact(True))},
            {"link": make_link(relaxed_ordering=Fact(False))},
        ),
    ],
)
def test_a_changed_kind_of_device_or_machine_may_cost_bandwidth(
    what: str, before: dict[str, Any], now: dict[str, Any]
) -> None:
    (difference,) = found(make_run(**now), make_run(**before))
    assert (difference.what, difference.matters) == (what, True)


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": make_environment(host="node-8")},
        {"environment": make_environment(numpy="2.2")},
        {"parameters": make_parameters(budget_s=5.0)},
    ],
)
def test_a_difference_that_costs_no_bandwidth_is_marked(changed: dict[str, Any]) -> None:
    assert [difference.matters for difference in found(make_run(**changed))] == [False]


def test_differences_that_matter_come_first() -> None:
    both = make_run(environment=make_environment(host="node-8", kernel="6.9"))
    assert [difference.matters for difference in found(both)] == [True, False]


def test_a_value_that_one_side_does_not_know_is_not_a_difference() -> None:
    assert found(make_run(link=make_link(max_payload_bytes=unknown("no root")))) == ()


def test_a_difference_has_the_values_of_all_processes() -> None:
    runs = [make_run(environment=make_environment(kernel=kernel)) for kernel in ("6.8.0", "6.9", "6.9")]
    assert differences([make_run()], runs) == (Difference("kernel", "6.8.0", "6.8.0, 6.9", matters=True),)
