"""The host around the device: address translation, memory settings, and the limits of its container."""

from __future__ import annotations

from pyxfer.examining.case import SIDES, Case, Findings, best, fine, untold
from pyxfer.machine.iommu import UNTRANSLATED
from pyxfer.model_findings import Bound, Finding
from pyxfer.units import format_size

FINE_SHARE = 0.90
LEAST_LOCKED_BYTES = 64 << 20
LEAST_MEMORY_BYTES = 8 << 30
LEAST_CPUS = 4.0
LEAST_SHARED_BYTES = 1 << 30

_UNTRANSLATE = "start the kernel with iommu=pt, if nothing on this host needs the translation"


def iommu(case: Case) -> Findings:
    """Whether the device's addresses are translated, and whether that shows in what was measured."""
    if case.health is None:
        return
    kind, expected = (
        case.health.iommu,
        "addresses that go through as they are (iommu=pt), or a peak reached all the same",
    )
    if kind.value is None:
        yield untold("iommu", "IOMMU", expected, kind.reason)
    elif kind.value in UNTRANSLATED:
        seen = "none in use" if kind.value == "none" else "the device's addresses go through as they are"
        seen += ", as this virtual machine shows it" if case.is_virtual else ""
        yield fine("iommu", "IOMMU", seen, expected, "every translation that is not cached costs a walk", case.read)
    elif _reaches_peak(case):
        why = (
            "large page-locked copies reach their peak all the same; small ones, and page-locking itself, may cost more"
        )
        yield fine(
            "iommu", "IOMMU", f"translates the device's addresses (domain {kind.value})", expected, why, "likely"
        )
    else:
        seen = f"translates the device's addresses (domain {kind.value})"
        why = "every translation that is not cached costs a walk, and a new kernel may have changed the default"
        yield Finding("iommu", "IOMMU", "suspicious", seen, expected, why, "possible", _UNTRANSLATE)


def _reaches_peak(case: Case) -> bool:
    """Whether every side that was measured large enough to tell is within what counts as fine."""
    found = [best(case.run, side) for side in SIDES]
    shares = [each.of_peak for each in found if each is not None and each.of_peak is not None]
    return bool(shares) and min(shares) >= FINE_SHARE


def access_control(case: Case) -> Findings:
    """Whether ports send what goes from device to device up to the root."""
    if case.health is None or case.run.link.kind != "pcie":
        return
    ports, expected = case.health.ports[1:], "no port that sends copies between two devices up to the root (ACS)"
    redirecting = [port.pci for port in ports if port.redirects.value]
    missing = [port.redirects.reason for port in ports if port.redirects.value is None]
    if redirecting and case.health.devices > 1:
        seen = f"ACS redirects at {', '.join(redirecting)}"
        why = "copies from GPU to GPU below one switch go up to the root and back; those to the host do not suffer"
        do = "switch ACS off in the firmware, unless devices are handed to virtual machines (pci=disable_acs_redir=...)"
        yield Finding("acs", "ACS", "suspicious", seen, expected, why, "likely", do)
    elif missing:
        yield untold("acs", "ACS", expected, missing[0], "run pyxfer doctor as root to have it read")
    elif not ports:
        yield untold("acs", "ACS", expected, "no port above the device is shown here")
    else:
        seen = "no port redirects" if not redirecting else "it redirects, and there is one device alone"
        yield fine("acs", "ACS", seen, expected, "copies between devices may take the shortest way")


def huge_pages(case: Case) -> Findings:
    """Transparent huge pages, which page-locked copies need only where addresses are translated."""
    mode, expected = case.run.environment.transparent_huge_pages, "always or madvise"
    kind = None if case.health is None else case.health.iommu.value
    if mode.value is None:
        yield untold("huge-pages", "huge pages", expected, mode.reason)
    elif mode.value == "never" and kind is not None and kind not in UNTRANSLATED:
        why = "each 4 KiB of page-locked memory needs a translation of its own, which locking and copying wait for"
        do = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        seen = "transparent huge pages are never used"
        yield Finding("huge-pages", "huge pages", "suspicious", seen, expected, why, "possible", do)
    else:
        why = "without a translating IOMMU the size of pages costs a copy nothing, and page-locking little"
        yield fine("huge-pages", "huge pages", f"transparent huge pages: {mode.value}", expected, why, "likely")


def lock_limit(case: Case) -> Findings:
    """The limit for locked memory, against what could be page-locked all the same."""
    if case.health is None:
        return
    limit, expected = case.health.lock_limit_bytes, "no limit, or page-locking that works beyond it"
    if limit.value is None:
        yield untold("lock-limit", "lock limit", expected, limit.reason)
    elif limit.value.most is None:
        yield fine("lock-limit", "lock limit", "none (ulimit -l unlimited)", expected, "nothing bounds what is locked")
    else:
        yield _bounded_locking(case, limit.value.most, expected)


def _bounded_locking(case: Case, most: float, expected: str) -> Finding:
    locked = max((each.nbytes for each in case.run.measurements if _is_locked(each.memory, each.gbps)), default=0)
    if not case.has_link:
        why = "without a GPU nothing is page-locked here"
        return fine("lock-limit", "lock limit", f"ulimit -l is {format_size(most)}", expected, why, "possible")
    failed = [each.rate.reason for each in case.run.measurements if _is_locked(each.memory, 1.0) and each.gbps is None]
    seen = f"ulimit -l is {format_size(most)}"
    do = "raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, or LimitMEMLOCK=infinity in the service"
    if failed and most < LEAST_LOCKED_BYTES and not locked:
        why = f"page-locking failed here: {failed[0]}"
        return Finding("lock-limit", "lock limit", "wrong", seen, expected, why, "possible", do)
    if locked > most:
        told = f"{seen}, and {format_size(locked)} were page-locked all the same"
        why = (
            "the driver's own locking is not counted; RDMA and mlock are, so NCCL across hosts may still need it raised"
        )
        return fine("lock-limit", "lock limit", told, expected, why)
    if most >= LEAST_LOCKED_BYTES:
        return fine("lock-limit", "lock limit", seen, expected, "that is more than was asked for", "likely")
    why = "the driver's own locking is seldom counted, but RDMA and mlock are, and fail beyond it"
    return Finding("lock-limit", "lock limit", "suspicious", seen, expected, why, "possible", do)


def _is_locked(memory: str, gbps: float | None) -> bool:
    return memory in ("pinned", "registered", "write-combined") and gbps is not None


def container(case: Case) -> Findings:
    """Memory and processors that control groups leave this process."""
    if case.health is None:
        return
    memory, cpus = case.health.memory_limit_bytes.value, case.health.cpu_limit.value
    expected = f"at least {format_size(LEAST_MEMORY_BYTES)} and the time of {LEAST_CPUS:g} processors"
    if memory is None or cpus is None:
        reason = case.health.memory_limit_bytes.reason or case.health.cpu_limit.reason
        yield untold("container", "container", expected, reason)
        return
    kind = case.run.environment.container.value
    seen = f"{'none' if kind in (None, 'none') else kind}, {_limits_text(memory, cpus)}"
    short = [
        *(["page-locked memory counts against it"] if (memory.most or LEAST_MEMORY_BYTES) < LEAST_MEMORY_BYTES else []),
        *(["threads that stage copies are made to wait"] if (cpus.most or LEAST_CPUS) < LEAST_CPUS else []),
    ]
    if short:
        do = "give the container more (docker run --memory, --cpus; Kubernetes resources.limits)"
        yield Finding("container", "container", "suspicious", seen, expected, "; ".join(short), "likely", do)
    else:
        yield fine("container", "container", seen, expected, "staging takes several threads, and page-locked memory")


def _limits_text(memory: Bound, cpus: Bound) -> str:
    if memory.most is None and cpus.most is None:
        return "memory and processors not limited"
    most = "memory not limited" if memory.most is None else f"memory limited to {_gib(memory.most)}"
    return f"{most}, processors {'not limited' if cpus.most is None else f'limited to {cpus.most:g}'}"


def shared_memory(case: Case) -> Findings:
    """The size of /dev/shm, through which the workers of a data loader hand over their batches."""
    if case.health is None:
        return
    size, expected = case.health.shared_memory_bytes, f"at least {format_size(LEAST_SHARED_BYTES)} in /dev/shm"
    why = "the workers of data loaders hand over their batches in it"
    if size.value is None:
        yield untold("shared-memory", "shared memory", expected, size.reason)
    elif size.value < LEAST_SHARED_BYTES:
        do = "make it larger: docker run --shm-size=8g, or --ipc=host; in Kubernetes an emptyDir of medium Memory"
        seen = f"{format_size(size.value)} in /dev/shm"
        yield Finding("shared-memory", "shared memory", "suspicious", seen, expected, why, "likely", do)
    else:
        yield fine("shared-memory", "shared memory", f"{_gib(size.value)} in /dev/shm", expected, why)


def _gib(nbytes: float) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"


def virtual_machine(case: Case) -> Findings:
    """Whether a hypervisor stands between what is read and what is there. No fault, but to be known."""
    found, expected = case.run.environment.virtual_machine, "to be told, for it bears on what is read of the link"
    if found.value is None:
        yield untold("virtual-machine", "virtual machine", expected, found.reason)
    elif case.is_virtual:
        seen = f"this is a virtual machine ({found.value})"
        why = "the hypervisor may make up the link's state, hide the ports above it, and show one NUMA node of many"
        yield fine("virtual-machine", "virtual machine", seen, expected, why)
    else:
        yield fine("virtual-machine", "virtual machine", "none: this is bare metal", expected, "what is read is there")
