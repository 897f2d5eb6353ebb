"""The candidates for CUPTI and their order."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import platform
from pathlib import Path

import pytest

from pyxfer._trace import libraries
from pyxfer._trace.libraries import SONAMES, candidates


@pytest.fixture(autouse=True)
def no_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without CUPTI."""
    (tmp_path / "maps").write_text("")
    monkeypatch.setattr(libraries, "MAPS", tmp_path / "maps")
    monkeypatch.setattr(libraries, "TOOLKITS", tmp_path / "local")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


def library(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return str(folder / name)


def install_wheels(root: Path, monkeypatch: pytest.MonkeyPatch, *files: tuple[str, str]) -> list[str]:
    """Pretend that these wheels of NVIDIA are installed."""
    spec = importlib.machinery.ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(root)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)
    return [library(root / package / "lib", name) for package, name in files]


def test_without_files_there_are_only_names_for_the_loader() -> None:
    assert candidates(13000) == ("libcupti.so.13", "libcupti.so.12")
    assert candidates(12090) == ("libcupti.so.12", "libcupti.so.13")


def test_the_newest_wheel_that_fits_the_driver_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = install_wheels(
        tmp_path / "nvidia", monkeypatch, ("cuda_cupti", "libcupti.so.12"), ("cu13", "libcupti.so.13")
    )
    assert candidates(12090)[:2] == (old, new)
    assert candidates(13000)[:2] == (new, old)


def test_a_loaded_library_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel,) = install_wheels(tmp_path / "nvidia", monkeypatch, ("cu13", "libcupti.so.13"))
    loaded = "/opt/with a space/libcupti.so.12"
    (tmp_path / "maps").write_text(
        f"7f00-7f10 r-xp 00000000 08:01 42                     {loaded}\n"
        "7f10-7f20 r-xp 00000000 08:01 43                     /opt/libcupti.so.12.bak\n"
        "7f20-7f30 rw-p 00000000 00:00 0 \n"
    )
    assert candidates(13000) == (loaded, wheel, *SONAMES)


def test_toolkits_come_after_wheels_and_before_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = library(tmp_path / "local" / "cuda-12.4" / "lib64", "libcupti.so.12")
    named = library(tmp_path / "mine" / "extras" / "CUPTI" / "lib64", "libcupti.so.12")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "mine"))
    (wheel,) = install_wheels(tmp_path / "nvidia", monkeypatch, ("cuda_cupti", "libcupti.so.12"))
    assert candidates(12090) == (wheel, named, usual, "libcupti.so.12", "libcupti.so.13")


@pytest.mark.parametrize(
    ("machine", "found"), [("x86_64", ["x86_64-linux"]), ("aarch64", ["sbsa-linux", "aarch64-linux"]), ("riscv64", [])]
)
def test_a_toolkit_is_searched_for_this_architecture_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, found: list[str]
) -> None:
    folder = tmp_path / "local" / "cuda-13.0" / "targets"
    for target in ("x86_64-linux", "sbsa-linux", "aarch64-linux"):
        library(folder / target / "lib", "libcupti.so.13")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert [Path(path).parents[1].name for path in candidates(13000)[: -len(SONAMES)]] == found


def test_a_library_with_several_names_is_tried_once(tmp_path: Path) -> None:
    folder = tmp_path / "local" / "cuda" / "lib64"
    library(folder, "libcupti.so.2025.1.1")
    for name, behind in (("", "2025.1.1"), (".13", "2025.1.1"), (".99", "gone")):
        (folder / f"libcupti.so{name}").symlink_to(f"libcupti.so.{behind}")
    (tmp_path / "local" / "cuda-13.0").symlink_to("cuda")
    first, *others = candidates(13000)
    assert (Path(first).name, Path(first).resolve()) == ("libcupti.so.13", folder / "libcupti.so.2025.1.1")
    assert tuple(others) == SONAMES


def test_an_unreadable_maps_file_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "MAPS", tmp_path / "none")
    assert candidates(13000) == SONAMES
