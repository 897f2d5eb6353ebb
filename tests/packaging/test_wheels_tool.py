"""tools/wheels: what it refuses, and what it leaves behind after a failure."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
