"""The files that a run goes to: refused before measuring, rewritten after every finished group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyxfer.errors import PyxferError, UsageError

from .failures import say

if TYPE_CHECKING:
    from pyxfer.model import Run

STDOUT = "-"


class Exports:
    """Where a run is saved; a file that fails while measuring is tried again at the end, not given the run's life."""

    def __init__(self, json: str | None, csv: str | None, md: str | None) -> None:
        from pyxfer import documents

        encoders: dict[str, Callable[[Run], str]] = {
            "--export-json": lambda run: documents.encode(run).decode(),
            "--export-csv": documents.to_csv,
            "--export-md": documents.to_markdown,
        }
        given = dict(zip(encoders, (json, csv, md), strict=True))
        self._targets = [(path, encoders[option]) for option, path in given.items() if path is not None]
        self._warned = False
        self._check([path for path, _ in self._targets])

    @property
    def takes_stdout(self) -> bool:
        """Whether standard output belongs to an export, so that the tables have to go elsewhere."""
        return any(path == STDOUT for path, _ in self._targets)

    def save(self, run: Run) -> None:
        """Rewrite the files with the run so far; measuring goes on if that fails."""
        try:
            self._write_files(run)
        except PyxferError as error:
            if not self._warned:
                say(f"{error}; tried again at the end")
            self._warned = True

    def finish(self, run: Run) -> None:
        """Write everything once more, standard output included; now a failure counts."""
        self._write_files(run)
        for path, encode in self._targets:
            if path == STDOUT:
                sys.stdout.write(encode(run))

    def _write_files(self, run: Run) -> None:
        from pyxfer.files import write_whole

        for path, encode in self._targets:
            if path != STDOUT:
                write_whole(path, encode(run).encode(errors="backslashreplace"))

    @staticmethod
    def _check(paths: list[str]) -> None:
        from pyxfer.files import check_writable

        if paths.count(STDOUT) > 1:
            raise UsageError("only one export can be standard output (-); give the others a file name")
        files = [path for path in paths if path != STDOUT]
        places = [os.path.realpath(path) for path in files]
        for path, place in zip(files, places, strict=True):
            if places.count(place) > 1:
                raise UsageError(f"two exports name the file {path!r}; give each its own")
            check_writable(path)
