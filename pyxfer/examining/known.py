"""Known hosts: their figures and runs, which come with the package, and which of them is most like this one."""

from __future__ import annotations

from functools import cache
from importlib import resources
from math import log

from pyxfer import documents
from pyxfer.errors import DocumentError
from pyxfer.finding_documents import decode_reference
from pyxfer.machine.peaks import carries_gbps
from pyxfer.machine.remarks import describe
from pyxfer.model import Fact, LinkState, Run
from pyxfer.model_findings import Nearest, Reference
from pyxfer.units import format_size

_FOLDER = "references"
_RUNS = ".run.json"


@cache
def references() -> tuple[Reference, ...]:
    """All that come with the package, by name."""
    files = (resources.files("pyxfer") / _FOLDER).iterdir()
    named = {file.name: file for file in files if file.name.endswith(".json") and not file.name.endswith(_RUNS)}
    return tuple(decode_reference(named[name].read_bytes(), f"the reference {name}") for name in sorted(named))


def run_of(reference: Reference) -> Run:
    """The run that a reference's figures are of, without its single trials."""
    file = resources.files("pyxfer") / _FOLDER / reference.document
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DocumentError(
            f"the run {reference.document} of a known host cannot be read ({error.strerror}); install pyxfer again"
        ) from error
    return documents.decode(data, reference.document)


def nearest_known(run: Run, known: tuple[Reference, ...] | None = None) -> Fact[Nearest]:
    """The known host most like this one: by its device, then by its link, then by its MaxPayload."""
    known = references() if known is None else known
    state = run.link.under_load.value or run.link.now.value
    if run.link.kind != "pcie" or state is None:
        reason = run.link.raw_peak_gbps.reason or run.link.under_load.reason or "the link is not known"
        return Fact(reason=f"no known host is like this one: {reason}")
    if not known:
        return Fact(reason="no known host came with this pyxfer")
    found = min(known, key=lambda reference: _distance(reference, run, state))
    differs = _differences(found, run, state)
    return Fact(Nearest(found, not differs, differs))


def _distance(reference: Reference, run: Run, state: LinkState) -> tuple[bool, float, bool]:
    ours, theirs = carries_gbps(state) or 1.0, carries_gbps(reference.link) or 1.0
    same_payload = reference.max_payload_bytes == run.link.max_payload_bytes.value
    return reference.device != run.device.name, abs(log(ours / theirs)), not same_payload


def _differences(reference: Reference, run: Run, state: LinkState) -> tuple[str, ...]:
    """Why the figures of the one are none of the other's, each as `here, there`."""
    payload = run.link.max_payload_bytes.value
    here = "unknown" if payload is None else format_size(payload)
    found = [
        (reference.device != run.device.name, f"device {run.device.name} here, {reference.device} there"),
        (reference.link != state, f"link {describe(state)} here, {describe(reference.link)} there"),
        (reference.max_payload_bytes != payload, f"MaxPayload {here} here, {reference.max_payload_bytes} B there"),
        (bool(run.device.mig.value or run.device.vgpu.value), "a part of a GPU here, a whole one there"),
        (bool(run.device.confidential.value), "copies are encrypted here, and were not there"),
    ]
    return tuple(text for is_so, text in found if is_so)
