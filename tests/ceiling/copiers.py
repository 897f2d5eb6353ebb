"""Copiers that omit copies, copiers that record their calls, and the settings of a small ring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyxfer._upload.settings import RingSettings
from pyxfer._upload.tuning import ChosenSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyxfer.native._cuda import Copier, Lane, Sample


class Idle:
    """Reports copies that it does not make."""

    def gated(self, *_: object) -> None:
        pass

    def on_stream(self, *_: object) -> None:
        pass

    def drained(self, *_: object) -> None:
        pass

    def both_gated(self, *_: object) -> None:
        pass

    def both_issued(self, *_: object) -> None:
        pass

    def both_threads(self, *_: object) -> None:
        pass


@dataclass
class OnlyGated(Idle):
    """Makes no copies without a gate."""

    copier: Copier

    def gated(self, *arguments: Any) -> Any:
        return self.copier.gated(*arguments)

    def both_gated(self, *arguments: Any) -> Any:
        return self.copier.both_gated(*arguments)


@dataclass
class OneSided(Idle):
    """Makes only one side of a copy both ways."""

    copier: Copier
    side: int

    def both_gated(self, *arguments: Any) -> None:
        self.copier.gated("async", arguments[self.side], 1, 0, arguments[-2])

    def both_threads(self, *arguments: Any) -> None:
        self.copier.on_stream("async", arguments[self.side], arguments[-1])


@dataclass
class Recorder:
    """Forwards all calls and records them."""

    copier: Copier
    windows: list[tuple[int, int, int]] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)

    def gated(self, mode: str, lane: Lane, copies: int, warmups: int, first_slot: int, untimed_bytes: int) -> Sample:
        self.modes.append(f"gated {mode}")
        self.windows.append((copies, warmups, first_slot))
        self.queued.append(copies + warmups)
        return self.copier.gated(mode, lane, copies, warmups, first_slot, untimed_bytes)

    def on_stream(self, mode: str, lane: Lane, first_slot: int, copies: int) -> Sample:
        self.modes.append(f"on stream {mode}")
        self.windows.append((copies, 0, first_slot))
        return self.copier.on_stream(mode, lane, first_slot, copies)

    def drained(self, lane: Lane, slot: int) -> Sample:
        self.modes.append("drained")
        self.windows.append((1, 0, slot))
        return self.copier.drained(lane, slot)

    def both_gated(
        self,
        h2d: Lane,
        d2h: Lane,
        copies: int,
        warmups: int,
        tails: Sequence[int],
        first_slot: int,
        untimed_bytes: int,
    ) -> list[Sample]:
        self.modes.append("both gated")
        self.windows.append((copies, warmups, first_slot))
        self.queued.append(copies + warmups + max(tails))
        return self.copier.both_gated(h2d, d2h, copies, warmups, tails, first_slot, untimed_bytes)

    def both_issued(self, h2d: Lane, d2h: Lane, copies: int, first_slot: int) -> Sample:
        self.modes.append("both issued")
        self.windows.append((copies, 0, first_slot))
        return self.copier.both_issued(h2d, d2h, copies, first_slot)

    def both_threads(self, h2d: Lane, d2h: Lane, copies: int, first_slot: int) -> list[Sample]:
        self.modes.append("both threads")
        self.windows.append((copies, 0, first_slot))
        return self.copier.both_threads(h2d, d2h, copies, first_slot)


CHOSEN = ChosenSettings(
    RingSettings(threads=2, chunk_bytes=32 << 10, slots=2, fill="plain", spin_us=0), "given", "by a test"
)
