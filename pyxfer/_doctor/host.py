"""Checks of the host around the link: clocks, other users, NUMA, address translation, memory settings, limits."""

from __future__ import annotations

from pyxfer._doctor.case import SIDES, Case, Findings, fine, first_reason, undetermined
from pyxfer._document.examinations import Bound, FarRates, Finding, Status
from pyxfer._document.machines import Placement
from pyxfer._machine.environment import UNTRANSLATED
from pyxfer._machine.nvml import throttled_by
from pyxfer.units import format_gbps, format_percent, format_size

NEAR_SHARE = 0.99
FAR_FASTER = 1.03
MIN_FAR_SHARE = 0.5
MIN_LOCKED_BYTES = 64 << 20
MIN_MEMORY_BYTES = 8 << 30
MIN_CPUS = 4.0
MIN_SHARED_BYTES = 1 << 30
_BY_HARDWARE = ("hardware slowdown", "hardware thermal slowdown", "hardware power brake")
_WHY_ALONE = "copies and kernels of others at the same time lower every figure"


def throttling(case: Case) -> Findings:
    environments = [each for each in (case.run.environment, case.run.environment_after) if each is not None]
    expected = "nothing that holds the GPU's clocks down"
    if all(environment.throttle_reasons.value is None for environment in environments):
        yield undetermined("throttling", "throttling", expected, case.run.environment.throttle_reasons.reason)
        return
    reasons = list(dict.fromkeys(reason for environment in environments for reason in throttled_by(environment)))
    if not reasons:
        yield fine(
            "throttling", "throttling", "none, before and after the copies", expected, "a cool GPU keeps its clocks"
        )
        return
    why = "the hardware slows the GPU down, because it is too hot or short of power"
    do = "see nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; check cooling and power supply"
    hard = any(reason in _BY_HARDWARE for reason in reasons)
    if not hard:
        why = "this slows kernels, and rarely copies"
    seen = f"the clocks were held down: {', '.join(reasons)}"
    yield Finding(
        *("throttling", "throttling", "wrong" if hard else "suspicious", seen, expected, why),
        *("certain" if hard else "possible", do),
    )


def persistence(case: Case) -> Findings:
    mode, expected = case.run.environment.persistence, "persistence mode on"
    if mode.value is None:
        yield undetermined("persistence", "persistence", expected, mode.reason)
    elif mode.value:
        why = "the driver keeps the GPU ready while it has no users"
        yield fine("persistence", "persistence", "persistence mode is on", expected, why)
    else:
        why = "the driver shuts the GPU down after its last user: the next one waits seconds, and counters are reset"
        do = "run nvidia-persistenced, or nvidia-smi -pm 1"
        seen = "persistence mode is off"
        yield Finding("persistence", "persistence", "suspicious", seen, expected, why, "certain", do)


def sharing(case: Case) -> Findings:
    others, expected = case.run.environment.other_gpu_processes, "no other user of the GPU while it is measured"
    contended = [remark.text for remark in case.run.remarks if remark.code == "contended"]
    if others.value is None and not contended:
        yield undetermined("sharing", "other users", expected, others.reason)
    elif others.value or contended:
        pids = ", ".join(map(str, others.value or ()))
        seen = contended[0].rstrip(".") if contended else f"other processes use it: {pids}"
        do = "end them, or measure when they are idle"
        yield Finding("sharing", "other users", "suspicious", seen, expected, _WHY_ALONE, "likely", do)
    else:
        yield fine("sharing", "other users", "no other process uses the GPU", expected, _WHY_ALONE)


def partial_device(case: Case) -> Findings:
    """MIG, vGPU and confidential computing lower the bandwidth, but are not faults."""
    device = case.run.device
    expected = "not a fault, but it affects every figure"
    if device.mig.value or device.vgpu.value:
        kind = "a MIG instance" if device.mig.value else "a vGPU"
        why = "it shares its link with all others on the same GPU"
        yield fine("part-of-gpu", "part of a GPU", f"the device is {kind}", expected, why)
    if device.confidential.value:
        why = "every copy is encrypted and staged, which costs most of the bandwidth"
        yield fine("confidential", "confidential", "confidential computing is on", expected, why)


def device_memory(case: Case) -> Findings:
    if case.health is None:
        return
    state, expected = case.health.device_memory, "no uncorrected error, and no bad row that is pending or failed"
    facts = (state.uncorrected, state.remap_pending, state.remap_failed)
    if all(fact.value is None for fact in facts):
        yield undetermined("device-memory", "device memory", expected, first_reason(state.uncorrected))
        return
    count = state.uncorrected.value
    if state.remap_failed.value or count:
        failed = "a bad row could not be replaced" if state.remap_failed.value else f"{count} errors not corrected"
        why = "the contents of bad memory are lost, and programs that use it are ended"
        do = "reset the GPU or restart the host; if the error returns, replace the GPU (nvidia-smi -q -d ECC)"
        yield Finding("device-memory", "device memory", "wrong", failed, expected, why, "certain", do)
    elif state.remap_pending.value:
        why = "the row is replaced at the next reset of the GPU"
        do = "reset the GPU (nvidia-smi -r) when it has no users"
        seen = "a bad row waits to be replaced"
        yield Finding("device-memory", "device memory", "suspicious", seen, expected, why, "certain", do)
    else:
        why = "counted since the driver was loaded"
        yield fine("device-memory", "device memory", "no error that could not be corrected", expected, why)


def share_of_pages_near(placement: Placement) -> float | None:
    """The share of the measured memory that is on the device's NUMA node; None if it is not known."""
    pages, node = placement.pages_by_node.value, placement.device_node.value
    placed = {name: count for name, count in (pages or {}).items() if name.isdecimal()}
    if node is None or not sum(placed.values()):
        return None
    return placed.get(str(node), 0) / sum(placed.values())


def numa_memory(case: Case) -> Findings:
    placement = case.run.placement
    near, node = share_of_pages_near(placement), placement.device_node.value
    expected = "memory on the device's NUMA node"
    if near is None:
        reason = placement.device_node.reason or placement.pages_by_node.reason
        yield undetermined("numa-memory", "NUMA memory", expected, reason)
        return
    seen = f"{format_percent(near)} of it on node {node}, the device's"
    if near >= NEAR_SHARE:
        why = "memory of another node must also cross between the sockets"
        yield fine("numa-memory", "NUMA memory", seen, expected, why, case.kernel_sureness)
        return
    why = "copies must also cross between the sockets"
    if placement.cpus.reason is not None:
        why += f"; {placement.cpus.reason}"
    do = f"run near the device: numactl --cpunodebind={node} --membind={node}, or give the container these CPUs"
    status: Status = "wrong" if set(case.statuses) - {"fine"} else "suspicious"
    yield Finding("numa-memory", "NUMA memory", status, seen, expected, why, case.kernel_sureness, do)


def processors(case: Case) -> Findings:
    count, node = (None if case.health is None else case.health.cpus_near), case.run.placement.device_node.value
    if count is None:
        return
    expected = "this process may use processors on the device's NUMA node"
    if count.value is None:
        yield undetermined("numa-processors", "NUMA processors", expected, count.reason)
    elif count.value:
        why = "they have the shortest way to the device and its memory"
        seen = f"{count.value} usable on node {node}, the device's"
        yield fine("numa-processors", "NUMA processors", seen, expected, why, case.kernel_sureness)
    else:
        why = "this process does all its work for copies on another socket"
        do = f"let the container or the scheduler give it processors of node {node} (cpuset)"
        seen = f"none usable on node {node}, the device's"
        yield Finding("numa-processors", "NUMA processors", "suspicious", seen, expected, why, case.kernel_sureness, do)


def far_memory(case: Case) -> Findings:
    """Compares copies from memory of another node with those from the device's own."""
    if case.health is None:
        return
    expected = "copies from the device's own node are the fastest"
    far = case.health.far.value
    if far is None:
        yield undetermined("numa-far", "NUMA far memory", expected, case.health.far.reason)
        return
    yield _far(case, far, expected)


def _far(case: Case, far: FarRates, expected: str) -> Finding:
    shares = {side: far.far_gbps[side] / far.near_gbps[side] for side in SIDES if _both_known(far, side)}
    if not shares:
        return undetermined("numa-far", "NUMA far memory", expected, "no direction was measured from both nodes")
    listed = ", ".join(f"{side} {format_percent(share)}" for side, share in shares.items())
    seen = f"node {far.far_node} reaches {listed} of node {far.near_node} at {format_size(far.nbytes)}"
    if max(shares.values()) > FAR_FASTER:
        why = f"the firmware names node {far.near_node} for the device, but node {far.far_node} is nearer to it"
        do = "correct the NUMA table of the firmware or the virtual machine; until then bind to the faster node"
        return Finding("numa-far", "NUMA far memory", "wrong", seen, expected, why, "likely", do)
    if min(shares.values()) < MIN_FAR_SHARE:
        rates = ", ".join(format_gbps(rate) for rate in far.far_gbps.values())
        why = f"the link between the sockets carries {rates}, less than half of the device's"
        do = f"keep memory on node {far.near_node}; check that all links between the sockets are up"
        return Finding("numa-far", "NUMA far memory", "suspicious", seen, expected, why, "possible", do)
    why = "memory of another node must also cross between the sockets"
    return fine("numa-far", "NUMA far memory", seen, expected, why, "certain", f"keep memory on node {far.near_node}")


def _both_known(far: FarRates, side: str) -> bool:
    return bool(far.near_gbps.get(side)) and side in far.far_gbps


def iommu(case: Case) -> Findings:
    if case.health is None:
        return
    kind, expected = case.health.iommu, "addresses that are not translated (iommu=pt), or copies that reach the peak"
    if kind.value is None:
        yield undetermined("iommu", "IOMMU", expected, kind.reason)
        return
    if kind.value in UNTRANSLATED:
        seen = "none in use" if kind.value == "none" else "the device's addresses are not translated"
        seen += ", as this virtual machine shows it" if case.is_virtual else ""
        why = "every translation that is not cached costs a walk of the page tables"
        yield fine("iommu", "IOMMU", seen, expected, why, case.kernel_sureness)
        return
    seen = f"translates the device's addresses (domain {kind.value})"
    if set(case.statuses) == {"fine"}:
        why = "large page-locked copies reach their peak; small ones, and page-locking itself, may be slower"
        yield fine("iommu", "IOMMU", seen, expected, why, "likely")
    else:
        why = "every translation that is not cached costs a walk, and a new kernel may have changed the default"
        do = "start the kernel with iommu=pt, if nothing on this host needs the translation"
        yield Finding("iommu", "IOMMU", "suspicious", seen, expected, why, "possible", do)


def access_control(case: Case) -> Findings:
    """Whether ports redirect copies between two devices to the root (ACS)."""
    if case.health is None or case.run.link.kind != "pcie":
        return
    ports, expected = case.health.ports[1:], "no port that sends copies between two devices to the root (ACS)"
    redirecting = [port.pci for port in ports if port.redirects.value]
    missing = [port.redirects.reason for port in ports if port.redirects.value is None]
    if redirecting and case.health.devices > 1:
        seen = f"ACS redirects at {', '.join(redirecting)}"
        why = "copies from GPU to GPU below one switch go to the root and back; copies to the host are not affected"
        do = "switch ACS off in the firmware, unless devices are passed to virtual machines (pci=disable_acs_redir=...)"
        yield Finding("acs", "ACS", "suspicious", seen, expected, why, "likely", do)
    elif missing:
        yield undetermined("acs", "ACS", expected, missing[0], "run pyxfer doctor as root, which can read it")
    elif not ports:
        yield undetermined("acs", "ACS", expected, "no port above the device is shown here")
    else:
        seen = "no port redirects" if not redirecting else "it redirects, and there is only one device"
        yield fine("acs", "ACS", seen, expected, "copies between devices can take the shortest way")


def huge_pages(case: Case) -> Findings:
    """Transparent huge pages, which page-locked copies need only if addresses are translated."""
    mode, expected = case.run.environment.transparent_huge_pages, "always or madvise"
    kind = None if case.health is None else case.health.iommu.value
    if mode.value is None:
        yield undetermined("huge-pages", "huge pages", expected, mode.reason)
    elif mode.value == "never" and kind is not None and kind not in UNTRANSLATED:
        why = "every 4 KiB of page-locked memory need a separate translation, which slows locking and copying"
        do = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        seen = "transparent huge pages are never used"
        yield Finding("huge-pages", "huge pages", "suspicious", seen, expected, why, "possible", do)
    else:
        why = "unless the IOMMU translates, the page size does not matter for copies, and little for page-locking"
        yield fine("huge-pages", "huge pages", f"transparent huge pages: {mode.value}", expected, why, "likely")


def lock_limit(case: Case) -> Findings:
    if case.health is None:
        return
    limit, expected = case.health.lock_limit_bytes, "no limit, or page-locking that works beyond it"
    if limit.value is None:
        yield undetermined("lock-limit", "lock limit", expected, limit.reason)
    elif limit.value.most is None:
        why = "locked memory is not limited"
        yield fine("lock-limit", "lock limit", "none (ulimit -l unlimited)", expected, why)
    else:
        yield _limited_locking(case, limit.value.most, expected)


def _limited_locking(case: Case, most: float, expected: str) -> Finding:
    seen = f"ulimit -l is {format_size(most)}"
    if not case.has_link:
        why = "without a GPU nothing is page-locked here"
        return fine("lock-limit", "lock limit", seen, expected, why, "possible")
    rows = [row for row in case.run.measurements if row.memory in ("pinned", "registered", "write-combined")]
    locked = max((row.nbytes for row in rows if row.gbps is not None), default=0)
    failed = [row.rate.reason for row in rows if row.gbps is None]
    do = "raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, or LimitMEMLOCK=infinity in the service"
    if failed and most < MIN_LOCKED_BYTES and not locked:
        why = f"page-locking failed here: {failed[0]}"
        return Finding("lock-limit", "lock limit", "wrong", seen, expected, why, "possible", do)
    if locked > most:
        seen = f"{seen}, but {format_size(locked)} could be page-locked"
        why = (
            "the limit does not count the driver's locking; it counts RDMA and mlock, which NCCL may need across hosts"
        )
        return fine("lock-limit", "lock limit", seen, expected, why)
    if most >= MIN_LOCKED_BYTES:
        return fine("lock-limit", "lock limit", seen, expected, "that is more than the run page-locked", "likely")
    why = "the limit rarely counts the driver's locking, but RDMA and mlock count and fail beyond it"
    return Finding("lock-limit", "lock limit", "suspicious", seen, expected, why, "possible", do)


def container(case: Case) -> Findings:
    """The limits of the control groups on memory and processors."""
    if case.health is None:
        return
    memory, cpus = case.health.memory_limit_bytes.value, case.health.cpu_limit.value
    expected = f"at least {format_size(MIN_MEMORY_BYTES)} and the time of {MIN_CPUS:g} processors"
    if memory is None or cpus is None:
        reason = case.health.memory_limit_bytes.reason or case.health.cpu_limit.reason
        yield undetermined("container", "container", expected, reason)
        return
    kind = case.run.environment.container.value
    seen = f"{'none' if kind in (None, 'none') else kind}, {_limits_text(memory, cpus)}"
    short = [
        *(["the limit counts page-locked memory"] if (memory.most or MIN_MEMORY_BYTES) < MIN_MEMORY_BYTES else []),
        *(["threads that stage copies have to wait"] if (cpus.most or MIN_CPUS) < MIN_CPUS else []),
    ]
    if short:
        do = "give the container more (docker run --memory, --cpus; Kubernetes resources.limits)"
        yield Finding("container", "container", "suspicious", seen, expected, "; ".join(short), "likely", do)
    else:
        yield fine("container", "container", seen, expected, "staging needs several threads and page-locked memory")


def _limits_text(memory: Bound, cpus: Bound) -> str:
    if memory.most is None and cpus.most is None:
        return "memory and processors not limited"
    most = "memory not limited" if memory.most is None else f"memory limited to {_gib(memory.most)}"
    return f"{most}, processors {'not limited' if cpus.most is None else f'limited to {cpus.most:g}'}"


def shared_memory(case: Case) -> Findings:
    if case.health is None:
        return
    size, expected = case.health.shared_memory_bytes, f"at least {format_size(MIN_SHARED_BYTES)} in /dev/shm"
    why = "the workers of data loaders pass their batches through it"
    if size.value is None:
        yield undetermined("shared-memory", "shared memory", expected, size.reason)
    elif size.value < MIN_SHARED_BYTES:
        do = "increase it: docker run --shm-size=8g, or --ipc=host; in Kubernetes an emptyDir of medium Memory"
        seen = f"{format_size(size.value)} in /dev/shm"
        yield Finding("shared-memory", "shared memory", "suspicious", seen, expected, why, "likely", do)
    else:
        yield fine("shared-memory", "shared memory", f"{_gib(size.value)} in /dev/shm", expected, why)


def _gib(nbytes: float) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"


def virtual_machine(case: Case) -> Findings:
    found, expected = case.run.environment.virtual_machine, "not a fault, but it affects what can be read of the link"
    if found.value is None:
        yield undetermined("virtual-machine", "virtual machine", expected, found.reason)
    elif case.is_virtual:
        seen = f"this is a virtual machine ({found.value})"
        why = "the hypervisor may make up the link's state, hide the ports above it, and show one NUMA node of many"
        yield fine("virtual-machine", "virtual machine", seen, expected, why)
    else:
        why = "the link's state is read directly"
        yield fine("virtual-machine", "virtual machine", "none: this is bare metal", expected, why)
