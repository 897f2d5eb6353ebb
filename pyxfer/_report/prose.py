"""Paragraphs folded to the width of a terminal, without importing rich."""

from __future__ import annotations

import shutil
import textwrap

MIN_WIDTH = 60


def terminal_width() -> int:
    return max(MIN_WIDTH, shutil.get_terminal_size(fallback=(80, 24)).columns)


def folded(text: str, width: int | None = None) -> str:
    columns = width or terminal_width()
    return textwrap.fill(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
