"""The part of the document that comes from the device's own records; `pyxfer.model` offers it too."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from pyxfer.model_machine import Fact

NOT_TRACED = "nobody traced it"
# In the order in which they come about. What pyxfer cannot tell apart stays in the part that it began in.
PartName = Literal[
    "preparing", "waiting", "copying", "staging", "gaps", "kernels", "other copies", "returning", "finishing"
]
PARTS: tuple[PartName, ...] = get_args(PartName)


class Tracing(msgspec.Struct, frozen=True):
    """What the records come from."""

    library: str
    version: int


class Dma(msgspec.Struct, frozen=True):
    """What the copy engines did for one transfer: the median of the traced trials.

    `seconds`: at least one copy in the route's direction was under way. `source`: the memory that they met on the
    host's side, `pageable` or `pinned`, or both with a `+` between.
    """

    seconds: Fact[float]
    nbytes: int
    copies: float
    source: str
    trials: int

    @property
    def gbps(self) -> float | None:
        """1e9 bytes a second while the copy engines were at work."""
        return None if not self.seconds.value else self.nbytes / self.seconds.value / 1e9


class Part(msgspec.Struct, frozen=True):
    """A stretch of a trial, with its name."""

    name: PartName
    seconds: float


class Breakdown(msgspec.Struct, frozen=True):
    """Where the time of one transfer went, in the traced trial that stands in the middle. The parts sum to `elapsed_s`.

    `switches`: how often the calling thread waited for something; `preemptions`: how often the processor was taken
    from it.
    """

    elapsed_s: float
    parts: tuple[Part, ...]
    dispatch_s: float
    wall_s: float
    faults: float
    switches: float
    preemptions: float
    trials: int

    def seconds(self, name: PartName) -> float:
        """How long a part took; nothing where there was none."""
        return sum(part.seconds for part in self.parts if part.name == name)
