"""How far a load is, in one line of a terminal that is written again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from pyxfer._machine.engine import is_host
from pyxfer._upload.settings import link_state_of
from pyxfer.units import format_gbps, format_percent, format_seconds

if TYPE_CHECKING:
    from pyxfer._upload.uploader import Uploader

_EVERY_S = 0.2
_GB = 1e9
_START_OF_LINE = "\r\x1b[K"  # and clear it


def progress_of(total_bytes: int, uploader: Uploader | None) -> LoadProgress | None:
    """None if stderr is not a terminal: a log has no use for it."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # of a service without one, or closed
        is_terminal = False
    if not is_terminal:
        return None
    if uploader is None or is_host(uploader.engine):
        return LoadProgress(total_bytes, None, sys.stderr)
    link = link_state_of(uploader.engine.device_properties(uploader.device).pci)
    return LoadProgress(total_bytes, link.then(lambda state: state.gbps).value, sys.stderr)


class LoadProgress:
    """Writes bytes, rate, share of the link's rate and the time left. The last line stays."""

    def __init__(
        self,
        total_bytes: int,
        link_gbps: float | None,
        stream: TextIO,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._total_bytes, self._link_gbps, self._stream, self._clock = total_bytes, link_gbps, stream, clock
        self._bytes = 0
        self._begun_s = self._shown_s = clock()

    def add(self, nbytes: int) -> None:
        """Note bytes that have arrived."""
        self._bytes += nbytes
        now_s = self._clock()
        if now_s - self._shown_s >= _EVERY_S and self._bytes < self._total_bytes:
            self._shown_s = now_s
            left_s = (now_s - self._begun_s) * (self._total_bytes / self._bytes - 1)
            self._write(f", {format_seconds(left_s)} left")

    def end(self) -> None:
        """Write the last line, also of a load that failed."""
        self._write(f" in {format_seconds(self._clock() - self._begun_s)}\n")

    def _write(self, end: str) -> None:
        gbps = self._bytes / max(self._clock() - self._begun_s, 1e-9) / _GB
        share = f", {format_percent(gbps / self._link_gbps)} of the link" if self._link_gbps else ""
        unit, factor = ("GB", _GB) if self._total_bytes >= _GB else ("MB", 1e6)
        sizes = f"{self._bytes / factor:.2f} of {self._total_bytes / factor:.2f} {unit}"
        text = f"pyxfer: {sizes}, {format_gbps(gbps)}{share}"
        with suppress(OSError, ValueError):  # a stderr that is closed
            self._stream.write(f"{_START_OF_LINE}{text}{end}")
            self._stream.flush()
