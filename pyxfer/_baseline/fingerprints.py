"""The machine of a run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

import msgspec

from pyxfer._document.baselines import AnyRun, Baseline, Fingerprint
from pyxfer._document.derivations import derived
from pyxfer._document.links import Links
from pyxfer._document.machines import Device, Environment, Fact, Link, LinkState, describe, unknown

_KEY_VERSION = "f1"
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,6})")


def fingerprint_of(run: AnyRun) -> Fingerprint:
    if isinstance(run, Links):
        return fingerprint_of_links(run.environment, devices_of(run))
    return make_fingerprint(run.environment, run.device, run.link)


def derive_baseline(baseline: Baseline) -> Baseline:
    """The baseline with what follows within each of its runs, and the fingerprint of one of them."""
    stated, found = baseline.fingerprint, [fingerprint_of(run) for run in baseline.processes]
    return msgspec.structs.replace(
        baseline,
        fingerprint=stated if stated in found else found[0],
        runs=tuple(derived(run) for run in baseline.runs),
        links=tuple(derived(run) for run in baseline.links),
    )


def devices_of(run: AnyRun) -> list[tuple[Device, Link]]:
    if isinstance(run, Links):
        return sorted(((each.device, each.link) for each in run.devices), key=lambda pair: pair[0].index)
    return [(run.device, run.link)]


def fingerprint_of_links(environment: Environment, devices: Sequence[tuple[Device, Link]]) -> Fingerprint:
    each = [make_fingerprint(environment, device, link) for device, link in devices]
    known = [one.gpu.value for one in each if one.gpu.value is not None]
    states = _joined([one.link_now.value for one in each if one.link_now.value is not None])
    return msgspec.structs.replace(
        each[0],
        gpu=Fact(", ".join(known)) if len(known) == len(each) else unknown("a GPU has no UUID"),
        device=devices_text([one.device for one in each]),
        link_kind=_joined([one.link_kind for one in each]),
        mig=next((one.mig for one in each if one.mig.value), each[0].mig),
        confidential=next((one.confidential for one in each if one.confidential.value), each[0].confidential),
        link_now=Fact(states) if states else each[0].link_now,
        gpus={device.index: device.uuid.value or device.name for device, _ in devices},
    )


def devices_text(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def make_fingerprint(environment: Environment, device: Device, link: Link) -> Fingerprint:
    return Fingerprint(
        host=environment.host,
        runtime=device.runtime,
        gpu=device.uuid,
        device=device.name,
        link_kind=link.kind,
        mig=device.mig,
        confidential=device.confidential,
        virtual_machine=environment.virtual_machine,
        cpu=environment.cpu_model,
        link_now=link_state(link).then(describe),
        driver_major=_major(environment.driver, "the driver's version"),
        runtime_major=_major(Fact(environment.cuda_runtime), "the CUDA runtime's version"),
    )


def identity(fingerprint: Fingerprint) -> str:
    """A short key of the machine; a change of the link's state, the driver or the CUDA runtime does not change it.

    A value that could not be read counts as absent, so that a machine keeps its key while NVML is not available. The
    device's name counts only if it has no UUID, because drivers have renamed devices. Links also count the numbers of
    their GPUs, which are in the names of their cells.
    """
    parts: tuple[object, ...] = (
        fingerprint.host,
        fingerprint.runtime,
        fingerprint.gpu.value or fingerprint.device,
        fingerprint.link_kind,
        bool(fingerprint.mig.value),
        bool(fingerprint.confidential.value),
        fingerprint.virtual_machine.value or "",
        fingerprint.cpu.value or "",
    )
    if fingerprint.gpus:
        parts = (*parts, "links", sorted(fingerprint.gpus.items()))
    digest = hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()
    return f"{_KEY_VERSION}-{digest[:32]}"


def link_state(link: Link) -> Fact[LinkState]:
    """The state of the link under load, or if it is not known, before the load."""
    return link.under_load if link.under_load.value is not None else link.now


def _major(version: Fact[str], what: str) -> Fact[int]:
    number = _LEADING_NUMBER.match(version.value or "")
    missing = version.reason or f"{what} does not begin with a number"
    return Fact(int(number[1])) if number else Fact(reason=missing)
