"""Standard output and standard error, whose readers may leave (`| head`), and which may not be there at all."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from .failures import READER_GONE


class LosableOutput(io.TextIOWrapper):
    """Once nothing takes what is written here it goes nowhere, and the program goes on."""

    def write(self, text: str) -> int:
        """Write, or lose it."""
        try:
            return super().write(text)
        except OSError as error:
            self.lost(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or lose what was buffered."""
        try:
            super().flush()
        except OSError as error:
            self.lost(error)

    def lost(self, error: OSError) -> None:
        """What is still buffered goes nowhere too, or Python would fail over it at exit, with a code of its own."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


class LeavableOutput(LosableOutput):
    """Ends the program quietly once its reader has gone, with the code that a shell gives to SIGPIPE."""

    def lost(self, error: OSError) -> None:
        """End with the reader, or say what became of standard output."""
        super().lost(error)
        if isinstance(error, BrokenPipeError):
            raise SystemExit(READER_GONE) from None
        error.filename = "standard output"
        raise error from None


def prepare_streams() -> None:
    """Make both streams ready for whatever happens to them; for the program, not for its tests."""
    # A closed descriptor (`>&-`) leaves None there, which nothing can be written to.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    sys.stdout = _replaced(sys.stdout, LeavableOutput)
    sys.stderr = _replaced(sys.stderr, LosableOutput)  # nobody listening there is no reason to stop


def _replaced(stream: TextIO, by: type[LosableOutput]) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, line_buffering, write_through = stream.encoding, stream.line_buffering, stream.write_through
    # No name from outside may end the program because the terminal cannot spell it.
    return by(
        stream.detach(),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=line_buffering,
        write_through=write_through,
    )


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
