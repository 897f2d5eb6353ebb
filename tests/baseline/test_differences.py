"""Differences between the machines of two sides, and whether they can cost bandwidth."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from samples import make_environment, make_link, make_run

from pyxfer._baseline.causes import differences, most_pages_on
from pyxfer._document.baselines import Difference
from pyxfer._document.runs import Fact, Hop, LinkState, Placement, Run, unknown

PORT = Hop("0000:17:01.0", Fact(LinkState(4, 8)), Fact(LinkState(5, 16)))


def found(b: Run, a: Run | None = None) -> tuple[Difference, ...]:
    return differences([a or make_run()], [b])


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
        ("GPU", False, "GPU-6a1f2c3d-0001-0002-0003-000000000004", "GPU-2", changed("device", uuid=Fact("GPU-2"))),
        ("device", True, "NVIDIA H200", "H100", changed("device", name="H100")),
        ("slot (PCI address)", True, "0000:19:00.0", "0000:3b:00.0", changed("device", pci=Fact("0000:3b:00.0"))),
        ("link", True, "PCIe 5.0 x16", "PCIe 4.0 x8", changed("link", under_load=Fact(LinkState(4, 8)))),
        (
            "best link of the device",
            True,
            "PCIe 5.0 x16",
            "PCIe 4.0 x8",
            changed("link", device_most=Fact(LinkState(4, 8))),
        ),
        (
            "best link of the slot",
            True,
            "PCIe 5.0 x16",
            "PCIe 4.0 x8",
            changed("link", system_most=Fact(LinkState(4, 8))),
        ),
        ("narrowest hop", True, "0000:19:00.0", "0000:17:01.0", changed("link", narrowest_hop=Fact(PORT))),
        ("payload, bytes", True, "256", "128", changed("link", max_payload_bytes=Fact(128))),
        ("read request, bytes", True, "4096", "512", changed("link", max_read_request_bytes=Fact(512))),
        ("relaxed ordering", True, "yes", "no", changed("link", relaxed_ordering=Fact(False))),
        ("NUMA node of the GPU", True, "0", "1", changed("placement", device_node=Fact(1))),
        ("NUMA node of the memory", True, "0", "1", changed("placement", pages_by_node=Fact({"0": 3, "1": 4}))),
        ("processors used", True, "0-15", "0-3", changed("placement", cpus=Fact("0-3"))),
        ("IOMMU", True, "no groups", "DMA-FQ", changed("environment", iommu=Fact("group 12, DMA-FQ"))),
        (
            "transparent huge pages",
            True,
            "madvise",
            "never",
            changed("environment", transparent_huge_pages=Fact("never")),
        ),
        ("CPU governor", True, "performance", "powersave", changed("environment", cpu_governor=Fact("powersave"))),
        ("CPU", True, "INTEL(R) XEON(R) PLATINUM 8568Y+", "EPYC", changed("environment", cpu_model=Fact("EPYC"))),
        ("processors usable", True, "16", "4", changed("environment", cpus_usable=4)),
        ("memory, GiB", True, "128", "1024", changed("environment", memory_bytes=Fact(round(1023.6 * GIB)))),
        (
            "clocks held back",
            True,
            "none",
            "power cap and thermal",
            changed("environment", throttle_reasons=Fact(("power cap", "thermal"))),
        ),
        ("performance state", False, "P0", "P2", changed("environment", performance_state=Fact("P2"))),
        ("other processes on the GPU", True, "none", "2", changed("environment", other_gpu_processes=Fact((1, 7)))),
        ("MIG", True, "no", "yes", changed("device", mig=Fact(True))),
        ("vGPU", True, "no", "yes", changed("device", vgpu=Fact(True))),
        ("confidential computing", True, "no", "yes", changed("device", confidential=Fact(True))),
        ("virtual machine", True, "none", "kvm", changed("environment", virtual_machine=Fact("kvm"))),
        ("persistence mode", True, "yes", "no", changed("environment", persistence=Fact(False))),
        ("driver", True, "570.124.06", "580.1", changed("environment", driver=Fact("580.1"))),
        ("CUDA of the runtime", True, "12.9", "13.0", changed("environment", cuda_runtime="13.0")),
        ("kernel", True, "6.8.0", "6.9", changed("environment", kernel="6.9")),
        ("pyxfer", True, "0.1.0", "0.2.0", changed("environment", pyxfer="0.2.0")),
        ("container", False, "docker", "podman", changed("environment", container=Fact("podman"))),
        ("system", False, "Debian GNU/Linux 12", "RHEL 9", changed("environment", system=Fact("RHEL 9"))),
        ("NumPy", False, "2.1.3", "2.2", changed("environment", numpy="2.2")),
        ("Python", False, "3.11.9", "3.12", changed("environment", python="3.12")),
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
