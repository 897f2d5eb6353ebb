"""How a command ends: what went wrong becomes one sentence on stderr and an exit code.

A fault of pyxfer itself alone has a traceback, which `main.run` prints.
"""

from __future__ import annotations

import _thread
import io
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from pyxfer.errors import CudaUnavailableError, DocumentError, PyxferError, StoreError, UsageError

if TYPE_CHECKING:
    from pyxfer._document.runs import Run


INTERRUPTED = 130
# The first Ctrl-C ends a run within a second, saving included; who still waits after this long may leave by force.
PATIENCE_S = 2.0
# So soon an interrupt that Python has dropped comes again; by then the code that it cannot leave has ended.
_AGAIN_S = 0.01


class CtrlC(KeyboardInterrupt):
    """A KeyboardInterrupt that is caught for good once it is caught.

    Where the very KeyboardInterrupt has come through code that was made of text, as that of dataclasses and SQLAlchemy
    is, Python ends `python -m pyxfer` by the signal, whatever the exit code was to be.
    """


class OnInterrupt:
    """The handler: KeyboardInterrupt once, then nothing for a while, then the end of the process."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """As `signal.signal` wants it."""
        now = time.monotonic()
        if self._first_s is None:
            self._first_s = now
            raise CtrlC
        if now - self._first_s > PATIENCE_S:
            os._exit(INTERRUPTED)

    def answer_again(self) -> None:
        """The first one has led to nothing: forget it, and have it come once more."""
        self._first_s = None
        try:  # noqa: SIM105 - contextlib takes a while to load
            _thread.start_new_thread(self._come_again, (_thread.get_ident(),))
        except RuntimeError:  # Python is shutting down, which is what was wanted
            pass

    def _come_again(self, thread: int) -> None:
        """In a thread of its own: sent at once it would be raised where nothing can be."""
        time.sleep(_AGAIN_S)
        if self._first_s is None and signal.getsignal(signal.SIGINT) is self:
            signal.pthread_kill(thread, signal.SIGINT)


def heed_interrupts() -> None:
    """Take over from Python's own handler, unless whoever started this process wants Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    handler, usual = OnInterrupt(), sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        # Raised in a __del__ or the callback of a weak reference it would be printed, and the command would go on.
        if issubclass(unraisable.exc_type, CtrlC):
            handler.answer_again()
        else:
            usual(unraisable)

    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook


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


USAGE = 2
NO_GPU = 3
NOT_VALID = 4
READER_GONE = 141


@contextmanager
def as_exit_codes() -> Iterator[None]:
    """Wrap a whole command."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except PyxferError as error:
        _end(str(error), _code_of(error))
    except MemoryError:
        _end("host memory ran out; take smaller sizes, such as --sizes 4KiB:16MiB:x4", NOT_VALID)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror or error}{where}", USAGE)
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)
    except ImportError as error:  # Ctrl-C while a compiled module was being loaded
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end("interrupted", INTERRUPTED)


def say(text: str) -> None:
    """One line on stderr, whoever wrote it; nobody listening there is no reason to stop."""
    from pyxfer._report.text import clean

    line = f"pyxfer: {clean(text, longest=2000)}"
    with suppress(OSError):
        if sys.stderr.isatty():
            line = textwrap.fill(line, shutil.get_terminal_size().columns, break_long_words=False)
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def end_as(run: Run) -> None:
    """Leave with the code that a run has earned, after it has been shown and saved."""
    if run.ended == "interrupted":
        raise SystemExit(INTERRUPTED)
    invalid = why_invalid(run)
    if invalid:
        sys.stdout.flush()  # the sentence speaks of the page above it
        _end(invalid, NOT_VALID)


def leave_at_once_if_stuck(code: object) -> None:
    """End the process where a thread is stuck in the driver: Python's own shutdown would unwind it and abort."""
    measuring = sys.modules.get("pyxfer._measure.interruptible")
    if measuring is not None and measuring.is_work_left():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, SystemExit):  # a reader that has gone would end us, and not at once
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


def why_invalid(run: Run) -> str:
    """Why a run must not be believed, or nothing."""
    if run.ended == "failed":
        return f"the run failed: {run.failure or 'no reason given'}"
    if any(measurement.verified.value is False for measurement in run.measurements):
        return "contents differ after a transfer, so its figures cannot be believed"
    if any(measurement.rate.value is not None for measurement in run.measurements):
        return _why_not_explained(run) or _why_not_whole(run)
    if any(measurement.trials for measurement in run.measurements):
        return "not one trial was valid, for the reasons above"
    return "nothing was measured, for the reasons above"


def _why_not_explained(run: Run) -> str:
    """The route that was asked about has no bandwidth, and is not one that rightly copies nothing."""
    from pyxfer._report.explain_words import copies_nothing, find_explained

    explained = find_explained(run) if run.kind == "explain" else None
    if explained is None or explained.row.rate.value is not None or copies_nothing(explained.row):
        return ""
    return f"{explained.row.route} has no bandwidth: {explained.row.rate.reason or 'no reason given'}"


def _why_not_whole(run: Run) -> str:
    """A framework whose last worker did not come to its end, for another reason than that it is not there."""
    last = {(worker.framework, worker.setting): worker for worker in run.workers}
    broken = [worker for worker in last.values() if worker.ended in ("crashed", "hung", "failed")]
    return "; ".join(f"the worker {worker.name} did not come to its end: {worker.reason}" for worker in broken)


def _code_of(error: PyxferError) -> int:
    if isinstance(error, CudaUnavailableError):
        return NO_GPU
    return USAGE if isinstance(error, (UsageError, DocumentError, StoreError)) else NOT_VALID


def _end(sentence: str, code: int) -> None:
    say(sentence)
    raise SystemExit(code) from None
