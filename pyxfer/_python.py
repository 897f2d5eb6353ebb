"""The command of every other Python that pyxfer starts, its end, and what it has logged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

# Python 3.13 imports linecache before it runs the code of `-c`. Python 3.10 knows no -P, and imports nothing.
SAFE_PATH = ["-P"] if sys.version_info >= (3, 11) else []
BOOT = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n')\n"


def python_command(code: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
    """A Python that runs `code` with the `sys.path` of this one; `arguments` are its `sys.argv[1:]`.

    `python -c` and `python -m` alone look into the current directory first: a json.py there would be run in place of
    the standard library's.
    """
    isolated = ["-I"] if sys.flags.isolated else SAFE_PATH
    return [sys.executable, *isolated, *flags, "-c", BOOT + code, "\n".join(sys.path), *arguments]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session, with its children, and wait for its end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_LOG_BYTES = 64 * 1024


def last_lines(log: int) -> list[str]:
    """The end of a log without empty lines; `log` is its descriptor."""
    size = os.fstat(log).st_size
    text = os.pread(log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def ending_of(code: int) -> str:
    """What the exit code of a process says, after "it"."""
    if code >= 0:
        return f"ended by itself with exit code {code}"
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL; possibly out of memory)"
    return f"crashed ({signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'})"
