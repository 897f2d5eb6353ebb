"""The link: its states and peaks, the path up to the root, and the configuration space."""

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

from pyxfer._document.machines import COMPLETION_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES, Fact, Hop, Link, LinkState
from pyxfer._machine.devices import find_device
from pyxfer._machine.link import link_under_load, read_link, with_load
from pyxfer._machine.pci import (
    canonical_address,
    generation_of,
    protocol_peak_gbps,
    raw_peak_gbps,
    read_device_control,
    read_device_most,
    read_hops,
)

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


@pytest.mark.parametrize(("now", "load"), [((5, 16), Fact(FULL)), ((1, 16), Fact[LinkState](reason="not read"))])
def test_a_full_or_idle_link_has_its_peaks_and_no_remarks(
    tmp_path: Path, now: tuple[int, int], load: Fact[LinkState]
) -> None:
    link = with_load(healthy(tmp_path, now), load)
    assert (link.kind, link.now.value, link.remarks) == ("pcie", LinkState(*now), ())
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.h2d_peak_gbps.value == pytest.approx(58.45, abs=0.005)
    assert link.d2h_peak_gbps.value == pytest.approx(57.61, abs=0.005)


@pytest.mark.parametrize("now", [(1, 16), (5, 16)])
def test_a_port_that_idles_does_not_lower_the_peak_under_load(tmp_path: Path, now: tuple[int, int]) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=(1, 16)), now=now), Fact(FULL))
    assert link.raw_peak_gbps.value == pytest.approx(63.02, abs=0.005)
    assert link.remarks == ()


@pytest.mark.parametrize(
    ("state", "code", "gbps"), [(LinkState(3, 16), "link-slow", 15.75), (LinkState(5, 8), "link-narrow", 31.51)]
)
def test_a_lower_state_under_load_has_a_remark(tmp_path: Path, state: LinkState, code: str, gbps: float) -> None:
    link = with_load(healthy(tmp_path), Fact(state))
    assert link.raw_peak_gbps.value == pytest.approx(gbps, abs=0.005)
    (remark,) = link.remarks
    assert remark.code == code
    assert all(words in remark.text for words in (GPU, f"PCIe {state.generation}.0 x{state.width}", "PCIe 5.0 x16"))
    assert remark.fix


@pytest.mark.parametrize(
    ("config", "code", "fix"),
    [
        (config_space(max_payload_bytes=128), "max-payload-128", "pci=pcie_bus_perf"),
        (config_space(relaxed_ordering=False), "relaxed-ordering-off", "enable PCIe relaxed ordering"),
    ],
)
def test_slow_settings_of_packets_have_a_remark(tmp_path: Path, config: bytes, code: str, fix: str) -> None:
    (remark,) = healthy(tmp_path, config=config).remarks
    assert remark.code == code
    assert fix in (remark.fix or "")


def test_slot_with_a_lower_generation_than_the_device_has_a_remark(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(4, 16)), Port(GPU, now=(4, 16)))
    link = read_link(FakeEngine(), gpu(), root=tmp_path, nvml=nvml_link(now=(4, 16), most=(4, 16)))
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    (remark,) = link.remarks
    assert all(words in remark.text for words in ("PCIe 5.0 x16", "PCIe 4.0 x16"))


@pytest.mark.parametrize(("above", "now"), [((5, 8), (5, 16)), ((1, 8), (5, 16)), ((1, 8), (1, 16))])
def test_narrowest_hop_sets_the_peak_and_has_a_remark(
    tmp_path: Path, above: tuple[int, int], now: tuple[int, int]
) -> None:
    link = with_load(behind_switch(tmp_path, Port(SWITCH_UP, now=above), now=now), Fact(FULL))
    assert link.narrowest_hop.value is not None
    assert link.narrowest_hop.value.pci == SWITCH_UP
    assert link.raw_peak_gbps.value == pytest.approx(31.51, abs=0.005)
    (remark,) = link.remarks
    assert remark.code == "hop-narrow"
    assert all(words in remark.text for words in (SWITCH_UP, "PCIe 5.0 x8", "PCIe 5.0 x16"))


@pytest.mark.parametrize(
    ("now", "most", "working"),
    [((1, 8), (5, 16), (5, 8)), (None, (4, 16), (4, 16)), ((3, 8), None, (3, 8)), ((1, 16), (5, 8), (5, 8))],
)
def test_the_working_state_of_a_link_above_is_its_largest_generation_on_its_present_lanes(
    now: tuple[int, int] | None, most: tuple[int, int] | None, working: tuple[int, int]
) -> None:
    states = [Fact[LinkState](reason="no sysfs") if each is None else Fact(LinkState(*each)) for each in (now, most)]
    assert Hop(SWITCH_UP, *states).working.value == LinkState(*working)


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


def test_host_runtime_has_no_link() -> None:
    engine = FakeEngine(RUNTIME="host")
    device = find_device(engine, "host")
    link = read_link(engine, device)
    assert link.kind == "none"
    assert "host memory" in (link.raw_peak_gbps.reason or "")
    assert "host memory" in (link_under_load(device).reason or "")
    assert with_load(link, Fact(FULL)) == link
    integrated = read_link(FakeEngine([Properties(integrated=True)]), gpu(), nvml=nvml())
    assert (integrated.kind, integrated.h2d_peak_gbps.value) == ("none", None)


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


def test_state_under_load_is_read_from_sysfs_if_nvml_is_missing(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, now=(5, 16)))
    assert link_under_load(gpu(), root=tmp_path, nvml=without_nvml()).value == FULL


@pytest.mark.parametrize(
    ("spellings", "address"),
    [
        ("0000:3b:00.0|0000:3B:00.0|00000000:3B:00.0|3b:00.0|3b:00|0000:3b:00| 3b:0.0 ", "0000:3b:00.0"),
        ("10001:3b:00.0", "10001:3b:00.0"),
        ("|0|3b|pci0000:3a|0000:3b:00.8|zz:00.0|GPU-8d1f2c3a", None),
    ],
)
def test_spellings_of_an_address_have_one_canonical_form(spellings: str, address: str | None) -> None:
    assert {canonical_address(spelling) for spelling in spellings.split("|")} == {address}


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        *[("2.5 GT/s PCIe", 1), ("5 GT/s", 2), ("8.0 GT/s PCIe", 3), ("16.0 GT/s PCIe", 4), ("32.0 GT/s PCIe", 5)],
        *[("Unknown", None), ("Unknown speed", None), ("7.0 GT/s PCIe", None), ("", None)],
    ],
)
def test_generation_is_parsed_from_the_link_speed(text: str, generation: int | None) -> None:
    assert generation_of(text) == generation


def test_path_through_a_switch_has_a_hop_for_each_lower_end(tmp_path: Path) -> None:
    make_path(
        tmp_path, Port(ROOT_PORT), Port(SWITCH_UP, now=(4, 8)), Port(SWITCH_DOWN, now=(3, 4)), Port(BEHIND_SWITCH)
    )
    hops = read_hops(BEHIND_SWITCH, tmp_path)
    assert [hop.pci for hop in hops] == [BEHIND_SWITCH, SWITCH_UP]
    assert [hop.now.value for hop in hops] == [LinkState(5, 16), LinkState(4, 8)]


def test_largest_state_of_a_hop_is_that_of_its_lesser_end(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(4, 16)), Port(GPU, most=(5, 8)))
    assert read_hops(GPU, tmp_path)[0].most.value == LinkState(4, 8)
    assert read_device_most(GPU, tmp_path).value == LinkState(5, 8)


def test_port_emulated_by_a_hypervisor_does_not_limit_the_hop(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(1, 1), vendor="0x1b36", device="0x000c"), Port(GPU))
    assert read_hops(GPU, tmp_path)[0].most.value == LinkState(5, 16)


@pytest.mark.parametrize("width", [0, 63, 255])
def test_impossible_width_gives_a_reason(tmp_path: Path, width: int) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "current_link_width").write_text(f"{width}\n")
    reason = read_hops(GPU, tmp_path)[0].now.reason or ""
    assert all(words in reason for words in (GPU, f"width as {width}"))


@pytest.mark.parametrize("payload", [128, 256, 512, 4096])
@pytest.mark.parametrize("request_bytes", [128, 512, 4096])
@pytest.mark.parametrize("relaxed", [True, False])
def test_device_control_is_decoded(tmp_path: Path, payload: int, request_bytes: int, relaxed: bool) -> None:
    (make_path(tmp_path, Port(GPU)) / "config").write_bytes(config_space(payload, request_bytes, relaxed))
    assert read_device_control(GPU, tmp_path).value == (payload, request_bytes, relaxed)


def config_with(place: int, *data: int) -> bytes:
    config = bytearray(config_space())
    config[place : place + len(data)] = bytes(data)
    return bytes(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (config_space()[:64], ("64 bytes", GPU, "CAP_SYS_ADMIN")),
        (config_space()[:0x50], (GPU, "no PCI Express capability")),
        (config_with(0x60, 0x05, 0x40), (GPU, "no PCI Express capability")),
        (config_with(0x41, 0), (GPU, "no PCI Express capability")),
        (config_with(0x06, 0), (GPU, "no PCI Express capability")),
        (config_with(0x68, 0xE0, 0x50), (GPU, "0x50e0")),
        (b"\xff" * 256, (f"{GPU} does not answer",)),
        (None, (f"/sys/bus/pci/devices/{GPU}/config",)),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_a_configuration_space_that_cannot_be_read_has_a_reason(
    tmp_path: Path, config: bytes | None, words: tuple[str, ...]
) -> None:
    folder = make_path(tmp_path, Port(GPU))
    if config is not None:
        (folder / "config").write_bytes(config)
    control = read_device_control(GPU, tmp_path)
    assert control.value is None
    assert all(word in (control.reason or "") for word in words)


def x16(generation: int) -> Fact[LinkState]:
    return Fact(LinkState(generation, 16))


@pytest.mark.parametrize(("generation", "gbps"), [(1, 4.0), (2, 8.0), (3, 15.75), (4, 31.51), (5, 63.02), (6, 118.0)])
def test_raw_peak_of_each_generation(generation: int, gbps: float) -> None:
    assert raw_peak_gbps(x16(generation)).value == pytest.approx(gbps, abs=0.005)


@pytest.mark.parametrize(
    ("generation", "payload", "h2d", "d2h"),
    [
        *[(3, 64, 12.00, None), (3, 128, 13.62, 13.27), (3, 256, 14.61, 14.40), (3, 512, 15.16, 15.05)],
        *[(4, 64, 24.01, None), (4, 128, 27.25, 26.53), (4, 256, 29.22, 28.81), (4, 512, 30.32, 30.10)],
        *[(5, 64, 48.01, None), (5, 128, 54.50, 53.07), (5, 256, 58.45, 57.61), (5, 512, 60.65, 60.19)],
    ],
)
def test_peaks_include_the_overhead_of_completions_or_writes(
    generation: int, payload: int, h2d: float, d2h: float | None
) -> None:
    peak = protocol_peak_gbps(x16(generation), Fact(payload), COMPLETION_OVERHEAD_BYTES)
    assert peak.value == pytest.approx(h2d, abs=0.006)
    peak = protocol_peak_gbps(x16(generation), Fact(payload), WRITE_OVERHEAD_BYTES)
    assert d2h is None or peak.value == pytest.approx(d2h, abs=0.006)


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (protocol_peak_gbps(x16(6), Fact(256), WRITE_OVERHEAD_BYTES), ("PCIe generation 6",)),
        (protocol_peak_gbps(x16(9), Fact(256), WRITE_OVERHEAD_BYTES), ("PCIe generation 9",)),
        (raw_peak_gbps(x16(9)), ("PCIe generation 9",)),
        (
            protocol_peak_gbps(x16(5), Fact(reason="root is required"), WRITE_OVERHEAD_BYTES),
            ("MaxPayload", "root is required"),
        ),
    ],
)
def test_what_is_not_known_gives_no_peak(peak: Fact[float], words: tuple[str, ...]) -> None:
    assert peak.value is None
    assert all(word in (peak.reason or "") for word in words)
