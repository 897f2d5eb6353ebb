"""The input of the checks of a host, and the making of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pyxfer._document.examinations import Finding, Health, Nearest, Status, Sureness, is_beyond_peak
from pyxfer._document.machines import (
    MAX_SHARE,
    SMALLEST_PAYLOAD_BYTES,
    USUAL_PAYLOAD_BYTES,
    Fact,
    Link,
    LinkState,
    Side,
    describe,
    protocol_gbps,
)
from pyxfer._document.runs import Measurement, Run
from pyxfer._machine.link import bottleneck

T = TypeVar("T")
Findings = Iterator[Finding]

SIDES: tuple[Side, ...] = ("h2d", "d2h")
# Below this size the fixed cost of a copy hides the rate of the link.
MIN_BYTES = 16 << 20
NO_REASON = "no reason given"


class Shares(NamedTuple):
    """Shares of the protocol peak: fine from the first one on, wrong below the second."""

    fine: float
    wrong: float


# Published figures of healthy hosts as shares of the h2d peak at 256 B, which not all of these hosts may use:
# Gen3 x16, 14.61 GB/s: 12.15 to 12.5 (P100 and V100, bandwidthTest; gearshifft 82), 83 to 86 %.
# Gen4 x16, 29.22 GB/s: 24.8 to 26.2 (A100, nvbandwidth's README, issues 11 and 53; A10, Mooncake 2598), 85 to 90 %.
# Gen5 x16, 58.45 GB/s: 55.4 to 57.1 (H100 and H200, nvbandwidth's issue 6 and the known hosts), 95 to 98 %.
# Flow control and acknowledgements take 1 to 3 % of each; older devices also have fewer read requests under way.
_SHARES = {3: Shares(0.82, 0.72), 4: Shares(0.84, 0.74), 5: Shares(0.90, 0.85)}
_PAYLOADS = (128, 256, 512, 1024, 2048, 4096)
_GIGA = 1e9
MIN_FINE = min(shares.fine for shares in _SHARES.values())


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
    def shares(self) -> Shares:
        """The limits for the generation that sets the peak; generations 1 and 2 have those of 3, and 6 those of 5."""
        state = bottleneck(self.run.link).value
        return _SHARES[max(3, min(5, 5 if state is None else state.generation))]

    def peak_at(self, side: Side, payload_bytes: int) -> float | None:
        """The protocol peak, or if only the raw one is known the protocol peak at this payload."""
        link = self.run.link
        peak, raw = link.peak_gbps(side).value, link.raw_peak_gbps.value
        if peak is None and raw is not None and link.kind == "pcie":
            return protocol_gbps(raw, payload_bytes, side)
        return peak

    @property
    def least_payload_bytes(self) -> int:
        """MaxPayload, or if it cannot be read the smallest one that carries as much as the fastest copies."""
        known, raw = self.run.link.max_payload_bytes.value, self.run.link.raw_peak_gbps.value
        if known is not None or raw is None or self.run.link.kind != "pcie":
            return known or SMALLEST_PAYLOAD_BYTES
        fits = (size for size in _PAYLOADS if all(self._fits(side, raw, size) for side in SIDES))
        return next(fits, SMALLEST_PAYLOAD_BYTES)

    def _fits(self, side: Side, raw_gbps: float, payload_bytes: int) -> bool:
        return fastest_gbps(self.run, side) <= protocol_gbps(raw_gbps, payload_bytes, side, short=True) * MAX_SHARE

    def usual_peak_gbps(self, side: Side) -> float | None:
        """The peak that a healthy host is compared with: without a known MaxPayload, that at the usual one."""
        return self.peak_at(side, max(self.least_payload_bytes, USUAL_PAYLOAD_BYTES))

    def status(self, side: Side, gbps: float) -> Status | None:
        """The status of a bandwidth of large pinned copies; wrong only if it is at any payload. None without a peak."""
        usual, least = self.usual_peak_gbps(side), self.peak_at(side, self.least_payload_bytes)
        if not usual or not least:
            return None
        if gbps >= self.shares.fine * usual:
            return "fine"
        return "wrong" if gbps < self.shares.wrong * least else "suspicious"

    @property
    def statuses(self) -> tuple[Status, ...]:
        found = ((side, best(self.run, side)) for side in SIDES)
        known = (self.status(side, row.gbps) for side, row in found if row is not None and row.gbps is not None)
        return tuple(status for status in known if status is not None)

    @property
    def most_of_device_gbps(self) -> float | None:
        """What no state of the device's link carries more than, whatever state and payload are shown."""
        link = self.run.link
        states = (link.under_load, link.system_most, link.device_most)
        rates = [state.value.gbps for state in states if state.value is not None]
        return max(rates) * MAX_SHARE if rates and link.kind == "pcie" else None

    def exceeds_device(self, row: Measurement) -> bool:
        most = self.most_of_device_gbps
        return most is not None and gbps_of(row) > most

    def is_beyond_peak(self, row: Measurement) -> bool:
        return is_beyond_peak(self.run, row) or self.exceeds_device(row)

    @property
    def kernel_sureness(self) -> Sureness:
        """The sureness of what the kernel shows of PCI Express, which a hypervisor may make up."""
        return "likely" if self.is_virtual else "certain"


def gbps_of(row: Measurement) -> float:
    return row.gbps or 0.0


def is_raw(measurement: Measurement) -> bool:
    """Whether it is a copy by the driver, not staged, and not through a framework or a user's function."""
    return measurement.may_be_ceiling and measurement.is_raw


def best(run: Run, side: Side, *, pageable: bool = False) -> Measurement | None:
    found = [
        row
        for row in run.measurements
        if is_raw(row) and row.rate.value is not None and row.verified.value is not False
        if row.direction == row.side == side and (row.memory == "pageable") == pageable
    ]
    return max(found, key=lambda row: (row.nbytes, gbps_of(row)), default=None)


def fastest_gbps(run: Run, side: Side) -> float:
    """The bandwidth of the fastest verified copy of a side, also if the row has none because of its peak."""
    whole = [row for row in run.measurements if is_raw(row) and row.verified.value and row.side == side]
    times = [(row.moved_bytes, row.elapsed_s) for row in whole if row.nbytes >= MIN_BYTES and row.elapsed_s]
    return max((nbytes / seconds / _GIGA for nbytes, seconds in times), default=0.0)


def state_text(state: LinkState | None) -> str:
    return "not known" if state is None else describe(state)


@dataclass(frozen=True)
class Check:
    """What a check examines and expects; its methods make the findings."""

    code: str
    subject: str
    expected: str

    def finding(self, status: Status, seen: str, why: str, sure: Sureness, do: str | None = None) -> Finding:
        return Finding(self.code, self.subject, status, seen, self.expected, why, sure, do)

    def fine(self, seen: str, why: str, sure: Sureness = "certain", do: str | None = None) -> Finding:
        return self.finding("fine", seen, why, sure, do)

    def suspicious(self, seen: str, why: str, sure: Sureness, do: str | None) -> Finding:
        return self.finding("suspicious", seen, why, sure, do)

    def wrong(self, seen: str, why: str, sure: Sureness, do: str | None) -> Finding:
        return self.finding("wrong", seen, why, sure, do)

    def unknown(self, reason: str | None, do: str | None = None) -> Finding:
        why = "a value that cannot be read cannot be judged"
        return self.finding("unknown", reason or NO_REASON, why, "certain", do)


Rule = Callable[[Case], Findings]
Judge = Callable[[Case, Check, Any], Finding]


def judges(code: str, subject: str, expected: str, fact: Callable[[Case], Fact[T] | None]) -> Callable[[Judge], Rule]:
    """Make a rule of a function that judges one value of a host; None: the value does not concern this host."""

    def made(judge: Judge) -> Rule:
        def rule(case: Case) -> Findings:
            seen, check = fact(case), Check(code, subject, expected)
            if seen is not None:
                yield check.unknown(seen.reason) if seen.value is None else judge(case, check, seen.value)

        return rule

    return made


def judges_health(code: str, subject: str, expected: str, fact: Callable[[Health], Fact[T]]) -> Callable[[Judge], Rule]:
    return judges(code, subject, expected, lambda case: None if case.health is None else fact(case.health))


def judges_pcie(code: str, subject: str, expected: str, fact: Callable[[Link], Fact[T]]) -> Callable[[Judge], Rule]:
    return judges(code, subject, expected, lambda case: fact(case.run.link) if case.run.link.kind == "pcie" else None)
