"""CSV, Markdown and data frames of every document. Whole Markdown is among the golden pages."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import Any

import msgspec
import pytest
from baseline_samples import make_processes, make_sample, slow_pinned
from explain_samples import make_dma, make_explain_run, make_explained
from framework_samples import make_route_row
from hypothesis import given
from hypothesis import strategies as st
from link_samples import make_links
from samples import (
    FORMULA,
    MARKUP,
    SCRIPT,
    make_device,
    make_environment,
    make_missing,
    make_run,
)
from watch_samples import LINE, TURNS, make_unseen, make_watched

import pyxfer
from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document import codec
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import Measurement
from pyxfer._document.watches import STEP_PARTS, Watched
from pyxfer._report import rates
from pyxfer._report.comparison import benchmarks, metrics
from pyxfer._report.grid import csv_table, escape_markdown, markdown_table
from pyxfer._report.kinds import table_of
from pyxfer._report.tables import Table
from pyxfer.errors import UsageError
from pyxfer.units import parse_moment

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"))


def cells_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_csv_has_a_header_every_digit_of_a_number_and_empty_cells_for_none() -> None:
    assert csv_table(("a", "b"), [(0.1 + 0.2, None), (None, "x")]) == f"a,b\n{0.1 + 0.2!r},\n,x\n"


def test_every_column_of_a_run_has_a_source() -> None:
    row = make_route_row("torch", "torch.to", "h2d", 1 << 20, (10e-6, 5.0), batch=4)
    trials = tuple(msgspec.structs.replace(trial, faults=3) for trial in row.trials)
    traced = msgspec.structs.replace(row, trials=trials, dma=Fact(make_dma()), wall=row.summary)
    traced = msgspec.structs.replace(traced, remarks=(Remark(code="a", text="b"),))
    run = make_run(measurements=(traced, make_missing()))
    header, *rows = cells_of(run.to_csv())
    assert [name for name, *cells in zip(header, *rows, strict=True) if not any(cells)] == []


def test_a_cell_without_a_column_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "COLUMNS", rates.COLUMNS[:3])
    with pytest.raises(KeyError, match="no column has the name"):
        make_run().to_csv()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((text, f"'{text}") for text in (FORMULA, "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1+1")),
        ("\r=1", "'\n=1"),
        ("two\rlines", "two\nlines"),
        ("two\r\nlines", "two\nlines"),
    ],
)
def test_csv_quotes_formulas_and_keeps_line_breaks(text: str, cell: str) -> None:
    assert cells_of(csv_table(("v",), [(text,)]))[1:] == [[cell]]


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5))
def test_csv_text_can_be_read_back(rows: list[tuple[str, str]]) -> None:
    back = cells_of(csv_table(("a", "b"), rows))[1:]
    assert [tuple(cell.removeprefix("'") for cell in row) for row in back] == [
        tuple(cell.removeprefix("'") for cell in row) for row in rows
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (MARKUP, r"\[red\]x\[/red\]"),
        (SCRIPT, r"\<script\>alert(1)\</script\>"),
        ("a|b", r"a\|b"),
        ("![i](u)", r"\!\[i\](u)"),
        ("back\\slash", r"back\\slash"),
        ("two\r\nlines\u2028more", "two lines more"),
        ("\x1b[2Jgone", r" \[2Jgone"),
    ],
)
def test_markdown_escapes_text(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_text_cannot_add_a_row_or_column_to_a_markdown_table(rows: list[tuple[str, str]]) -> None:
    lines = markdown_table(("a", "b"), rows).splitlines()
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3
    assert markdown_table(("a",), []) == "| a |\n| --- |\n"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (make_explained(breakdown=unknown("trace: <unavailable>")), r"Not known: trace: \<unavailable\>"),
        (make_explained(verified=Fact(False)), "Its contents were wrong, so its times mean nothing."),
    ],
)
def test_markdown_of_a_route_without_a_breakdown_has_the_reason(row: Measurement, words: str) -> None:
    assert f"### Where the time goes\n\n- {words}\n" in make_explain_run(row).to_markdown()


WATCHED = make_watched()


def table(name: str, watched: Watched = WATCHED) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(watched.to_csv(name))))


def test_parts_of_a_steps_row_sum_to_the_period() -> None:
    rows = table("steps")
    assert [row["number"] for row in rows] == [str(number) for number in range(11, 11 + TURNS)]
    for row in rows:
        parts = [float(row[f"{name.replace(' ', '_')}_s"]) for name in STEP_PARTS]
        assert sum(parts) == pytest.approx(float(row["period_s"]))


def test_a_watch_has_tables_of_copies_calls_and_ranges() -> None:
    assert len(WATCHED.table()) == len(WATCHED.steps.each)
    assert [(row["direction"], row["memory"], row["count"]) for row in table("copies")] == [
        ("h2d", "pageable", "20"),
        ("d2h", "pageable", "20"),
    ]
    row = next(row for row in table("calls") if row["what"] == "d2h")
    assert (row["call"], row["line"], row["count"]) == ("cudaMemcpyAsync", LINE, "20")
    (row,) = table("ranges")
    assert row["name"] == "decode"
    assert float(row["total_s"]) == pytest.approx(0.07)
    (row,) = table("ranges", make_watched(decode=FORMULA))
    assert row["name"] == "'" + FORMULA
    with pytest.raises(UsageError, match="kernels"):
        WATCHED.table("kernels")


def test_markdown_of_a_watch_escapes_names() -> None:
    assert SCRIPT not in make_watched(decode=SCRIPT, line=SCRIPT).to_markdown()


def test_a_ceiling_share_below_4_kib_is_not_shown() -> None:
    document = json.loads(codec.encode(WATCHED))
    row = document["activity"]["value"]["copies"][1]
    assert (row["least_bytes"], row["ceiling_share"]["value"]) == (0, None)
    row["ceiling_share"] = {"value": 3.125, "reason": None}
    watched = msgspec.json.decode(json.dumps(document), type=Watched)
    assert "312.5 %" not in watched.to_markdown()
    assert "312.5 %" not in watched.text(80)


def test_names_that_are_not_utf_8_are_escaped_in_exports() -> None:
    watched = make_watched(decode="caf\udce9")
    for text in (watched.to_csv("ranges"), watched.to_markdown(), codec.encode(watched).decode()):
        assert "udce9" in text.encode().decode()


SLOW = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3)))
PARTLY = compare_samples(make_sample("A"), Sample("B", make_processes(3, 2, memories=("pinned",))))


@pytest.mark.parametrize("hostile", [MARKUP, SCRIPT, FORMULA, "a|b\n# c\n", "`x`**y**"])
def test_markdown_of_a_comparison_lists_cells_and_escapes_names(hostile: str) -> None:
    run = make_run(environment=make_environment(host=hostile))
    assert "h2d:pageable:256MiB, d2h:pageable:1MiB" in PARTLY.to_markdown().replace("&#58;", ":")
    text = compare_samples(make_sample(hostile), make_sample("B", seed=2, run=run)).to_markdown()
    assert "<script>" not in text
    assert "\n# c" not in text
    assert "**y**" not in text
    assert "a|b" not in text


def test_benchmarks_for_github_are_the_rates_of_b_with_the_verdict() -> None:
    found = {str(row["name"]): row for row in benchmarks(SLOW)}
    assert list(found) == [row.text for row in SLOW.cells]
    for row in SLOW.cells:
        benchmark = found[row.text]
        assert set(benchmark) == {"name", "unit", "value", "extra"}
        assert (benchmark["unit"], benchmark["value"]) == ("GB/s", row.b_gbps.value)
        assert str(benchmark["extra"]).startswith(f"{row.verdict}, ")


def test_benchmarks_are_of_the_cells_that_b_has() -> None:
    known = [row for row in PARTLY.cells if row.b_gbps.value is not None]
    assert 0 < len(known) < len(PARTLY.cells)
    assert [row["name"] for row in benchmarks(PARTLY)] == [row.text for row in known]
    for comparison, cells in ((SLOW, SLOW.cells), (PARTLY, known)):
        rates = {row.text: {"bandwidth": {"value": (row.b_gbps.value or 0.0) * 1e9}} for row in cells}
        assert metrics(comparison) == rates


def test_a_benchmark_has_no_control_characters_from_a_file_name() -> None:
    hostile = compare_samples(make_sample("a\x1b[31m\nb"), make_sample("B", seed=2))
    assert not any(ord(letter) < 32 for row in benchmarks(hostile) for letter in str(row["extra"]))


RUN = make_run(device=make_device(name=SCRIPT), measurements=(*make_run().measurements, make_missing()))


@pytest.mark.parametrize("document", [RUN, make_links()], ids=["run", "links"])
def test_a_table_has_the_rows_and_columns_of_the_csv(document: Any) -> None:
    table = document.table()
    assert list(table.names) == document.to_csv().splitlines()[0].split(",")
    assert len(table) == len(document.to_csv().splitlines()) - 1


def test_a_notebook_shows_the_first_rows_of_a_table() -> None:
    table = RUN.table()
    html = table._repr_html_()
    assert html.count("<tr>") == 1 + len(table)
    assert html.count("<th>") == len(table.names)
    assert f"<td>{RUN.measurements[0].gbps:.6g}</td>" in html
    assert SCRIPT not in html
    many = Table({"a": "number"}, [(float(number),) for number in range(50)])._repr_html_()
    assert many.count("<tr>") == 21
    assert "30 more" in many


def test_other_documents_have_no_table() -> None:
    with pytest.raises(TypeError):
        table_of(pyxfer)


def test_polars_reads_a_run_and_an_empty_one() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("nanoarrow")
    for table in (RUN.table(), make_run(measurements=(), curves=()).table()):
        frame = polars.DataFrame(table)
        assert frame.columns == list(table.names)
        assert frame.rows() == table.rows
        assert (frame["nbytes"].dtype, frame["gbps"].dtype) == (polars.Int64, polars.Float64)
        assert frame["taken_at"].dtype == polars.Datetime("us", "UTC")
    unseen = polars.DataFrame(make_unseen().table())["kernels_s"]
    assert unseen.null_count() == len(unseen) > 0
    assert unseen.dtype == polars.Float64
    run = make_run(environment=make_environment(host="gpu\udcff"))
    assert set(polars.DataFrame(run.table())["host"]) == {"gpu\\udcff"}


def test_pandas_reads_a_run_and_the_table_itself() -> None:
    pandas = pytest.importorskip("pandas")
    table = RUN.table()
    frame = table.to_pandas()
    cells = frame.itertuples(index=False, name=None)
    assert [tuple(None if cell is pandas.NA else cell for cell in row) for row in cells] == table.rows
    kinds = {"route": "string", "nbytes": "Int64", "gbps": "Float64", "verified": "boolean"}
    kinds["taken_at"] = "datetime64[us, UTC]"
    assert {name: str(frame[name].dtype) for name in kinds} == kinds
    frame = pandas.DataFrame(table)
    assert list(frame) == list(table.names)
    assert frame["gbps"].dropna().tolist() == [m.gbps for m in RUN.measurements if m.gbps is not None]
    assert frame["taken_at"].dt.year.unique().tolist() == [parse_moment(RUN.environment.taken_at).year]


def test_duckdb_queries_a_run() -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("nanoarrow")
    table = RUN.table()
    connection = duckdb.connect()
    connection.register("rows", table)
    found = connection.sql("select device, count(*), count(verified), max(gbps) from rows group by device").fetchall()
    known = [m.gbps for m in RUN.measurements if m.gbps is not None]
    checked = sum(m.verified.value is not None for m in RUN.measurements)
    assert found == [(SCRIPT, len(table), checked, max(known))]


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("nanoarrow", lambda table: table.__arrow_c_stream__()),
        ("pandas", lambda table: table.to_pandas()),
    ],
)
def test_a_library_that_is_not_installed_is_named(library: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=rf"{library}.*pip install"):
        use(RUN.table())
