"""The end of a session, as pytest prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.report.prose import folded, terminal_width
from pyxfer.report.session_lines import place_lines, title
from pyxfer.report.text import clean, sentence

if TYPE_CHECKING:
    import pytest

    from pyxfer.benching.against import Compared
    from pyxfer.model_xfer import XferSession

_LONGEST_NOTE = 1000


def write_summary(
    reporter: pytest.TerminalReporter, session: XferSession, compared: Compared | None, against: str
) -> None:
    """All places, one after the other, and what they were compared with."""
    width = terminal_width()
    words = compared.words if compared else {}
    for number, place in enumerate(session.places):
        reporter.section(title(place), sep="-")
        for line, colour in place_lines(session, number, words, width):
            reporter.write_line(line, **({colour: True} if colour else {}))
    if compared is not None:
        for text in (f"Compared with {against}.", *compared.notes):
            reporter.write_line(folded(sentence(clean(text, longest=_LONGEST_NOTE)), width))
