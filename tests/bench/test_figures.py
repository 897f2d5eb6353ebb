"""The known hosts of the package and the figures of the pages are those that bench makes from bench/results."""

from __future__ import annotations

import shutil
from pathlib import Path

import make_reference
import msgspec
import pictures
import pytest
import readme_figures
from doctor.cases import copy, h200
from samples import make_run

from pyxfer._doctor.examine import examine_run
from pyxfer._document.examinations import Reference
from pyxfer._document.runs import Run
from pyxfer.errors import UsageError

ROOT = Path(make_reference.__file__).resolve().parent.parent


def test_the_files_in_the_package_are_up_to_date() -> None:
    assert make_reference.refresh(ROOT, check=True) == [], "python bench/make_reference.py"


def test_figures_are_the_fastest_raw_copies_of_pinned_and_pageable_memory() -> None:
    rows = (
        copy("h2d", 50.0),
        copy("h2d", 55.0),
        copy("h2d", 60.0, mode="staged"),
        copy("d2h", 40.0, memory="registered"),
    )
    (figure,) = make_reference.figures(rows)
    assert (figure.direction, figure.memory, figure.rate.gbps) == ("h2d", "pinned", 55.0)


def test_references_are_written_read_and_stale_after_a_change_of_the_run(tmp_path: Path) -> None:
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    (tmp_path / "pyxfer").mkdir()
    h200().save(results / "known_h200.json.gz")
    names = ["h200_pcie5_x16.json", "h200_pcie5_x16.run.json"]
    assert make_reference.main(["--check"], tmp_path) == 1
    assert make_reference.refresh(tmp_path, check=False) == names
    assert make_reference.main([], tmp_path) == 0
    folder = tmp_path / "pyxfer" / "references"
    reference = msgspec.json.decode((folder / names[0]).read_bytes(), type=Reference)
    assert Run.load(folder / reference.document).measurements[0].trials == ()
    h200(measurements=()).save(results / "known_h200.json.gz")
    assert make_reference.refresh(tmp_path, check=True) == names


@pytest.mark.parametrize("name", ["ceiling.json.gz", "host.json.gz", "modes.json.gz", "frameworks.json.gz"])
def test_the_doctor_finds_nothing_wrong_in_the_documents(name: str) -> None:
    examination = examine_run(Run.load(ROOT / "bench" / "results" / name))
    assert examination.worst == "fine"
    assert {finding.subject for finding in examination.of("unknown")} == {"health"}
    assert {"ceiling h2d", "ceiling d2h", "link", "payload", "NUMA memory"} <= {
        finding.subject for finding in examination.of("fine")
    }


TABLES = {"one": lambda: "| a |\n| --- |\n| 1 |\n"}
PLACE = "<!-- figures:ceiling-table -->\n<!-- /figures -->\n"


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        (
            "before\n<!-- figures:one -->\nold\n<!-- /figures -->\nafter\n",
            "before\n<!-- figures:one -->\n\n| a |\n| --- |\n| 1 |\n\n<!-- /figures -->\nafter\n",
        ),
        (
            "```\ncode\n```\n<!-- figures:one -->\n<!-- /figures -->\n",
            "```\ncode\n```\n<!-- figures:one -->\n\n| a |\n| --- |\n| 1 |\n\n<!-- /figures -->\n",
        ),
        (
            "```\n<!-- figures:one -->\n<!-- /figures -->\n```\n",
            "```\n<!-- figures:one -->\n<!-- /figures -->\n```\n",
        ),
    ],
    ids=["between markers", "after a fenced block", "not in a fenced block"],
)
def test_the_lines_between_the_markers_are_replaced(text: str, filled: str) -> None:
    assert readme_figures.fill(text, TABLES, "README.md") == filled
    assert readme_figures.fill(filled, TABLES, "README.md") == filled


@pytest.mark.parametrize(
    "text",
    [
        "<!-- figures:one -->\nold\n",
        "<!-- figures:one -->\n<!-- figures:one -->\n<!-- /figures -->\n",
        "<!-- figures:two -->\n<!-- /figures -->\n",
    ],
    ids=["not closed", "closed by another", "unknown"],
)
def test_wrong_markers_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        readme_figures.fill(text, TABLES, "README.md")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with two pages and the document of one table."""
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("plain\n")
    (tmp_path / "docs" / "results.md").write_text(PLACE)
    make_run().save(tmp_path / "bench" / "results" / "ceiling.json.gz")
    return tmp_path


def test_a_stale_page_is_named_and_filled(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tree / "docs" / "results.md"
    assert readme_figures.main(["--check"], tree) == 1
    assert "docs/results.md" in capsys.readouterr().err
    assert page.read_text() == PLACE
    assert readme_figures.main([], tree) == 0
    assert "| 16 MiB |" in page.read_text()
    assert readme_figures.main(["--check"], tree) == 0
    make_run(measurements=(), curves=(), locking=()).save(tree / "bench" / "results" / "ceiling.json.gz")
    assert readme_figures.main(["--check"], tree) == 1


@pytest.mark.parametrize(("name", "begins"), [("waterfall.svg", b"<svg"), ("report.png", b"\x89PNG")])
def test_a_picture_is_drawn_once_until_its_figures_change(tmp_path: Path, name: str, begins: bytes) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    if name == "report.png" and shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed")
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "results").symlink_to(ROOT / "bench" / "results")
    path = tmp_path / "docs" / "pictures" / name
    shown = f"![x](pictures/{name})"
    assert pictures.refresh(tmp_path, shown, check=True) == [path]
    assert not path.exists()
    assert pictures.refresh(tmp_path, shown, check=False) == [path]
    assert path.read_bytes().startswith(begins)
    assert pictures.refresh(tmp_path, shown, check=False) == []
    path.write_bytes(path.read_bytes().replace(b" -->", b"0 -->"))
    assert pictures.refresh(tmp_path, shown, check=True) == [path]
