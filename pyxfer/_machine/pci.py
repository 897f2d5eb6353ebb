"""PCI Express: peaks of a link, the path up to the root in sysfs, and a device's configuration space."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from pyxfer._document.machines import GIGATRANSFERS, WIDTHS, Fact, Hop, LinkState
from pyxfer._machine.sysfs import read_int, read_text

_FIRST_WITH_FLITS = 6


def raw_peak_gbps(state: Fact[LinkState]) -> Fact[float]:
    if state.value is not None and state.value.generation not in GIGATRANSFERS:
        return Fact(reason=f"PCIe generation {state.value.generation} is not modelled")
    return state.then(lambda known: known.gbps)


def protocol_peak_gbps(state: Fact[LinkState], max_payload_bytes: Fact[int], overhead_bytes: int) -> Fact[float]:
    raw = raw_peak_gbps(state)
    if raw.value is None or state.value is None:
        return raw
    if state.value.generation >= _FIRST_WITH_FLITS:
        return Fact(reason="the protocol overhead of PCIe generation 6 (flit mode) is not modelled")
    if (payload := max_payload_bytes.value) is None:
        return Fact(reason=f"MaxPayload is not known: {max_payload_bytes.reason}")
    return Fact(raw.value * payload / (payload + overhead_bytes))


_ADDRESS = r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<slot>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?"

# The port that QEMU emulates. Its capabilities are defaults (16 GT/s, formerly 2.5 GT/s x1) that limit no real link.
_EMULATED_PORT = ("0x1b36", "0x000c")

_CAPABILITY_LIST = 0x10
_PCI_EXPRESS = 0x10
_DEVICE_CONTROL = 8
LARGEST_CODE = 5  # 4096 bytes
_HEADER_BYTES = 64


class DeviceControl(NamedTuple):
    max_payload_bytes: int
    max_read_request_bytes: int
    relaxed_ordering: bool


def canonical_address(text: str) -> str | None:
    """Convert any usual spelling of a PCI address to the form `0000:3b:00.0`; None for other text."""
    match = re.fullmatch(_ADDRESS, text.strip(), re.IGNORECASE)
    if match is None:
        return None
    domain, bus, slot = (int(match[part] or "0", 16) for part in ("domain", "bus", "slot"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{match['function'] or '0'}"


def device_path(address: str, root: Path) -> Path:
    return root / "sys/bus/pci/devices" / address


def read_node(address: str, root: Path = Path("/")) -> Fact[int]:
    nameless: Fact[int] = Fact(reason=f"the firmware names no NUMA node for {address}")
    return read_int(device_path(address, root) / "numa_node").and_then(lambda at: nameless if at < 0 else Fact(at))


def read_hops(address: str, root: Path = Path("/")) -> tuple[Hop, ...]:
    """The links from the device up to the root; empty if sysfs does not show the device.

    Ends alternate on the path: the device is the lower end of its link, the port above it the upper end, the port
    above that the lower end of the next link. So every second one is a lower end, with or without switches.
    """
    chain = path_to_root(address, root)
    return tuple(
        _read_hop(lower, chain[i + 1] if i + 1 < len(chain) else None) for i, lower in enumerate(chain) if i % 2 == 0
    )


def path_to_root(address: str, root: Path = Path("/")) -> list[Path]:
    """The folders of the device and of the ports above it; empty if sysfs does not show the device."""
    path = device_path(address, root).resolve()
    chain: list[Path] = []
    while canonical_address(path.name) is not None and path.is_dir():
        chain.append(path)
        path = path.parent
    return chain


def read_device_most(address: str, root: Path = Path("/")) -> Fact[LinkState]:
    return _read_state(device_path(address, root), "max")


def _read_hop(lower: Path, upper: Path | None) -> Hop:
    most = _read_state(lower, "max")
    if upper is not None and tuple(read_text(upper / name).value for name in ("vendor", "device")) != _EMULATED_PORT:
        most = lesser(most, _read_state(upper, "max"))
    return Hop(lower.name, _read_state(lower, "current"), most)


def lesser(one: Fact[LinkState], other: Fact[LinkState]) -> Fact[LinkState]:
    """The largest state that both ends of a link support; if only one is known, that one."""
    if one.value is None or other.value is None:
        return one if other.value is None else other
    generation = min(one.value.generation, other.value.generation)
    return Fact(LinkState(generation, min(one.value.width, other.value.width)))


def hop_gbps(state: Fact[LinkState]) -> float:
    """The rate of a state; infinite if it is not known, so that it is never the narrowest."""
    return float("inf") if state.value is None else state.value.gbps


def _read_state(path: Path, which: str) -> Fact[LinkState]:
    speed, width = read_text(path / f"{which}_link_speed"), read_int(path / f"{which}_link_width")
    if speed.value is None or width.value is None:
        return Fact(reason=speed.reason or width.reason)
    generation = generation_of(speed.value)
    if generation is None:
        return Fact(reason=f"{path.name} gives the link speed as {speed.value!r}")
    if width.value not in WIDTHS:
        # 0 without a link; 63 if every bit reads as one because the device is off or gone.
        return Fact(reason=f"{path.name} gives the link width as {width.value}, which no working link has")
    return Fact(LinkState(generation, width.value))


def generation_of(speed: str) -> int | None:
    """The generation of a speed: 5 for `32.0 GT/s PCIe`; None for an unknown speed."""
    match = re.match(r"(\d+(?:\.\d+)?) ?GT/s", speed)
    transfers = float(match[1]) if match else 0.0
    return next((generation for generation, rate in GIGATRANSFERS.items() if rate == transfers), None)


def read_device_control(address: str, root: Path = Path("/")) -> Fact[DeviceControl]:
    def decode(config: bytes) -> Fact[DeviceControl]:
        return find_pci_express(config, address).and_then(lambda at: decode_device_control(config, at, address))

    return read_config(device_path(address, root)).and_then(decode)


def read_config(folder: Path) -> Fact[bytes]:
    path = folder / "config"
    try:
        return Fact(path.read_bytes())
    except OSError as error:
        return Fact(reason=f"{path} cannot be read: {error.strerror}")


def find_pci_express(config: bytes, address: str) -> Fact[int]:
    if config[:2] == b"\xff\xff":
        return Fact(reason=f"{address} does not answer: its configuration space reads as ones")
    if len(config) <= _HEADER_BYTES:
        return Fact(
            reason=f"only the first {_HEADER_BYTES} bytes of the configuration space of {address} are readable; "
            "the rest needs root with CAP_SYS_ADMIN"
        )
    offset, seen = config[0x34] & ~3 if config[0x06] & _CAPABILITY_LIST else 0, set[int]()
    while _HEADER_BYTES <= offset < len(config) - 1 and offset not in seen:
        if config[offset] == _PCI_EXPRESS:
            return Fact(offset)
        seen.add(offset)
        offset = config[offset + 1] & ~3
    return Fact(reason=f"{address} has no PCI Express capability")


def decode_device_control(config: bytes, capability: int, address: str) -> Fact[DeviceControl]:
    offset = capability + _DEVICE_CONTROL
    control = int.from_bytes(config[offset : offset + 2], "little")
    payload, request = control >> 5 & 7, control >> 12 & 7
    if max(payload, request) > LARGEST_CODE:
        return Fact(reason=f"Device Control of {address} is {control:#06x}, whose sizes are reserved values")
    return Fact(DeviceControl(128 << payload, 128 << request, bool(control & 0x10)))
