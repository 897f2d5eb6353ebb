"""The findings of a measured run: the rules of all checks, and the nearest known host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from itertools import chain
from math import log

import msgspec

from pyxfer._doctor import host, link, speed
from pyxfer._doctor.case import Case, Check, Rule
from pyxfer._document.examinations import Examination, Finding, Health, Nearest, Reference, Status
from pyxfer._document.machines import Fact, LinkState, describe
from pyxfer._document.runs import Run
from pyxfer._machine.link import bottleneck
from pyxfer.units import format_size

_FOLDER = "references"
_RUNS = ".run.json"


@cache
def references() -> tuple[Reference, ...]:
    files = (resources.files("pyxfer") / _FOLDER).iterdir()
    named = {file.name: file for file in files if file.name.endswith(".json") and not file.name.endswith(_RUNS)}
    return tuple(msgspec.json.decode(named[name].read_bytes(), type=Reference) for name in sorted(named))


def nearest_known(run: Run, known: tuple[Reference, ...] | None = None) -> Fact[Nearest]:
    known = references() if known is None else known
    state = bottleneck(run.link).value or run.link.under_load.value or run.link.now.value
    if run.link.kind != "pcie" or state is None:
        reason = run.link.raw_peak_gbps.reason or run.link.under_load.reason or "the link is not known"
        return Fact(reason=f"no known host is similar: {reason}")
    found = min(known, key=lambda reference: _distance(reference, run, state))
    differs = differences(found, run, state)
    return Fact(Nearest(found, not differs, differs))


def _distance(reference: Reference, run: Run, state: LinkState) -> tuple[bool, float, bool]:
    ours, theirs = state.gbps or 1.0, reference.link.gbps or 1.0
    same_payload = reference.max_payload_bytes == run.link.max_payload_bytes.value
    return reference.device != run.device.name, abs(log(ours / theirs)), not same_payload


def differences(reference: Reference, run: Run, state: LinkState) -> tuple[str, ...]:
    """Why the figures of the two hosts cannot be compared."""
    payload = run.link.max_payload_bytes.value
    here = "unknown" if payload is None else format_size(payload)
    found = [
        (reference.device != run.device.name, f"device {run.device.name} here, {reference.device} there"),
        (reference.link != state, f"link {describe(state)} here, {describe(reference.link)} there"),
        (reference.max_payload_bytes != payload, f"MaxPayload {here} here, {reference.max_payload_bytes} B there"),
        (bool(run.device.mig.value or run.device.vgpu.value), "a part of a GPU here, a whole one there"),
        (bool(run.device.confidential.value), "copies are encrypted here, and were not there"),
    ]
    return tuple(text for differs, text in found if differs)


_ORDER: tuple[Status, ...] = ("wrong", "suspicious", "unknown", "fine")

_LINK_RULES: tuple[Rule, ...] = (
    *(speed.ceilings, speed.known_host, speed.pageable),
    *(link.link, link.slot, link.path, link.payload, link.ordering),
    *(link.replays, link.link_errors),
    *(host.numa_memory, host.processors, host.far_memory),
    *(host.throttling, host.persistence, host.sharing, host.partial_device),
    *(host.device_memory, host.iommu, host.access_control),
)
_HOST_RULES: tuple[Rule, ...] = (
    *(host.huge_pages, host.lock_limit, host.container),
    *(host.shared_memory, host.virtual_machine),
)


def examine(run: Run, health: Health | None = None, nearest: Nearest | None = None) -> tuple[Finding, ...]:
    """The findings of a run, the wrong ones first; without `health` many checks are left out."""
    case = Case(run, health, nearest)
    rules = (speed.contents, *(_LINK_RULES if case.has_link else ()), *_HOST_RULES)
    found = [*_missing_parts(case), *chain.from_iterable(rule(case) for rule in rules)]
    return in_order(found)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.status)))


def _missing_parts(case: Case) -> Iterator[Finding]:
    """Findings for an examination without a link, a complete run, or the values around it."""
    if not case.has_link:
        reason = case.run.runtime_reason or case.run.link.raw_peak_gbps.reason
        yield Check("link", "link", "a GPU behind a link").unknown(f"no link to examine: {reason}", "see pyxfer list")
    if case.run.ended != "complete":
        reason = case.run.failure or f"the run was {case.run.ended}"
        yield Check("measurement", "measurement", "a complete run").unknown(reason, "measure again")
    if case.health is None:
        reason = "a saved run has no error counters, limits and settings"
        yield Check("health", "health", "the machine itself").unknown(reason, "run pyxfer doctor on the host itself")


def examine_run(run: Run) -> Examination:
    nearest = nearest_known(run)
    findings = examine(run, None, nearest.value)
    return Examination(without_trials(run), Fact(reason="a saved run was examined, not the machine"), nearest, findings)


def without_trials(run: Run) -> Run:
    bare = tuple(msgspec.structs.replace(row, trials=()) for row in run.measurements)
    return msgspec.structs.replace(run, measurements=bare)
