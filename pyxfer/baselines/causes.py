"""What is likely to have made it slow, the surest first, each with what was seen. Without evidence nothing is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pyxfer.baselines.case import Case, lost_text
from pyxfer.baselines.host_causes import host_causes, pattern_causes, software_causes
from pyxfer.baselines.link_causes import link_causes
from pyxfer.model import Run
from pyxfer.model_baselines import Cause, CellComparison, Comparison


def causes(a: Sequence[Run], b: Sequence[Run], cells: Iterable[CellComparison]) -> tuple[Cause, ...]:
    """Of what is slow in B against A; nothing where nothing is."""
    case = Case.of(a, b, cells)
    if not case.slow:
        return ()
    surest, patterns = (*link_causes(case), *host_causes(case)), tuple(pattern_causes(case))
    if surest:
        return (*surest, *patterns)
    exchanged = tuple(software_causes(case))
    return (*patterns, *exchanged) if exchanged else (*patterns, _unexplained(case))


def with_causes(comparison: Comparison, a: Sequence[Run], b: Sequence[Run]) -> Comparison:
    """The comparison with the causes of what is slow in it."""
    return msgspec.structs.replace(comparison, causes=causes(a, b, comparison.cells))


def _unexplained(case: Case) -> Cause:
    read, fix = "link, placement, clocks", "pyxfer doctor, what else uses the link (storage, network)"
    if not case.has_link:
        read, fix = "processors, memory, placement", "what else uses the host's memory and processors"
    return Cause(
        "unexplained",
        "Nothing that was read of the two sides has changed.",
        f"{read} and settings are as before, or could not be read; it has lost {lost_text(case.slow)}",
        f"see {fix}, and the kernel log",
    )
