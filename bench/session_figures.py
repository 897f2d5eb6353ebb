"""The pytest summary of a saved session, for `readme_figures.py`."""

from __future__ import annotations

from figure_parts import fenced

from pyxfer._document.sessions import XferSession
from pyxfer._report.layout import NARROWEST
from pyxfer._report.session import place_lines, title


def session_page(session: XferSession) -> str:
    """The summary on a terminal of 80 columns, as a fenced code block."""
    lines = []
    for number, place in enumerate(session.places):
        lines.append(f" {title(place)} ".center(NARROWEST, "-"))
        lines += [line for line, _ in place_lines(session, number, {}, NARROWEST)]
    return fenced("\n".join(lines))
