"""What is examined: the run, what was read around it, and the known host beside it; and how findings are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from pyxfer._document.examinations import Finding, Health, Nearest, Sureness
from pyxfer._document.runs import Fact, LinkState, Measurement, Run, Side
from pyxfer._machine.link import describe

T = TypeVar("T")
Findings = Iterator[Finding]

SIDES: tuple[Side, ...] = ("h2d", "d2h")
# Below this what a copy costs to start hides what the link can do.
LEAST_BYTES = 16 << 20
NO_REASON = "no reason given"


@dataclass(frozen=True)
class Case:
    """One host, at one time."""

    run: Run
    health: Health | None = None
    nearest: Nearest | None = None

    @property
    def is_virtual(self) -> bool:
        """Whether a hypervisor lies between what is read and what is there."""
        return self.run.environment.virtual_machine.value not in (None, "none")

    @property
    def has_link(self) -> bool:
        """Whether there is a link to examine at all."""
        return self.run.runtime == "cuda" and self.run.link.kind != "none"

    @property
    def read(self) -> Sureness:
        """How sure it is what the kernel shows of PCI Express."""
        return "likely" if self.is_virtual else "certain"


def is_raw(measurement: Measurement) -> bool:
    """Whether it is a copy of the driver's own: no framework's, no user's function, nothing staged."""
    return measurement.may_be_ceiling and measurement.route.startswith("raw.")


def best(run: Run, side: Side, *, pageable: bool = False) -> Measurement | None:
    """The fastest raw copy of a side, pageable or not, at the largest size that has one."""
    found = [
        each
        for each in run.measurements
        if is_raw(each) and each.rate.value is not None and each.verified.value is not False
        if each.direction == each.side == side and (each.memory == "pageable") == pageable
    ]
    return max(found, key=lambda each: (each.nbytes, each.gbps or 0.0), default=None)


def state_text(state: LinkState | None) -> str:
    """`PCIe 5.0 x16`, or that it is not known."""
    return "not known" if state is None else describe(state)


def fine(
    code: str, subject: str, seen: str, expected: str, why: str, sure: Sureness = "certain", do: str | None = None
) -> Finding:
    """All is as expected; `do` is advice that holds all the same."""
    return Finding(code, subject, "fine", seen, expected, why, sure, do)


def untold(code: str, subject: str, expected: str, reason: str | None, do: str | None = None) -> Finding:
    """It cannot be told here, for this reason."""
    why = "what cannot be read cannot be judged"
    return Finding(code, subject, "unknown", reason or NO_REASON, expected, why, "certain", do)


def first_reason(*facts: Fact[T]) -> str:
    """Why the first of these is missing that is."""
    return next((fact.reason for fact in facts if fact.reason is not None), NO_REASON)
