"""`tools/release --check`: version, changelog, recipe, tag and tree fit together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "tools" / "release").is_file() or shutil.which("git") is None:
    pytest.skip("the tools are not beside the tests, or git is not here", allow_module_level=True)

FILES = {
    "pyproject.toml": '[project]\nname = "pyxfer"\nversion = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 - 2026-01-31\n",
    "packaging/conda/meta.yaml": '{% set version = "1.2.0" %}\n',
}


def git(tree: Path, *arguments: str) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", *named, *arguments], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout that can be released."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "release", tmp_path / "tools")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "--quiet", "--allow-empty", "-m", "m")


def check(tree: Path) -> tuple[int, str]:
    found = subprocess.run([tree / "tools/release", "--check"], capture_output=True, text=True, check=False)
    return found.returncode, found.stderr


def test_what_fits_together_can_be_released(tree: Path) -> None:
    assert check(tree) == (0, "")
    git(tree, "tag", "v1.2.0")
    assert check(tree) == (0, "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("CHANGELOG.md", "## 1.2.0 - unreleased\n"),
        ("CHANGELOG.md", "## 1.1.0 - 2026-01-31\n"),
        ("packaging/conda/meta.yaml", '{% set version = "1.1.0" %}\n'),
        ("pyproject.toml", '[project]\nname = "pyxfer"\n'),
    ],
)
def test_a_file_of_another_version_is_named(tree: Path, file: str, text: str) -> None:
    (tree / file).write_text(text)
    commit(tree)
    code, message = check(tree)
    assert code == 1
    assert file in message


def test_a_tag_of_another_commit_is_refused(tree: Path) -> None:
    git(tree, "tag", "v1.2.0")
    commit(tree)
    code, message = check(tree)
    assert code == 1
    assert "v1.2.0" in message


def test_the_recipe_of_this_tree_has_its_version() -> None:
    version = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = "))
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    assert f"{{% set {version} %}}" in recipe
