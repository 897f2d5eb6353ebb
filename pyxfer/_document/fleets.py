"""The documents of a fleet: what one host measured, and what all hosts together say about each of them.

Rates are 1e9 bytes per second, latencies nanoseconds. A loss is a share of the usual figure: 0.03 of a rate that is 3 %
lower, and of a latency that is 3 % higher.
"""

from __future__ import annotations

from statistics import median
from typing import ClassVar, Literal, get_args

import msgspec

from pyxfer._document.cells import Cell, is_of_host
from pyxfer._document.checks import TOLERANCE, Amount, Chance, Problems, not_positive, of_each, repeated
from pyxfer._document.examinations import Finding
from pyxfer._document.machines import Device, Environment, Fact, Moment, Remark, Runtime, SavedDocument, unknown
from pyxfer._document.printing import HasTable
from pyxfer._document.runs import Ending
from pyxfer.errors import UsageError
from pyxfer.units import word_of

MAX_HOST_BYTES = 16 << 20
"""The largest document of a host that a launcher, a store or a fleet takes; that of 16 GPUs has less than 1 MiB."""
MAX_CELLS = 2000
"""The most cells of a host; 16 GPUs have a few hundred. All are judged, so those of one host slow down all verdicts."""

MIN_FIGURE, MAX_FIGURE = 1e-6, 1e9
"""GB/s or nanoseconds: every figure of every host lies far inside."""

NO_PEAK = "no host knows a peak of it"
CellUnit = Literal["GB/s", "ns"]
HostState = Literal["measured", "no GPU", "failed", "late", "lost", "busy", "unreadable", "duplicate", "incomplete"]
HostVerdict = Literal["fine", "slow", "suspect", "not judged"]
Judge = Literal["cohort", "few hosts", "known host", "peak", "none"]


class HostCell(msgspec.Struct, frozen=True):
    """One figure of a host. Hosts that should be equal have the same cells.

    `value`: the median of `samples`, which are the valid trials. `low` and `high`: its 95 % interval. `peak`: the
    protocol peak of the link, if there is one.
    """

    cell: Cell
    unit: CellUnit
    value: Fact[float]
    low: float | None
    high: float | None
    samples: tuple[float, ...]
    peak: Fact[float]


class HostReport(HasTable, SavedDocument, frozen=True):
    """The document of `pyxfer fleet host`: everything that a fleet judges of one host.

    `labels` are the user's, such as rack=r7. `facts` are read from the host and may explain a loss; a fact that could
    not be read is absent.
    """

    DERIVED_BY: ClassVar[str] = "pyxfer._fleet.cells:derive_host"

    kind: Literal["host"]
    ended: Ending
    began_at: Moment
    duration_s: Amount
    runtime: Runtime
    runtime_reason: str
    environment: Environment | None
    devices: tuple[Device, ...]
    labels: dict[str, str]
    cells: tuple[HostCell, ...]
    facts: dict[str, str]
    findings: tuple[Finding, ...]
    remarks: tuple[Remark, ...] = ()
    failure: str | None = None
    schema_version: int = 1

    def _summary(self) -> str:
        host = self.host or "a host without a name"
        known = sum(cell.value.value is not None for cell in self.cells)
        count = "1 GPU" if len(self.devices) == 1 else f"{len(self.devices)} GPUs"
        return f"of {host}, {count}: {self.ended}, {known} of {len(self.cells)} figures"

    @property
    def host(self) -> str | None:
        """The name of the host; None if the environment is not known."""
        return None if self.environment is None else self.environment.host


class FleetSettings(msgspec.Struct, frozen=True):
    """How hosts are judged.

    `error_rate`: chance that a fleet without any slow host has a host that is called slow. `least_loss`: smaller
    losses are no reason to call a host slow. `least_spread`: hosts are assumed to differ by this much (standard
    deviation) even if they were more equal. `power`: chance of finding a loss of the stated limit.
    """

    error_rate: Chance = 0.01
    least_loss: Chance = 0.01
    least_spread: float = 0.003
    power: Chance = 0.95
    smallest_cohort: int = 5


class CellGroups(msgspec.Struct, frozen=True):
    """Two groups of hosts in one cell: `slower` and `faster` hosts, by their places in the fleet.

    `loss`: of the slower group's median against the faster group's.
    """

    slower: tuple[int, ...]
    faster: tuple[int, ...]
    slower_median: float
    faster_median: float
    loss: float


class CohortCell(msgspec.Struct, frozen=True):
    """One cell of a cohort.

    `judged_by`: what the hosts are compared with. `usual`: what a host should reach: the median of the hosts, or what
    the known host or the peak says. `spread`: the robust standard deviation of the hosts, as a share. `first_loss` and
    `again_loss`: from which loss on a host is flagged, and confirmed when it was measured again. `detection_limit`: the
    smallest loss that the judging finds with the settings' power. `hosts`: number of hosts with a figure. `peak`: the
    largest protocol peak that the cell has on a host.
    """

    cell: Cell
    unit: CellUnit
    hosts: int
    judged_by: Judge
    usual: Fact[float]
    spread: Fact[float]
    first_loss: Fact[float]
    again_loss: Fact[float]
    detection_limit: Fact[float]
    groups: CellGroups | None = None
    peak: Fact[float] = unknown(NO_PEAK)


class Cohort(msgspec.Struct, frozen=True):
    """Hosts that should be equal, as far as `alike` says. `reason`: why they are judged as they are."""

    alike: dict[str, str]
    reason: str
    cells: tuple[CohortCell, ...]
    remarks: tuple[Remark, ...] = ()


class CellLoss(msgspec.Struct, frozen=True):
    """A cell in which a host was flagged.

    `loss`: of the first measurement. `again`: the losses of the measurements that followed, against the usual figure
    as the controls have shown it at that time. `confirmed`: null if it was not measured again.
    """

    cell: Cell
    value: float
    usual: float
    loss: float
    again: tuple[float, ...] = ()
    confirmed: bool | None = None

    @property
    def stated(self) -> float:
        """The loss to state: the median of the measurements after the flagged one, which was chosen for being low."""
        return median(self.again) if self.again else self.loss


class FleetHost(msgspec.Struct, frozen=True):
    """A host of the fleet.

    `cohort`: its place in the fleet's cohorts, if it was judged. `values`: its figures, in the order of the cohort's
    cells. `errors`: the standard errors of their logarithms within the host. `again`: its figures in each measurement
    after the first. `source`: the file or launcher that its document came from. `named`: whether the user, Slurm or the
    name of its file names the host, and not its document alone. `wrong`: codes of findings that are wrong.
    """

    host: str
    state: HostState
    reason: str | None
    source: str
    verdict: HostVerdict
    named: bool = False
    cohort: int | None = None
    values: tuple[float | None, ...] = ()
    errors: tuple[float | None, ...] = ()
    again: tuple[tuple[float | None, ...], ...] = ()
    losses: tuple[CellLoss, ...] = ()
    control: bool = False
    labels: dict[str, str] = {}
    facts: dict[str, str] = {}
    wrong: tuple[str, ...] = ()
    began_at: Moment | None = None
    pyxfer: str | None = None

    @property
    def worst(self) -> CellLoss | None:
        """The largest confirmed loss, or of an unconfirmed host the largest loss."""
        kept = [loss for loss in self.losses if loss.confirmed] or self.losses
        return max(kept, key=lambda loss: loss.stated, default=None)


class Contrast(msgspec.Struct, frozen=True):
    """A fact or label that slow hosts share and others do not.

    `what` and `value`: the fact; `label`: whether the user gave it. `slow` of `of_slow` slow hosts have it, and
    `others` of `of_others`. `chance`: the probability of such a contrast, or a clearer one, in any of the facts that
    were tried, if they had nothing to do with the loss. `hosts`: the slow hosts, by their places in the fleet. `cells`:
    the cells in which they are slow.
    """

    what: str
    value: str
    label: bool
    slow: int
    of_slow: int
    others: int
    of_others: int
    chance: float
    significant: bool
    hosts: tuple[int, ...]
    cells: tuple[Cell, ...]


class Fleet(HasTable, SavedDocument, frozen=True):
    """The document of `pyxfer fleet`: every host with its verdict, the cohorts, and what slow hosts have in common."""

    DERIVED_BY: ClassVar[str] = "pyxfer._fleet.judge:derive_fleet"

    kind: Literal["fleet"]
    judged_at: Moment
    pyxfer: str
    settings: FleetSettings
    cohorts: tuple[Cohort, ...]
    hosts: tuple[FleetHost, ...]
    contrasts: tuple[Contrast, ...] = ()
    remarks: tuple[Remark, ...] = ()
    schema_version: int = 1

    def _summary(self) -> str:
        once = hosts_once(self)
        verdicts = [host.verdict for host in once]
        counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in ("slow", "suspect", "not judged")]
        hosts = "1 host" if len(once) == 1 else f"{len(once)} hosts"
        return f"{hosts}: {', '.join(counts)}"

    def with_verdict(self, verdict: HostVerdict) -> tuple[FleetHost, ...]:
        """The hosts with a verdict.

        Raises:
            UsageError: there is no such verdict.
        """
        wanted = word_of(verdict, get_args(HostVerdict), "verdict")
        return tuple(host for host in self.hosts if host.verdict == wanted)

    def host(self, name: str) -> FleetHost:
        """The judged host of this name, or the first one if none was judged.

        Raises:
            UsageError: the fleet has no such host.
        """
        found = sorted((host for host in self.hosts if host.host == name), key=lambda host: host.state == "duplicate")
        if not found:
            raise UsageError(f"This fleet has no host {name!r:.80}.")
        return found[0]


def hosts_once(fleet: Fleet) -> list[FleetHost]:
    """Every host, without the rows of its older documents."""
    return [host for host in fleet.hosts if host.state != "duplicate"]


def host_problems(report: HostReport) -> Problems:
    if len(report.cells) > MAX_CELLS:
        yield "cells", f"are {len(report.cells)}, and no host has more than {MAX_CELLS}"
        return
    yield from repeated("cells", [cell.cell for cell in report.cells])
    numbers = {number for cell in report.cells for number in (*cell.cell.source, *cell.cell.destination)}
    if not {number for number in numbers if number >= 0} <= {device.index for device in report.devices}:
        yield "cells", "are of GPUs that are not among the devices"
    yield from of_each("cells", report.cells, _cell_problems)


def _cell_problems(cell: HostCell) -> Problems:
    if not is_of_host(cell.cell):
        yield "cell", "is not a copy or latency of a host"
    yield from not_positive(("peak", cell.peak.value))
    value = cell.value.value
    if value is None:
        return
    low, high = cell.low or value, cell.high or value
    if not MIN_FIGURE <= value <= MAX_FIGURE or not MIN_FIGURE <= low <= high <= MAX_FIGURE:
        yield "value", "is a figure that no host has"
    for name, ends in (("interval", (low, high)), ("samples", cell.samples)):
        if ends and not min(ends) * (1 - TOLERANCE) <= value <= max(ends) * (1 + TOLERANCE):
            yield "value", f"is outside its {name}"


def fleet_problems(fleet: Fleet) -> Problems:
    yield from of_each("cohorts", fleet.cohorts, _cohort_problems)
    for i, host in enumerate(fleet.hosts):
        if any(value is not None and not MIN_FIGURE / 2 <= value <= 2 * MAX_FIGURE for value in host.values):
            yield f"hosts[{i}].values", "have one that no host has"


def _cohort_problems(cohort: Cohort) -> Problems:
    yield from repeated("cells", [cell.cell for cell in cohort.cells])
    for i, cell in enumerate(cohort.cells):
        if not is_of_host(cell.cell):
            yield f"cells[{i}]", "is a cell that no host has"
