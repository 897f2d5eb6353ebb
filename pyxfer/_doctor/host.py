"""The host around the device: address translation, memory settings, and the limits of its container."""

from __future__ import annotations

from pyxfer._doctor.case import SIDES, Case, Findings, best, fine, first_reason, untold
from pyxfer._document.examinations import Bound, FarRates, Finding, Status
from pyxfer._document.runs import Placement
from pyxfer._machine.environment import UNTRANSLATED
from pyxfer._machine.nvml import throttled_by
from pyxfer.units import format_gbps, format_percent, format_size

_BY_HARDWARE = ("hardware slowdown", "hardware thermal slowdown", "hardware power brake")
_ALL_ITS_OWN = "what others copy or compute at the same time lowers every figure"


def throttling(case: Case) -> Findings:
    """What held the clocks down before or after the copies."""
    taken = [each for each in (case.run.environment, case.run.environment_after) if each is not None]
    expected = "nothing that holds the GPU's clocks down"
    if all(each.throttle_reasons.value is None for each in taken):
        yield untold("throttling", "throttling", expected, case.run.environment.throttle_reasons.reason)
        return
    reasons = list(dict.fromkeys(reason for each in taken for reason in throttled_by(each)))
    if not reasons:
        yield fine(
            "throttling", "throttling", "none, before and after the copies", expected, "a cool GPU keeps its clocks"
        )
        return
    why = "the hardware itself slows the GPU down, which is too hot or short of power"
    do = "see nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; check cooling and power supply"
    hard = any(reason in _BY_HARDWARE for reason in reasons)
    if not hard:
        why = "copies seldom suffer from this, computing does"
    seen = f"the clocks were held down: {', '.join(reasons)}"
    yield Finding(
        *("throttling", "throttling", "wrong" if hard else "suspicious", seen, expected, why),
        *("certain" if hard else "possible", do),
    )


def persistence(case: Case) -> Findings:
    """Whether the driver keeps the GPU ready while nobody uses it."""
    mode, expected = case.run.environment.persistence, "persistence mode on"
    if mode.value is None:
        yield untold("persistence", "persistence", expected, mode.reason)
    elif mode.value:
        why = "the driver keeps the GPU ready while nobody uses it"
        yield fine("persistence", "persistence", "persistence mode is on", expected, why)
    else:
        why = "with its last user the driver shuts the GPU down: the next one waits seconds, and counters begin anew"
        do = "run nvidia-persistenced, or nvidia-smi -pm 1"
        seen = "persistence mode is off"
        yield Finding("persistence", "persistence", "suspicious", seen, expected, why, "certain", do)


def sharing(case: Case) -> Findings:
    """Other processes on the device, and whether the device is a part of one."""
    others, expected = case.run.environment.other_gpu_processes, "the GPU to itself while it is measured"
    contended = [remark.text for remark in case.run.remarks if remark.code == "contended"]
    if others.value is None and not contended:
        yield untold("sharing", "other users", expected, others.reason)
    elif others.value or contended:
        pids = ", ".join(map(str, others.value or ()))
        seen = contended[0].rstrip(".") if contended else f"other processes use it: {pids}"
        do = "end them, or measure when they are idle"
        yield Finding("sharing", "other users", "suspicious", seen, expected, _ALL_ITS_OWN, "likely", do)
    else:
        yield fine("sharing", "other users", "no other process uses the GPU", expected, _ALL_ITS_OWN)


def parts(case: Case) -> Findings:
    """A MIG instance or a vGPU has a share of a link; an encrypted one pays for it. Neither is a fault."""
    device = case.run.device
    expected = "to be told, for it belongs to every figure"
    if device.mig.value or device.vgpu.value:
        kind = "a MIG instance" if device.mig.value else "a vGPU"
        why = "its link is shared with all others on the same GPU"
        yield fine("part-of-gpu", "part of a GPU", f"the device is {kind}", expected, why)
    if device.confidential.value:
        why = "every copy is encrypted and passes through buffers of its own, which costs most of the bandwidth"
        yield fine("confidential", "confidential", "confidential computing is on", expected, why)


def device_memory(case: Case) -> Findings:
    """Errors of the device's own memory."""
    if case.health is None:
        return
    state, expected = case.health.device_memory, "no error that could not be corrected, no row that waits or failed"
    facts = (state.uncorrected, state.remap_pending, state.remap_failed)
    if all(fact.value is None for fact in facts):
        yield untold("device-memory", "device memory", expected, first_reason(state.uncorrected))
        return
    count = state.uncorrected.value
    if state.remap_failed.value or count:
        failed = "a bad row could not be replaced" if state.remap_failed.value else f"{count} errors not corrected"
        why = "what lies in bad memory is lost, and programs that use it are ended"
        do = "reset the GPU or start the host anew; if it comes back, have it exchanged (nvidia-smi -q -d ECC)"
        yield Finding("device-memory", "device memory", "wrong", failed, expected, why, "certain", do)
    elif state.remap_pending.value:
        why = "the row is replaced when the GPU is next reset"
        do = "reset the GPU (nvidia-smi -r) when nobody uses it"
        seen = "a bad row waits to be replaced"
        yield Finding("device-memory", "device memory", "suspicious", seen, expected, why, "certain", do)
    else:
        why = "counted since the driver was loaded"
        yield fine("device-memory", "device memory", "no error that could not be corrected", expected, why)


NEAR_SHARE = 0.99
FAR_FASTER = 1.03
FAR_LEAST = 0.5
_POOR = 0.90


def share_of_pages_near(placement: Placement) -> float | None:
    """How much of the memory that was looked at lay on the device's node; None where that is not known."""
    pages, node = placement.pages_by_node.value, placement.device_node.value
    placed = {name: count for name, count in (pages or {}).items() if name.isdecimal()}
    if node is None or not sum(placed.values()):
        return None
    return placed.get(str(node), 0) / sum(placed.values())


def numa_memory(case: Case) -> Findings:
    """Whether the memory that was measured lay where the device is."""
    placement = case.run.placement
    near, node = share_of_pages_near(placement), placement.device_node.value
    expected = "memory on the NUMA node that the device hangs on"
    if near is None:
        reason = placement.device_node.reason or placement.pages_by_node.reason
        yield untold("numa-memory", "NUMA memory", expected, reason)
        return
    seen = f"{format_percent(near)} of it on node {node}, the device's"
    if near >= NEAR_SHARE:
        why = "what lies on another node crosses from one socket to the other first"
        yield fine("numa-memory", "NUMA memory", seen, expected, why, case.read)
        return
    why = "copies cross from one socket to the other first"
    if placement.cpus.reason is not None:
        why += f"; {placement.cpus.reason}"
    do = f"run near the device: numactl --cpunodebind={node} --membind={node}, or give the container these CPUs"
    status: Status = "wrong" if _is_slow(case) else "suspicious"
    yield Finding("numa-memory", "NUMA memory", status, seen, expected, why, case.read, do)


def processors(case: Case) -> Findings:
    """Whether this process may run near the device at all."""
    count, node = (None if case.health is None else case.health.cpus_near), case.run.placement.device_node.value
    if count is None:
        return
    expected = "processors on the device's NUMA node among those allowed here"
    if count.value is None:
        yield untold("numa-processors", "NUMA processors", expected, count.reason)
    elif count.value:
        why = "they reach the device and its memory the shortest way"
        seen = f"{count.value} usable on node {node}, the device's"
        yield fine("numa-processors", "NUMA processors", seen, expected, why, case.read)
    else:
        why = "whatever this process does for its copies, it does from another socket"
        do = f"let the container or the scheduler give it processors of node {node} (cpuset)"
        seen = f"none usable on node {node}, the device's"
        yield Finding("numa-processors", "NUMA processors", "suspicious", seen, expected, why, case.read, do)


def far_memory(case: Case) -> Findings:
    """What memory of another node reaches, against the device's own."""
    if case.health is None:
        return
    expected = "the device's own node to be the nearest"
    far = case.health.far.value
    if far is None:
        yield untold("numa-far", "NUMA far memory", expected, case.health.far.reason)
        return
    yield _far(case, far, expected)


def _far(case: Case, far: FarRates, expected: str) -> Finding:
    shares = {side: far.far_gbps[side] / far.near_gbps[side] for side in SIDES if _both_known(far, side)}
    if not shares:
        return untold("numa-far", "NUMA far memory", expected, "neither node gave figures in both places")
    told = ", ".join(f"{side} {format_percent(share)}" for side, share in shares.items())
    seen = f"node {far.far_node} reaches {told} of node {far.near_node} at {format_size(far.nbytes)}"
    if max(shares.values()) > FAR_FASTER:
        why = f"the firmware names node {far.near_node} for the device, and node {far.far_node} is the nearer one"
        do = "correct the firmware's or the virtual machine's NUMA table; until then bind to the faster node"
        return Finding("numa-far", "NUMA far memory", "wrong", seen, expected, why, "likely", do)
    if min(shares.values()) < FAR_LEAST:
        rates = ", ".join(format_gbps(rate) for rate in far.far_gbps.values())
        why = f"the sockets' own link carries {rates}, less than half of the device's"
        do = f"keep memory on node {far.near_node}; see whether all links between the sockets are up"
        return Finding("numa-far", "NUMA far memory", "suspicious", seen, expected, why, "possible", do)
    why = "memory of another node crosses from one socket to the other first"
    return fine("numa-far", "NUMA far memory", seen, expected, why, "certain", f"keep memory on node {far.near_node}")


def _both_known(far: FarRates, side: str) -> bool:
    return bool(far.near_gbps.get(side)) and side in far.far_gbps


def _is_slow(case: Case) -> bool:
    found = (best(case.run, side) for side in SIDES)
    shares = [each.of_peak for each in found if each is not None and each.of_peak is not None]
    return any(share < _POOR for share in shares)


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
