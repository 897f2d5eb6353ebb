"""Pictures of the documentation: drawn from documents, and noticed when they are out of date."""

from __future__ import annotations

from pathlib import Path

import pictures
import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "bench" / "results").is_dir():
    pytest.skip("the results are not beside the tests", allow_module_level=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "results").symlink_to(ROOT / "bench" / "results")
    return tmp_path


def test_a_picture_is_drawn_once_until_its_figures_change(tree: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    path = tree / "docs" / "pictures" / "waterfall.svg"
    shown = "![x](pictures/waterfall.svg)"
    assert pictures.refresh(tree, shown, check=True) == [path]
    assert not path.exists()
    assert pictures.refresh(tree, shown, check=False) == [path]
    assert path.read_bytes().startswith(b"<svg")
    assert pictures.refresh(tree, shown, check=False) == []
    path.write_bytes(path.read_bytes().replace(b" -->", b"0 -->"))
    assert pictures.refresh(tree, shown, check=True) == [path]


def test_only_pictures_that_a_page_shows_are_drawn(tree: Path) -> None:
    assert pictures.refresh(tree, "no picture", check=False) == []


def test_the_pictures_of_the_documentation_are_up_to_date() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert pictures.refresh(ROOT, shown, check=True) == []
