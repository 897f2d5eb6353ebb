"""The document of an examination: the host's state, the findings, and the most similar known host."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import msgspec

from pyxfer._document.checks import Problems, within
from pyxfer._document.links import Links, links_problems
from pyxfer._document.machines import Device, Environment, Fact, Link, LinkState, Moment, SavedDocument
from pyxfer._document.printing import HasTable, ShortRepr
from pyxfer._document.runs import Direction, Measurement, Memory, Rate, Run, run_problems
from pyxfer.units import word_of

Status = Literal["wrong", "suspicious", "unknown", "fine"]
Sureness = Literal["certain", "likely", "possible"]


def is_beyond_peak(run: Run, measurement: Measurement) -> bool:
    """Whether the measurement is faster than the link can be, so that the figure or the peak is wrong."""
    most = run.link.most_gbps(measurement.side)
    return most is not None and (measurement.gbps or 0.0) > most


class Finding(ShortRepr, msgspec.Struct, frozen=True):
    """The result of one check: what was seen, what was expected and why, how sure that is, and what to do."""

    code: str
    subject: str
    status: Status
    seen: str
    expected: str
    why: str
    sure: Sureness
    do: str | None = None

    def _summary(self) -> str:
        return f"{self.code}, {self.status}: {self.seen}"


class Bound(msgspec.Struct, frozen=True):
    """A limit that was read. `most` is null for "unlimited"."""

    most: float | None = None


class PortErrors(msgspec.Struct, frozen=True):
    """Errors that one end of a link has counted since the machine's start (PCI Express advanced error reporting)."""

    pci: str
    correctable: Fact[int]
    nonfatal: Fact[int]
    fatal: Fact[int]


class Counters(msgspec.Struct, frozen=True):
    """Errors of the link: counted by the GPU since its driver was loaded, and by each port up to the root."""

    replays: Fact[int]
    replay_rollovers: Fact[int]
    correctable: Fact[int]
    nonfatal: Fact[int]
    fatal: Fact[int]
    ports: tuple[PortErrors, ...] = ()


class PortControl(msgspec.Struct, frozen=True):
    """The settings of one end of a link: MaxPayload, the largest possible MaxPayload, and redirection (ACS).

    A port that redirects sends copies between two devices below it up to the root first.
    """

    pci: str
    max_payload_bytes: Fact[int]
    max_payload_most_bytes: Fact[int]
    redirects: Fact[bool]


class DeviceMemory(msgspec.Struct, frozen=True):
    """Errors of the device's memory: uncorrected ones, and rows that wait for a replacement or have none."""

    uncorrected: Fact[int]
    remap_pending: Fact[bool]
    remap_failed: Fact[bool]


class FarRates(msgspec.Struct, frozen=True):
    """Rates of pinned copies with host memory on the device's NUMA node and on another, in one session at one size."""

    near_node: int
    far_node: int
    nbytes: int
    near_gbps: dict[str, float]
    far_gbps: dict[str, float]


class Health(msgspec.Struct, frozen=True):
    """Values read around the measurement. `moved_bytes` crossed the link between `before` and `after`."""

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
    """The rate of a known host at one size."""

    direction: Direction
    memory: Memory
    nbytes: int
    rate: Rate


class Reference(msgspec.Struct, frozen=True):
    """A known host and its figures. They are from `document`, an excerpt of the run `source` with this SHA-256."""

    name: str
    device: str
    link: LinkState
    max_payload_bytes: int
    cpu: str
    taken_at: Moment
    document: str
    source: str
    sha256: str
    figures: tuple[ReferenceFigure, ...]
    schema_version: int = 1

    def gbps(self, direction: str, memory: str, nbytes: int) -> float | None:
        """The rate at a size; None if it was not measured."""
        wanted = (direction, memory, nbytes)
        found = (figure for figure in self.figures if (figure.direction, figure.memory, figure.nbytes) == wanted)
        figure = next(found, None)
        return None if figure is None else figure.rate.gbps


class Nearest(msgspec.Struct, frozen=True):
    """The known host most similar to this one. `alike`: device, link and payload are the same."""

    reference: Reference
    alike: bool
    differs: tuple[str, ...]


class Examination(HasTable, SavedDocument, frozen=True):
    """An examination of a host: the run without its trials, the values read around it, and the findings.

    `links`: the run of links that was examined; then `run` has the copies of its first GPU.
    """

    DERIVED_BY: ClassVar[str] = "pyxfer._doctor.derived:derive_examination"

    run: Run
    health: Fact[Health]
    nearest: Fact[Nearest]
    findings: tuple[Finding, ...]
    links: Links | None = None
    kind: Literal["examination"] = "examination"
    schema_version: int = 1

    def _summary(self) -> str:
        faults = sum(finding.status in ("wrong", "suspicious") for finding in self.findings)
        return f"of {self.device.name}: {self.worst}, {faults} of {len(self.findings)} findings wrong or suspicious"

    @property
    def device(self) -> Device:
        """The device whose link was examined."""
        return self.run.device

    @property
    def link(self) -> Link:
        """The link between host memory and the device."""
        return self.run.link

    @property
    def environment(self) -> Environment:
        """The environment before the measurement."""
        return self.run.environment

    @property
    def worst(self) -> Status:
        """The most serious status of all findings: wrong, suspicious, or fine. Unknown counts as fine."""
        found = {finding.status for finding in self.findings}
        return "wrong" if "wrong" in found else "suspicious" if "suspicious" in found else "fine"

    def of(self, status: Status) -> tuple[Finding, ...]:
        """The findings with a status.

        Raises:
            UsageError: it is not a status of a finding.
        """
        wanted = word_of(status, get_args(Status), "status")
        return tuple(finding for finding in self.findings if finding.status == wanted)


def examination_problems(examination: Examination) -> Problems:
    yield from within("run", run_problems(examination.run))
    if examination.links is not None:
        yield from within("links", links_problems(examination.links))
