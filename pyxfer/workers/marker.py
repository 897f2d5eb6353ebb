"""What a worker is at, in memory that outlives it: a crash can say nothing, so it is written down before every step.

Not a message, because waking the other process at every trial would disturb the trial.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

_BYTES = 256


@dataclass(frozen=True)
class Mark:
    """A route at a size, and whether it was being set up, verified or timed."""

    route: str
    nbytes: int
    phase: str


class Marker:
    """Both processes hold the same file, which has no name."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = os.memfd_create("pyxfer-marker", 0) if handle is None else handle

    def set(self, route: str, nbytes: int, phase: str) -> None:
        """Right before the step."""
        os.pwrite(self.handle, f"{route}\t{nbytes}\t{phase}".encode()[:_BYTES].ljust(_BYTES, b"\0"), 0)

    def clear(self) -> None:
        """Right after it."""
        os.pwrite(self.handle, b"\0", 0)

    def read(self) -> Mark | None:
        """The step that was under way; None between steps."""
        text = os.pread(self.handle, _BYTES, 0).split(b"\0", 1)[0].decode(errors="replace")
        parts = text.split("\t")
        if len(parts) != 3 or not parts[1].isdigit():  # noqa: PLR2004 - as `set` writes it
            return None
        return Mark(parts[0], int(parts[1]), parts[2])

    def close(self) -> None:
        """Give the file back."""
        os.close(self.handle)
