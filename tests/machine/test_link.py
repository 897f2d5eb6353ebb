from __future__ import annotations

from pathlib import Path

import pytest
from machine.fake_host import (
    GPU,
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

from pyxfer._document.runs import Fact, Link, LinkState, Side
from pyxfer._machine.devices import find_device
from pyxfer._machine.link import link_under_load, read_link, with_load

ROOT_PORT = "0000:3a:01.0"
SWITCH_UP, SWITCH_DOWN, BEHIND_SWITCH = "0000:3b:00.0", "0000:3c:00.0", "0000:3d:00.0"
FULL = LinkState(5, 16)


def healthy(root: Path, now: tuple[int, int] = (5, 16), config: bytes | None = None) -> Link:
    """A Gen5 x16 device right under a Gen5 x16 root port."""
    folder = make_path(root, Port(ROOT_PORT), Port(GPU, now=now))
    (folder / "config").write_bytes(config_space() if config is None else config)
    return read_link(FakeEngine(), gpu(), root=root, nvml=nvml_link(now))


def behind_switch(root: Path, above: Port, now: tuple[int, int] = (5, 16)) -> Link:
    """A Gen5 x16 device behind a switch whose own link is `above`."""
    folder = make_path(root, Port(ROOT_PORT), above, Port(SWITCH_DOWN), Port(BEHIND_SWITCH, now=now))
    (folder / "config").write_bytes(config_space())
    return read_link(FakeEngine(), gpu(pci=BEHIND_SWITCH), root=root, nvml=nvml_link(now))


def codes(link: Link) -> list[str]:
    return [remark.code for remark in link.remarks]


def test_healthy_host_under_load_has_the_peaks_of_its_link_and_no_remarks(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(FULL))
    assert link.kind == "pcie"
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.h2d_peak_gbps.value == pytest.approx(58.45, abs=0.005)
    assert link.d2h_peak_gbps.value == pytest.approx(57.61, abs=0.005)
    assert link.remarks == ()


@pytest.mark.parametrize(("side", "gbps"), [("h2d", 58.45), ("d2h", 57.61), ("sum", 116.06)])
def test_every_side_has_its_peak(tmp_path: Path, side: Side, gbps: float) -> None:
    assert with_load(healthy(tmp_path), Fact(FULL)).peak_gbps(side).value == pytest.approx(gbps, abs=0.01)


def test_idle_link_keeps_the_peak_of_what_it_can_do(tmp_path: Path) -> None:
    link = healthy(tmp_path, now=(1, 16))
    assert link.now.value == LinkState(1, 16)
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.under_load.reason == "the link was not read under load"
    assert link.remarks == ()


def test_idle_reading_of_a_switch_does_not_lower_the_peak_seen_under_load(tmp_path: Path) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(1, 16)), now=(1, 16)), Fact(FULL))
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)


def test_link_that_is_slow_under_load_is_remarked(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(LinkState(3, 16)))
    assert link.raw_peak_gbps.value == pytest.approx(15.75, abs=0.005)
    (remark,) = link.remarks
    assert remark.code == "link-slow"
    assert remark.text == (
        f"the link of {GPU} runs at PCIe 3.0 x16 under load, though device and slot can do PCIe 5.0 x16"
    )
    assert remark.fix == (
        "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"
    )


def test_link_that_is_narrow_under_load_is_remarked(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(LinkState(5, 8)))
    assert codes(link) == ["link-narrow"]
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)


def test_slot_that_can_do_less_than_the_device_is_remarked(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(4, 16)), Port(GPU, now=(4, 16)))
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link(now=(4, 16), most=(4, 16)))
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    assert [remark.text for remark in link.remarks] == [
        "the device can do PCIe 5.0 x16, and in this slot at most PCIe 4.0 x16"
    ]


def test_narrow_hop_above_the_device_sets_the_peak_and_is_named(tmp_path: Path) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(4, 8))), Fact(FULL))
    assert link.narrowest_hop.value is not None
    assert link.narrowest_hop.value.pci == SWITCH_UP
    assert link.raw_peak_gbps.value == pytest.approx(15.75, abs=0.005)
    (remark,) = link.remarks
    assert remark.code == "hop-narrow"
    assert f"that of {SWITCH_UP}, a port above the device: PCIe 4.0 x8" in remark.text
    assert "the device's own link is PCIe 5.0 x16" in remark.text


def test_hops_alike_are_narrowest_at_the_device(tmp_path: Path) -> None:
    link = behind_switch(tmp_path, Port(SWITCH_UP))
    assert link.narrowest_hop.value is not None
    assert link.narrowest_hop.value.pci == BEHIND_SWITCH


def test_virtual_machine_without_a_root_port_has_peaks(tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "config").write_bytes(config_space())
    link = with_load(read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link((5, 16))), Fact(FULL))
    assert len(link.hops) == 1
    assert link.d2h_peak_gbps.value == pytest.approx(57.61, abs=0.005)


def test_device_that_sysfs_hides_has_a_raw_peak_from_nvml_alone(tmp_path: Path) -> None:
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link((5, 16)))
    assert link.hops == ()
    assert link.narrowest_hop.reason == "the kernel shows no PCI path to this device"
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert (link.h2d_peak_gbps.reason or "").startswith("MaxPayload is not known: ")


def test_without_nvml_sysfs_tells_the_link(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT), Port(GPU, now=(4, 16)))
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=without_nvml())
    assert link.now.value == LinkState(4, 16)
    assert link.system_most.value == FULL


def test_without_nvml_and_sysfs_both_reasons_are_given(tmp_path: Path) -> None:
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=without_nvml())
    reason = "NVML cannot be opened: NVML Shared Library Not Found; the kernel shows no PCI path to this device"
    assert link.now.reason == reason
    assert link.raw_peak_gbps.reason == reason


def test_unprivileged_reader_keeps_the_raw_peak_and_is_told_what_the_others_take(tmp_path: Path) -> None:
    link = healthy(tmp_path, config=config_space()[:64])
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert (link.h2d_peak_gbps.reason or "").endswith("the rest takes root with CAP_SYS_ADMIN")
    assert link.max_payload_bytes.reason == link.relaxed_ordering.reason


def test_small_payload_is_remarked_with_what_to_do(tmp_path: Path) -> None:
    (remark,) = healthy(tmp_path, config=config_space(max_payload_bytes=128)).remarks
    assert remark.code == "max-payload-128"
    assert remark.fix == "set MaxPayload to 256 in the firmware, or start the kernel with pci=pcie_bus_perf"


def test_relaxed_ordering_off_is_remarked(tmp_path: Path) -> None:
    assert codes(healthy(tmp_path, config=config_space(relaxed_ordering=False))) == ["relaxed-ordering-off"]


def test_host_runtime_has_no_link() -> None:
    engine = FakeEngine(RUNTIME="host")
    device = find_device(engine, "host")
    link = read_link(engine, device)
    assert link.kind == "none"
    assert link.raw_peak_gbps.reason == "host memory, not a PCIe link"
    assert link_under_load(device).reason == "host memory, not a PCIe link"
    assert with_load(link, Fact(FULL)) == link


def test_gpu_inside_the_processor_has_no_link() -> None:
    engine = FakeEngine([Properties(integrated=True)])
    link = read_link(engine, gpu(), nvml=nvml())
    assert link.kind == "none"
    assert link.h2d_peak_gbps.reason == "the GPU shares one memory with the CPU, so there is no link to cross"


class C2cMode:
    isC2cEnabled = 1  # noqa: N815 - the binding's name


def test_chip_to_chip_host_has_no_pcie_peak(tmp_path: Path) -> None:
    joined = nvml_link((5, 16), nvmlDeviceGetC2cModeInfoV1=C2cMode())
    link = with_load(read_link(FakeEngine(), gpu(), root=tmp_path, nvml=joined), Fact(LinkState(1, 1)))
    assert link.kind == "c2c"
    reason = "host and device are joined chip to chip (NVLink-C2C), so no PCIe peak applies"
    assert (link.raw_peak_gbps.reason, link.h2d_peak_gbps.reason, link.d2h_peak_gbps.reason) == (reason,) * 3
    assert link.remarks == ()


@pytest.mark.parametrize(
    ("name", "kind"), [("NVIDIA GH200 480GB", "c2c"), ("NVIDIA GB200", "c2c"), ("NVIDIA H200", "pcie")]
)
def test_name_tells_chip_to_chip_where_nvml_does_not(tmp_path: Path, name: str, kind: str) -> None:
    old = nvml_link((5, 16), nvmlDeviceGetC2cModeInfoV1=NVMLError("Function Not Found"))
    assert read_link(FakeEngine(), gpu(name=name), root=tmp_path, nvml=old).kind == kind


def test_nvlink_to_the_cpu_has_no_pcie_peak(tmp_path: Path) -> None:
    power = nvml_link((3, 16), nvmlDeviceGetNvLinkRemoteDeviceType=lambda _, link: 1 if link == 0 else 0)
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=power)
    assert link.kind == "nvlink"
    assert link.raw_peak_gbps.reason == "host and device are joined by NVLink, so no PCIe peak applies"


def test_device_without_a_pci_address_is_of_unknown_kind(tmp_path: Path) -> None:
    assert read_link(FakeEngine(), gpu(pci=None), root=tmp_path, nvml=nvml()).kind == "unknown"


def test_state_under_load_is_read_from_nvml(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, now=(1, 16)))
    assert link_under_load(gpu(), root=tmp_path, nvml=nvml_link((5, 16))).value == FULL


def test_state_under_load_is_read_from_sysfs_where_nvml_is_not(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, now=(5, 16)))
    assert link_under_load(gpu(), root=tmp_path, nvml=without_nvml()).value == FULL


def test_state_that_could_not_be_read_under_load_keeps_its_reason(tmp_path: Path) -> None:
    link = with_load(healthy(tmp_path), Fact(reason="GPU is lost"))
    assert link.under_load.reason == "GPU is lost"
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
