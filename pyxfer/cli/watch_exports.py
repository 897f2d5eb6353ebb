"""The files that a watch goes to: refused before the script starts, written when it has been told of."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pyxfer.errors import PyxferError, UsageError

from .exports import STDOUT

if TYPE_CHECKING:
    from pyxfer.model_watch import Watched
    from pyxfer.watching.window import Window

Write = Callable[[str, "Window", "Watched"], None]


class WatchExports:
    """With several windows each file has the number of its window in its name."""

    def __init__(self, *, trace: str | None, json: str | None, csv: str | None, md: str | None, several: bool) -> None:
        given: dict[str, tuple[str | None, Write]] = {
            "--trace": (trace, _trace),
            "--export-json": (json, lambda path, _, told: told.save(path)),
            "--export-csv": (csv, lambda path, _, told: _write(path, told.to_csv())),
            "--export-md": (md, lambda path, _, told: _write(path, told.to_markdown())),
        }
        self._several = several
        self._targets = [(option, path, write) for option, (path, write) in given.items() if path is not None]
        self._check()

    def spare(self, script: str) -> None:
        """What is to be watched is not to be written over.

        Raises:
            UsageError: a file that would be written is the script.

        """
        for option, path, _ in self._targets:
            target = self._path(path, 1)
            with suppress(OSError):  # a file that is not there yet is no script
                if os.path.samefile(target, script):
                    raise UsageError(f"{option}: {target!r} is the script itself; give another file name")

    def write(self, number: int, window: Window, told: Watched) -> None:
        """All of them, whatever becomes of one.

        Raises:
            UsageError: says which could not be written, and why.

        """
        failures = []
        for option, path, write in self._targets:
            try:
                write(self._path(path, number), window, told)
            except (PyxferError, OSError, MemoryError) as error:
                failures.append(f"{option}: {str(error) or 'host memory ran out'}")
        if failures:
            raise UsageError("; ".join(failures))

    def _path(self, path: str, number: int) -> str:
        from pyxfer.watching.signals import numbered

        return numbered(path, number) if self._several else path

    def _check(self) -> None:
        from pyxfer.files import check_writable

        places = [os.path.realpath(path) for _, path, _ in self._targets]
        for option, path, _ in self._targets:
            if path == STDOUT:
                raise UsageError(f"{option}: standard output is the script's own; give a file name")
            if places.count(os.path.realpath(path)) > 1:
                raise UsageError(f"two options name the file {path!r}; give each its own")
            check_writable(self._path(path, 1))


def _trace(path: str, window: Window, _: Watched) -> None:
    from pyxfer.watching.chrome import write_chrome_trace

    write_chrome_trace(window, path)


def _write(path: str, text: str) -> None:
    from pyxfer.files import write_whole

    write_whole(path, text.encode())
