"""The machine and link that a figure is of: what makes it another one, and what may change on the same."""

from __future__ import annotations

import hashlib
import json
import re

from pyxfer.model import Device, Environment, Fact, Link, Run
from pyxfer.model_baselines import Fingerprint

MAY_CHANGE = ("link_now", "driver_major", "runtime_major")
"""What the same machine may have otherwise tomorrow; a difference in it is told, and may be why it is slow."""

_KEY_VERSION = "f1"
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,6})")


def fingerprint_of(run: Run) -> Fingerprint:
    """The machine and link that a run was measured on."""
    return make_fingerprint(run.environment, run.device, run.link)


def make_fingerprint(environment: Environment, device: Device, link: Link) -> Fingerprint:
    """The machine and link that were read."""
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
        link_now=_link_text(link),
        driver_major=_major(environment.driver, "the driver's version"),
        runtime_major=_major(Fact(environment.cuda_runtime), "the CUDA runtime's version"),
    )


def identity(fingerprint: Fingerprint) -> str:
    """A short text that is the same as long as the machine is, whatever of `MAY_CHANGE` is not.

    What could not be read counts as not there: a driver without NVML for a day makes no other machine. The device's
    name counts only where it has no UUID, because drivers have renamed devices.
    """
    one = fingerprint
    parts = (
        one.host,
        one.runtime,
        one.gpu.value or one.device,
        one.link_kind,
        bool(one.mig.value),
        bool(one.confidential.value),
        one.virtual_machine.value or "",
        one.cpu.value or "",
    )
    digest = hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()
    return f"{_KEY_VERSION}-{digest[:32]}"


def _link_text(link: Link) -> Fact[str]:
    """The link as traffic has seen it, or as it was before."""
    state = link.under_load if link.under_load.value is not None else link.now
    if state.value is None:
        return Fact(reason=state.reason)
    return Fact(f"PCIe {state.value.generation}.0 x{state.value.width}")


def _major(version: Fact[str], what: str) -> Fact[int]:
    if version.value is None:
        return Fact(reason=version.reason)
    number = _LEADING_NUMBER.match(version.value)
    return Fact(int(number[1])) if number else Fact(reason=f"{what} does not begin with a number")
