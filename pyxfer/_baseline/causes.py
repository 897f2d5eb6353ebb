"""The differences between two sides of a comparison, and the likely causes of what is slow."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pyxfer._baseline.fingerprints import link_state
from pyxfer._baseline.link_causes import at_gpus, between, patterns
from pyxfer._document.baselines import AnyRun, Cause, CellComparison, Difference
from pyxfer._document.links import Links
from pyxfer._document.machines import Fact, LinkState, Placement, describe
from pyxfer._document.runs import Run
from pyxfer._machine.environment import is_untranslated
from pyxfer._machine.link_remarks import RESEAT
from pyxfer._machine.nvml import IDLE
from pyxfer._measure.link_runs import runs_of_all
from pyxfer.units import format_percent, format_size, yes_no

T = TypeVar("T")
Read = Callable[[Run], str | None]
"""The value of a run as text; None if it is not known."""

LARGE_BYTES = 4 * 1024**2
"""From this size on the link's rate determines the time of a copy; below it, the fixed cost of a copy does."""
LOCKED = ("pinned", "registered", "write-combined")
_GIB = 1024**3
_GROUP = re.compile(r"\bgroup \d+, ")


@dataclass(frozen=True)
class Case:
    """A comparison that has SLOW cells. `a` and `b` are the last runs of the sides."""

    a: Run
    b: Run
    b_runs: tuple[Run, ...]
    cells: tuple[CellComparison, ...]

    @classmethod
    def of(cls, a: Sequence[Run], b: Sequence[Run], cells: Iterable[CellComparison]) -> Case:
        """Leaves out the cells that were not compared."""
        return cls(a[-1], b[-1], tuple(b), tuple(cell for cell in cells if cell.ratio.value is not None))

    @property
    def has_link(self) -> bool:
        return self.b.runtime != "host"

    @property
    def slow(self) -> tuple[CellComparison, ...]:
        return tuple(cell for cell in self.cells if cell.verdict == "SLOW")

    def slow_cells(self, *, locked: bool) -> tuple[CellComparison, ...]:
        return tuple(cell for cell in self.slow if (cell.cell.memory in LOCKED) == locked)

    def is_as_fast(self, *, locked: bool) -> bool:
        kind = [cell for cell in self.cells if (cell.cell.memory in LOCKED) == locked]
        return bool(kind) and all(cell.verdict in ("SAME", "FAST") for cell in kind)


def causes(a: Sequence[AnyRun], b: Sequence[AnyRun], cells: Iterable[CellComparison]) -> tuple[Cause, ...]:
    if isinstance(a[-1], Links) and isinstance(b[-1], Links):
        return _of_links(a[-1], b[-1], b, tuple(cells))
    case = Case.of(_each_device(a), _each_device(b), cells)
    return _named(case, (*_link_causes(case), *_host_causes(case)), tuple(_pattern_causes(case))) if case.slow else ()


def _of_links(a: Links, b: Links, b_runs: Sequence[AnyRun], cells: tuple[CellComparison, ...]) -> tuple[Cause, ...]:
    slow = [row for row in cells if row.verdict == "SLOW"]
    if not slow:
        return ()
    before, now = ({run.device.index: run for run in runs_of_all(links)} for links in (a, b))
    found: list[tuple[int, Cause]] = []
    for number in now:
        if any(number in row.cell.gpus or not row.cell.gpus for row in slow):
            own = [row for row in cells if row.cell.group == "host" and row.cell.gpus == (number,)]
            runs = [run for run in _each_device(b_runs) if run.device.index == number]
            case = Case.of([before[number]], runs, own)
            # The environment was read with the first GPU.
            of_host = _host_causes(case) if number == next(iter(now)) else _remote_memory(case)
            found += [(number, cause) for cause in (*_link_causes(case), *of_host)]
    case = Case.of(list(before.values()), list(now.values()), cells)
    return _named(case, (*between(a, b), *at_gpus(found, len(now))), tuple(patterns(cells)))


def _named(case: Case, observed: tuple[Cause, ...], patterns: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """The observed causes and the patterns; without the former, new versions."""
    if observed:
        return (*observed, *patterns)
    versions = tuple(_became_worse(case, _VERSIONS))
    return (*patterns, *versions) if versions else (*patterns, _unexplained(case))


def _unexplained(case: Case) -> Cause:
    settings, suspects = "link, placement, clocks", "pyxfer doctor, what else uses the link (storage, network)"
    if not case.has_link:
        settings, suspects = "processors, memory, placement", "what else uses the host's memory and processors"
    return Cause(
        "unexplained",
        "Nothing that pyxfer reads differs between the two sides.",
        f"{settings} and settings are unchanged, or could not be read; the loss is {_loss_text(case.slow)}",
        f"check {suspects}, and the kernel log",
    )


def _loss_text(cells: Sequence[CellComparison]) -> str:
    lost = [1 - 1 / cell.ratio.value for cell in cells if cell.ratio.value]
    return " to ".join(dict.fromkeys(map(format_percent, (min(lost), max(lost)))))


# --- the host and the device -----------------------------------------------------------------------------------------


def _host_causes(case: Case) -> Iterator[Cause]:
    yield from _remote_memory(case)
    yield from _other_users(case)
    yield from _throttling(case)
    yield from _became_worse(case, _OF_DEVICE)
    if case.slow_cells(locked=False):
        yield from _became_worse(case, _OF_PAGEABLE)


def _remote_memory(case: Case) -> Iterator[Cause]:
    node, before = case.b.placement.device_node.value, most_pages_on(case.a.placement)
    now = most_pages_on(case.b.placement)
    if node is None or now is None or now in (node, before):
        return
    was = "" if before is None else f"; it was on node {before}"
    yield Cause(
        "remote-node",
        f"The host's memory is on NUMA node {now}, and the GPU is at node {node}: every byte crosses between the "
        "processors.",
        f"the nodes of the pages of the measured buffers{was}",
        f"run on the GPU's node: numactl --cpunodebind={node} --membind={node}; a container needs the right to do so",
    )


def _other_users(case: Case) -> Iterator[Cause]:
    if any(remark.code == "contended" for run in case.b_runs for remark in run.remarks):
        yield Cause(
            "contended",
            "Another pyxfer measured this device at the same time.",
            "each of the two noticed the other",
            "measure again when it has ended",
        )
    before, now = _other_processes(case.a), sorted({pid for run in case.b_runs for pid in _other_processes(run)})
    if len(now) > len(before):
        yield Cause(
            "other-processes",
            f"Other processes use this GPU: {', '.join(map(str, now))}; there were {len(before) or 'none'} before.",
            "the driver's list of processes",
            "end them, or measure when they are idle",
        )


def _other_processes(run: Run) -> tuple[int, ...]:
    return run.environment.other_gpu_processes.value or ()


def _throttling(case: Case) -> Iterator[Cause]:
    before = set(throttle_reasons(case.a))
    reasons = {reason for run in case.b_runs for reason in throttle_reasons(run)} - before - {IDLE}
    if reasons:
        yield Cause(
            "throttled",
            f"The GPU's clocks are held back: {', '.join(sorted(reasons))}.",
            "the driver's reasons for lower clocks, before or after the measurement",
            "see nvidia-smi -q -d PERFORMANCE; check cooling, power supply and power limit",
        )


# --- the link --------------------------------------------------------------------------------------------------------


def _link_causes(case: Case) -> Iterator[Cause]:
    yield from _trained_lower(case)
    yield from _narrower_hop(case)
    yield from _became_worse(case, _OF_LINK)


def _trained_lower(case: Case) -> Iterator[Cause]:
    """The link carries less than before; if the earlier state is not known, less than device and slot can do."""
    now = case.b.link.under_load.value
    if now is None:
        now = _idle_with_fewer_lanes(case)
    before = link_state(case.a.link).value
    known = before is not None
    if before is None:
        before = case.b.link.system_most.value or case.b.link.device_most.value
    if now is None or before is None or now.gbps >= before.gbps:
        return
    was = f"it was {describe(before)}" if known else f"device and slot can do {describe(before)}"
    share = format_percent(now.gbps / before.gbps)
    code = "link-narrow" if now.width < before.width else "link-slow"
    text = f"The link is trained at {describe(now)}, and {was}: it carries {share} of that."
    state = "under load" if case.b.link.under_load.value is not None else "idle; an idle link keeps its width"
    yield Cause(code, text, f"the state of the link, read {state}", RESEAT)


def _idle_with_fewer_lanes(case: Case) -> LinkState | None:
    """The idle link's width at the earlier generation: an idle link lowers its generation, but not its width."""
    now, before = case.b.link.now.value, link_state(case.a.link).value
    if now is None or before is None or now.width >= before.width:
        return None
    return LinkState(before.generation, now.width)


def _narrower_hop(case: Case) -> Iterator[Cause]:
    before, now = case.a.link.narrowest_hop.value, case.b.link.narrowest_hop.value
    own = case.b.link.hops[0] if case.b.link.hops else None
    if before is None or now is None or now == own:
        return
    was, has = (hop.working.value for hop in (before, now))
    if was is not None and has is not None and has.gbps < was.gbps:
        yield Cause(
            "hop-narrow",
            f"A port above the device, {now.pci}, runs at {describe(has)}; the narrowest was {describe(was)}.",
            "the states of the links between the device and the processor",
            RESEAT,
        )


# --- patterns --------------------------------------------------------------------------------------------------------


def _pattern_causes(case: Case) -> Iterator[Cause]:
    slow = case.slow
    others = [row for row in case.cells if row.verdict in ("SAME", "FAST")]
    if case.is_as_fast(locked=True) and case.slow_cells(locked=False):
        yield Cause(
            "host-side",
            "Only copies of pageable memory are slow, and page-locked memory is as fast as before: the cause is in the "
            f"host's processors or memory{', not in the link' if case.has_link else ''}.",
            f"pageable memory has lost {_loss_text(case.slow_cells(locked=False))}",
            "check what else runs on the host, which node the process runs on, and the memory modules",
        )
    directions = {row.cell.direction for row in slow}
    elsewhere = [row.verdict for row in case.cells if row.cell.direction not in directions]
    of_one = len(directions) == 1 and bool(elsewhere) and case.has_link
    if of_one and all(verdict in ("SAME", "FAST") for verdict in elsewhere):
        direction = next(iter(directions))
        yield Cause(
            "one-direction",
            f"Only {direction} is slow. A link trained lower would slow both directions.",
            f"{direction} has lost {_loss_text(slow)}; no other direction is slow",
        )
    if all(row.cell.nbytes < LARGE_BYTES for row in slow) and any(row.cell.nbytes >= LARGE_BYTES for row in others):
        yield Cause(
            "fixed-cost",
            "Only small copies are slow: the fixed cost of a copy has grown, and the rate is unchanged.",
            f"copies below {format_size(LARGE_BYTES)} have lost {_loss_text(slow)}",
            "check power saving (C-states, ASPM, the CPU governor) and the IOMMU"
            if case.has_link
            else "check power saving (C-states, the CPU governor)",
        )


# --- differences -----------------------------------------------------------------------------------------------------


def differences(a: Sequence[AnyRun], b: Sequence[AnyRun]) -> tuple[Difference, ...]:
    """Every value that both sides know and that differs; those that may cost bandwidth come first."""
    found = []
    of_a, of_b = _each_device(a), _each_device(b)
    for what, matters, read in _COMPARED:
        one, other = _values(of_a, read), _values(of_b, read)
        if one and other and one != other:
            found.append(Difference(what, ", ".join(one), ", ".join(other), matters))
    return tuple(sorted(found, key=lambda difference: not difference.matters))


def _each_device(runs: Sequence[AnyRun]) -> list[Run]:
    return [each for run in runs for each in (runs_of_all(run) if isinstance(run, Links) else (run,))]


def facts_of(run: Run) -> dict[str, str]:
    """Every value of a run that may cost bandwidth and is known, by its name in `differences`."""
    values = {what: read(run) for what, matters, read in _COMPARED if matters}
    return {what: value for what, value in values.items() if value is not None}


def most_pages_on(placement: Placement) -> int | None:
    """The NUMA node that has most pages of the host memory; None if it is not known."""
    pages = placement.pages_by_node.value
    if pages:
        node = max(pages, key=lambda name: pages[name])
        return int(node) if node.isdecimal() and node.isascii() else None
    return placement.memory_node.value


def iommu_kind(run: Run) -> str | None:
    """How addresses are translated, without the number of the group, which may change at a boot."""
    text = run.environment.iommu.value
    return None if text is None else _GROUP.sub("", text)


def throttle_reasons(run: Run) -> tuple[str, ...]:
    environments = [each for each in (run.environment, run.environment_after) if each is not None]
    return tuple(dict.fromkeys(reason for each in environments for reason in each.throttle_reasons.value or ()))


def _values(runs: Sequence[Run], read: Read) -> tuple[str, ...]:
    values = [read(run) for run in runs]
    return () if None in values else tuple(sorted({value for value in values if value is not None}))


def _fact(read: Callable[[Run], Fact[T]], to_text: Callable[[T], str] = str) -> Read:
    def value(run: Run) -> str | None:
        found = read(run).value
        return None if found is None else to_text(found)

    return value


def _memory_node(run: Run) -> str | None:
    node = most_pages_on(run.placement)
    return None if node is None else str(node)


def _throttled(run: Run) -> str | None:
    if run.environment.throttle_reasons.value is None:
        return None
    return " and ".join(throttle_reasons(run)) or "none"


# What is compared, whether it may cost bandwidth, and its value in a run.
_COMPARED: tuple[tuple[str, bool, Read], ...] = (
    ("host", False, lambda run: run.environment.host),
    ("GPU", False, _fact(lambda run: run.device.uuid)),
    ("device", True, lambda run: run.device.name),
    ("slot (PCI address)", True, _fact(lambda run: run.device.pci)),
    ("link", True, _fact(lambda run: link_state(run.link), describe)),
    ("best link of the device", True, _fact(lambda run: run.link.device_most, describe)),
    ("best link of the slot", True, _fact(lambda run: run.link.system_most, describe)),
    ("narrowest hop", True, _fact(lambda run: run.link.narrowest_hop, lambda hop: hop.pci)),
    ("payload, bytes", True, _fact(lambda run: run.link.max_payload_bytes)),
    ("read request, bytes", True, _fact(lambda run: run.link.max_read_request_bytes)),
    ("relaxed ordering", True, _fact(lambda run: run.link.relaxed_ordering, yes_no)),
    ("NUMA node of the GPU", True, _fact(lambda run: run.placement.device_node)),
    ("NUMA node of the memory", True, _memory_node),
    ("processors used", True, _fact(lambda run: run.placement.cpus)),
    ("IOMMU", True, iommu_kind),
    ("transparent huge pages", True, _fact(lambda run: run.environment.transparent_huge_pages)),
    ("CPU governor", True, _fact(lambda run: run.environment.cpu_governor)),
    ("CPU", True, _fact(lambda run: run.environment.cpu_model)),
    ("processors usable", True, lambda run: str(run.environment.cpus_usable)),
    ("memory, GiB", True, _fact(lambda run: run.environment.memory_bytes, lambda size: str(round(size / _GIB)))),
    ("clocks held back", True, _throttled),
    ("performance state", False, _fact(lambda run: run.environment.performance_state)),
    (
        "other processes on the GPU",
        True,
        _fact(lambda run: run.environment.other_gpu_processes, lambda pids: str(len(pids) or "none")),
    ),
    ("MIG", True, _fact(lambda run: run.device.mig, yes_no)),
    ("vGPU", True, _fact(lambda run: run.device.vgpu, yes_no)),
    ("confidential computing", True, _fact(lambda run: run.device.confidential, yes_no)),
    ("virtual machine", True, _fact(lambda run: run.environment.virtual_machine)),
    ("persistence mode", True, _fact(lambda run: run.environment.persistence, yes_no)),
    ("driver", True, _fact(lambda run: run.environment.driver)),
    ("CUDA of the runtime", True, lambda run: run.environment.cuda_runtime),
    ("kernel", True, lambda run: run.environment.kernel),
    ("pyxfer", True, lambda run: run.environment.pyxfer),
    ("container", False, _fact(lambda run: run.environment.container)),
    ("system", False, _fact(lambda run: run.environment.system)),
    ("NumPy", False, lambda run: run.environment.numpy),
    ("Python", False, lambda run: run.environment.python),
    ("requested precision", False, lambda run: f"{run.parameters.precision * 100:g} %"),
    ("budget, s", False, lambda run: f"{run.parameters.budget_s:g}"),
)
_READS = {what: read for what, _, read in _COMPARED}


# --- values that have become worse -----------------------------------------------------------------------------------


class Worse(NamedTuple):
    """A compared value that is a likely cause if it has become worse. `fix` may have the value `before`."""

    code: str
    what: str
    is_worse: Callable[[str, str], bool]
    text: str
    fix: str | None = None


def _became_worse(case: Case, table: Iterable[Worse]) -> Iterator[Cause]:
    for code, what, is_worse, text, fix in table:
        before, now = (_READS[what](run) for run in (case.a, case.b))
        if before is not None and now is not None and is_worse(before, now):
            yield Cause(code, text, f"{what}: {before} before, and {now} now", fix and fix.format(before=before))


def _is_less(before: str, now: str) -> bool:
    return int(now) < int(before)


def _is_on(before: str, now: str) -> bool:
    return (before, now) == ("no", "yes")


_OF_LINK = (
    Worse(
        "payload",
        "payload, bytes",
        _is_less,
        "Packets carry fewer bytes than before: headers take more of the link.",
        "set MaxPayload to {before} in the firmware, or start the kernel with pci=pcie_bus_perf",
    ),
    Worse(
        "read-request",
        "read request, bytes",
        _is_less,
        "The device requests fewer bytes at once than before: copies to it wait more often.",
        "set MaxReadRequest to {before} in the firmware",
    ),
    Worse(
        "relaxed-ordering",
        "relaxed ordering",
        lambda before, now: (before, now) == ("yes", "no"),
        "Relaxed ordering has been switched off.",
        "enable PCIe relaxed ordering in the firmware",
    ),
    Worse(
        "iommu",
        "IOMMU",
        lambda before, now: before != now and not is_untranslated(now),
        "The IOMMU translates addresses in another way than before, which costs small copies the most.",
        "if nothing needs translation for this device, start the kernel with iommu=pt",
    ),
)
_OF_DEVICE = (
    Worse(
        "confidential",
        "confidential computing",
        _is_on,
        "Confidential computing is on, and was off: every copy is encrypted and staged.",
        "switch it off if it is not needed",
    ),
    Worse("mig", "MIG", _is_on, "The device is a MIG instance, and was the whole GPU."),
    Worse(
        "virtual-machine",
        "virtual machine",
        lambda before, now: before == "none" != now,
        "This is a virtual machine, which it was not before.",
    ),
)
_OF_PAGEABLE = (
    Worse(
        "governor",
        "CPU governor",
        operator.ne,
        "The CPU governor has changed; the processors copy pageable memory.",
        "cpupower frequency-set -g {before}",
    ),
    Worse(
        "fewer-processors",
        "processors usable",
        _is_less,
        "This process may use fewer processors than before; they copy pageable memory.",
        "check the limits of the container or the job",
    ),
    Worse(
        "huge-pages",
        "transparent huge pages",
        operator.ne,
        "The setting of transparent huge pages has changed: smaller pages make pageable copies slower.",
        "echo {before} > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    Worse(
        "memory-modules",
        "memory, GiB",
        _is_less,
        "The host has less memory than before: a missing module also removes a channel.",
        "check the memory modules (dmidecode, edac-util) and the container's limit",
    ),
)
_VERSIONS = tuple(
    Worse(
        of,
        of,
        operator.ne,
        f"The {of} has changed, which may or may not be the cause.",
        f"measure with {of} {{before}} again to find out",
    )
    for of in ("driver", "kernel", "pyxfer")
)
