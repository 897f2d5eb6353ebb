from __future__ import annotations

from pathlib import Path

import pytest
from machine.fake_host import (
    GPU,
    NO_NVML,
    FakeEngine,
    NVMLError,
    Port,
    Properties,
    config_space,
    gpu,
    make_path,
    nvml,
    nvml_link,
    without_nvml,
)

from pyxfer._document.runs import Fact, Hop, Link, LinkState, Side
from pyxfer._machine.devices import find_device
from pyxfer._machine.link import link_under_load, read_link, with_load

ROOT_PORT = "0000:3a:01.0"
SWITCH_UP, SWITCH_DOWN, BEHIND_SWITCH = "0000:3b:00.0", "0000:3c:00.0", "0000:3d:00.0"
FULL = LinkState(5, 16)


def healthy(root: Path, now: tuple[int, int] = (5, 16), config: bytes | None = None) -> Link:
    """The link of a Gen5 x16 device directly under a Gen5 x16 root port."""
    folder = make_path(root, Port(ROOT_PORT), Port(GPU, now=now))
    (folder / "config").write_bytes(config_space() if config is None else config)
    return read_link(FakeEngine(), gpu(), root=root, nvml=nvml_link(now))


def behind_switch(root: Path, above: Port, now: tuple[int, int] = (5, 16)) -> Link:
    """The link of a Gen5 x16 device behind a switch with the upstream port `above`."""
    folder = make_path(root, Port(ROOT_PORT), above, Port(SWITCH_DOWN), Port(BEHIND_SWITCH, now=now))
    (folder / "config").write_bytes(config_space())
    return read_link(FakeEngine(), gpu(pci=BEHIND_SWITCH), root=root, nvml=nvml_link(now))


def codes(link: Link) -> list[str]:
    return [remark.code for remark in link.remarks]


def test_full_link_under_load_has_its_peaks_and_no_remarks(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(FULL))
    assert link.kind == "pcie"
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.h2d_peak_gbps.value == pytest.approx(58.45, abs=0.005)
    assert link.d2h_peak_gbps.value == pytest.approx(57.61, abs=0.005)
    assert link.remarks == ()


@pytest.mark.parametrize(("side", "gbps"), [("h2d", 58.45), ("d2h", 57.61), ("sum", 116.06)])
def test_each_side_has_its_peak(tmp_path: Path, side: Side, gbps: float) -> None:
    assert with_load(healthy(tmp_path), Fact(FULL)).peak_gbps(side).value == pytest.approx(gbps, abs=0.01)


def test_peak_of_an_idle_link_is_that_of_its_largest_state(tmp_path: Path) -> None:
    link = healthy(tmp_path, now=(1, 16))
    assert link.now.value == LinkState(1, 16)
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.under_load.value is None
    assert link.remarks == ()


def test_idle_state_of_a_switch_does_not_lower_the_peak_under_load(tmp_path: Path) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(1, 16)), now=(1, 16)), Fact(FULL))
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)


def test_lower_generation_under_load_has_a_remark(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(LinkState(3, 16)))
    assert link.raw_peak_gbps.value == pytest.approx(15.75, abs=0.005)
    (remark,) = link.remarks
    assert remark.code == "link-slow"
    assert all(words in remark.text for words in (GPU, "PCIe 3.0 x16", "PCIe 5.0 x16"))
    assert remark.fix


def test_lower_width_under_load_has_a_remark(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(LinkState(5, 8)))
    assert codes(link) == ["link-narrow"]
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)


def test_slot_with_a_lower_generation_than_the_device_has_a_remark(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(4, 16)), Port(GPU, now=(4, 16)))
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link(now=(4, 16), most=(4, 16)))
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    (remark,) = link.remarks
    assert all(words in remark.text for words in ("PCIe 5.0 x16", "PCIe 4.0 x16"))


@pytest.mark.parametrize("now", [(5, 8), (1, 8)])
def test_narrowest_hop_sets_the_peak_and_has_a_remark(tmp_path: Path, now: tuple[int, int]) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=now)), Fact(FULL))
    assert link.narrowest_hop.value is not None
    assert link.narrowest_hop.value.pci == SWITCH_UP
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    (remark,) = link.remarks
    assert remark.code == "hop-narrow"
    assert all(words in remark.text for words in (SWITCH_UP, "PCIe 5.0 x8", "PCIe 5.0 x16"))


def test_hop_that_can_do_less_sets_the_peak(tmp_path: Path) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(4, 16), most=(4, 16))), Fact(FULL))
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    assert codes(link) == ["hop-narrow"]


def test_an_idle_link_keeps_its_width(tmp_path: Path) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(1, 8)), now=(1, 16)), Fact(FULL))
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    assert codes(link) == ["hop-narrow"]


def test_a_port_that_idles_beside_an_awake_device_does_not_lower_the_peak(tmp_path: Path) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(1, 16))), Fact(FULL))
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.remarks == ()


@pytest.mark.parametrize(
    ("now", "most", "working"),
    [((1, 8), (5, 16), (5, 8)), (None, (4, 16), (4, 16)), ((3, 8), None, (3, 8)), ((1, 16), (5, 8), (5, 8))],
)
def test_the_working_state_of_a_link_above_is_its_largest_generation_on_its_present_lanes(
    now: tuple[int, int] | None, most: tuple[int, int] | None, working: tuple[int, int]
) -> None:
    states = [Fact[LinkState](reason="no sysfs") if each is None else Fact(LinkState(*each)) for each in (now, most)]
    assert Hop(SWITCH_UP, *states).working.value == LinkState(*working)


def test_narrowest_of_equal_hops_is_the_device(tmp_path: Path) -> None:
    link = behind_switch(tmp_path, Port(SWITCH_UP))
    assert link.narrowest_hop.value is not None
    assert link.narrowest_hop.value.pci == BEHIND_SWITCH


def test_virtual_machine_without_a_root_port_has_peaks(tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "config").write_bytes(config_space())
    link = with_load(read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link((5, 16))), Fact(FULL))
    assert len(link.hops) == 1
    assert link.d2h_peak_gbps.value == pytest.approx(57.61, abs=0.005)


def test_device_missing_in_sysfs_has_a_raw_peak_from_nvml(tmp_path: Path) -> None:
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link((5, 16)))
    assert link.hops == ()
    assert link.narrowest_hop.value is None
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert "MaxPayload" in (link.h2d_peak_gbps.reason or "")


def test_link_is_read_from_sysfs_if_nvml_is_missing(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT), Port(GPU, now=(4, 16)))
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=without_nvml())
    assert link.now.value == LinkState(4, 16)
    assert link.system_most.value == FULL


def test_missing_link_has_the_reasons_of_nvml_and_sysfs(tmp_path: Path) -> None:
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=without_nvml())
    assert NO_NVML in (link.now.reason or "")
    assert "PCI path" in (link.now.reason or "")
    assert link.raw_peak_gbps.reason == link.now.reason


def test_without_root_only_the_raw_peak_is_known(tmp_path: Path) -> None:
    link = healthy(tmp_path, config=config_space()[:64])
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert "CAP_SYS_ADMIN" in (link.h2d_peak_gbps.reason or "")
    assert link.max_payload_bytes.reason == link.relaxed_ordering.reason


def test_small_payload_has_a_remark(tmp_path: Path) -> None:
    (remark,) = healthy(tmp_path, config=config_space(max_payload_bytes=128)).remarks
    assert remark.code == "max-payload-128"
    assert "pci=pcie_bus_perf" in (remark.fix or "")


def test_disabled_relaxed_ordering_has_a_remark(tmp_path: Path) -> None:
    assert codes(healthy(tmp_path, config=config_space(relaxed_ordering=False))) == ["relaxed-ordering-off"]


def test_host_runtime_has_no_link() -> None:
    engine = FakeEngine(RUNTIME="host")
    device = find_device(engine, "host")
    link = read_link(engine, device)
    assert link.kind == "none"
    assert "host memory" in (link.raw_peak_gbps.reason or "")
    assert "host memory" in (link_under_load(device).reason or "")
    assert with_load(link, Fact(FULL)) == link


def test_integrated_gpu_has_no_link() -> None:
    engine = FakeEngine([Properties(integrated=True)])
    link = read_link(engine, gpu(), nvml=nvml())
    assert link.kind == "none"
    assert link.h2d_peak_gbps.value is None


class C2cMode:
    isC2cEnabled = 1  # noqa: N815 - the binding's name


def test_chip_to_chip_host_has_no_pcie_peak(tmp_path: Path) -> None:
    joined = nvml_link((5, 16), nvmlDeviceGetC2cModeInfoV1=C2cMode())
    link = with_load(read_link(FakeEngine(), gpu(), root=tmp_path, nvml=joined), Fact(LinkState(1, 1)))
    assert link.kind == "c2c"
    for peak in (link.raw_peak_gbps, link.h2d_peak_gbps, link.d2h_peak_gbps):
        assert "NVLink-C2C" in (peak.reason or "")
    assert link.remarks == ()


@pytest.mark.parametrize(
    ("name", "kind"), [("NVIDIA GH200 480GB", "c2c"), ("NVIDIA GB200", "c2c"), ("NVIDIA H200", "pcie")]
)
def test_chip_to_chip_is_recognised_by_the_device_name_if_nvml_is_too_old(tmp_path: Path, name: str, kind: str) -> None:
    old = nvml_link((5, 16), nvmlDeviceGetC2cModeInfoV1=NVMLError("Function Not Found"))
    assert read_link(FakeEngine(), gpu(name=name), root=tmp_path, nvml=old).kind == kind


def test_nvlink_to_the_cpu_has_no_pcie_peak(tmp_path: Path) -> None:
    power = nvml_link((3, 16), nvmlDeviceGetNvLinkRemoteDeviceType=lambda _, link: 1 if link == 0 else 0)
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=power)
    assert link.kind == "nvlink"
    assert "NVLink" in (link.raw_peak_gbps.reason or "")


def test_device_without_a_pci_address_is_of_unknown_kind(tmp_path: Path) -> None:
    assert read_link(FakeEngine(), gpu(pci=None), root=tmp_path, nvml=nvml()).kind == "unknown"


def test_state_under_load_is_read_from_nvml(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, now=(1, 16)))
    assert link_under_load(gpu(), root=tmp_path, nvml=nvml_link((5, 16))).value == FULL


def test_state_under_load_is_read_from_sysfs_if_nvml_is_missing(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, now=(5, 16)))
    assert link_under_load(gpu(), root=tmp_path, nvml=without_nvml()).value == FULL


def test_unknown_state_under_load_keeps_its_reason(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(reason="GPU is lost"))
    assert link.under_load.reason == "GPU is lost"
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
