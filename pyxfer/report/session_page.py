"""The page of a saved session of pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.report.session_lines import place_lines, title

if TYPE_CHECKING:
    from pyxfer.model_xfer import XferSession
    from pyxfer.report.terminal import Page


def print_session(session: XferSession, page: Page) -> None:
    """Every place with its tests, as pytest has printed them."""
    for number, place in enumerate(session.places):
        page.line(title(place), style="bold")
        for line, colour in place_lines(session, number, {}, page.columns):
            page.line(line, style=colour)
    if session.ended == "interrupted":
        page.line("The session was ended before all of its tests had run.")
