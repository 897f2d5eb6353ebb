"""Run the command in this process, for tests that need neither its streams nor signals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import typer

from pyxfer._cli.failures import as_exit_codes
from pyxfer._cli.main import app

TREE: Any = typer.main.get_command(app)  # calling `app` builds it each time, which takes longer than most verbs


@dataclass(frozen=True)
class Ended:
    """The result, with the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


class Command:
    """Runs the command: `command("compare", ...)`."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> Ended:
        self._capture.readouterr()
        code: object = 0
        try:
            with as_exit_codes():
                TREE(list(arguments), prog_name="pyxfer")
        except SystemExit as end:
            code = end.code
        written = self._capture.readouterr()
        return Ended(code if isinstance(code, int) else 0, written.out, written.err)
