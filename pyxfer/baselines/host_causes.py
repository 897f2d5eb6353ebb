"""Why copies have become slow, as far as the host, the device and its other users say."""

from __future__ import annotations

from collections.abc import Iterator

from pyxfer.baselines.case import LARGE_BYTES, Case, lost_text
from pyxfer.baselines.differences import most_pages_on, throttle_reasons
from pyxfer.machine.throttling import IDLE
from pyxfer.model import Environment, Run
from pyxfer.model_baselines import Cause

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
