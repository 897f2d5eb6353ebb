"""Ctrl-C before there is anything to show: while modules are loaded, which run code that is made of text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from command_line import pyxfer

# Code compiled from text, as in dataclasses and SQLAlchemy. If a KeyboardInterrupt passes through it, Python ends
# `python -m` by the signal even if the exception is caught.
PRESSED = '''
exec("""
import os, signal
os.kill(os.getpid(), signal.SIGINT)
while True:
    pass
""")
'''

# Python prints what is raised there, and goes on.
DROPPED = """
import os, signal

class Pressed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

Pressed()
import time

time.sleep(5)
"""


def pressed_while_loading(
    module: str, folder: Path, *arguments: str, pressed: str = PRESSED
) -> subprocess.CompletedProcess[str]:
    """Ctrl-C while that module is loaded."""
    (folder / f"{module}.py").write_text(pressed)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return pyxfer(*arguments, cwd=folder, PYTHONPATH=path)


@pytest.mark.parametrize(("module", "words"), [("typer", ""), ("sqlalchemy", "pyxfer: interrupted\n")])
def test_ctrl_c_during_an_import_exits_with_130(module: str, words: str, tmp_path: Path) -> None:
    result = pressed_while_loading(module, tmp_path, "history", "--store", "none.db")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", words)


@pytest.mark.parametrize(("module", "words"), [("typer", ""), ("sqlalchemy", "pyxfer: interrupted\n")])
def test_a_dropped_ctrl_c_during_an_import_exits_with_130(module: str, words: str, tmp_path: Path) -> None:
    result = pressed_while_loading(module, tmp_path, "history", "--store", "none.db", pressed=DROPPED)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", words)
