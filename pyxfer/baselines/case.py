"""What causes are looked for in: the two sides, and which cells have become slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyxfer.model import Run
from pyxfer.model_baselines import CellComparison
from pyxfer.units import format_percent

LARGE_BYTES = 4 * 1024**2
"""From here on the rate of the link decides, and below it what a copy costs before its first byte."""
LOCKED = ("pinned", "registered", "write-combined")


@dataclass(frozen=True)
class Case:
    """A comparison with something slow in it."""

    a: Run
    b: Run
    b_runs: tuple[Run, ...]
    cells: tuple[CellComparison, ...]

    @classmethod
    def of(cls, a: Sequence[Run], b: Sequence[Run], cells: Iterable[CellComparison]) -> Case:
        """The last run of each side stands for its machine; what could not be compared says nothing here."""
        return cls(a[-1], b[-1], tuple(b), tuple(cell for cell in cells if cell.ratio.value is not None))

    @property
    def has_link(self) -> bool:
        """Whether anything crossed one; host memory alone was measured otherwise."""
        return self.b.runtime != "host"

    @property
    def slow(self) -> tuple[CellComparison, ...]:
        """The cells that are slow."""
        return tuple(cell for cell in self.cells if cell.verdict == "SLOW")

    def slow_among(self, *, locked: bool) -> tuple[CellComparison, ...]:
        """The slow ones of page-locked, or else of other memory."""
        return tuple(cell for cell in self.slow if (cell.cell.memory in LOCKED) == locked)

    def has_not_slow(self, *, locked: bool) -> bool:
        """Whether some of this memory were compared, and none of them is slow."""
        kind = [cell for cell in self.cells if (cell.cell.memory in LOCKED) == locked]
        return bool(kind) and all(cell.verdict in ("SAME", "FAST") for cell in kind)


def lost_text(cells: Sequence[CellComparison]) -> str:
    """How much of the bandwidth these cells have lost: `48.0 %`, or `4.1 % to 48.0 %`."""
    lost = sorted(1 - 1 / (cell.ratio.value or 1.0) for cell in cells)
    ends = format_percent(lost[0]), format_percent(lost[-1])
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
