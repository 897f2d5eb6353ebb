"""The tools of a release: what `tools/release --check` and `tools/wheels` refuse, and what they leave behind."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pyxfer.errors import INSTALL

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


TOOL = Path(__file__).resolve().parents[2] / "tools" / "wheels"

if not TOOL.is_file():
    pytest.skip("the tools are not beside the tests", allow_module_level=True)

pytest.importorskip("tomllib", reason="tools/wheels needs Python 3.11 or later")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("tools_wheels", str(TOOL))
    spec = importlib.util.spec_from_loader("tools_wheels", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tools_wheels", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "WORK", tmp_path)
    return module


def packed(folder: Path, *names: str, content: bytes = b"") -> Path:
    path = folder / "pyxfer-1.0-cp311-cp311-linux_aarch64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name in names:
            wheel.writestr(f"pyxfer/native/{name}", content)
    return path


def test_a_wheel_with_modules_of_the_build_machine_is_refused(wheels: ModuleType, tmp_path: Path) -> None:
    wheel = packed(tmp_path, "_cuda.cpython-311-x86_64-linux-gnu.so")
    with pytest.raises(wheels.WheelError, match=r"\.cpython-311-x86_64-linux-gnu\.so"):
        wheels.repaired("aarch64", wheel, tmp_path / "dist")


def as_auditwheel(folder: Path, policy: str) -> Callable[..., str]:
    """Like `auditwheel repair`, which writes the wheel under the tag of the oldest policy that it fits."""

    def run(*_arguments: object) -> str:
        folder.mkdir()
        (folder / f"pyxfer-1.0-cp311-cp311-{policy}_aarch64.whl").touch()
        return ""

    return run


def test_the_newest_glibc_of_all_modules_is_stated(
    wheels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = packed(tmp_path, "_host.cpython-311-aarch64-linux-gnu.so", content=b"\0GLIBC_2.17\0GLIBC_2.9\0GLIBC_2.4\0")
    monkeypatch.setattr(wheels, "run", as_auditwheel(tmp_path / "dist", "manylinux2014_aarch64.manylinux_2_17"))
    found, glibc = wheels.repaired("aarch64", wheel, tmp_path / "dist")
    assert (found.parent, glibc) == (tmp_path / "dist", "2.17")


def test_a_wheel_that_needs_more_than_manylinux_2_28_is_refused(
    wheels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = packed(tmp_path, "_host.cpython-311-aarch64-linux-gnu.so", content=b"\0GLIBC_2.34\0")
    monkeypatch.setattr(wheels, "run", as_auditwheel(tmp_path / "dist", "manylinux_2_34"))
    with pytest.raises(wheels.WheelError, match="manylinux_2_34"):
        wheels.repaired("aarch64", wheel, tmp_path / "dist")


def failing_pip(command: list[Any], **_options: object) -> subprocess.CompletedProcess[str]:
    """Like a pip without a network: it has written a part when it fails."""
    if "--target" in command:
        Path(command[command.index("--target") + 1], "half").mkdir(parents=True)
    failed = "pip" in command
    return subprocess.CompletedProcess(command, int(failed), "ERROR: no matching distribution" if failed else "")


def test_a_failed_download_leaves_no_environment(
    wheels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools").mkdir()
    monkeypatch.setattr(subprocess, "run", failing_pip)
    with pytest.raises(wheels.WheelError, match="no matching distribution"):
        wheels.environment("tools", sys.executable, ["ziglang"])
    assert not (tmp_path / "tools").exists()


def test_a_failed_download_leaves_no_library_of_nvidia(
    wheels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", failing_pip)
    with pytest.raises(wheels.WheelError, match="no matching distribution"):
        wheels.nvidia_wheels("aarch64", ["nvidia-cuda-runtime-cu12"])
    assert not (tmp_path / "aarch64" / "nvidia").exists()


def test_the_result_replaces_the_earlier_one_as_a_whole(wheels: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "pyxfer-0.9.tar.gz").touch()
    source, wheel = tmp_path / "pyxfer-1.0.tar.gz", packed(tmp_path)
    source.touch()
    wheels.release([wheels.Built(wheel, "2.17", "smoke test")], source)
    assert {path.name for path in (tmp_path / "dist").iterdir()} == {source.name, wheel.name}


@pytest.mark.parametrize("extra", ["store", "postgresql", "prometheus", "fleet", "report"])
def test_messages_name_what_an_extra_installs(extra: str) -> None:
    (line,) = re.findall(rf"^{extra} = .*", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    distributions = set(re.findall(r'"([a-z][\w-]*)', line)) - {"pyxfer"}
    assert distributions <= set(re.findall(r"[a-z][\w-]*", " ".join(INSTALL.values())))
