"""How a command ends: exit codes, messages for errors, Ctrl-C, and output streams whose reader is gone.

An error becomes one line on stderr. Only an error in pyxfer itself has a traceback, which `main.run` prints.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from pyxfer.errors import (
    STORE_NEEDS_SQLALCHEMY,
    ArrayFileError,
    CudaUnavailableError,
    DocumentError,
    PyxferError,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    from pyxfer._document.links import Links
    from pyxfer._document.machines import Fact
    from pyxfer._document.runs import Run

USAGE = 2
NO_GPU = 3
NOT_VALID = 4
INTERRUPTED = 130
READER_GONE = 141  # as a shell reports SIGPIPE

# The first Ctrl-C ends a run within a second, saving included; after this time another one kills the process.
PATIENCE_S = 2.0
# An interrupt that Python dropped is sent again after this time, when the code that cannot raise it has ended.
_AGAIN_S = 0.01


# Dropped when memory runs out, so that there is room to say so. The system gives pages only when they are written to.
_reserve = [bytes(8 << 20)]


class NotKeptError(PyxferError):
    """A result could not be written to the end, so the command ends with `NOT_VALID`."""


# --- errors ----------------------------------------------------------------------------------------------------------


@contextmanager
def as_exit_codes() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except PyxferError as error:
        _end(str(error), _code_of(error))
    except (MemoryError, SystemError) as error:
        _reserve.clear()
        _end(_memory_text(error), NOT_VALID)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror or error}{where}.", USAGE)
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "sqlalchemy":
            _end(STORE_NEEDS_SQLALCHEMY, USAGE)
        if _is_out_of_memory(error):
            _end(_OUT_OF_MEMORY, NOT_VALID)
        # Ctrl-C while a compiled module was being loaded
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end("interrupted", INTERRUPTED)


_OUT_OF_MEMORY = "There is not enough host memory: free some, or raise its limit (ulimit -v)."


def _memory_text(error: MemoryError | SystemError) -> str:
    if not _is_out_of_memory(error):
        raise error
    return _OUT_OF_MEMORY if isinstance(error, SystemError) else str(error) or _OUT_OF_MEMORY


def _is_out_of_memory(error: MemoryError | SystemError | ImportError) -> bool:
    """Also if the loader found no room for a compiled module, or Python none for the exception."""
    said = str(error)
    return isinstance(error, MemoryError) or "failed to map segment" in said or "without exception set" in said


def _code_of(error: PyxferError) -> int:
    if isinstance(error, CudaUnavailableError):
        return NO_GPU
    return USAGE if isinstance(error, (UsageError, ArrayFileError, DocumentError, StoreError)) else NOT_VALID


def _end(message: str, code: int) -> None:
    say(message)
    raise SystemExit(code) from None


def say(text: str) -> None:
    """Print one line on stderr; a closed stderr is ignored."""
    from pyxfer._report.text import clean

    line = f"pyxfer: {clean(text, longest=2000)}"
    with suppress(OSError):
        if sys.stderr.isatty():
            line = textwrap.fill(line, shutil.get_terminal_size().columns, break_long_words=False)
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


# --- invalid results -------------------------------------------------------------------------------------------------


def end_as(run: Run | Links) -> None:
    """Exit with the run's code, unless it is 0. Call it after the run was shown and saved."""
    if run.ended == "interrupted":
        raise SystemExit(INTERRUPTED)
    invalid = why_invalid(run)
    if invalid:
        sys.stdout.flush()  # the message refers to the page above it
        _end(invalid, NOT_VALID)


def why_invalid(run: Run | Links) -> str:
    """Why the run's results are invalid or incomplete, or an empty text."""
    if run.ended == "failed":
        return f"The run failed: {run.failure or 'no reason given'}"
    copies = [flow for row in run.traffics for flow in row.flows] if run.kind == "links" else run.measurements
    if any(copy.verified.value is False for copy in copies):
        return "Data arrived wrong, so the results are invalid."
    if run.kind == "links":
        rates = [*(row.total for row in run.traffics), *(row.rate for row in run.small)]
        facts: list[Fact[Any]] = [*rates, *(row.p50 for row in run.latencies)]
        return "" if any(fact.value is not None for fact in facts) else nothing_measured(facts)
    of_kind = {"files": lambda row: row.worker is not None, "blocks": lambda row: row.block_bytes is not None}
    rows = list(filter(of_kind.get(run.kind), run.measurements))
    if any(row.rate.value is not None for row in rows):
        return _why_not_explained(run) or _why_not_whole(run)
    has_trials = any(row.trials for row in rows)
    rates = [row.rate for row in rows]
    return nothing_measured(rates, "There is no valid trial" if has_trials else "Nothing was measured")


def nothing_measured(facts: Iterable[Fact[Any]], what: str = "Nothing was measured") -> str:
    """With a reason from the page, which --quiet does not print."""
    reasons = list(dict.fromkeys(fact.reason for fact in facts if fact.reason))
    others = f"; {len(reasons) - 1} more for other rows" if reasons[1:] else ""
    return f"{what}: {reasons[0].removesuffix('.')}{others}." if reasons else f"{what}."


def _why_not_explained(run: Run) -> str:
    """The explained route has no bandwidth, although it should copy something."""
    from pyxfer._report.explain import find_explained
    from pyxfer._report.route_tables import copies_nothing

    explained = find_explained(run) if run.kind == "explain" else None
    if explained is None or explained.row.rate.value is not None or copies_nothing(explained.row):
        return ""
    return f"{explained.row.route} has no bandwidth: {explained.row.rate.reason or 'no reason given'}"


def _why_not_whole(run: Run) -> str:
    """A framework may be started again after a crash. A loader that raises an error has only not been measured."""
    is_of_files = run.kind == "files"
    last = {worker.name if is_of_files else (worker.framework, worker.setting): worker for worker in run.workers}
    broken = [worker for worker in last.values() if worker.ended in ("crashed", "hung")]
    broken += [] if is_of_files else [worker for worker in last.values() if worker.ended == "failed"]
    return " ".join(f"The worker {worker.name} {worker.ended}: {worker.reason}." for worker in broken)


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


class CtrlC(KeyboardInterrupt):
    """A KeyboardInterrupt that does not change the exit code of `python -m pyxfer`.

    If a plain KeyboardInterrupt passes through code that was compiled from text, as in dataclasses and SQLAlchemy,
    Python ends `python -m` by the signal even if the exception is caught.
    """


class InterruptHandler:
    """A signal handler that raises `CtrlC` once, then ignores signals for a while, then ends the process."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_s is None:
            self._first_s = now
            raise CtrlC
        if now - self._first_s > PATIENCE_S:
            os._exit(INTERRUPTED)

    def answer_again(self) -> None:
        """Send the signal once more, because the first exception was dropped."""
        self._first_s = None
        with suppress(RuntimeError):  # Python is shutting down
            _thread.start_new_thread(self._come_again, (_thread.get_ident(),))

    def _come_again(self, thread: int) -> None:
        """Run in a separate thread: an immediate signal would be raised in the same place and dropped again."""
        time.sleep(_AGAIN_S)
        if self._first_s is None and signal.getsignal(signal.SIGINT) is self:
            signal.pthread_kill(thread, signal.SIGINT)


def install_interrupt_handler() -> None:
    """Replace Python's handler of Ctrl-C, unless the parent process set the signal to be ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    handler, usual = InterruptHandler(), sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        # In a __del__ or a weak reference's callback Python prints the exception and continues.
        if issubclass(unraisable.exc_type, CtrlC):
            handler.answer_again()
        else:
            usual(unraisable)

    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook


def exit_at_once_if_stuck(code: object) -> None:
    """End the process if a thread is stuck in the driver, because Python's shutdown would unwind it and abort."""
    measuring = sys.modules.get("pyxfer._measure.interruptible")
    if measuring is not None and measuring.is_work_left():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, SystemExit, NotKeptError):  # ExitingOutput raises the last two
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


# --- output streams --------------------------------------------------------------------------------------------------


class DroppingOutput(io.TextIOWrapper):
    """A stream that drops its output after a write has failed."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.lost(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.lost(error)

    def lost(self, error: OSError) -> None:
        """Redirect to the null device, so that Python can flush the buffer at exit and keeps the exit code."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


class ExitingOutput(DroppingOutput):
    """Ends the program quietly when its reader closes the pipe, with the exit code of SIGPIPE in a shell."""

    _error: NotKeptError | None = None

    def flush(self) -> None:
        """Flush the buffer, or raise an error of an earlier write: the library of the help texts ignores that one."""
        try:
            super().flush()
        finally:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def lost(self, error: OSError) -> None:
        """Exit if the reader has closed the pipe, else raise the error of stdout."""
        super().lost(error)
        if isinstance(error, BrokenPipeError):
            raise SystemExit(READER_GONE) from None
        self._error = NotKeptError(f"{error.strerror or error} (standard output).")
        raise self._error from None


def prepare_streams() -> None:
    """Replace stdout and stderr by streams that survive a closed reader. Only for the program, not for its tests.

    A closed stdin becomes an empty one.
    """
    # With a closed descriptor (`>&-`) Python sets the stream to None.
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # as descriptor 0: V8 fails if it gets this one for a file of its own
    sys.stdout = _replaced(sys.stdout or _null_stream(), ExitingOutput)
    sys.stderr = _replaced(sys.stderr or _null_stream(), DroppingOutput)


def _replaced(stream: TextIO, by: type[DroppingOutput]) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, line_buffering, write_through = stream.encoding, stream.line_buffering, stream.write_through
    # A name that the terminal cannot encode must not end the program.
    return by(
        stream.detach(),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=line_buffering,
        write_through=write_through,
    )


def _null_stream() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
