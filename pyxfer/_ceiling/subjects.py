"""Raw copies as subjects of the sampler: in one direction, in both, and staged."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
import numpy as np

from pyxfer._ceiling.plans import CopyPlan
from pyxfer._document.machines import Fact, Side
from pyxfer._document.runs import Direction, Trial
from pyxfer._measure.sampler import WAKE_BELOW_S
from pyxfer._trace.breakdown import call_span_ns, copies_of
from pyxfer._trace.collector import Traced, Usage, copy_kind
from pyxfer._trace.records import Capture, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyxfer._ceiling.arena import Arena
    from pyxfer._ceiling.resources import StagedCopier
    from pyxfer._measure.bracket import Bracket, HostClock
    from pyxfer._trace.collector import TrialRecorder
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, Lane, Sample

Result = TypeVar("Result")


def record(taking: TrialRecorder, run: Callable[[], Result]) -> tuple[Result, Usage, Capture]:
    taking.begin()
    before = Usage.so_far()
    result = run()
    usage = Usage.so_far().since(before)
    return result, usage, taking.take()


def traced_window(
    recorded: tuple[Sequence[Sample], Usage, Capture], side: Side, nbytes: int, before_bytes: int
) -> Traced:
    """The timed copies of one side, without the copies before and after the window.

    The host's clock has no start time for a window behind a gate, which starts with its first copy, nor for a copy in a
    thread of the engine, which starts with the call that queued it.
    """
    kind = copy_kind(side)
    if kind is None:
        raise ValueError(f"copies have no direction {side}")
    samples, usage, capture = recorded
    sample = samples[0] if len(samples) == 1 or side == "h2d" else samples[1]
    copies = copies_of(capture, kind)
    before = np.cumsum(copies["nbytes"]) - copies["nbytes"]
    copies = copies[(before >= before_bytes) & (before < before_bytes + sample.copies * nbytes)]
    records = capture.records
    rest = records[(records["kind"] != Kind.COPY) | (records["way"] != kind)]
    gated = sample.wall_s is None
    begin_ns = int(copies["start_ns"][0]) if len(copies) else 0
    if len(copies) and not gated:
        begin_ns = min(begin_ns, call_span_ns(capture, copies[0])[0])
    elapsed_s = sample.elapsed_s * sample.copies
    dispatch_s = sample.dispatch_s * sample.copies
    return Traced(
        kind=kind,
        begin_ns=begin_ns,
        returned_ns=begin_ns if gated else begin_ns + round(dispatch_s * 1e9),
        elapsed_s=elapsed_s,
        dispatch_s=dispatch_s,
        wall_s=elapsed_s if sample.wall_s is None else sample.wall_s * sample.copies,
        copies=sample.copies,
        usage=usage,
        capture=replace(capture, records=np.concatenate((rest, copies))),
    )


def traced_call(
    side: Direction | Side, bracket: Bracket | HostClock, copies: int, usage: Usage, capture: Capture, *, staged: bool
) -> Traced:
    """A call in a bracket; the host's clock counts if its events must not be used."""
    return Traced(
        kind=copy_kind(side),
        begin_ns=round(bracket.called_s * 1e9),
        returned_ns=round(bracket.returned_s * 1e9),
        elapsed_s=bracket.wall_s if bracket.fault else bracket.elapsed_s,
        dispatch_s=bracket.dispatch_s,
        wall_s=bracket.wall_s,
        copies=copies,
        usage=usage,
        capture=capture,
        staged=staged,
    )


# In a window this long the event clock's half microsecond is less than 0.02 %.
WINDOW_S = 0.003
# Behind a gate a longer queue can fill up and deadlock (see docs/measuring.md). nvbandwidth also queues twenty.
MAX_COPIES = 18
MAX_WARMUPS = 2
MAX_QUEUED = MAX_COPIES + MAX_WARMUPS
CALIBRATION_COPIES = 4
# Copies before and after a window only keep the engine busy, so parts of a large size are enough: a whole one would
# take half as long as the window. The numbers of parts that are tried:
UNTIMED_PARTS = (16, 8, 4, 2, 1)
MIN_UNTIMED_BYTES = 1 << 20
LINK_SIDES: tuple[Literal["h2d", "d2h"], ...] = ("h2d", "d2h")
ISSUE_SHOWS_TO = 1 << 20
"""Up to this size a call takes about as long as its copy or longer, so a caller gets less than the device does."""


class RawCopies(ABC):
    def __init__(self, engine: Engine, plan: CopyPlan, nbytes: int, arena: Arena, device: int) -> None:
        self.plan = plan
        self.nbytes = nbytes
        self._engine = engine
        self._device = device
        self._arena = arena
        directions = LINK_SIDES if plan.direction == "both" else (plan.direction,)
        self._lanes = [arena.lane(direction, plan.memory, nbytes) for direction in directions]
        self._slot = 0
        self._untimed_parts = _possible_parts(nbytes)[0]

    @property
    def key(self) -> str:
        return self.plan.key

    @property
    def untimed_bytes(self) -> int:
        return self.nbytes // self._untimed_parts

    @property
    def anchor(self) -> str | None:
        """Queued copies of pinned memory, which are nearly always the ceiling."""
        return CopyPlan(self.plan.direction, "pinned", "async").key

    @property
    def ceiling_of(self) -> str | None:
        return None if self.plan.staged or self.plan.variant == "fresh" else self.plan.direction

    @property
    def has_caller(self) -> bool:
        """Whether it is also timed without its gate, as a caller sees it."""
        return False

    @abstractmethod
    def calibrate(self) -> float:
        """Choose the length of a window; returns the seconds of the first copy."""

    @abstractmethod
    def trial(self, round_index: int) -> Mapping[Side, Trial]: ...

    @abstractmethod
    def _once(self) -> object: ...

    @abstractmethod
    def _recorded(self, taking: TrialRecorder, *, checked: bool) -> Mapping[Side, Traced]:
        """A window and its records; only one copy if it is `checked`."""

    def _issue_once(self) -> object:
        raise NotImplementedError

    def verify(self, seed: int) -> Fact[bool]:
        """Send random data over poisoned memory and compare the result; again without the gate if it has a caller."""
        intact = self._arrives(seed, self._once)
        if intact and self.has_caller:
            intact = self._arrives(seed + 1, self._issue_once)
        return Fact(intact)

    def traced(self, taking: TrialRecorder, seed: int | None) -> tuple[Mapping[Side, Traced], bool]:
        if seed is None:
            return self._recorded(taking, checked=False), True
        kept: list[Mapping[Side, Traced]] = []
        intact = self._arrives(seed, lambda: kept.append(self._recorded(taking, checked=True)))
        return kept[0], intact

    def _arrives(self, seed: int, run: Callable[[], object]) -> bool:
        scratch = self._arena.scratch
        self._slot = 0
        for number, lane in enumerate(self._lanes):
            self._engine.prepare_check(self._device, lane, 0, seed + number, scratch)
        run()
        slow = self.plan.memory == "write-combined"
        return all(
            self._engine.first_wrong(self._device, lane, 0, seed + number, scratch, slow) is None
            for number, lane in enumerate(self._lanes)
        )


class _OneSide(RawCopies):
    @property
    def side(self) -> Side:
        return "h2d" if self.plan.direction == "h2d" else "d2h"

    @property
    def _lane(self) -> Lane:
        return self._lanes[0]

    def _refresh(self) -> None:
        if self.plan.variant == "fresh":
            self._arena.forget_received(self.plan.memory, self._lane, self._slot)


class OneWay(_OneSide):
    def __init__(self, engine: Engine, plan: CopyPlan, nbytes: int, arena: Arena, copier: Copier, device: int) -> None:
        super().__init__(engine, plan, nbytes, arena, device)
        self._copier = copier
        self._copies = 1
        self._warmups = 0  # stays 0 without a gate

    @property
    def gated(self) -> bool:
        return self.plan.page_locked and self.plan.mode != "memcpy"

    @property
    def has_caller(self) -> bool:
        """Of small copies, and of modes whose calls queue many copies."""
        return self.gated and (self.nbytes <= ISSUE_SHOWS_TO or self.plan.mode != "async")

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self._refresh()
        trial = as_trial(self._run(self._copies, self._warmups), round_index)
        return {self.side: with_caller(trial, self._issued(self._copies)) if self.has_caller else trial}

    def _recorded(self, taking: TrialRecorder, *, checked: bool) -> Mapping[Side, Traced]:
        copies, warmups = (1, 0) if checked else (self._copies, self._warmups)
        if not checked:
            self._refresh()
        recorded = record(taking, lambda: [self._run(copies, warmups)])
        return {self.side: traced_window(recorded, self.side, self.nbytes, warmups * self.untimed_bytes)}

    def calibrate(self) -> float:
        first = self._once()
        if self.gated:
            once = first.elapsed_s if first.elapsed_s > WINDOW_S else self._run(CALIBRATION_COPIES, 1).elapsed_s
            self._copies = max(2, min(MAX_COPIES, math.ceil(WINDOW_S / max(once, 1e-9))))
            self._warmups = max(1, min(MAX_WARMUPS, self._copies // 4))
        return first.elapsed_s

    def _once(self) -> Sample:
        return self._run(1, 0)

    def _issue_once(self) -> Sample:
        return self._issued(1)

    def _run(self, copies: int, warmups: int) -> Sample:
        if self.gated:
            slot = self._take_slots(copies + warmups)
            return self._copier.gated(self._issue, self._lane, copies, warmups, slot, self.untimed_bytes)
        if self.plan.mode == "memcpy":
            return self._copier.drained(self._lane, self._take_slots(1))
        return self._issued(1)

    def _issued(self, copies: int) -> Sample:
        return self._copier.on_stream(self._issue, self._lane, self._take_slots(copies), copies)

    @property
    def _issue(self) -> str:
        return "split" if self.plan.mode.startswith("streams:") else self.plan.mode

    def _take_slots(self, count: int) -> int:
        self._slot += count
        return self._slot - count


class BothWays(RawCopies):
    def __init__(self, engine: Engine, plan: CopyPlan, nbytes: int, arena: Arena, copier: Copier, device: int) -> None:
        super().__init__(engine, plan, nbytes, arena, device)
        self._copier = copier
        self._both = self._lanes[0], self._lanes[1]
        self._copies = 1
        self._warmups = 1
        self._tails = (1, 1)
        self._extra = 0

    @property
    def gated(self) -> bool:
        return self.plan.page_locked

    @property
    def has_caller(self) -> bool:
        return self.gated and self.nbytes <= ISSUE_SHOWS_TO

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One window in each direction. The side `sum` has the sum of both rates.

        The caller's time of small copies is one for both sides: until the later one has ended.
        """
        h2d, d2h = self._run(self._copies, self._warmups)
        if h2d.invalid or d2h.invalid:
            self._extra = min(self._extra + 1, MAX_WARMUPS)
            self._fit_window(h2d.elapsed_s, d2h.elapsed_s)
        trials: dict[Side, Trial] = {"h2d": as_trial(h2d, round_index), "d2h": as_trial(d2h, round_index)}
        # At the sum of both rates: its time is the harmonic mean of both times.
        seconds = h2d.elapsed_s + d2h.elapsed_s
        elapsed = 2 * h2d.elapsed_s * d2h.elapsed_s / seconds if seconds > 0 else 0.0
        trials["sum"] = Trial(round_index, elapsed, copies=h2d.copies, invalid=h2d.invalid or d2h.invalid or None)
        if self.has_caller:
            issued = self._copier.both_issued(*self._both, self._copies, self._slot)
            self._slot += self._copies
            return {side: with_caller(trial, issued) for side, trial in trials.items()}
        return trials

    def calibrate(self) -> float:
        h2d, d2h = self._once()
        first = max(h2d.elapsed_s, d2h.elapsed_s)
        if self.gated or first < WINDOW_S:
            h2d, d2h = self._run(2, 1)
        self._fit_window(h2d.elapsed_s, d2h.elapsed_s)
        return first

    def _recorded(self, taking: TrialRecorder, *, checked: bool) -> Mapping[Side, Traced]:
        copies, warmups = (1, 0) if checked else (self._copies, self._warmups)
        recorded = record(taking, lambda: self._run(copies, warmups))
        before_bytes = warmups * self.untimed_bytes if self.gated else 0
        return {side: traced_window(recorded, side, self.nbytes, before_bytes) for side in LINK_SIDES}

    def _once(self) -> list[Sample]:
        return self._run(1, 0)

    def _issue_once(self) -> Sample:
        return self._copier.both_issued(*self._both, 1, self._slot)

    def _run(self, copies: int, warmups: int) -> list[Sample]:
        slot = self._slot
        if not self.gated:
            self._slot += copies
            return self._copier.both_threads(*self._both, copies, slot)
        self._slot += copies + warmups + max(self._tails)
        return self._copier.both_gated(*self._both, copies, warmups, self._tails, slot, self.untimed_bytes)

    def _fit_window(self, h2d_s: float, d2h_s: float) -> None:
        """Choose windows of some milliseconds, and tails with which the faster side outlasts the slower side's window.

        After trials whose sides did not overlap, more copies run before and after the windows.
        """
        slower = max(h2d_s, d2h_s, 1e-9)
        fewest = 2 if self.gated else 1
        self._copies = max(fewest, min(MAX_COPIES, math.ceil(WINDOW_S / slower)))
        self._warmups = self._extra + max(1, min(MAX_WARMUPS, self._copies // 4))
        for parts in _possible_parts(self.nbytes):
            self._untimed_parts = parts
            self._tails = self._needed_tails(h2d_s, d2h_s)
            if self._queued <= MAX_QUEUED:
                return
        while self._copies > 1 and self._queued > MAX_QUEUED:
            self._copies -= 1
            self._tails = self._needed_tails(h2d_s, d2h_s)

    @property
    def _queued(self) -> int:
        return self._warmups + self._copies + max(self._tails)

    def _needed_tails(self, h2d_s: float, d2h_s: float) -> tuple[int, int]:
        """In untimed copies. Large copies vary less in their time, so they need less to spare."""
        parts = self._untimed_parts
        before = self._warmups + self._copies * parts
        spare = self._extra + max(1, before // (4 if parts == 1 else 8))

        def tail(own_s: float, other_s: float) -> int:
            return max(0, math.ceil(before * other_s / max(own_s, 1e-9)) - before) + spare

        return tail(h2d_s, d2h_s), tail(d2h_s, h2d_s)


def _possible_parts(nbytes: int) -> list[int]:
    return [parts for parts in UNTIMED_PARTS if parts == 1 or nbytes // parts >= MIN_UNTIMED_BYTES]


def make_subject(engine: Engine, plan: CopyPlan, nbytes: int, arena: Arena, copier: Copier, device: int) -> RawCopies:
    kind = BothWays if plan.direction == "both" else OneWay
    return kind(engine, plan, nbytes, arena, copier, device)


def as_trial(sample: Sample, round_index: int) -> Trial:
    times = (sample.elapsed_s, sample.dispatch_s, sample.wall_s)
    return Trial(round_index, *times, sample.copies, sample.invalid or None)


def with_caller(trial: Trial, issued: Sample) -> Trial:
    return msgspec.structs.replace(trial, wall_s=issued.wall_s)


class StagedCopies(_OneSide):
    """Copies of one size through the ring, one in each trial. They are drained, as `cudaMemcpy` is."""

    def __init__(
        self, engine: Engine, plan: CopyPlan, nbytes: int, arena: Arena, staged_copier: StagedCopier, device: int
    ) -> None:
        super().__init__(engine, plan, nbytes, arena, device)
        self._staged_copier = staged_copier
        self._last_s = 0.0

    def calibrate(self) -> float:
        """Make the first copy; returns its seconds, including the creation of the ring if it is the ring's first.

        The search for the ring's settings is not included, because it runs once on each host.
        """
        made_s = 0.0 if self._staged_copier.moved else self._staged_copier.made.made_s
        return made_s + self._once().elapsed_s

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self._wake()
        self._refresh()
        trial = as_trial(self._staged_copier.time(self._lane, self._next_slot()), round_index)
        self._last_s = trial.elapsed_s
        return {self.side: trial}

    def _recorded(self, taking: TrialRecorder, *, checked: bool) -> Mapping[Side, Traced]:
        if not checked:  # a checked destination is poisoned, so its pages must stay
            self._wake()
            self._refresh()
        bracket, usage, capture = record(taking, self._once)
        return {self.side: traced_call(self.side, bracket, 1, usage, capture, staged=True)}

    def _wake(self) -> None:
        """Make an untimed copy first if the ring's threads may have fallen asleep."""
        if self._last_s < WAKE_BELOW_S and self._staged_copier.wakes(self.nbytes):
            self._staged_copier.time(self._lane, self._next_slot())

    def _once(self) -> Bracket:
        host, device = self._arena.place(self.plan.direction, self.plan.memory, self.nbytes, self._next_slot())
        return self._staged_copier.move(self.plan.direction, host, device, self.nbytes)

    def _next_slot(self) -> int:
        slot = self._slot % self._lane.slots
        self._slot += 1
        return slot
