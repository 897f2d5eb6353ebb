"""A script that is watched by the command, in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from watch.programs import TIMEOUT_S, environment

from pyxfer._document.watches import Watched

PYTHON = (sys.executable, "-m", "pyxfer")
COMMAND = (*PYTHON, "watch", "--device", "host", "--ceilings", "none")
COPYING = """
import os, signal, sys, time
from watch.copying import copies
with copies() as made:
    made.send()
    made.fetch()
"""


class Script:
    """A script in a folder of its own, and the command that watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = folder / "watch.json"

    def arguments(self, text: str, options: Sequence[str]) -> list[str]:
        (self.folder / "script.py").write_text(textwrap.dedent(text))
        return [*COMMAND, *options, "script.py"]

    def run(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.call(self.arguments(text, options))

    def call(self, arguments: Sequence[str], **changes: str) -> subprocess.CompletedProcess[str]:
        """A command in the script's folder, with these variables in its environment."""
        return subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            cwd=self.folder,
            env={**environment(), **changes},
        )

    def watched(self, text: str, *options: str) -> Watched:
        result = self.run(text, "--export-json", self.report.name, *options)
        assert result.returncode == 0, result.stderr
        return Watched.load(self.report)

    def start(self, text: str, *options: str) -> subprocess.Popen[str]:
        """Start a script and wait for its first line of output."""
        process = subprocess.Popen(
            self.arguments(text, options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


def copied(watched: Watched) -> dict[str, int]:
    assert watched.activity.value is not None, watched.activity.reason
    return {row.direction: row.nbytes for row in watched.activity.value.copies}
