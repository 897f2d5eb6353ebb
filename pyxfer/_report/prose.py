"""Prose in a terminal's width. Loads nothing heavy."""

from __future__ import annotations

import shutil
import textwrap

LEAST_WIDTH = 60


def terminal_width() -> int:
    """Of the terminal as pytest sees it, which is 80 where there is none."""
    return max(LEAST_WIDTH, shutil.get_terminal_size(fallback=(80, 24)).columns)


def folded(text: str, width: int | None = None) -> str:
    """A paragraph, its later lines set in."""
    columns = width or terminal_width()
    return textwrap.fill(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
