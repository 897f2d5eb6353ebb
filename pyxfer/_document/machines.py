"""The part of a document that describes a machine: its devices, link and environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from pyxfer._document.checks import Count, Problems
from pyxfer._document.printing import ShortRepr
from pyxfer.units import format_gbps

SavedT = TypeVar("SavedT", bound="SavedDocument")

_RFC_3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?$"
Moment = Annotated[str, msgspec.Meta(pattern=_RFC_3339)]
"""A time as text; `units.parse_moment` parses it. A document with other text is refused where it is read."""


class SavedDocument(msgspec.Struct, frozen=True):
    """A document with methods to save and load it."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the document as JSON, compressed if the name ends in .gz.

        An existing file stays as it was if that fails.

        Raises:
            UsageError: the file cannot be written; the text says why.
        """
        from pyxfer._document import codec

        codec.save(self, path)

    @classmethod
    def load(cls: type[SavedT], path: str | os.PathLike[str]) -> SavedT:
        """Load a saved document.

        Raises:
            DocumentError: the file cannot be read, or is not such a document; the text says why.
        """
        from pyxfer._document import codec
        from pyxfer._document.files import read_whole

        return codec.decode(cls, read_whole(path), repr(os.fspath(path)))


STAGED = "staged"
"""The mode of raw copies that go through a ring."""
NOT_STAGED = "nothing was staged"

COMPLETION_OVERHEAD_BYTES = 20
WRITE_OVERHEAD_BYTES = 24
"""With a header of 16 bytes, for addresses from 4 GiB on."""
SHORT_WRITE_OVERHEAD_BYTES = 20
"""With a header of 12 bytes, for addresses below 4 GiB."""
SMALLEST_PAYLOAD_BYTES = 128
"""Every PCI Express function can take it (MaxPayload in Device Control)."""
USUAL_PAYLOAD_BYTES = 256
"""What a GPU and the ports of a server use; figures of healthy hosts are compared with the peak at this size."""
MAX_SHARE = 1.01
"""Of a peak. Event clocks may be off by up to a per cent; beyond it the figure or the peak is wrong."""

RingSource = Literal["given", "cached", "tuned", "default"]


class Ring(msgspec.Struct, frozen=True):
    """The ring of a run's staged copies: `threads` shared `slots` of `chunk_bytes`.

    `fill`: how the threads were set to copy; `kernel`: the instructions that this processor has for that. `source`:
    where the settings come from, and `reason` why. `made_s`: time to page-lock the memory and start the threads.
    """

    threads: int
    chunk_bytes: int
    slots: int
    fill: str
    kernel: str
    spin_us: int
    pinned_bytes: int
    source: RingSource
    reason: str
    made_s: float


T = TypeVar("T")
Result = TypeVar("Result")

Side = Literal["h2d", "d2h", "sum", "ingest"]
Runtime = Literal["cuda", "host"]
LinkKind = Literal["pcie", "c2c", "nvlink", "none", "unknown"]


class Fact(msgspec.Struct, Generic[T], frozen=True):
    """A value, or null and the reason why it is missing."""

    value: T | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a fact has a value, or a reason why it has none, and not both")

    def then(self, follow: Callable[[T], Result]) -> Fact[Result]:
        """What follows from the value, or the reason why there is none."""
        return Fact(reason=self.reason) if self.value is None else Fact(follow(self.value))

    def and_then(self, follow: Callable[[T], Fact[Result]]) -> Fact[Result]:
        """The fact that follows from the value, or the reason why there is none."""
        return Fact(reason=self.reason) if self.value is None else follow(self.value)


def version_of(distribution: str) -> str:
    """The version of an installed distribution, or `unknown`."""
    from importlib import metadata  # its import takes 10 ms, and loads of files do not need it

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def unknown(reason: str) -> Fact[T]:
    """A fact without a value."""
    return Fact(reason=reason)


HOST_MEMORY = "host memory, not a PCIe link"
"""The name of the device without a GPU, and the reason for what only a GPU has."""


class Remark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a reader has to know about a result, with the option or step that changes it."""

    code: str  # one of remark_codes.REMARKS
    text: str
    fix: str | None = None


MAX_DEVICES = 1024
"""CUDA numbers the devices of a host from zero on, and there are some tens of them."""


class Device(ShortRepr, msgspec.Struct, frozen=True):
    """A device. `index` is CUDA's number under the current CUDA_VISIBLE_DEVICES."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_DEVICES)]
    runtime: Runtime
    name: str
    memory_bytes: Count
    uuid: Fact[str]
    pci: Fact[str]
    compute_capability: Fact[str]
    copy_engines: Fact[int]
    mig: Fact[bool]
    vgpu: Fact[bool]
    confidential: Fact[bool]

    def _summary(self) -> str:
        return self.name if self.runtime == "host" else f"{self.index}: {self.name}"


GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# Generation 6 has no line code; every 256-byte flit leaves 236 bytes to packets (PCIe 6.0 base specification, 4.2.3.2).
_ENCODING = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 236 / 256}


class LinkState(msgspec.Struct, frozen=True):
    """Generation and width of a PCI Express link."""

    generation: int
    width: int

    @property
    def gbps(self) -> float:
        """Transfers x lanes x encoding; 0.0 for a generation that is not in the table."""
        transfers = GIGATRANSFERS.get(self.generation, 0.0)
        return transfers * self.width * _ENCODING.get(self.generation, 0.0) / 8


def describe(state: LinkState) -> str:
    """`PCIe 5.0 x16`."""
    return f"PCIe {state.generation}.0 x{state.width}"


class Hop(msgspec.Struct, frozen=True):
    """One link on the path from the device up to the root; `pci` is the address of its lower end."""

    pci: str
    now: Fact[LinkState]
    most: Fact[LinkState]

    @property
    def working(self) -> Fact[LinkState]:
        """Its state under load, of a link above the device: the largest generation, on the lanes that it has.

        `now` was read without traffic. A link that idles may lower its generation, and keeps its width.
        """
        now, most = self.now.value, self.most.value
        if now is None or most is None:
            return self.now if most is None else self.most
        return Fact(LinkState(most.generation, min(now.width, most.width)))


def protocol_gbps(raw_gbps: float, payload_bytes: int, side: Side, *, short: bool = False) -> float:
    """The raw peak less the packet headers of `h2d` or `d2h`; `short`: of writes to addresses below 4 GiB."""
    write = SHORT_WRITE_OVERHEAD_BYTES if short else WRITE_OVERHEAD_BYTES
    overhead = COMPLETION_OVERHEAD_BYTES if side == "h2d" else write
    return raw_gbps * payload_bytes / (payload_bytes + overhead)


class Link(ShortRepr, msgspec.Struct, frozen=True):
    """The link between host memory and a device, with its theoretical peaks."""

    kind: LinkKind
    now: Fact[LinkState]
    under_load: Fact[LinkState]
    device_most: Fact[LinkState]
    system_most: Fact[LinkState]
    max_payload_bytes: Fact[int]
    max_read_request_bytes: Fact[int]
    relaxed_ordering: Fact[bool]
    hops: tuple[Hop, ...]
    narrowest_hop: Fact[Hop]
    raw_peak_gbps: Fact[float]
    h2d_peak_gbps: Fact[float]
    d2h_peak_gbps: Fact[float]
    remarks: tuple[Remark, ...] = ()

    def _summary(self) -> str:
        state = self.under_load.value or self.now.value
        words = [self.kind if state is None else f"{self.kind} {state.generation}.0 x{state.width}"]
        peaks = (("h2d", self.h2d_peak_gbps.value), ("d2h", self.d2h_peak_gbps.value))
        words += [f"{side} peak {format_gbps(peak)}" for side, peak in peaks if peak is not None]
        return ", ".join(words)

    def most_gbps(self, side: Side) -> float | None:
        """The bandwidth that a side cannot exceed: its protocol peak, or the raw peak if that is unknown.

        It allows for the uncertainty of the clock, and to the host for short headers, which addresses below 4 GiB have.
        """
        raw, payload = self.raw_peak_gbps.value, self.max_payload_bytes.value
        if side == "ingest" or raw is None:
            return None
        if side == "sum":
            sides = (self.most_gbps("h2d"), self.most_gbps("d2h"))
            return None if sides[0] is None or sides[1] is None else sides[0] + sides[1]
        if self.peak_gbps(side).value is None or payload is None:
            return raw * MAX_SHARE
        return protocol_gbps(raw, payload, side, short=True) * MAX_SHARE

    def peak_gbps(self, side: Side) -> Fact[float]:
        """The protocol peak of a side; for `sum`, that of both directions together."""
        peaks = {"h2d": self.h2d_peak_gbps, "d2h": self.d2h_peak_gbps}
        if side == "ingest":
            return Fact(reason="what stays in host memory crosses no link")
        if side != "sum":
            return peaks[side]
        missing = [peak for peak in peaks.values() if peak.value is None]
        return missing[0] if missing else Fact(sum(peak.value or 0.0 for peak in peaks.values()))


class Placement(msgspec.Struct, frozen=True):
    """The CPUs of the measuring thread, and the NUMA nodes of its host memory."""

    device_node: Fact[int]
    cpus: Fact[str]
    memory_node: Fact[int]
    pages_by_node: Fact[dict[str, int]]


class Clocks(msgspec.Struct, frozen=True):
    """The GPU's clocks and their maxima."""

    sm_mhz: int
    memory_mhz: int
    sm_most_mhz: int
    memory_most_mhz: int


class Environment(msgspec.Struct, frozen=True):
    """The state of the machine: it supports a result, or explains its difference from another."""

    host: str
    taken_at: Moment
    pyxfer: str
    python: str
    numpy: str
    cuda_runtime: str
    driver: Fact[str]
    driver_cuda: Fact[str]
    visible_devices: Fact[str]
    gpu_clocks: Fact[Clocks]
    throttle_reasons: Fact[tuple[str, ...]]
    performance_state: Fact[str]
    temperature_c: Fact[int]
    persistence: Fact[bool]
    other_gpu_processes: Fact[tuple[int, ...]]
    cpu_model: Fact[str]
    cpus_usable: int
    cpu_governor: Fact[str]
    memory_bytes: Fact[int]
    memory_available_bytes: Fact[int]
    transparent_huge_pages: Fact[str]
    iommu: Fact[str]
    kernel: str
    system: Fact[str]
    container: Fact[str]
    virtual_machine: Fact[str]


WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Lanes of a PCI Express link."""


def link_problems(link: Link) -> Problems:
    """A link has states of PCI Express, and is not above what its device and its slot can do."""
    limits = [most for most in (link.device_most.value, link.system_most.value) if most is not None]
    for name in ("now", "under_load", "device_most", "system_most"):
        state: LinkState | None = getattr(link, name).value
        if state is None:
            continue
        if state.generation not in GIGATRANSFERS or state.width not in WIDTHS:
            yield name, f"is generation {state.generation} with {state.width} lanes"
        exceeds = any(state.generation > most.generation or state.width > most.width for most in limits)
        if name in ("now", "under_load") and exceeds:
            yield name, "is more than the link can do"
