"""What an examination of a host holds: how it is, what was found, and what is known of hosts like it."""

from __future__ import annotations

import os
from typing import Literal, get_args

import msgspec

from pyxfer._document.runs import Device, Direction, Environment, Fact, Link, LinkState, Measurement, Memory, Rate, Run
from pyxfer.errors import UsageError

EXAMINATION_SCHEMA_VERSION = 1
REFERENCE_SCHEMA_VERSION = 1

Status = Literal["wrong", "suspicious", "unknown", "fine"]
Sureness = Literal["certain", "likely", "possible"]


def is_beyond_peak(run: Run, measurement: Measurement) -> bool:
    """Whether it is faster than the link can be, so that the figure or the peak is wrong."""
    most, peak = run.link.most_gbps(measurement.side), run.link.peak_gbps(measurement.side).value
    return most is not None and ((measurement.gbps or 0.0) > most or (peak is not None and peak <= 0))


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: what was seen, what was expected and why, how sure that is, and what to do."""

    code: str
    subject: str
    status: Status
    seen: str
    expected: str
    why: str
    sure: Sureness
    do: str | None = None


class Bound(msgspec.Struct, frozen=True):
    """A limit that was read; `most` is null where it bounds nothing."""

    most: float | None = None


class PortErrors(msgspec.Struct, frozen=True):
    """What one end of a link has counted since the machine was started (PCI Express advanced error reporting)."""

    pci: str
    correctable: Fact[int]
    nonfatal: Fact[int]
    fatal: Fact[int]


class Counters(msgspec.Struct, frozen=True):
    """Errors of the link so far: what the GPU counts since its driver was loaded, and each end on the way up."""

    replays: Fact[int]
    replay_rollovers: Fact[int]
    correctable: Fact[int]
    nonfatal: Fact[int]
    fatal: Fact[int]
    ports: tuple[PortErrors, ...] = ()


class PortControl(msgspec.Struct, frozen=True):
    """How one end of a link is set: its MaxPayload now and at most, and whether it redirects what goes to a neighbour.

    A port that redirects (ACS) sends copies between two devices below it up to the root first.
    """

    pci: str
    max_payload_bytes: Fact[int]
    max_payload_most_bytes: Fact[int]
    redirects: Fact[bool]


class DeviceMemory(msgspec.Struct, frozen=True):
    """What the device counts of its own memory: errors that could not be corrected, rows that were replaced."""

    uncorrected: Fact[int]
    remap_pending: Fact[bool]
    remap_failed: Fact[bool]


class FarRates(msgspec.Struct, frozen=True):
    """Pinned copies with their memory on the device's node and on another, in one session at one size."""

    near_node: int
    far_node: int
    nbytes: int
    near_gbps: dict[str, float]
    far_gbps: dict[str, float]


class Health(msgspec.Struct, frozen=True):
    """What was read of the machine around the measurement; `moved_bytes` crossed the link between both readings."""

    before: Counters
    after: Counters
    moved_bytes: int
    ports: tuple[PortControl, ...]
    iommu: Fact[str]
    lock_limit_bytes: Fact[Bound]
    memory_limit_bytes: Fact[Bound]
    cpu_limit: Fact[Bound]
    cpus_near: Fact[int]
    shared_memory_bytes: Fact[int]
    device_memory: DeviceMemory
    devices: int
    far: Fact[FarRates]


class ReferenceFigure(msgspec.Struct, frozen=True):
    """What a known host reaches at one size."""

    direction: Direction
    memory: Memory
    nbytes: int
    rate: Rate


class Reference(msgspec.Struct, frozen=True):
    """A known host and its figures, from `document`, which was cut from the run `source` of this SHA-256."""

    name: str
    device: str
    link: LinkState
    max_payload_bytes: int
    cpu: str
    taken_at: str
    document: str
    source: str
    sha256: str
    figures: tuple[ReferenceFigure, ...]
    schema_version: int = REFERENCE_SCHEMA_VERSION

    def gbps(self, direction: str, memory: str, nbytes: int) -> float | None:
        """What it reaches at a size, or None where it has none."""
        wanted = (direction, memory, nbytes)
        found = (figure for figure in self.figures if (figure.direction, figure.memory, figure.nbytes) == wanted)
        figure = next(found, None)
        return None if figure is None else figure.rate.gbps


class Nearest(msgspec.Struct, frozen=True):
    """The known host that is most like this one; `alike` where device, link and payload are the same."""

    reference: Reference
    alike: bool
    differs: tuple[str, ...]


class Examination(msgspec.Struct, frozen=True):
    """A host, examined: the run without its single trials, what was read around it, and what was found."""

    run: Run
    health: Fact[Health]
    nearest: Fact[Nearest]
    findings: tuple[Finding, ...]
    kind: Literal["examination"] = "examination"
    schema_version: int = EXAMINATION_SCHEMA_VERSION

    @property
    def device(self) -> Device:
        """The device whose link was examined."""
        return self.run.device

    @property
    def link(self) -> Link:
        """The way between host memory and the device."""
        return self.run.link

    @property
    def environment(self) -> Environment:
        """The machine before the measurement."""
        return self.run.environment

    @property
    def worst(self) -> Status:
        """The gravest status of all findings; what is unknown is no fault."""
        found = {finding.status for finding in self.findings}
        return "wrong" if "wrong" in found else "suspicious" if "suspicious" in found else "fine"

    def of(self, status: Status) -> tuple[Finding, ...]:
        """The findings of one status; UsageError where it is none."""
        known = get_args(Status)
        if status not in known:
            raise UsageError(f"{status!r:.80} is no status of a finding; there are {', '.join(known)}.")
        return tuple(finding for finding in self.findings if finding.status == status)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, whole or not at all."""
        from pyxfer._document import codec

        codec.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Examination:
        """Read a saved examination."""
        from pyxfer._document import codec

        return codec.load(cls, path)
