"""A clock that tests move, and subjects whose trials take given times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from pyxfer._document.machines import Side
from pyxfer._document.runs import Trial


@dataclass
class Clock:
    """Seconds that pass only in trials and in its own `sleep`."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s

    # It can take the place of a module's `time`.
    perf_counter = monotonic = __call__

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Timed:
    """A subject whose trials take the given seconds in turn. `log` has the rounds and keys of all trials."""

    key: str
    clock: Clock
    seconds: Sequence[float] = (1e-3,)
    anchor: str | None = None
    log: list[tuple[int, str]] = field(default_factory=list)
    invalid: str | None = None
    ceiling_of: str | None = None
    _next: Iterator[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._next = cycle(self.seconds)

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self.log.append((round_index, self.key))
        seconds = next(self._next)
        self.clock.now_s += seconds
        return {"h2d": Trial(round_index, seconds, invalid=self.invalid)}

    @property
    def rounds(self) -> list[int]:
        """The rounds of its trials."""
        return [index for index, key in self.log if key == self.key]


@dataclass
class Failing(Timed):
    """A subject that raises after `good_trials` trials."""

    error: BaseException = field(default_factory=RuntimeError)
    good_trials: int = 0

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        if len(self.rounds) >= self.good_trials:
            self.log.append((round_index, self.key))
            raise self.error
        return super().trial(round_index)


@dataclass
class Rare(Timed):
    """A subject of which only every n-th trial is valid."""

    valid_every: int = 1

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self.invalid = "late" if (len(self.rounds) + 1) % self.valid_every else None
        return super().trial(round_index)


@dataclass
class Shaky(Timed):
    """A subject whose first trials are invalid."""

    invalid_rounds: int = 0

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        self.invalid = "late" if len(self.rounds) < self.invalid_rounds else None
        return super().trial(round_index)
