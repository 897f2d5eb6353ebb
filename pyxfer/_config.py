"""The files that a user keeps defaults in: [tool.pyxfer] of the nearest pyproject.toml, and the user's config.toml.

The options of the command line take their defaults from both (`_cli/defaults.py`). `store`, `ring` and `read_ring` are
facts of the machine, so Python uses them too. The files are data: no key names code or a command.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pyxfer.errors import UsageError

OF_THE_MACHINE = ("read_ring", "ring", "store")
_TABLE = ("tool", "pyxfer")


class ConfigFile:
    """`above` are the names of the tables above pyxfer's own."""

    def __init__(self, path: Path, above: tuple[str, ...], table: dict[str, Any]) -> None:
        self.path, self.above, self.table = path, above, table

    def where(self, *keys: str) -> str:
        bare = r"[A-Za-z0-9_-]{1,60}"  # a key without quotation marks
        names = [key if re.fullmatch(bare, key) else f"{key!r:.60}" for key in (*self.above, *keys)]
        return f"{'.'.join(names)} in {str(self.path)!r}"


class Setting:
    """`folder` is that of the file, from which relative paths begin."""

    def __init__(self, value: str, where: str, folder: Path) -> None:
        self.value, self.where, self.folder = value, where, folder


def read_config() -> tuple[ConfigFile, ...]:
    """The files that there are, the one with precedence first.

    Raises:
        UsageError: one of them cannot be read, or is not TOML.
    """
    return tuple(filter(None, (_of_project(), _of_user())))


def machine_setting(name: str) -> Setting | None:
    """The value of one of `OF_THE_MACHINE` in the files."""
    for file in read_config():
        if name in file.table:
            return Setting(file.table[name], file.where(name), file.path.parent)
    return None


def _of_project() -> ConfigFile | None:
    try:
        here = Path.cwd()
    except OSError:  # it has been deleted
        return None
    found = (_read(folder / "pyproject.toml", _TABLE) for folder in (here, *here.parents))
    return next(filter(None, found), None)


def _of_user() -> ConfigFile | None:
    folder = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():  # relative paths are ignored: XDG Base Directory Specification
        try:
            folder = Path.home() / ".config"
        except RuntimeError:  # this user has no home folder
            return None
    return _read(folder / "pyxfer" / "config.toml", ())


def _read(path: Path, above: tuple[str, ...]) -> ConfigFile | None:
    """The file, or None if there is none, or if it has no table of pyxfer."""
    if not os.path.isfile(path):  # a pipe without a writer would block
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read ({error.strerror}): check who may read it.") from error
    if above and b"pyxfer" not in data:  # loading the reader of TOML takes 3 ms
        return None
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is not valid TOML ({error}): correct it.") from error
    for number, name in enumerate(above, 1):
        table = table.get(name)
        if table is None:
            return None
        if not isinstance(table, dict):
            raise UsageError(f"{'.'.join(above[:number])} in {str(path)!r} is not a table: write [tool.pyxfer].")
    file = ConfigFile(path, above, table)
    for name in OF_THE_MACHINE:
        if not isinstance(table.get(name, ""), str):  # its value may have a password
            raise UsageError(f"{file.where(name)} is not text: write it in quotation marks.")
    return file
