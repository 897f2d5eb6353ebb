from __future__ import annotations

import os
from pathlib import Path

import pytest
from machine.fake_host import GPU, Port, config_space, make_path

from pyxfer._document.machines import COMPLETION_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES
from pyxfer._document.runs import Fact, LinkState
from pyxfer._machine.pci import (
    canonical_address,
    generation_of,
    protocol_peak_gbps,
    raw_peak_gbps,
    read_device_control,
    read_device_most,
    read_hops,
    read_node,
)

ROOT_PORT = "0000:3a:01.0"
SWITCH_UP, SWITCH_DOWN = "0000:3b:00.0", "0000:3c:00.0"
BEHIND_SWITCH = "0000:3d:00.0"


@pytest.mark.parametrize(
    "spelling", ["0000:3b:00.0", "0000:3B:00.0", "00000000:3B:00.0", "3b:00.0", "3b:00", "0000:3b:00", " 3b:0.0 "]
)
def test_spellings_of_an_address_have_one_canonical_form(spelling: str) -> None:
    assert canonical_address(spelling) == "0000:3b:00.0"


@pytest.mark.parametrize("text", ["", "0", "3b", "pci0000:3a", "0000:3b:00.8", "zz:00.0", "GPU-8d1f2c3a"])
def test_other_text_is_not_an_address(text: str) -> None:
    assert canonical_address(text) is None


def test_a_domain_of_five_digits_is_kept() -> None:
    assert canonical_address("10001:3b:00.0") == "10001:3b:00.0"


@pytest.mark.parametrize(
    ("text", "generation"),
    [("2.5 GT/s PCIe", 1), ("5 GT/s", 2), ("8.0 GT/s PCIe", 3), ("16.0 GT/s PCIe", 4), ("32.0 GT/s PCIe", 5)],
)
def test_generation_is_parsed_from_the_link_speed(text: str, generation: int) -> None:
    assert generation_of(text) == generation


@pytest.mark.parametrize("text", ["Unknown", "Unknown speed", "7.0 GT/s PCIe", ""])
def test_unknown_speed_has_no_generation(text: str) -> None:
    assert generation_of(text) is None


def test_path_under_a_root_port_is_one_hop(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT), Port(GPU, now=(1, 16)))
    (hop,) = read_hops(GPU, tmp_path)
    assert hop.pci == GPU
    assert hop.now.value == LinkState(1, 16)
    assert hop.most.value == LinkState(5, 16)


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


def test_hop_without_a_root_port_has_the_state_of_the_device(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, most=(5, 16)))
    (hop,) = read_hops(GPU, tmp_path)
    assert hop.most.value == LinkState(5, 16)


def test_hop_without_link_files_has_reasons(tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port(GPU, now=None, most=None))
    (hop,) = read_hops(GPU, tmp_path)
    assert f"{folder}/current_link_speed" in (hop.now.reason or "")


def test_device_missing_in_sysfs_has_no_hops(tmp_path: Path) -> None:
    assert read_hops(GPU, tmp_path) == ()


@pytest.mark.parametrize("width", [0, 63, 255])
def test_impossible_width_gives_a_reason(tmp_path: Path, width: int) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "current_link_width").write_text(f"{width}\n")
    reason = read_hops(GPU, tmp_path)[0].now.reason or ""
    assert all(words in reason for words in (GPU, f"width as {width}"))


def test_unknown_speed_is_quoted(tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "current_link_speed").write_text("Unknown\n")
    assert all(words in (read_hops(GPU, tmp_path)[0].now.reason or "") for words in (GPU, "'Unknown'"))


def test_numa_node_is_read(tmp_path: Path) -> None:
    (make_path(tmp_path, Port(GPU)) / "numa_node").write_text("1\n")
    assert read_node(GPU, tmp_path).value == 1


def test_numa_node_minus_one_is_unknown(tmp_path: Path) -> None:
    (make_path(tmp_path, Port(GPU)) / "numa_node").write_text("-1\n")
    assert GPU in (read_node(GPU, tmp_path).reason or "")


def control_reason(root: Path) -> str:
    """The reason why Device Control cannot be read."""
    control = read_device_control(GPU, root)
    assert control.value is None
    return control.reason or ""


def put_config(root: Path, config: bytes | bytearray) -> None:
    (make_path(root, Port(GPU)) / "config").write_bytes(config)


@pytest.mark.parametrize("payload", [128, 256, 512, 4096])
@pytest.mark.parametrize("request_bytes", [128, 512, 4096])
@pytest.mark.parametrize("relaxed", [True, False])
def test_device_control_is_decoded(tmp_path: Path, payload: int, request_bytes: int, relaxed: bool) -> None:
    put_config(tmp_path, config_space(payload, request_bytes, relaxed))
    assert read_device_control(GPU, tmp_path).value == (payload, request_bytes, relaxed)


def test_configuration_space_cut_at_64_bytes_names_the_capability(tmp_path: Path) -> None:
    put_config(tmp_path, config_space()[:64])
    assert all(words in control_reason(tmp_path) for words in ("64 bytes", GPU, "CAP_SYS_ADMIN"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read any file")
def test_unreadable_configuration_space_has_the_reason_of_the_kernel(tmp_path: Path) -> None:
    put_config(tmp_path, config_space())
    (tmp_path / "sys/bus/pci/devices" / GPU / "config").chmod(0)
    assert "Permission denied" in control_reason(tmp_path)


def test_missing_configuration_space_gives_its_path(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU))
    assert f"{tmp_path}/sys/bus/pci/devices/{GPU}/config" in control_reason(tmp_path)


def test_a_circular_list_of_capabilities_gives_a_reason(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x60:0x62] = bytes([0x05, 0x40])
    put_config(tmp_path, config)
    assert "in a circle" in control_reason(tmp_path)


def test_a_missing_pci_express_capability_gives_a_reason(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x41] = 0
    put_config(tmp_path, config)
    assert "no PCI Express capability" in control_reason(tmp_path)


def test_a_device_without_capabilities_gives_a_reason(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x06] = 0
    put_config(tmp_path, config)
    assert "no list of PCI capabilities" in control_reason(tmp_path)


@pytest.mark.parametrize(
    ("length", "words"),
    [(10, "10 bytes"), (0x50, "middle of its capabilities"), (0x69, "middle of its PCI Express capability")],
)
def test_truncated_configuration_space_gives_a_reason(tmp_path: Path, length: int, words: str) -> None:
    put_config(tmp_path, config_space()[:length])
    assert words in control_reason(tmp_path)


def test_a_device_that_does_not_answer_gives_a_reason(tmp_path: Path) -> None:
    put_config(tmp_path, b"\xff" * 256)
    assert f"{GPU} does not answer" in control_reason(tmp_path)


def test_reserved_sizes_give_a_reason(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x68:0x6A] = (0x50E0).to_bytes(2, "little")
    put_config(tmp_path, config)
    assert all(words in control_reason(tmp_path) for words in (GPU, "0x50e0"))


def x16(generation: int) -> Fact[LinkState]:
    return Fact(LinkState(generation, 16))


@pytest.mark.parametrize(("generation", "gbps"), [(1, 4.0), (2, 8.0), (3, 15.75), (4, 31.51), (5, 63.02), (6, 118.0)])
def test_raw_peak_of_each_generation(generation: int, gbps: float) -> None:
    assert raw_peak_gbps(x16(generation)).value == pytest.approx(gbps, abs=0.005)


def test_raw_peak_is_proportional_to_the_width() -> None:
    assert raw_peak_gbps(Fact(LinkState(5, 8))).value == pytest.approx(31.51, abs=0.005)


@pytest.mark.parametrize(
    ("generation", "payload", "gbps"),
    [
        *[(3, 64, 12.00), (3, 128, 13.62), (3, 256, 14.61), (3, 512, 15.16)],
        *[(4, 64, 24.01), (4, 128, 27.25), (4, 256, 29.22), (4, 512, 30.32)],
        *[(5, 64, 48.01), (5, 128, 54.50), (5, 256, 58.45), (5, 512, 60.65)],
    ],
)
def test_h2d_peak_includes_the_overhead_of_completions(generation: int, payload: int, gbps: float) -> None:
    peak = protocol_peak_gbps(x16(generation), Fact(payload), COMPLETION_OVERHEAD_BYTES)
    assert peak.value == pytest.approx(gbps, abs=0.006)


@pytest.mark.parametrize(
    ("generation", "payload", "gbps"),
    [
        *[(3, 128, 13.27), (3, 256, 14.40), (3, 512, 15.05)],
        *[(4, 128, 26.53), (4, 256, 28.81), (4, 512, 30.10)],
        *[(5, 128, 53.07), (5, 256, 57.61), (5, 512, 60.19)],
    ],
)
def test_d2h_peak_includes_the_overhead_of_writes(generation: int, payload: int, gbps: float) -> None:
    peak = protocol_peak_gbps(x16(generation), Fact(payload), WRITE_OVERHEAD_BYTES)
    assert peak.value == pytest.approx(gbps, abs=0.006)


def test_generation_6_has_no_protocol_peak() -> None:
    peak = protocol_peak_gbps(x16(6), Fact(256), WRITE_OVERHEAD_BYTES)
    assert "PCIe generation 6" in (peak.reason or "")


def test_unknown_generation_has_no_peak() -> None:
    assert "PCIe generation 9" in (raw_peak_gbps(x16(9)).reason or "")
    assert "PCIe generation 9" in (protocol_peak_gbps(x16(9), Fact(256), WRITE_OVERHEAD_BYTES).reason or "")


def test_unknown_max_payload_gives_no_protocol_peak() -> None:
    peak = protocol_peak_gbps(x16(5), Fact(reason="root is required"), WRITE_OVERHEAD_BYTES)
    assert all(words in (peak.reason or "") for words in ("MaxPayload", "root is required"))


def test_unknown_state_keeps_its_reason() -> None:
    assert raw_peak_gbps(Fact(reason="no driver")).reason == "no driver"
