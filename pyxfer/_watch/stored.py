"""A window on its way from the process that was watched to the one that tells of it: a file, whole or not there."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from pyxfer._document.codec import to_bare_json
from pyxfer._document.runs import Fact
from pyxfer.errors import DocumentError

if TYPE_CHECKING:
    from pyxfer._watch.window import Window


_STILL_WRITING = ".part"


def store(window: Window, path: Path) -> None:
    """Write it; the records as they lie in memory, for there may be millions.

    A name that is no Unicode, such as that of a file in a foreign encoding, is written as documents write it.
    """
    import numpy as np

    from pyxfer._trace.records import RECORD

    capture = window.capture.value
    rest = {name: value for name, value in vars(window).items() if name != "capture"}
    about = {"reason": window.capture.reason} if capture is None else _about(capture)
    part = path.with_name(path.name + _STILL_WRITING)
    with part.open("wb") as file:
        np.save(file, np.empty(0, RECORD) if capture is None else capture.records, allow_pickle=False)
        file.write(to_bare_json({"about": about, "rest": rest}))
    os.replace(part, path)


def fetch(path: Path) -> Window:
    """Read it.

    Raises:
        DocumentError: it is not one; the disk may have been full.

    """
    import numpy as np

    from pyxfer._trace.records import Capture, Clock
    from pyxfer._watch.window import Window

    try:
        with path.open("rb") as file:
            records = np.load(file, allow_pickle=False)
            parts = msgspec.json.decode(file.read())
        about, rest = parts["about"], parts["rest"]
        capture: Fact[Capture] = (
            Fact(reason=about["reason"])
            if "reason" in about
            else Fact(Capture(records, tuple(about["names"]), about["dropped"], Clock(*about["clock"])))
        )
        hints = get_type_hints(Window)
        return Window(capture=capture, **{name: _as(value, hints[name]) for name, value in rest.items()})
    except (OSError, ValueError, KeyError, TypeError, EOFError, msgspec.MsgspecError) as error:
        raise DocumentError(f"what the script has left of its window cannot be read: {error}") from error


def _about(capture: Any) -> dict[str, Any]:
    clock = dataclasses.astuple(capture.clock)
    return {"names": capture.names, "dropped": dict(capture.dropped), "clock": clock}


def _as(value: Any, kind: Any) -> Any:
    return msgspec.convert(value, kind, str_keys=True)
