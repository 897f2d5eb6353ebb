"""Standard output whose reader may leave (`| head`), and streams that may not be there at all."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from .failures import READER_GONE


class LeavableOutput(io.TextIOWrapper):
    """Ends the program quietly once its reader has gone, with the code that a shell gives to SIGPIPE."""

    def write(self, text: str) -> int:
        """Write, or end with the reader."""
        try:
            return super().write(text)
        except OSError as error:
            raise self._given_up(error) from None

    def flush(self) -> None:
        """Flush, or end with the reader."""
        try:
            super().flush()
        except OSError as error:
            raise self._given_up(error) from None

    def _given_up(self, error: OSError) -> OSError | SystemExit:
        """What is still buffered goes nowhere, or Python would complain about it once more at exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            return SystemExit(READER_GONE)
        error.filename = "standard output"
        return error


def prepare_streams() -> None:
    """Make both streams ready for whatever happens to them; for the program, not for its tests."""
    # A closed descriptor (`>&-`) leaves None there, which nothing can be written to.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # No name from outside may end the program because the terminal cannot spell it.
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, line_buffering = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = LeavableOutput(
            sys.stdout.detach(), encoding=encoding, errors="backslashreplace", line_buffering=line_buffering
        )


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
