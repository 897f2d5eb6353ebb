"""Every kind of document has every part of a report."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from report_samples import DOCUMENTS
from samples import make_measurement

from pyxfer._document import codec
from pyxfer._report.kinds import CHARTS, badge, charts_of, headline, page_text, report_of, small_table, table_of
from pyxfer._report.kinds import to_markdown as markdown_of
from pyxfer._report.report import Badge


def test_each_kind_of_file_has_a_report_and_a_sample() -> None:
    sampled = {type(document) for document in DOCUMENTS.values()}
    assert {kind.struct for kind in codec.KINDS} <= sampled


@pytest.mark.parametrize("document", [*DOCUMENTS.values(), make_measurement()], ids=[*DOCUMENTS, "measurement"])
def test_a_document_has_every_part(document: Any) -> None:
    report = report_of(document)
    assert report.title(document)
    assert headline(document)
    colour, word = badge(document)
    assert colour in get_args(Badge)
    assert word
    assert page_text(document, 80).strip()
    assert set(charts_of(document)) <= set(report.captions) <= set(CHARTS)
    assert report.grids(document)
    assert table_of(document).to_csv()
    assert "<table>" in small_table(document)
    assert markdown_of(document).startswith("## ")


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_readers_of_html_markdown_and_notebooks_see_the_same_columns(document: Any) -> None:
    grid = report_of(document).grids(document)[0]
    headings, rows = grid.readable()
    assert not rows or f"| {' | '.join(headings)} |" in markdown_of(document)
    assert not rows or "".join(f"<th>{heading}</th>" for heading in headings) in small_table(document)


def test_columns_of_numbers_are_sorted_by_their_values() -> None:
    document = DOCUMENTS["ceiling"]
    headings, rows = report_of(document).grids(document)[0].readable()
    place = headings.index("size")
    assert [row[place].value for row in rows] == [m.nbytes for m in document.measurements]
