"""Every kind of document has every part of a report, also in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from report_samples import DOCUMENTS
from samples import make_missing, make_run

from pyxfer._document import codec, runs
from pyxfer._report.kinds import charts_of, page_text, report_of, small_table, table_of
from pyxfer._report.kinds import to_markdown as markdown_of
from pyxfer._report.report import Badge


def test_each_kind_of_file_has_a_report_and_a_sample() -> None:
    sampled = {type(document) for document in DOCUMENTS.values()}
    assert {kind.struct for kind in codec.KINDS} <= sampled


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_has_every_part(name: str) -> None:
    document = DOCUMENTS[name]
    report = report_of(document)
    assert report.title(document)
    assert report_of(document).headline(document)
    colour, word = report_of(document).badge(document)
    assert colour in get_args(Badge)
    assert word
    assert page_text(document, 80).strip()
    assert set(charts_of(document)) <= set(report.captions)
    assert report.grids(document)
    assert table_of(document).to_csv()
    assert "<table>" in small_table(document)
    assert markdown_of(document).startswith("## ")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_readers_of_html_markdown_and_notebooks_see_the_same_columns(name: str) -> None:
    document = DOCUMENTS[name]
    grid = report_of(document).grids(document)[0]
    headings, rows = grid.readable()
    assert not rows or f"| {' | '.join(headings)} |" in markdown_of(document)
    assert not rows or "".join(f"<th>{heading}</th>" for heading in headings) in small_table(document)


def test_columns_of_numbers_are_sorted_by_their_values() -> None:
    document = DOCUMENTS["ceiling"]
    headings, rows = report_of(document).grids(document)[0].readable()
    place = headings.index("size")
    assert [row[place].value for row in rows] == [m.nbytes for m in document.measurements]


RESULTS = Path(__file__).parents[2] / "bench" / "results"
VEGA_LITE = "application/vnd.vegalite.v6+json"


@pytest.mark.parametrize("name", ["ceiling", "explain", "comparison", "watch", "examination", "links"])
def test_a_document_gives_a_notebook_its_first_chart_a_table_and_a_line(name: str) -> None:
    bundle = DOCUMENTS[name]._repr_mimebundle_()
    assert set(bundle) == {VEGA_LITE, "text/html", "text/plain"}
    assert bundle["text/html"].startswith("<p>")
    assert bundle["text/plain"] == repr(DOCUMENTS[name])


def test_a_run_gives_a_notebook_its_largest_copies_first() -> None:
    run = runs.Run.load(RESULTS / "ceiling.json.gz")
    sizes = re.findall(r"<td>(\d+ [KM]iB)</td>", small_table(run))
    assert len(sizes) == 20
    assert set(sizes[:10]) == {"256 MiB"}
    first = re.findall(r"<tr><td>([^<]+)</td><td>([^<]+)</td><td>[^<]+</td><td>([^<]+)</td>", small_table(run))[:10]
    assert {(direction, memory) for _, direction, memory in first} == {
        (direction, memory) for direction in ("h2d", "d2h", "both") for memory in ("pinned", "pageable")
    }


def test_a_chart_gives_a_notebook_a_picture_without_a_network() -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    chart = DOCUMENTS["ceiling"].chart("sizes")
    for shown in (chart, chart.properties(title="another")):
        bundle = shown._repr_mimebundle_()
        assert set(bundle) == {VEGA_LITE, "image/svg+xml"}
        assert bundle["image/svg+xml"].startswith("<svg")
        assert "http" not in bundle["image/svg+xml"].replace("http://www.w3.org/", "")
        assert bundle[VEGA_LITE]["vconcat"]


def test_without_figures_a_notebook_has_a_table_and_a_line() -> None:
    run = make_run(measurements=(make_missing("<b>no memory</b>"),), curves=())
    bundle = run._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert "&lt;b&gt;no memory" in str(bundle["text/html"])
    assert "<b>" not in str(bundle["text/html"])
