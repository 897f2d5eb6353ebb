"""Tunings of this user's machines in one file, for the next process; a file that is no good costs a tuning."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pyxfer.errors import UsageError
from pyxfer.files import write_whole
from pyxfer.json_text import to_json
from pyxfer.model_machine import Fact
from pyxfer.model_tuning import TUNING_SCHEMA_VERSION, KeptTuning, Tuned, TuningFile, TuningKey
from pyxfer.staging.settings import DEFAULT_BUDGET_BYTES, settings_of
from pyxfer.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "PYXFER_CACHE"
OFF = "off"
_NAME = "ring.json"
_ANOTHER = f"{VARIABLE} names another folder"
_MOST_BYTES = 1 << 20
# Pods and containers have a new host name each time, and one home.
_MOST_TUNINGS = 32


def cache_path(environ: Mapping[str, str] = os.environ) -> Fact[Path]:
    """Where the file is, whether or not it is there."""
    named = environ.get(VARIABLE, "")
    if named.lower() == OFF:
        return Fact(reason=f"{VARIABLE} is {OFF}, so nothing is kept")
    if named:
        return Fact(Path(named).absolute() / _NAME)
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():  # any other is to be ignored: XDG Base Directory Specification
        return Fact(shared / "pyxfer" / _NAME)
    try:
        return Fact(Path.home() / ".cache" / "pyxfer" / _NAME)
    except RuntimeError:
        return Fact(reason=f"this user has no home; name a folder with {VARIABLE}")


class TuningCache:
    """The file at one path. Nothing in it, or about it, raises: it is told by remarks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, key: TuningKey) -> Fact[Tuned]:
        """The tuning for that key, or why there is none."""
        kept = self._read()
        if kept.value is None:
            return Fact(reason=kept.reason)
        found = next((each.tuning for each in reversed(kept.value) if each.key == key), None)
        return Fact(reason="") if found is None else Fact(found)

    def store(self, key: TuningKey, tuning: Tuned) -> str:
        """Add it, in place of one for the same key; why that could not be done, or nothing."""
        # Read as late as can be: what another process has stored meanwhile stays, but for a moment's race.
        others = [each for each in self._read().value or () if each.key != key]
        kept = (*others[1 - _MOST_TUNINGS :], KeptTuning(key, tuning))
        try:
            if self._path.exists() and not self._path.is_file():  # a pipe that nobody reads would wait
                return f"the tuning is not kept: {str(self._path)!r} is no file; {_ANOTHER}"
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, to_json(TuningFile(TUNING_SCHEMA_VERSION, kept)) + b"\n")
        except UsageError as error:
            return f"the tuning is not kept: {error}; {_ANOTHER}"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            return f"the tuning is not kept: the folder {str(self._path.parent)!r} cannot be made ({why}); {_ANOTHER}"
        return ""

    def _read(self) -> Fact[Sequence[KeptTuning]]:
        """All that the file holds; an empty reason where there is none."""
        try:
            return Fact(_decoded(_bytes_of(self._path)))
        except FileNotFoundError:
            return Fact(reason="")
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, as is UsageError
            why = getattr(error, "strerror", None) or str(error)
            return Fact(reason=f"{str(self._path)!r} is not used ({why}); a tuning writes it anew")


def _bytes_of(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe that nobody writes to would wait
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("it is larger than any that pyxfer writes")
    return data


def _decoded(data: bytes) -> tuple[KeptTuning, ...]:
    whole = msgspec.json.decode(data)
    version = whole.get("schema_version") if isinstance(whole, dict) else None
    if version != TUNING_SCHEMA_VERSION:
        raise ValueError(f"it is of version {version!r:.20}, and this pyxfer knows {TUNING_SCHEMA_VERSION}")
    tunings = msgspec.convert(whole, TuningFile).tunings
    for each in tunings:  # what no tuning ends with was not written by pyxfer
        if settings_of(each.tuning.ring).pinned_bytes > DEFAULT_BUDGET_BYTES:
            raise ValueError(f"it holds a ring of more than {format_size(DEFAULT_BUDGET_BYTES)}")
    return tunings
