"""What a kind of document needs for its pages, reports, exports and charts: one record, at the end of its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from pyxfer._document.machines import Environment
from pyxfer._report.grid import Grid
from pyxfer._report.plots import Make
from pyxfer._report.text import Lines

if TYPE_CHECKING:
    from pyxfer._report.layout import Page

D = TypeVar("D")
INTERVALS = "Bands and thin lines on bars are 95 % intervals; an arrow marks one that goes beyond the plot."
Badge = Literal["good", "doubtful", "bad", "none"]
"""The colour of a document's badge. `none`: nothing is judged."""
Section = tuple[str, Lines]
Advice = tuple[str, str]
"""What to do, and the code for it; the code may be empty."""
Charts = Mapping[str, Make | None]
"""Charts by name; None if there are no figures for one."""


@dataclass(frozen=True)
class Caption:
    title: str
    text: str


@dataclass(frozen=True)
class Report(Generic[D]):
    """How a kind of document is shown.

    Attributes:
        struct: The type of its documents.
        title: Names the document, such as `pyxfer ceiling`.
        page: Prints the page of the command.
        headline: The first sentence of a report.
        badge: The colour of the badge, and the word on it.
        heading: The lines below the headline.
        advice: What to do, the best first; it stands directly below the headline.
        grids: Tables for readers.
        sections: Lists below the tables.
        charts: Its charts by name.
        captions: A heading and a caption for each of these names.
        table: The table of a name for CSV and data frames; an empty name is the default. None: the first grid.
        environment: The machine that it is of, if it is of one.
    """

    struct: type[D]
    title: Callable[[D], str]
    page: Callable[[D, Page], object]
    headline: Callable[[D], str]
    badge: Callable[[D], tuple[Badge, str]]
    grids: Callable[[D], Sequence[Grid]]
    charts: Callable[[D], Charts]
    captions: Mapping[str, Caption]
    heading: Callable[[D], Lines] = lambda _: []
    advice: Callable[[D], Sequence[Advice]] = lambda _: []
    sections: Callable[[D], Sequence[Section]] = lambda _: []
    table: Callable[[D, str], Grid] | None = None
    environment: Callable[[D], Environment | None] = lambda document: getattr(document, "environment", None)
