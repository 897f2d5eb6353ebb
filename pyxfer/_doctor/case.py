"""The input of the checks of a host, and the making of findings."""

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
# Below this size the fixed cost of a copy hides the rate of the link.
LEAST_BYTES = 16 << 20
NO_REASON = "no reason given"


@dataclass(frozen=True)
class Case:
    """An examined host: its run, the values read around the run, and the nearest known host."""

    run: Run
    health: Health | None = None
    nearest: Nearest | None = None

    @property
    def is_virtual(self) -> bool:
        return self.run.environment.virtual_machine.value not in (None, "none")

    @property
    def has_link(self) -> bool:
        return self.run.runtime == "cuda" and self.run.link.kind != "none"

    @property
    def kernel_sureness(self) -> Sureness:
        """The sureness of what the kernel shows of PCI Express, which a hypervisor may make up."""
        return "likely" if self.is_virtual else "certain"


def is_raw(measurement: Measurement) -> bool:
    """Whether it is a copy by the driver, not staged, and not through a framework or a user's function."""
    return measurement.may_be_ceiling and measurement.route.startswith("raw.")


def best(run: Run, side: Side, *, pageable: bool = False) -> Measurement | None:
    """The fastest valid raw copy of a side at the largest size."""
    found = [
        row
        for row in run.measurements
        if is_raw(row) and row.rate.value is not None and row.verified.value is not False
        if row.direction == row.side == side and (row.memory == "pageable") == pageable
    ]
    return max(found, key=lambda row: (row.nbytes, row.gbps or 0.0), default=None)


def state_text(state: LinkState | None) -> str:
    return "not known" if state is None else describe(state)


def fine(
    code: str, subject: str, seen: str, expected: str, why: str, sure: Sureness = "certain", do: str | None = None
) -> Finding:
    """A finding with the status fine; `do` is general advice."""
    return Finding(code, subject, "fine", seen, expected, why, sure, do)


def undetermined(code: str, subject: str, expected: str, reason: str | None, do: str | None = None) -> Finding:
    """A finding with the status unknown."""
    why = "a value that cannot be read cannot be judged"
    return Finding(code, subject, "unknown", reason or NO_REASON, expected, why, "certain", do)


def first_reason(*facts: Fact[T]) -> str:
    """The reason of the first missing fact."""
    return next((fact.reason for fact in facts if fact.reason is not None), NO_REASON)
