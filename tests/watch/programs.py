"""Programs that are watched in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
TIMEOUT_S = 60.0
# What every program may use.
HEAD = """
import os, signal, sys, threading, time
import pyxfer
from watch.copying import copies
"""


def source(body: str, head: str = HEAD) -> str:
    """A whole program."""
    return head + textwrap.dedent(body)


def environment() -> dict[str, str]:
    """Where the program finds these tests' own modules."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def run_program(body: str, *arguments: str, head: str = HEAD) -> subprocess.CompletedProcess[str]:
    """What it wrote, and how it ended."""
    return subprocess.run(
        [sys.executable, "-c", source(body, head), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=environment(),
    )


def start_program(body: str, *arguments: str) -> subprocess.Popen[str]:
    """One that is still at work, with its output to be read."""
    return subprocess.Popen(
        [sys.executable, "-c", source(body), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def output(body: str, *arguments: str, head: str = HEAD) -> list[str]:
    """The lines that a program printed that came to its end."""
    result = run_program(body, *arguments, head=head)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
