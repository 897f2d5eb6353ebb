"""Copies of pageable memory through a ring, as a subject of the sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.model import Side, Trial
from pyxfer.raw.subjects import OneSide
from pyxfer.sampling.subject import WAKE_BELOW_S
from pyxfer.tracing.trials import Traced, Usage, copy_way

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyxfer.native import Engine
    from pyxfer.raw.arena import Arena
    from pyxfer.raw.stager import Stager
    from pyxfer.raw.ways import Way
    from pyxfer.sampling.bracket import Bracket
    from pyxfer.tracing.taking import Taking


class StagedCopies(OneSide):
    """One copy a trial, the device drained around it: as `cudaMemcpy` is timed, which it takes the place of."""

    def __init__(self, engine: Engine, way: Way, nbytes: int, arena: Arena, stager: Stager, device: int) -> None:
        super().__init__(engine, way, nbytes, arena, device)
        self._stager = stager
        self._last_s = 0.0

    def calibrate(self) -> float:
        """Nothing to choose; returns the seconds of the first copy, with the making of the ring where it is its first.

        What finding the ring's settings took is no part of it: that is done once a host.
        """
        made_s = 0.0 if self._stager.moved else self._stager.made.made_s
        return made_s + self._once().elapsed_s

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One copy."""
        self._wake()
        self._refresh()
        sample = self._stager.time(self._lane, self._next_slot())
        self._last_s = sample.elapsed_s
        trial = Trial(round_index, sample.elapsed_s, sample.dispatch_s, sample.wall_s, invalid=sample.invalid or None)
        return {self.side: trial}

    def traced(self, taking: Taking, seed: int | None) -> tuple[Mapping[Side, Traced], bool]:
        """One copy and what the device recorded of it; with a seed of fresh content, verified."""
        if seed is None:
            return {self.side: self._recorded(taking)}, True
        kept: list[Traced] = []
        right = self._arrives(seed, lambda: kept.append(self._recorded(taking, checked=True)))
        return {self.side: kept[0]}, right

    def _recorded(self, taking: Taking, *, checked: bool = False) -> Traced:
        """Of what is checked the place has been poisoned, and is not to be forgotten."""
        if not checked:
            self._wake()
            self._refresh()
        taking.begin()
        before = Usage.so_far()
        bracket = self._once()
        usage = Usage.so_far().since(before)
        capture = taking.take()
        return Traced(
            way=copy_way(self.side),
            begin_ns=round(bracket.moments.called_s * 1e9),
            returned_ns=round(bracket.moments.returned_s * 1e9),
            elapsed_s=bracket.wall_s if bracket.fault else bracket.elapsed_s,
            dispatch_s=bracket.dispatch_s,
            wall_s=bracket.wall_s,
            copies=1,
            usage=usage,
            capture=capture,
            staged=True,
        )

    def _wake(self) -> None:
        """One copy of another place first, where threads take part that have fallen asleep."""
        if self._last_s < WAKE_BELOW_S and self._stager.wakes(self.nbytes):
            self._stager.time(self._lane, self._next_slot())

    def _once(self) -> Bracket:
        host, device = self._arena.place(self.way.direction, self.way.memory, self.nbytes, self._next_slot())
        return self._stager.move(self.way.direction, host, device, self.nbytes)

    def _next_slot(self) -> int:
        slot = self._slot % self._lane.slots
        self._slot += 1
        return slot
