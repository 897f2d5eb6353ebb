"""Memory that was asked for and given back in a window, by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyxfer.model_watch import Allocated
from pyxfer.tracing.records import Flag
from pyxfer.watching.copies import MEMORIES

if TYPE_CHECKING:
    from pyxfer.watching.gathered import Gathered


def allocated(gathered: Gathered) -> tuple[Allocated, ...]:
    """One row a kind of memory."""
    records = gathered.allocations
    memory = records["target"]
    released = (records["flags"] & Flag.FREED) != 0
    rows = []
    for kind in np.unique(memory):
        own = memory == kind
        rows.append(
            Allocated(
                memory=MEMORIES.get(int(kind), "unknown"),
                allocations=int((own & ~released).sum()),
                allocated_bytes=int(records["nbytes"][own & ~released].sum()),
                releases=int((own & released).sum()),
                released_bytes=int(records["nbytes"][own & released].sum()),
            )
        )
    return tuple(rows)
