"""The device itself: clocks, persistence, its own memory, and who else uses it."""

from __future__ import annotations

from pyxfer.examining.case import Case, Findings, fine, first_reason, untold
from pyxfer.machine.throttling import held_down_by
from pyxfer.model_findings import Finding

_BY_HARDWARE = ("hardware slowdown", "hardware thermal slowdown", "hardware power brake")
_ALL_ITS_OWN = "what others copy or compute at the same time lowers every figure"


def throttling(case: Case) -> Findings:
    """What held the clocks down before or after the copies."""
    taken = [each for each in (case.run.environment, case.run.environment_after) if each is not None]
    expected = "nothing that holds the GPU's clocks down"
    if all(each.throttle_reasons.value is None for each in taken):
        yield untold("throttling", "throttling", expected, case.run.environment.throttle_reasons.reason)
        return
    reasons = list(dict.fromkeys(reason for each in taken for reason in held_down_by(each)))
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


def memory(case: Case) -> Findings:
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
