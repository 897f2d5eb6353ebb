"""The symbols and libraries of the compiled modules, read with binutils."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODULES = ("_cuda", "_host")
RELEASED = pytest.mark.unsanitized(reason="this is about the modules as they are released")


def module_file(name: str) -> Path:
    """The file of a compiled module, which is not loaded."""
    spec = importlib.util.find_spec(f"pyxfer.native.{name}")
    assert spec, f"pyxfer.native.{name} is not built"
    return Path(spec.origin or "")


def needed(name: str) -> set[str]:
    """The libraries that a module is linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", name)))


def exported(name: str) -> set[str]:
    """The symbols of a module that other libraries can see."""
    return {symbol for section, symbol in _dynamic_symbols(name) if section != "UND"}


def imported(name: str) -> set[str]:
    """The symbols that other libraries must provide, as NAME or NAME@VERSION."""
    return {symbol for section, symbol in _dynamic_symbols(name) if section == "UND"}


def _dynamic_symbols(name: str) -> list[tuple[str, str]]:
    """Section and name of all symbols. The columns are number, value, size, type, bind, visibility, section, name."""
    rows = [line.split() for line in _readelf("--dyn-syms", name).splitlines()]
    found = [(row[6], row[7]) for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit()]
    assert found, "readelf listed no symbols"
    return found


def _readelf(what: str, name: str) -> str:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("readelf is not here: install binutils")
    command = [tool, "--wide", what, str(module_file(name))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
