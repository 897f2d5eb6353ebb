"""Checks of the host around the link: clocks, other users, NUMA, address translation, memory settings, limits."""

from __future__ import annotations

from pyxfer._doctor.case import SIDES, Case, Check, Findings, judges, judges_health
from pyxfer._document.examinations import Bound, FarRates, Finding
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
_WHY_FAR = "memory of another node must also cross between the sockets"


def throttling(case: Case) -> Findings:
    environments = [each for each in (case.run.environment, case.run.environment_after) if each is not None]
    check = Check("throttling", "throttling", "nothing that holds the GPU's clocks down")
    if all(environment.throttle_reasons.value is None for environment in environments):
        yield check.unknown(case.run.environment.throttle_reasons.reason)
        return
    reasons = list(dict.fromkeys(reason for environment in environments for reason in throttled_by(environment)))
    seen = f"the clocks were held down: {', '.join(reasons)}"
    do = "see nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; check cooling and power supply"
    if not reasons:
        yield check.fine("none, before and after the copies", "a cool GPU keeps its clocks")
    elif any(reason in _BY_HARDWARE for reason in reasons):
        why = "the hardware slows the GPU down, because it is too hot or short of power"
        yield check.wrong(seen, why, "certain", do)
    else:
        yield check.suspicious(seen, "this slows kernels, and rarely copies", "possible", do)


@judges("persistence", "persistence", "persistence mode on", lambda case: case.run.environment.persistence)
def persistence(_: Case, check: Check, is_on: bool) -> Finding:
    if is_on:
        return check.fine("persistence mode is on", "the driver keeps the GPU ready while it has no users")
    why = "the driver shuts the GPU down after its last user: the next one waits seconds, and counters are reset"
    return check.suspicious("persistence mode is off", why, "certain", "run nvidia-persistenced, or nvidia-smi -pm 1")


def sharing(case: Case) -> Findings:
    others = case.run.environment.other_gpu_processes
    check = Check("sharing", "other users", "no other user of the GPU while it is measured")
    contended = [remark.text for remark in case.run.remarks if remark.code == "contended"]
    if others.value is None and not contended:
        yield check.unknown(others.reason)
    elif others.value or contended:
        pids = ", ".join(map(str, others.value or ()))
        seen = contended[0].rstrip(".") if contended else f"other processes use it: {pids}"
        yield check.suspicious(seen, _WHY_ALONE, "likely", "end them, or measure when they are idle")
    else:
        yield check.fine("no other process uses the GPU", _WHY_ALONE)


def partial_device(case: Case) -> Findings:
    device, expected = case.run.device, "not a fault, but it affects every figure"
    if device.mig.value or device.vgpu.value:
        kind = "a MIG instance" if device.mig.value else "a vGPU"
        why = "it shares its link with all others on the same GPU"
        yield Check("part-of-gpu", "part of a GPU", expected).fine(f"the device is {kind}", why)
    if device.confidential.value:
        why = "every copy is encrypted and staged, which costs most of the bandwidth"
        yield Check("confidential", "confidential", expected).fine("confidential computing is on", why)


def device_memory(case: Case) -> Findings:
    if case.health is None:
        return
    state = case.health.device_memory
    expected = "no uncorrected error, and no bad row that is pending or failed"
    check = Check("device-memory", "device memory", expected)
    facts = (state.uncorrected, state.remap_pending, state.remap_failed)
    count = state.uncorrected.value
    if all(fact.value is None for fact in facts):
        yield check.unknown(state.uncorrected.reason)
    elif state.remap_failed.value or count:
        failed = "a bad row could not be replaced" if state.remap_failed.value else f"{count} errors not corrected"
        why = "the contents of bad memory are lost, and programs that use it are ended"
        do = "reset the GPU or restart the host; if the error returns, replace the GPU (nvidia-smi -q -d ECC)"
        yield check.wrong(failed, why, "certain", do)
    elif state.remap_pending.value:
        why = "the row is replaced at the next reset of the GPU"
        do = "reset the GPU (nvidia-smi -r) when it has no users"
        yield check.suspicious("a bad row waits to be replaced", why, "certain", do)
    else:
        yield check.fine("no error that could not be corrected", "counted since the driver was loaded")


def share_of_pages_near(placement: Placement) -> float | None:
    """The share of the measured memory that is on the device's NUMA node; None if it is not known."""
    pages, node = placement.pages_by_node.value, placement.device_node.value
    placed = {name: count for name, count in (pages or {}).items() if name.isdecimal()}
    if node is None or not sum(placed.values()):
        return None
    return placed.get(str(node), 0) / sum(placed.values())


def numa_memory(case: Case) -> Findings:
    placement, sure = case.run.placement, case.kernel_sureness
    near, node = share_of_pages_near(placement), placement.device_node.value
    check = Check("numa-memory", "NUMA memory", "memory on the device's NUMA node")
    if near is None:
        yield check.unknown(placement.device_node.reason or placement.pages_by_node.reason)
        return
    seen = f"{format_percent(near)} of it on node {node}, the device's"
    if near >= NEAR_SHARE:
        yield check.fine(seen, _WHY_FAR, sure)
        return
    why = "copies must also cross between the sockets"
    if placement.cpus.reason is not None:
        why += f"; {placement.cpus.reason}"
    do = f"run near the device: numactl --cpunodebind={node} --membind={node}, or give the container these CPUs"
    yield check.finding("wrong" if set(case.statuses) - {"fine"} else "suspicious", seen, why, sure, do)


_NEAR = "this process may use processors on the device's NUMA node"


@judges_health("numa-processors", "NUMA processors", _NEAR, lambda health: health.cpus_near)
def processors(case: Case, check: Check, count: int) -> Finding:
    node = case.run.placement.device_node.value
    if count:
        why = "they have the shortest way to the device and its memory"
        return check.fine(f"{count} usable on node {node}, the device's", why, case.kernel_sureness)
    why = "this process does all its work for copies on another socket"
    do = f"let the container or the scheduler give it processors of node {node} (cpuset)"
    return check.suspicious(f"none usable on node {node}, the device's", why, case.kernel_sureness, do)


_OWN_NODE = "copies from the device's own node are the fastest"


@judges_health("numa-far", "NUMA far memory", _OWN_NODE, lambda health: health.far)
def far_memory(_: Case, check: Check, far: FarRates) -> Finding:
    measured = [side for side in SIDES if far.near_gbps.get(side) and side in far.far_gbps]
    if not measured:
        return check.unknown("no direction was measured from both nodes")
    shares = {side: far.far_gbps[side] / far.near_gbps[side] for side in measured}
    listed = ", ".join(f"{side} {format_percent(share)}" for side, share in shares.items())
    seen = f"node {far.far_node} reaches {listed} of node {far.near_node} at {format_size(far.nbytes)}"
    if max(shares.values()) > FAR_FASTER:
        why = f"the firmware names node {far.near_node} for the device, but node {far.far_node} is nearer to it"
        do = "correct the NUMA table of the firmware or the virtual machine; until then bind to the faster node"
        return check.wrong(seen, why, "likely", do)
    if min(shares.values()) < MIN_FAR_SHARE:
        rates = ", ".join(format_gbps(rate) for rate in far.far_gbps.values())
        why = f"the link between the sockets carries {rates}, less than half of the device's"
        do = f"keep memory on node {far.near_node}; check that all links between the sockets are up"
        return check.suspicious(seen, why, "possible", do)
    return check.fine(seen, _WHY_FAR, "certain", f"keep memory on node {far.near_node}")


_NO_TRANSLATION = "addresses that are not translated (iommu=pt), or copies that reach the peak"


@judges_health("iommu", "IOMMU", _NO_TRANSLATION, lambda health: health.iommu)
def iommu(case: Case, check: Check, kind: str) -> Finding:
    walk, translates = (
        "every translation that is not cached costs a walk",
        f"translates the device's addresses (domain {kind})",
    )
    if kind in UNTRANSLATED:
        seen = "none in use" if kind == "none" else "the device's addresses are not translated"
        seen += ", as this virtual machine shows it" if case.is_virtual else ""
        return check.fine(seen, f"{walk} of the page tables", case.kernel_sureness)
    if set(case.statuses) == {"fine"}:
        why = "large page-locked copies reach their peak; small ones, and page-locking itself, may be slower"
        return check.fine(translates, why, "likely")
    why = f"{walk}, and a new kernel may have changed the default"
    do = "start the kernel with iommu=pt, if nothing on this host needs the translation"
    return check.suspicious(translates, why, "possible", do)


def access_control(case: Case) -> Findings:
    """Whether ports redirect copies between two devices to the root (ACS)."""
    if case.health is None or case.run.link.kind != "pcie":
        return
    ports = case.health.ports[1:]
    check = Check("acs", "ACS", "no port that sends copies between two devices to the root (ACS)")
    redirecting = [port.pci for port in ports if port.redirects.value]
    missing = [port.redirects.reason for port in ports if port.redirects.value is None]
    if redirecting and case.health.devices > 1:
        why = "copies from GPU to GPU below one switch go to the root and back; copies to the host are not affected"
        do = "switch ACS off in the firmware, unless devices are passed to virtual machines (pci=disable_acs_redir=...)"
        yield check.suspicious(f"ACS redirects at {', '.join(redirecting)}", why, "likely", do)
    elif missing:
        yield check.unknown(missing[0], "run pyxfer doctor as root, which can read it")
    elif not ports:
        yield check.unknown("no port above the device is shown here")
    else:
        seen = "no port redirects" if not redirecting else "it redirects, and there is only one device"
        yield check.fine(seen, "copies between devices can take the shortest way")


@judges("huge-pages", "huge pages", "always or madvise", lambda case: case.run.environment.transparent_huge_pages)
def huge_pages(case: Case, check: Check, mode: str) -> Finding:
    """Transparent huge pages, which page-locked copies need only if addresses are translated."""
    kind = None if case.health is None else case.health.iommu.value
    if mode == "never" and kind is not None and kind not in UNTRANSLATED:
        why = "every 4 KiB of page-locked memory need a separate translation, which slows locking and copying"
        do = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        return check.suspicious("transparent huge pages are never used", why, "possible", do)
    why = "unless the IOMMU translates, the page size does not matter for copies, and little for page-locking"
    return check.fine(f"transparent huge pages: {mode}", why, "likely")


_BEYOND = "no limit, or page-locking that works beyond it"


@judges_health("lock-limit", "lock limit", _BEYOND, lambda health: health.lock_limit_bytes)
def lock_limit(case: Case, check: Check, limit: Bound) -> Finding:
    most = limit.most
    if most is None:
        return check.fine("none (ulimit -l unlimited)", "locked memory is not limited")
    seen = f"ulimit -l is {format_size(most)}"
    if not case.has_link:
        return check.fine(seen, "without a GPU nothing is page-locked here", "possible")
    rows = [row for row in case.run.measurements if row.memory in ("pinned", "registered", "write-combined")]
    locked = max((row.nbytes for row in rows if row.gbps is not None), default=0)
    failed = [row.rate.reason for row in rows if row.gbps is None]
    do = "raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, or LimitMEMLOCK=infinity in the service"
    if failed and most < MIN_LOCKED_BYTES and not locked:
        return check.wrong(seen, f"page-locking failed here: {failed[0]}", "possible", do)
    if locked > most:
        counted = "it counts RDMA and mlock, which NCCL may need across hosts"
        why = f"the limit does not count the driver's locking; {counted}"
        return check.fine(f"{seen}, but {format_size(locked)} could be page-locked", why)
    if most >= MIN_LOCKED_BYTES:
        return check.fine(seen, "that is more than the run page-locked", "likely")
    why = "the limit rarely counts the driver's locking, but RDMA and mlock count and fail beyond it"
    return check.suspicious(seen, why, "possible", do)


def container(case: Case) -> Findings:
    if case.health is None:
        return
    memory, cpus = case.health.memory_limit_bytes, case.health.cpu_limit
    expected = f"at least {format_size(MIN_MEMORY_BYTES)} and the time of {MIN_CPUS:g} processors"
    check = Check("container", "container", expected)
    if memory.value is None or cpus.value is None:
        yield check.unknown(memory.reason or cpus.reason)
        return
    kind = case.run.environment.container.value
    seen = f"{'none' if kind in (None, 'none') else kind}, {_limits_text(memory.value, cpus.value)}"
    short = {
        "the limit counts page-locked memory": (memory.value.most or MIN_MEMORY_BYTES) < MIN_MEMORY_BYTES,
        "threads that stage copies have to wait": (cpus.value.most or MIN_CPUS) < MIN_CPUS,
    }
    if any(short.values()):
        do = "give the container more (docker run --memory, --cpus; Kubernetes resources.limits)"
        why = "; ".join(text for text, is_so in short.items() if is_so)
        yield check.suspicious(seen, why, "likely", do)
    else:
        yield check.fine(seen, "staging needs several threads and page-locked memory")


def _limits_text(memory: Bound, cpus: Bound) -> str:
    if memory.most is None and cpus.most is None:
        return "memory and processors not limited"
    most = "memory not limited" if memory.most is None else f"memory limited to {_gib(memory.most)}"
    return f"{most}, processors {'not limited' if cpus.most is None else f'limited to {cpus.most:g}'}"


_SHARED = f"at least {format_size(MIN_SHARED_BYTES)} in /dev/shm"


@judges_health("shared-memory", "shared memory", _SHARED, lambda health: health.shared_memory_bytes)
def shared_memory(_: Case, check: Check, size: int) -> Finding:
    why = "the workers of data loaders pass their batches through it"
    if size < MIN_SHARED_BYTES:
        do = "increase it: docker run --shm-size=8g, or --ipc=host; in Kubernetes an emptyDir of medium Memory"
        return check.suspicious(f"{format_size(size)} in /dev/shm", why, "likely", do)
    return check.fine(f"{_gib(size)} in /dev/shm", why)


def _gib(nbytes: float) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"


_NO_FAULT = "not a fault, but it affects what can be read of the link"


@judges("virtual-machine", "virtual machine", _NO_FAULT, lambda case: case.run.environment.virtual_machine)
def virtual_machine(case: Case, check: Check, kind: str) -> Finding:
    if not case.is_virtual:
        return check.fine("none: this is bare metal", "the link's state is read directly")
    why = "the hypervisor may make up the link's state, hide the ports above it, and show one NUMA node of many"
    return check.fine(f"this is a virtual machine ({kind})", why)
