"""Filling the figures and pictures of the pages, and the check for pages that are out of date."""

from __future__ import annotations

from pathlib import Path

import pictures
import pytest
import readme_figures
from samples import make_run

from pyxfer.errors import DocumentError, UsageError

ROOT = Path(__file__).resolve().parents[2]
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


def test_a_missing_document_is_refused(tree: Path) -> None:
    (tree / "bench" / "results" / "ceiling.json.gz").unlink()
    with pytest.raises(DocumentError):
        readme_figures.main([], tree)


def test_a_picture_is_drawn_once_until_its_figures_change(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    if not (ROOT / "bench" / "results").is_dir():
        pytest.skip("the results are not beside the tests")
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "results").symlink_to(ROOT / "bench" / "results")
    path = tmp_path / "docs" / "pictures" / "waterfall.svg"
    shown = "![x](pictures/waterfall.svg)"
    assert pictures.refresh(tmp_path, shown, check=True) == [path]
    assert not path.exists()
    assert pictures.refresh(tmp_path, shown, check=False) == [path]
    assert path.read_bytes().startswith(b"<svg")
    assert pictures.refresh(tmp_path, shown, check=False) == []
    path.write_bytes(path.read_bytes().replace(b" -->", b"0 -->"))
    assert pictures.refresh(tmp_path, shown, check=True) == [path]
