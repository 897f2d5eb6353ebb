"""What the tables of `readme_figures.py` share: where a figure is from, and what a terminal shows as a block."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import shared

from pyxfer._document.exports import escape_markdown
from pyxfer._document.files import read_whole
from pyxfer._document.runs import Run
from pyxfer._report.layout import NARROWEST, Page
from pyxfer.errors import DocumentError

GB = "GB = 1e9 bytes."

Document = TypeVar("Document", bound=msgspec.Struct)


def caption(run: Run, units: str = GB) -> str:
    """Machine, software and day, and what the units are."""
    return escape_markdown(f"{shared.machine_line(run.device, run.environment)}. {units}")


def printed(document: Document, show: Callable[[Document, Page], None]) -> str:
    """What a terminal of 80 columns shows."""
    shown = io.StringIO()
    show(document, Page(shown, columns=NARROWEST))
    return shown.getvalue().strip()


def fenced(text: str) -> str:
    """Text as a block that Markdown leaves alone."""
    return f"```\n{text.strip()}\n```\n"


def page_of(document: Document, show: Callable[[Document, Page], None]) -> str:
    """A whole page as a block."""
    return fenced(printed(document, show))


def load_own(path: Path, kind: type[Document], script: str) -> Document:
    """Read the document of a script in bench/ that is no run."""
    try:
        return msgspec.json.decode(read_whole(path), type=kind)
    except msgspec.MsgspecError as error:
        raise DocumentError(f"{path} is not a document of bench/{script}: {error}") from error
