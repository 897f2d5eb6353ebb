"""Tables of documents in pandas, polars, pyarrow and DuckDB."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
from baseline.store.making import make_baseline
from baseline_samples import make_sample, slow_pinned
from fleet_samples import make_fleet, make_host
from link_samples import make_links
from samples import SCRIPT, make_device, make_environment, make_missing, make_run
from watch_samples import make_unseen, make_watched
from xfer_samples import row_of
from xfer_samples import session as make_session

import pyxfer
from pyxfer._baseline.compare import compare_samples
from pyxfer._report.kinds import table_of
from pyxfer._report.tables import Table
from pyxfer.errors import UsageError
from pyxfer.units import parse_moment

RUN = make_run(device=make_device(name=SCRIPT), measurements=(*make_run().measurements, make_missing()))


def test_a_run_has_a_row_per_measurement_with_the_columns_of_its_csv() -> None:
    table = RUN.table()
    assert list(table.names) == RUN.to_csv().splitlines()[0].split(",")
    assert len(table) == len(RUN.measurements)
    assert [row[table.names.index("gbps")] for row in table.rows] == [m.gbps for m in RUN.measurements]


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


def test_a_watch_has_four_tables() -> None:
    watched = make_watched()
    assert len(watched.table()) == len(watched.steps.each)
    assert {name: len(watched.table(name)) > 0 for name in ("copies", "calls", "ranges")} == dict.fromkeys(
        ("copies", "calls", "ranges"), True
    )
    with pytest.raises(UsageError, match="kernels"):
        watched.table("kernels")


def test_a_fleet_has_a_row_per_host_and_cell() -> None:
    table = make_fleet().table()
    assert len(table) == 41 * 3 + 1
    rows = [dict(zip(table.names, row, strict=True)) for row in table.rows]
    assert [(row["host"], row["confirmed"]) for row in rows if row["loss"] is not None] == [("n3", True), ("n5", True)]
    assert [row["host"] for row in rows if row["cell"] is None] == ["n99"]
    pd = pytest.importorskip("pandas")
    assert table.to_pandas()["value"].median() == pytest.approx(54, abs=1)
    assert pd.api.types.is_integer_dtype(table.to_pandas()["cohort"])


def test_a_comparison_has_a_row_per_cell() -> None:
    comparison = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3)))
    table = comparison.table()
    assert [dict(zip(table.names, row, strict=True))["verdict"] for row in table.rows] == [
        cell.verdict for cell in comparison.cells
    ]


def test_links_have_a_row_per_figure_with_the_columns_of_their_csv() -> None:
    run = make_links()
    table = run.table()
    assert list(table.names) == run.to_csv().splitlines()[0].split(",")
    assert len(table) == len(run.to_csv().splitlines()) - 1
    for library in ("polars", "pandas"):
        pytest.importorskip(library)
        frame = getattr(table, f"to_{library}")()
        assert len(frame) == len(table)
        assert frame["gbps"].to_list() if library == "polars" else list(frame["gbps"])


def test_a_baseline_has_the_rows_of_every_process() -> None:
    baseline = make_baseline()
    numbers = [row["process"] for row in baseline.table()]
    assert Counter(numbers) == {n: len(run.measurements) for n, run in enumerate(baseline.runs, start=1)}


def test_a_session_has_the_figures_of_every_test() -> None:
    session = make_session(row_of(), row_of("tests/test_b.py::test_other", None))
    rows = list(session.table())
    assert [(row["test"], row["outcome"], row["gbps"], row["device"]) for row in rows] == [
        (test.test, test.outcome, test.measurement.gbps, session.places[test.place].device.name)
        for test in session.tests
    ]


def test_the_document_of_a_host_has_its_figures_unrounded() -> None:
    report = make_host()
    assert [(row["cell"], row["value"]) for row in report.table()] == [
        (cell.cell.text, cell.value.value) for cell in report.cells
    ]


def test_other_documents_have_no_table() -> None:
    with pytest.raises(TypeError):
        table_of(pyxfer)


# --- round trips -----------------------------------------------------------------------------------------------------


def test_polars_reads_a_run() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("nanoarrow")
    table = RUN.table()
    for frame in (polars.DataFrame(table), table.to_polars()):
        assert frame.columns == list(table.names)
        assert frame.rows() == table.rows
        assert (frame["nbytes"].dtype, frame["gbps"].dtype) == (polars.Int64, polars.Float64)
        assert frame["taken_at"].dtype == polars.Datetime("us", "UTC")


def test_pandas_reads_a_run() -> None:
    pandas = pytest.importorskip("pandas")
    table = RUN.table()
    frame = table.to_pandas()
    back = [
        tuple(None if cell is pandas.NA else cell for cell in row) for row in frame.itertuples(index=False, name=None)
    ]
    assert back == table.rows
    assert {name: str(frame[name].dtype) for name in ("route", "nbytes", "gbps", "verified")} == {
        "route": "string",
        "nbytes": "Int64",
        "gbps": "Float64",
        "verified": "boolean",
    }
    assert str(frame["taken_at"].dtype) == "datetime64[us, UTC]"


def test_pandas_reads_the_table_itself() -> None:
    pandas = pytest.importorskip("pandas")
    table = RUN.table()
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


def test_an_empty_table_keeps_its_columns_and_types() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("nanoarrow")
    table = make_run(measurements=(), curves=()).table()
    for frame in (polars.DataFrame(table), table.to_polars()):
        assert frame.columns == list(table.names)
        assert frame["gbps"].dtype == polars.Float64
        assert len(frame) == 0


def test_a_column_without_any_value_keeps_its_type() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("nanoarrow")
    frame = polars.DataFrame(make_unseen().table())
    assert frame["kernels_s"].null_count() == len(frame) > 0
    assert frame["kernels_s"].dtype == polars.Float64


def test_a_name_that_is_not_utf8_is_escaped() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("nanoarrow")
    run = make_run(environment=make_environment(host="gpu\udcff"))
    assert set(polars.DataFrame(run.table())["host"]) == {"gpu\\udcff"}


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("nanoarrow", lambda table: table.__arrow_c_stream__()),
        ("pandas", lambda table: table.to_pandas()),
        ("polars", lambda table: table.to_polars()),
    ],
)
def test_a_library_that_is_not_installed_is_named(library: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=rf"{library}.*pip install"):
        use(RUN.table())
