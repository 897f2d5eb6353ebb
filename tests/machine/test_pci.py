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
def test_usual_spellings_of_an_address_are_one(spelling: str) -> None:
    assert canonical_address(spelling) == "0000:3b:00.0"


@pytest.mark.parametrize("text", ["", "0", "3b", "pci0000:3a", "0000:3b:00.8", "zz:00.0", "GPU-8d1f2c3a"])
def test_other_text_is_no_address(text: str) -> None:
    assert canonical_address(text) is None


def test_a_wide_domain_is_kept() -> None:
    assert canonical_address("10001:3b:00.0") == "10001:3b:00.0"


@pytest.mark.parametrize(
    ("text", "generation"),
    [("2.5 GT/s PCIe", 1), ("5 GT/s", 2), ("8.0 GT/s PCIe", 3), ("16.0 GT/s PCIe", 4), ("32.0 GT/s PCIe", 5)],
)
def test_generation_is_read_from_the_kernels_words(text: str, generation: int) -> None:
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


def test_path_through_a_switch_is_two_hops_seen_from_their_lower_ends(tmp_path: Path) -> None:
    make_path(
        tmp_path, Port(ROOT_PORT), Port(SWITCH_UP, now=(4, 8)), Port(SWITCH_DOWN, now=(3, 4)), Port(BEHIND_SWITCH)
    )
    hops = read_hops(BEHIND_SWITCH, tmp_path)
    assert [hop.pci for hop in hops] == [BEHIND_SWITCH, SWITCH_UP]
    assert [hop.now.value for hop in hops] == [LinkState(5, 16), LinkState(4, 8)]


def test_a_hop_can_do_what_its_lesser_end_can(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(4, 16)), Port(GPU, most=(5, 8)))
    assert read_hops(GPU, tmp_path)[0].most.value == LinkState(4, 8)
    assert read_device_most(GPU, tmp_path).value == LinkState(5, 8)


def test_port_that_a_hypervisor_makes_up_binds_no_link(tmp_path: Path) -> None:
    make_path(tmp_path, Port(ROOT_PORT, most=(1, 1), vendor="0x1b36", device="0x000c"), Port(GPU))
    assert read_hops(GPU, tmp_path)[0].most.value == LinkState(5, 16)


def test_virtual_machine_without_a_root_port_shows_the_devices_end_alone(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU, most=(5, 16)))
    (hop,) = read_hops(GPU, tmp_path)
    assert hop.most.value == LinkState(5, 16)


def test_device_without_link_files_is_a_hop_with_reasons(tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port(GPU, now=None, most=None))
    (hop,) = read_hops(GPU, tmp_path)
    assert hop.now.reason == f"{folder}/current_link_speed cannot be read: No such file or directory"


def test_device_that_sysfs_does_not_show_has_no_hops(tmp_path: Path) -> None:
    assert read_hops(GPU, tmp_path) == ()


@pytest.mark.parametrize("width", [0, 63, 255])
def test_width_that_no_link_has_is_a_reason(tmp_path: Path, width: int) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "current_link_width").write_text(f"{width}\n")
    reason = f"{GPU} gives the link width as {width}, which no working link has"
    assert read_hops(GPU, tmp_path)[0].now.reason == reason


def test_speed_in_unknown_words_is_quoted(tmp_path: Path) -> None:
    folder = make_path(tmp_path, Port(GPU))
    (folder / "current_link_speed").write_text("Unknown\n")
    assert read_hops(GPU, tmp_path)[0].now.reason == f"{GPU} gives the link speed as 'Unknown'"


def test_node_of_the_firmware_is_read(tmp_path: Path) -> None:
    (make_path(tmp_path, Port(GPU)) / "numa_node").write_text("1\n")
    assert read_node(GPU, tmp_path).value == 1


def test_node_minus_one_is_no_node(tmp_path: Path) -> None:
    (make_path(tmp_path, Port(GPU)) / "numa_node").write_text("-1\n")
    assert read_node(GPU, tmp_path).reason == f"the firmware names no NUMA node for {GPU}"


def put_config(root: Path, config: bytes | bytearray) -> None:
    (make_path(root, Port(GPU)) / "config").write_bytes(config)


@pytest.mark.parametrize("payload", [128, 256, 512, 4096])
@pytest.mark.parametrize("request_bytes", [128, 512, 4096])
@pytest.mark.parametrize("relaxed", [True, False])
def test_device_control_is_decoded(tmp_path: Path, payload: int, request_bytes: int, relaxed: bool) -> None:
    put_config(tmp_path, config_space(payload, request_bytes, relaxed))
    assert read_device_control(GPU, tmp_path).value == (payload, request_bytes, relaxed)


def test_configuration_space_cut_at_64_bytes_says_what_it_takes(tmp_path: Path) -> None:
    put_config(tmp_path, config_space()[:64])
    assert read_device_control(GPU, tmp_path).reason == (
        f"only the first 64 bytes of the configuration space of {GPU} are readable; "
        "the rest takes root with CAP_SYS_ADMIN"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what it likes")
def test_unreadable_configuration_space_says_so(tmp_path: Path) -> None:
    put_config(tmp_path, config_space())
    (tmp_path / "sys/bus/pci/devices" / GPU / "config").chmod(0)
    assert (read_device_control(GPU, tmp_path).reason or "").endswith("cannot be read: Permission denied")


def test_missing_configuration_space_says_so(tmp_path: Path) -> None:
    make_path(tmp_path, Port(GPU))
    reason = f"{tmp_path}/sys/bus/pci/devices/{GPU}/config cannot be read: No such file or directory"
    assert read_device_control(GPU, tmp_path).reason == reason


def test_capabilities_that_run_in_a_circle_end(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x60:0x62] = bytes([0x05, 0x40])
    put_config(tmp_path, config)
    assert read_device_control(GPU, tmp_path).reason == f"the list of PCI capabilities of {GPU} runs in a circle"


def test_capabilities_that_end_without_pci_express_say_so(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x41] = 0
    put_config(tmp_path, config)
    assert read_device_control(GPU, tmp_path).reason == f"{GPU} has no PCI Express capability"


def test_device_without_capabilities_says_so(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x06] = 0
    put_config(tmp_path, config)
    assert read_device_control(GPU, tmp_path).reason == f"{GPU} has no list of PCI capabilities"


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (10, f"the configuration space of {GPU} ends after 10 bytes"),
        (0x50, f"the configuration space of {GPU} ends in the middle of its capabilities"),
        (0x69, f"the configuration space of {GPU} ends in the middle of its PCI Express capability"),
    ],
)
def test_truncated_configuration_space_says_where(tmp_path: Path, length: int, reason: str) -> None:
    put_config(tmp_path, config_space()[:length])
    assert read_device_control(GPU, tmp_path).reason == reason


def test_device_that_fell_off_the_bus_is_named(tmp_path: Path) -> None:
    put_config(tmp_path, b"\xff" * 256)
    reason = f"{GPU} does not answer: its configuration space reads as ones"
    assert read_device_control(GPU, tmp_path).reason == reason


def test_reserved_sizes_are_refused(tmp_path: Path) -> None:
    config = bytearray(config_space())
    config[0x68:0x6A] = (0x50E0).to_bytes(2, "little")
    put_config(tmp_path, config)
    reason = f"Device Control of {GPU} holds 0x50e0, whose sizes are reserved values"
    assert read_device_control(GPU, tmp_path).reason == reason
