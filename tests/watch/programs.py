"""Runs watched programs in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
TIMEOUT_S = 60.0
# The beginning of every program.
HEAD = """
import os, signal, sys, threading, time
import pyxfer
from watch.copying import copies
"""


def source(body: str, head: str = HEAD) -> str:
    """The program with its beginning."""
    return head + textwrap.dedent(body)


def environment() -> dict[str, str]:
    """The environment, with the folder of the tests in the path."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def run_program(body: str, *arguments: str, head: str = HEAD) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source(body, head), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=environment(),
    )


def start_program(body: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program without waiting for its end."""
    return subprocess.Popen(
        [sys.executable, "-c", source(body), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def output(body: str, *arguments: str, head: str = HEAD) -> list[str]:
    """The lines that a program printed, which must end without an error."""
    result = run_program(body, *arguments, head=head)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
