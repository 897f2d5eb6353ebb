"""Everything that is looked at, in one list: the gravest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from pyxfer.examining import counted, device_state, host_state, links, places, speed
from pyxfer.examining.case import Case, Findings, untold
from pyxfer.model import Run
from pyxfer.model_findings import Finding, Health, Nearest, Status

_ORDER: tuple[Status, ...] = ("wrong", "suspicious", "unknown", "fine")
_Rule = Callable[[Case], Findings]

_OF_THE_LINK: tuple[_Rule, ...] = (
    *(speed.ceilings, speed.known_host, speed.pageable),
    *(links.link, links.slot, links.path, links.payload, links.ordering),
    *(counted.replays, counted.link_errors),
    *(places.memory, places.processors, places.far_memory),
    *(device_state.throttling, device_state.persistence, device_state.sharing, device_state.parts),
    *(device_state.memory, host_state.iommu, host_state.access_control),
)
_OF_THE_HOST: tuple[_Rule, ...] = (
    *(host_state.huge_pages, host_state.lock_limit, host_state.container),
    *(host_state.shared_memory, host_state.virtual_machine),
)


def examine(run: Run, health: Health | None = None, nearest: Nearest | None = None) -> tuple[Finding, ...]:
    """What is wrong, suspicious, unknown and fine, in this order; a run alone tells less than one with its health."""
    case = Case(run, health, nearest)
    rules = (speed.contents, *(_OF_THE_LINK if case.has_link else ()), *_OF_THE_HOST)
    found = [*_about_the_whole(case), *chain.from_iterable(rule(case) for rule in rules)]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.status)))


def _about_the_whole(case: Case) -> Iterator[Finding]:
    if not case.has_link:
        reason = case.run.runtime_reason or case.run.link.raw_peak_gbps.reason
        yield untold("link", "link", "a GPU behind a link", f"no link to examine: {reason}", "see pyxfer list")
    if case.run.ended != "complete":
        reason = case.run.failure or f"the run was {case.run.ended}"
        yield untold("measurement", "measurement", "a run that came to its end", reason, "measure again")
    if case.health is None:
        reason = "a saved run says nothing of error counters, limits and settings"
        yield untold("health", "health", "the machine itself", reason, "run pyxfer doctor on the host itself")
