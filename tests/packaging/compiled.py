"""The compiled modules as files, as the tools of binutils see them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODULES = ("_cuda", "_host")
COMPILED_FOR_RELEASE = pytest.mark.unsanitized(reason="this is about the modules as they are released")


def module_file(name: str) -> Path:
    """Where a compiled module lies, without loading it."""
    spec = importlib.util.find_spec(f"pyxfer.native.{name}")
    assert spec is not None and spec.origin is not None, f"pyxfer.native.{name} is not built"
    return Path(spec.origin)


def readelf(*options: str, name: str) -> str:
    """What readelf says of a compiled module; the test is skipped where there are no binutils."""
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("readelf is not here; install binutils")
    command = [tool, "--wide", *options, str(module_file(name))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(name: str) -> set[str]:
    """The libraries that the module is linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", name=name)))


def exported(name: str) -> set[str]:
    """The symbols that other libraries could see."""
    return {row[7] for row in _symbols(name) if row[6] != "UND" and row[4] in ("GLOBAL", "WEAK", "UNIQUE")}


def imported(name: str) -> set[str]:
    """The symbols that other libraries must provide, with their version where they have one."""
    return {row[7] for row in _symbols(name) if row[6] == "UND"}


def _symbols(name: str) -> list[list[str]]:
    """Rows of: number, value, size, type, bind, visibility, section, name@version."""
    rows = [line.split() for line in readelf("--dyn-syms", name=name).splitlines()]
    return [row for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]
