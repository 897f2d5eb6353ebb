from __future__ import annotations

import os
from pathlib import Path

import pytest
from machine.fake_host import GPU, Port, config_space, make_path

from pyxfer._document.runs import LinkState
from pyxfer._machine.pci import (
    canonical_address,
    generation_of,
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
