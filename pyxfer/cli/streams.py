"""Standard output whose reader may leave (`| head`), and streams that may not be there at all."""

from __future__ import annotations

import io
import os
import sys

from .failures import READER_GONE


class LeavableOutput(io.TextIOWrapper):
    """Ends the program quietly once its reader has gone, with the code that a shell gives to SIGPIPE."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._given_up(error) from None

    def flush(self) -> None:
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
    """Called once, by the program and not by its tests."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    sys.stderr.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
        return
    encoding, line_buffering = sys.stdout.encoding, sys.stdout.line_buffering
    # No name from outside may end the program because the terminal cannot spell it.
    sys.stdout = LeavableOutput(
        sys.stdout.detach(), encoding=encoding, errors="backslashreplace", line_buffering=line_buffering
    )
