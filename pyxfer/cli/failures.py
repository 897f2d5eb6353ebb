"""How a command ends: what went wrong becomes one sentence on stderr and an exit code.

A fault of pyxfer itself alone has a traceback, which `main.run` prints.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyxfer.errors import CudaUnavailableError, DocumentError, PyxferError, StoreError, UsageError

from .interrupts import INTERRUPTED

if TYPE_CHECKING:
    from pyxfer.model import Run

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
    from pyxfer.report.text import clean

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
    measuring = sys.modules.get("pyxfer.sampling.interruptible")
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
    from pyxfer.report.explained import copies_nothing, find_explained

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
