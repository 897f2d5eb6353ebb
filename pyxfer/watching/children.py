"""The processes that a program starts while it is watched: what they do is not in its report, which says so."""

from __future__ import annotations

import sys
from typing import Any

from pyxfer.model import Remark


class Children:
    """Counts those that were forked, and those that multiprocessing has started another way and that still live.

    Nobody can be asked about the others, so there were at least as many.
    """

    def __init__(self) -> None:
        self._forked = 0
        self._before = _of_multiprocessing()

    def forked(self) -> None:
        """This process has forked once more."""
        self._forked += 1

    def remarks(self) -> tuple[Remark, ...]:
        """What a reader must know; nothing where there were none."""
        after = _of_multiprocessing()
        new = [method for pid, method in after.items() if pid not in self._before and method != "fork"]
        count = len(self._before) + self._forked + len(new)
        if not count:
            return ()
        those = "at least 1 child process was" if count == 1 else f"at least {count} child processes were"
        what = "it does" if count == 1 else "they do"
        text = f"{those} at work meanwhile, forked or spawned; what {what} is not in this report"
        return (Remark("children", text, "watch inside of it what a child process does on the device"),)


def _of_multiprocessing() -> dict[int | None, str]:
    """Its live children by pid, with how each was started; the module is not loaded for this."""
    module: Any = sys.modules.get("multiprocessing")
    if module is None:
        return {}
    try:
        living = module.active_children()
    except Exception:  # noqa: BLE001 - half imported, or in a forked child; a remark is not worth more
        return {}
    return {child.pid: str(getattr(child, "_start_method", "")) for child in living}
