"""Run the command in a separate process, with pipes or in a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

COMMAND = (sys.executable, "-m", "pyxfer")
TIMEOUT_S = 60.0


def environment(**changes: str) -> dict[str, str]:
    """The environment without variables that change the colours, width or buffering of the output."""
    left_out = ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "TERM": "xterm-256color", **changes}


def pyxfer(*arguments: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command with pipes."""
    return _run([*COMMAND, *arguments], cwd, changes)


def shell(command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `pyxfer` is the command. The exit code is that of the first command of the pipe."""
    script = f'pyxfer() {{ "{sys.executable}" -m pyxfer "$@"; }}; {command}; exit "${{PIPESTATUS[0]}}"'
    return _run(["bash", "-c", script], None, changes)


def _run(command: Sequence[str], cwd: Path | None, changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=cwd,
        env=environment(**changes),
    )


def in_terminal(*arguments: str, columns: int = 80, **changes: str) -> tuple[int, str]:
    """Run the command in a terminal; return its exit code and its output."""
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
    """Press Ctrl-C `times` times when the command has written the text to stderr."""
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
        except OSError:  # EIO: the process has closed the terminal
            break
        if not chunk:
            break
        chunks.append(chunk)
    return chunks


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
