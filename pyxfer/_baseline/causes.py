"""What is likely to have made it slow, the surest first, each with what was seen. Without evidence nothing is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from pyxfer._document.baselines import Cause, CellComparison, Comparison, Difference
from pyxfer._document.runs import Environment, Fact, LinkState, Placement, Run
from pyxfer._machine.environment import is_untranslated
from pyxfer._machine.link import describe
from pyxfer._machine.nvml import IDLE
from pyxfer._machine.pci import GIGATRANSFERS, carries_gbps
from pyxfer.units import format_gbps, format_percent

LARGE_BYTES = 4 * 1024**2
"""From here on the rate of the link decides, and below it what a copy costs before its first byte."""
LOCKED = ("pinned", "registered", "write-combined")


@dataclass(frozen=True)
class Case:
    """A comparison with something slow in it."""

    a: Run
    b: Run
    b_runs: tuple[Run, ...]
    cells: tuple[CellComparison, ...]

    @classmethod
    def of(cls, a: Sequence[Run], b: Sequence[Run], cells: Iterable[CellComparison]) -> Case:
        """The last run of each side stands for its machine; what could not be compared says nothing here."""
        return cls(a[-1], b[-1], tuple(b), tuple(cell for cell in cells if cell.ratio.value is not None))

    @property
    def has_link(self) -> bool:
        """Whether anything crossed one; host memory alone was measured otherwise."""
        return self.b.runtime != "host"

    @property
    def slow(self) -> tuple[CellComparison, ...]:
        """The cells that are slow."""
        return tuple(cell for cell in self.cells if cell.verdict == "SLOW")

    def slow_among(self, *, locked: bool) -> tuple[CellComparison, ...]:
        """The slow ones of page-locked, or else of other memory."""
        return tuple(cell for cell in self.slow if (cell.cell.memory in LOCKED) == locked)

    def has_not_slow(self, *, locked: bool) -> bool:
        """Whether some of this memory were compared, and none of them is slow."""
        kind = [cell for cell in self.cells if (cell.cell.memory in LOCKED) == locked]
        return bool(kind) and all(cell.verdict in ("SAME", "FAST") for cell in kind)


def lost_text(cells: Sequence[CellComparison]) -> str:
    """How much of the bandwidth these cells have lost: `48.0 %`, or `4.1 % to 48.0 %`."""
    lost = sorted(1 - 1 / (cell.ratio.value or 1.0) for cell in cells)
    ends = format_percent(lost[0]), format_percent(lost[-1])
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


_MEETING = "contended"
_GIB = 1024**3


def host_causes(case: Case) -> Iterator[Cause]:
    """The surest first."""
    yield from _remote_memory(case)
    yield from _company(case)
    yield from _held_back(case)
    yield from _protection(case)
    if case.slow_among(locked=False):
        yield from _processor(case)
        yield from _memory(case)


def software_causes(case: Case) -> Iterator[Cause]:
    """What was exchanged in between, and may or may not be to blame."""
    a, b = case.a.environment, case.b.environment
    for code, name, before, now in (
        ("driver", "driver", a.driver.value, b.driver.value),
        ("kernel", "kernel", a.kernel, b.kernel),
        ("pyxfer", "pyxfer", a.pyxfer, b.pyxfer),
    ):
        if before and now and before != now:
            yield Cause(
                code,
                f"The {name} is another one, which may or may not be why: {now}, and it was {before}.",
                "the environments of both sides; nothing else says that it is to blame",
                f"measure with the {name} of before to know",
            )


def pattern_causes(case: Case) -> Iterator[Cause]:
    """What the slow cells have in common, where that says something."""
    slow = case.slow
    others = [row for row in case.cells if row.verdict in ("SAME", "FAST")]
    if case.has_not_slow(locked=True) and case.slow_among(locked=False):
        yield Cause(
            "host-side",
            "Only copies of pageable memory are slow, and page-locked memory is as fast as before: it is the host's "
            f"processors or memory{', and not the link' if case.has_link else ''}.",
            f"pageable memory has lost {lost_text(case.slow_among(locked=False))}",
            "see what else runs on the host, which node the process runs on, and whether a memory module is gone",
        )
    directions = {row.cell.direction for row in slow}
    elsewhere = [row.verdict for row in case.cells if row.cell.direction not in directions]
    of_one = len(directions) == 1 and bool(elsewhere) and case.has_link
    if of_one and all(verdict in ("SAME", "FAST") for verdict in elsewhere):
        direction = next(iter(directions))
        yield Cause(
            "one-direction",
            f"Only {direction} is slow, so the link is not simply trained lower, which would slow both directions.",
            f"{direction} has lost {lost_text(slow)}; no other has",
        )
    if all(row.cell.nbytes < LARGE_BYTES for row in slow) and any(row.cell.nbytes >= LARGE_BYTES for row in others):
        yield Cause(
            "fixed-cost",
            "Only small copies are slow: what a copy costs before its first byte has grown, and the rate has not sunk.",
            f"copies below {LARGE_BYTES // 1024**2} MiB have lost {lost_text(slow)}",
            "look at power saving (C-states, ASPM, the CPU governor) and at the IOMMU"
            if case.has_link
            else "look at power saving (C-states, the CPU governor)",
        )


def _remote_memory(case: Case) -> Iterator[Cause]:
    node, was = case.b.placement.device_node.value, most_pages_on(case.a.placement)
    lies = most_pages_on(case.b.placement)
    if node is None or lies is None or lies in (node, was):
        return
    before = "" if was is None else f"; it lay on node {was}"
    yield Cause(
        "remote-node",
        f"The host's memory lies on NUMA node {lies}, and the GPU is at node {node}: every byte crosses between the "
        "processors.",
        f"where the pages of the measured buffers really lay{before}",
        f"run on the GPU's node: numactl --cpunodebind={node} --membind={node}; a container must be allowed to",
    )


def _company(case: Case) -> Iterator[Cause]:
    if any(remark.code == _MEETING for run in case.b_runs for remark in run.remarks):
        yield Cause(
            "contended",
            "Another pyxfer measured this device at the same time.",
            "both were seen while measuring",
            "measure again when it has ended",
        )
    before, now = _others(case.a), sorted({pid for run in case.b_runs for pid in _others(run)})
    if now and len(now) > len(before):
        yield Cause(
            "other-processes",
            f"Other processes use this GPU: {', '.join(map(str, now))}; there were {len(before) or 'none'} before.",
            "the driver's list of processes",
            "end them, or measure when they are idle",
        )


def _others(run: Run) -> tuple[int, ...]:
    return run.environment.other_gpu_processes.value or ()


def _held_back(case: Case) -> Iterator[Cause]:
    before = set(throttle_reasons(case.a))
    reasons = {reason for run in case.b_runs for reason in throttle_reasons(run)} - before - {IDLE}
    if reasons:
        yield Cause(
            "throttled",
            f"The GPU's clocks are held back: {', '.join(sorted(reasons))}.",
            "what the driver says of its clocks, before or after measuring",
            "see nvidia-smi -q -d PERFORMANCE; look at cooling, power supply and power limit",
        )


def _protection(case: Case) -> Iterator[Cause]:
    a, b = case.a, case.b
    if b.device.confidential.value and a.device.confidential.value is False:
        yield Cause(
            "confidential",
            "Confidential computing is on, and was off: every copy is encrypted and staged.",
            "the driver's word",
            "switch it off where it is not needed",
        )
    if b.device.mig.value and a.device.mig.value is False:
        yield Cause("mig", "The device is a MIG instance, and was the whole GPU.", "the driver's word")
    if b.environment.virtual_machine.value and a.environment.virtual_machine.value is None:
        yield Cause(
            "virtual-machine",
            f"This is a virtual machine ({b.environment.virtual_machine.value}), which it was not before.",
            "what the processor says of itself",
        )


def _processor(case: Case) -> Iterator[Cause]:
    a, b = case.a.environment, case.b.environment
    governors = a.cpu_governor.value, b.cpu_governor.value
    if all(governors) and governors[0] != governors[1]:
        yield Cause(
            "governor",
            f"The CPU governor is {governors[1]}, and was {governors[0]}; pageable memory is copied by the processors.",
            "scaling_governor of the usable processors",
            f"cpupower frequency-set -g {(governors[0] or '').partition(',')[0]}",
        )
    if b.cpus_usable < a.cpus_usable:
        yield Cause(
            "fewer-processors",
            f"Only {b.cpus_usable} processors may be used, and {a.cpus_usable} could be; they copy pageable memory.",
            "the process's CPU affinity",
            "look at the limits of the container or the job",
        )


def _memory(case: Case) -> Iterator[Cause]:
    a, b = case.a.environment, case.b.environment
    pages = a.transparent_huge_pages.value, b.transparent_huge_pages.value
    if all(pages) and pages[0] != pages[1]:
        yield Cause(
            "huge-pages",
            f"Transparent huge pages are {pages[1]}, and were {pages[0]}: smaller pages cost pageable copies more.",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            f"echo {pages[0]} > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if _gib(b) < _gib(a):
        yield Cause(
            "memory-modules",
            f"The host has {_gib(b)} GiB of memory, and had {_gib(a)}: with a module gone a channel is gone too.",
            "the memory that the host says it has, or that the container may use",
            "look at the memory modules (dmidecode, edac-util) and the container's limit",
        )


def _gib(environment: Environment) -> int:
    return round((environment.memory_bytes.value or 0) / _GIB)


RESEAT = "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"
_WIDTHS = (16, 8, 4, 2, 1)
_LEAST_SHARE = 0.8
"""A copy of page-locked memory reaches at least so much of what its link carries."""
_IOMMU_FIX = "if nothing needs translation for this device, start the kernel with iommu=pt"


def link_causes(case: Case) -> Iterator[Cause]:
    """The surest first."""
    trained = list(_trained_lower(case))
    yield from trained
    if not trained:
        yield from _like_a_lesser_link(case)
    yield from _narrower_hop(case)
    yield from _smaller_packets(case)
    yield from _translation(case)


def _trained_lower(case: Case) -> Iterator[Cause]:
    """Less than before; or where nothing is known of before, less than device and slot can do."""
    now = case.b.link.under_load.value
    if now is None:
        now = _narrow_even_idle(case)
    before = link_state(case.a).value
    known = before is not None
    if before is None:
        before = case.b.link.system_most.value or case.b.link.device_most.value
    if now is None or before is None or carries_gbps(now) >= carries_gbps(before):
        return
    was = f"it was {describe(before)}" if known else f"device and slot can do {describe(before)}"
    share = format_percent(carries_gbps(now) / carries_gbps(before))
    code = "link-narrow" if now.width < before.width else "link-slow"
    text = f"The link is trained at {describe(now)}, and {was}: it carries {share} of that."
    seen = "under load" if case.b.link.under_load.value is not None else "idle; a link keeps its width when it idles"
    yield Cause(code, text, f"the state of the link, read {seen}", RESEAT)


def _narrow_even_idle(case: Case) -> LinkState | None:
    """An idle link may have lowered its generation, and never its width."""
    now, before = case.b.link.now.value, link_state(case.a).value
    if now is None or before is None or now.width >= before.width:
        return None
    return LinkState(before.generation, now.width)


def _like_a_lesser_link(case: Case) -> Iterator[Cause]:
    """Where the link's state cannot be read: its copies fit under the peak of a lesser one, and did not before."""
    full = link_state(case.a).value or case.a.link.system_most.value or case.a.link.device_most.value
    if case.b.link.under_load.value is not None or full is None or case.b.link.kind != "pcie":
        return
    large = [cell for cell in case.slow_among(locked=True) if _is_plain_and_large(cell)]
    for lesser in _lesser_states(full):
        if large and all(_fits_under(cell, carries_gbps(lesser[0])) for cell in large):
            names = " or ".join(map(describe, lesser))
            figures = " and ".join(
                f"{format_gbps(cell.b_gbps.value or 0.0)} {cell.cell.direction}" for cell in large[:2]
            )
            yield Cause(
                "link-lesser",
                f"The link copies like one that is trained at {names}, where it was {describe(full)}.",
                f"{figures} is at most what that carries ({format_gbps(carries_gbps(lesser[0]))}), and before it was "
                "more; the state under load could not be read",
                RESEAT,
            )
            return


def _is_plain_and_large(row: CellComparison) -> bool:
    return row.cell.direction in ("h2d", "d2h") and row.cell.nbytes >= LARGE_BYTES and row.a_gbps.value is not None


def _fits_under(row: CellComparison, peak_gbps: float) -> bool:
    before, now = row.a_gbps.value or 0.0, row.b_gbps.value or 0.0
    return _LEAST_SHARE * peak_gbps <= now <= peak_gbps < before


def _lesser_states(full: LinkState) -> list[list[LinkState]]:
    """What the link may have been trained at instead, states that carry the same together, the fastest first."""
    states = [LinkState(g, w) for g in sorted(GIGATRANSFERS, reverse=True) for w in _WIDTHS]
    lesser = [s for s in states if s.generation <= full.generation and s.width <= full.width and s != full]
    by_rate: dict[float, list[LinkState]] = {}
    for state in lesser:
        by_rate.setdefault(round(carries_gbps(state), 3), []).append(state)
    return [by_rate[rate] for rate in sorted(by_rate, reverse=True)]


def _narrower_hop(case: Case) -> Iterator[Cause]:
    before, now = case.a.link.narrowest_hop.value, case.b.link.narrowest_hop.value
    own = case.b.link.hops[0] if case.b.link.hops else None
    if before is None or now is None or now == own:
        return
    was, has = (hop.now.value or hop.most.value for hop in (before, now))
    if was is not None and has is not None and carries_gbps(has) < carries_gbps(was):
        yield Cause(
            "hop-narrow",
            f"A port above the device, {now.pci}, runs at {describe(has)}; the narrowest was {describe(was)}.",
            "the states of the links between the device and the processor",
            RESEAT,
        )


def _smaller_packets(case: Case) -> Iterator[Cause]:
    a, b = case.a.link, case.b.link
    before, now = a.max_payload_bytes.value, b.max_payload_bytes.value
    if before is not None and now is not None and now < before:
        yield Cause(
            "payload",
            f"Packets carry at most {now} bytes, and carried {before}: more of the link goes to their headers.",
            "MaxPayload in the device's configuration space",
            f"set MaxPayload to {before} in the firmware, or start the kernel with pci=pcie_bus_perf",
        )
    asked, asks = a.max_read_request_bytes.value, b.max_read_request_bytes.value
    if asked is not None and asks is not None and asks < asked:
        yield Cause(
            "read-request",
            f"The device asks for at most {asks} bytes at once, and asked for {asked}: copies to it wait more often.",
            "MaxReadRequest in the device's configuration space",
            f"set MaxReadRequest to {asked} in the firmware",
        )
    if a.relaxed_ordering.value and b.relaxed_ordering.value is False:
        yield Cause(
            "relaxed-ordering",
            "Relaxed ordering has been switched off.",
            "the device's configuration space",
            "enable PCIe relaxed ordering in the firmware",
        )


def _translation(case: Case) -> Iterator[Cause]:
    before, now = iommu_kind(case.a), iommu_kind(case.b)
    if before is None or now is None or before == now or is_untranslated(now):
        return
    yield Cause(
        "iommu",
        f"The IOMMU is set otherwise: {now}, and it was: {before}. Translated addresses cost most in small copies.",
        "the device's group in /sys and the kernel's command line",
        _IOMMU_FIX,
    )


T = TypeVar("T")

_GROUP = re.compile(r"\bgroup \d+, ")


def differences(a: Sequence[Run], b: Sequence[Run]) -> tuple[Difference, ...]:
    """All that is known of both sides and is not the same; what may cost bandwidth comes first."""
    found = []
    for what, matters, read in _ALL:
        one, other = _values(a, read), _values(b, read)
        if one and other and one != other:
            found.append(Difference(what, ", ".join(one), ", ".join(other), matters))
    return tuple(sorted(found, key=lambda difference: not difference.matters))


def link_state(run: Run) -> Fact[LinkState]:
    """The link as traffic has seen it, or else as it was before."""
    return run.link.under_load if run.link.under_load.value is not None else run.link.now


def most_pages_on(placement: Placement) -> int | None:
    """The NUMA node on which most of the host memory really lay; None where that is not known."""
    pages = placement.pages_by_node.value
    if pages:
        node = max(pages, key=lambda name: pages[name])
        return int(node) if node.isdecimal() and node.isascii() else None
    return placement.memory_node.value


def iommu_kind(run: Run) -> str | None:
    """Whether and how addresses are translated, without the number of the group, which a boot may change."""
    text = run.environment.iommu.value
    return None if text is None else _GROUP.sub("", text)


def throttle_reasons(run: Run) -> tuple[str, ...]:
    """Why the GPU's clocks were held back, before the run or after it."""
    environments = [each for each in (run.environment, run.environment_after) if each is not None]
    return tuple(dict.fromkeys(reason for each in environments for reason in each.throttle_reasons.value or ()))


def _values(runs: Sequence[Run], read: Callable[[Run], str | None]) -> tuple[str, ...]:
    """What the runs of one side have, each once; nothing where one of them does not know."""
    values = [read(run) for run in runs]
    return () if None in values else tuple(sorted({value for value in values if value is not None}))


def _fact(read: Callable[[Run], Fact[T]], say: Callable[[T], str] = str) -> Callable[[Run], str | None]:
    def value(run: Run) -> str | None:
        found = read(run).value
        return None if found is None else say(found)

    return value


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _state(state: LinkState) -> str:
    return f"PCIe {state.generation}.0 x{state.width}"


def _memory_node(run: Run) -> str | None:
    node = most_pages_on(run.placement)
    return None if node is None else str(node)


def _throttled(run: Run) -> str | None:
    if run.environment.throttle_reasons.value is None:
        return None
    return " and ".join(throttle_reasons(run)) or "none"


def _processes(numbers: tuple[int, ...]) -> str:
    return str(len(numbers)) if numbers else "none"


_ALL: tuple[tuple[str, bool, Callable[[Run], str | None]], ...] = (
    ("host", False, lambda run: run.environment.host),
    ("GPU", False, _fact(lambda run: run.device.uuid)),
    ("device", True, lambda run: run.device.name),
    ("slot (PCI address)", True, _fact(lambda run: run.device.pci)),
    ("link", True, _fact(link_state, _state)),
    ("most that the device can do", True, _fact(lambda run: run.link.device_most, _state)),
    ("most that the slot can do", True, _fact(lambda run: run.link.system_most, _state)),
    ("narrowest hop", True, _fact(lambda run: run.link.narrowest_hop, lambda hop: hop.pci)),
    ("payload, bytes", True, _fact(lambda run: run.link.max_payload_bytes)),
    ("read request, bytes", True, _fact(lambda run: run.link.max_read_request_bytes)),
    ("relaxed ordering", True, _fact(lambda run: run.link.relaxed_ordering, _yes_no)),
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
    ("other processes on the GPU", True, _fact(lambda run: run.environment.other_gpu_processes, _processes)),
    ("MIG", True, _fact(lambda run: run.device.mig, _yes_no)),
    ("vGPU", True, _fact(lambda run: run.device.vgpu, _yes_no)),
    ("confidential computing", True, _fact(lambda run: run.device.confidential, _yes_no)),
    ("virtual machine", True, _fact(lambda run: run.environment.virtual_machine)),
    ("persistence mode", True, _fact(lambda run: run.environment.persistence, _yes_no)),
    ("driver", True, _fact(lambda run: run.environment.driver)),
    ("CUDA of the runtime", True, lambda run: run.environment.cuda_runtime),
    ("kernel", True, lambda run: run.environment.kernel),
    ("pyxfer", True, lambda run: run.environment.pyxfer),
    ("container", False, _fact(lambda run: run.environment.container)),
    ("system", False, _fact(lambda run: run.environment.system)),
    ("NumPy", False, lambda run: run.environment.numpy),
    ("Python", False, lambda run: run.environment.python),
    ("precision asked for", False, lambda run: f"{run.parameters.precision * 100:g} %"),
    ("budget, s", False, lambda run: f"{run.parameters.budget_s:g}"),
)


def causes(a: Sequence[Run], b: Sequence[Run], cells: Iterable[CellComparison]) -> tuple[Cause, ...]:
    """Of what is slow in B against A; nothing where nothing is."""
    case = Case.of(a, b, cells)
    if not case.slow:
        return ()
    surest, patterns = (*link_causes(case), *host_causes(case)), tuple(pattern_causes(case))
    if surest:
        return (*surest, *patterns)
    exchanged = tuple(software_causes(case))
    return (*patterns, *exchanged) if exchanged else (*patterns, _unexplained(case))


def with_causes(comparison: Comparison, a: Sequence[Run], b: Sequence[Run]) -> Comparison:
    """The comparison with the causes of what is slow in it."""
    return msgspec.structs.replace(comparison, causes=causes(a, b, comparison.cells))


def _unexplained(case: Case) -> Cause:
    read, fix = "link, placement, clocks", "pyxfer doctor, what else uses the link (storage, network)"
    if not case.has_link:
        read, fix = "processors, memory, placement", "what else uses the host's memory and processors"
    return Cause(
        "unexplained",
        "Nothing that was read of the two sides has changed.",
        f"{read} and settings are as before, or could not be read; it has lost {lost_text(case.slow)}",
        f"see {fix}, and the kernel log",
    )
