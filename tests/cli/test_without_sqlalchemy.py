"""A plain install has no SQLAlchemy: only what keeps runs needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import pyxfer
from samples import make_run

MISSING = "raise ModuleNotFoundError(\"No module named 'sqlalchemy'\", name='sqlalchemy')\n"
NAMED = """
import pyxfer
try:
    pyxfer.open_store
except pyxfer.StoreError as error:
    print("pyxfer[store]" in str(error))
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "sqlalchemy.py").write_text(MISSING)
    return os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("ceiling", "--device", "host", "--sizes", "4KiB", "--budget", "200ms"),
        ("--version",),
        ("list",),
        ("baseline", "--help"),
    ],
)
def test_measuring_needs_no_sqlalchemy(path: str, arguments: tuple[str, ...]) -> None:
    result = pyxfer(*arguments, PYTHONPATH=path)
    assert result.returncode == 0, result.stderr


def test_files_are_compared_without_sqlalchemy(path: str, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        make_run().save(tmp_path / name)
    result = pyxfer("compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), PYTHONPATH=path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("arguments", [("baseline", "list"), ("history",), ("compare", "r-12345678", "r-12345679")])
def test_a_store_names_the_extra_that_installs_it(path: str, arguments: tuple[str, ...]) -> None:
    result = pyxfer(*arguments, PYTHONPATH=path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "pip install 'pyxfer[store]'" in result.stderr


def test_open_store_names_the_extra_too(path: str) -> None:
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "True\n"
