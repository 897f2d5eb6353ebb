"""Shared by the tables of `readme_figures.py`: captions, terminal output as a code block, reading a document."""

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
    """The machine, software, date and units."""
    return escape_markdown(f"{shared.machine_line(run.device, run.environment)}. {units}")


def printed(document: Document, show: Callable[[Document, Page], None]) -> str:
    """The output of `show` on a terminal of 80 columns."""
    shown = io.StringIO()
    show(document, Page(shown, columns=NARROWEST))
    return shown.getvalue().strip()


def fenced(text: str) -> str:
    """The text as a fenced code block."""
    return f"```\n{text.strip()}\n```\n"


def page_of(document: Document, show: Callable[[Document, Page], None]) -> str:
    """The output of `show` as a fenced code block."""
    return fenced(printed(document, show))


def load_own(path: Path, kind: type[Document], script: str) -> Document:
    """Read a document that is not a run and that `script` in bench/ wrote."""
    try:
        return msgspec.json.decode(read_whole(path), type=kind)
    except msgspec.MsgspecError as error:
        raise DocumentError(f"{path} is not a document of bench/{script}: {error}") from error
