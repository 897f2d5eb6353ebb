"""The command as a user starts it: in a process of its own, with a pipe, a file or a terminal at its end."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = (sys.executable, "-m", "pyxfer")
TIMEOUT_S = 60.0


def environment(**changes: str) -> dict[str, str]:
    """The environment of these tests without what colours or widens a page, or has Python write at once."""
    left_out = ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "TERM": "xterm-256color", **changes}


def pyxfer(*arguments: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command with pipes at its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=cwd,
        env=environment(**changes),
    )


def shell(command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `pyxfer` is the command; its code is that of the first in a pipe."""
    script = f'pyxfer() {{ "{sys.executable}" -m pyxfer "$@"; }}; {command}; exit "${{PIPESTATUS[0]}}"'
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=environment(**changes),
    )


def in_terminal(*arguments: str, columns: int = 80, **changes: str) -> tuple[int, str]:
    """Run the command in a terminal of so many columns: its exit code, and all that the terminal was sent."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(COLUMNS=str(columns), **changes),
    )
    os.close(terminal)
    text = b"".join(_read_until_closed(controller))
    os.close(controller)
    return process.wait(TIMEOUT_S), text.decode().replace("\r\n", "\n")


def interrupt_when(text: str, *arguments: str, times: int = 1, **changes: str) -> subprocess.CompletedProcess[str]:
    """Press Ctrl-C so many times once the command has written the text to stderr."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**changes),
    )
    assert process.stderr is not None
    seen = ""
    while text not in seen:
        line = process.stderr.readline()
        assert line, f"it ended before it said {text!r}: {seen}"
        seen += line
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, rest = process.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, seen + rest)


def _read_until_closed(controller: int) -> list[bytes]:
    chunks = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if not select.select([controller], [], [], 1.0)[0]:
            continue
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # Linux ends a terminal that nobody holds any more with EIO
            break
        if not chunk:
            break
        chunks.append(chunk)
    return chunks
