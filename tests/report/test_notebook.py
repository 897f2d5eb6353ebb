"""Documents in a notebook: the kernel sends a chart, a small table and one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from report_samples import DOCUMENTS
from samples import make_missing

from pyxfer._document import codec, runs

VEGA_LITE = "application/vnd.vegalite.v6+json"


@pytest.mark.parametrize("name", ["ceiling", "explain", "comparison", "watch", "examination", "links"])
def test_a_document_gives_a_notebook_its_first_chart_a_table_and_a_line(name: str) -> None:
    bundle = DOCUMENTS[name]._repr_mimebundle_()
    assert set(bundle) == {VEGA_LITE, "text/html", "text/plain"}
    assert bundle["text/html"].startswith("<p>")
    assert bundle["text/plain"] == repr(DOCUMENTS[name])


def test_a_measurement_gives_a_notebook_its_trials_and_its_figures() -> None:
    measurement = next(m for m in DOCUMENTS["ceiling"].measurements if m.gbps is not None)
    bundle = measurement._repr_mimebundle_()
    assert set(bundle) == {VEGA_LITE, "text/html", "text/plain"}
    html = str(bundle["text/html"])
    assert "<td>bandwidth</td>" in html
    assert "<td>95 % interval</td>" in html


def test_a_measurement_without_a_figure_gives_a_notebook_its_reason() -> None:
    bundle = make_missing("<b>no memory</b>")._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    html = str(bundle["text/html"])
    assert "&lt;b&gt;no memory" in html
    assert "<b>" not in html


def test_a_run_without_figures_has_no_chart() -> None:
    assert set(DOCUMENTS["nothing measured"]._repr_mimebundle_()) == {"text/html", "text/plain"}


@pytest.mark.slow
def test_a_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient: Any = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    codec.save(DOCUMENTS["ceiling"], tmp_path / "run.json")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(runs.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    cells = [
        f"import pyxfer\nrun = pyxfer.Run.load({str(tmp_path / 'run.json')!r})\nrun",
        "run.chart('sizes')",
        "len(run.table().to_pandas())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    shown = [cell.outputs[-1].data for cell in notebook.cells]
    assert shown[0]["text/plain"] == repr(DOCUMENTS["ceiling"])
    assert shown[0][VEGA_LITE]["vconcat"]
    assert "vega" in shown[1]["text/html"]
    assert shown[2]["text/plain"] == str(len(DOCUMENTS["ceiling"].measurements))
