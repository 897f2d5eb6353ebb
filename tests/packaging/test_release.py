"""What `tools/release --check` and the build refuse, and what the package index shows."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyxfer.errors import INSTALL

ROOT = Path(__file__).resolve().parents[2]

if shutil.which("git") is None:
    pytest.skip("git is not here", allow_module_level=True)

FILES = {
    "pyproject.toml": '[project]\nname = "pyxfer"\nversion = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 - 2026-01-31\n",
}


def git(tree: Path, *arguments: str) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", *named, *arguments], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout that can be released."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "tools").mkdir()
    for name in ("release", "pythons.sh"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
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


def test_only_the_tag_of_the_version_is_built(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REF_TYPE", "tag")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.2.0")
    assert check(tree) == (0, "")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.2.1")
    code, message = check(tree)
    assert code == 1
    assert "v1.2.1" in message


@pytest.mark.parametrize(("platform", "libc"), [("darwin", ""), ("win32", ""), ("linux", "musl")])
def test_pip_says_in_one_sentence_where_pyxfer_does_not_run(platform: str, libc: str) -> None:
    backend = ROOT / "tools" / "build_backend.py"
    script = f"import platform, runpy, sys; sys.platform = {platform!r}; platform.libc_ver = lambda: ({libc!r}, '1'); "
    script += f"runpy.run_path({str(backend)!r})"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, len(found.stderr.splitlines())) == (1, "", 1)
    assert "Linux with glibc" in found.stderr


def test_the_index_page_has_no_relative_link() -> None:
    spec = importlib.util.spec_from_file_location("index_page", ROOT / "tools" / "index_page.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "README.md").read_text("utf-8")
    page = module.absolute(text, "https://host.example/us/pyxfer", "v1.2.0")
    assert re.findall(r"\]\((?!https://|#)", page) == []
    assert len(re.findall(r"!\[[^]]*\]\(https://host.example/us/pyxfer/raw/v1.2.0/docs/pictures/", page)) == len(
        re.findall(r"!\[", text)
    )
    assert "[words](https://host.example/us/pyxfer/blob/v1.2.0/docs/words.md)" in page
    assert re.sub(r"https://host.example/us/pyxfer/(raw|blob)/v1.2.0/", "", page) == text


@pytest.mark.parametrize("extra", ["store", "postgresql", "prometheus", "fleet", "report"])
def test_messages_name_what_an_extra_installs(extra: str) -> None:
    (line,) = re.findall(rf"^{extra} = .*", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    distributions = set(re.findall(r'"([a-z][\w-]*)', line)) - {"pyxfer"}
    assert distributions <= set(re.findall(r"[a-z][\w-]*", " ".join(INSTALL.values())))
