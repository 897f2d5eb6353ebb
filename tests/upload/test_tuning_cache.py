"""The file of tunings: its key, its faults, and several processes at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ring_samples import make_key, make_tuned

from pyxfer._document.tunings import TuningFile
from pyxfer._upload import settings
from pyxfer._upload.settings import cache_path, find_tuning, keep_tuning, tuning_key
from pyxfer.native import Engine

KEY = make_key()
TUNED = make_tuned()
OTHER_VALUES = {
    "host": "other",
    "device": "GPU-other",
    "driver": "590.2, CUDA 13010",
    "cpus_usable": 8,
    "numa_node": None,
    "link": "PCIe 4.0 x16",
    "pyxfer": "0.2.0",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "ring.json"


@pytest.fixture
def stored(path: Path) -> Path:
    assert keep_tuning(path, KEY, TUNED) == ""
    return path


def changed(path: Path, **changes: Any) -> None:
    """Rewrite the ring of the only tuning."""
    whole = json.loads(path.read_text())
    whole["tunings"][0]["tuning"]["ring"].update(changes)
    path.write_text(json.dumps(whole))


def test_a_kept_tuning_is_found(stored: Path) -> None:
    assert find_tuning(stored, KEY).value == TUNED


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_tuning_with_another_key_is_not_found(name: str, stored: Path) -> None:
    found = find_tuning(stored, make_key(**{name: OTHER_VALUES[name]}))
    assert (found.value, found.reason) == (None, "")


def test_a_newer_tuning_replaces_an_older_one_with_the_same_key(stored: Path) -> None:
    newer = make_tuned(seconds=0.5)
    keep_tuning(stored, KEY, newer)
    assert find_tuning(stored, KEY).value == newer
    assert len(json.loads(stored.read_text())["tunings"]) == 1


def test_tunings_with_other_keys_stay(stored: Path) -> None:
    keep_tuning(stored, make_key(host="other"), TUNED)
    assert find_tuning(stored, KEY).value == TUNED


def test_the_file_keeps_the_newest_32_tunings(path: Path) -> None:
    for number in range(40):
        keep_tuning(path, make_key(host=f"pod-{number}"), TUNED)
    hosts = [entry["key"]["host"] for entry in json.loads(path.read_text())["tunings"]]
    assert hosts == [f"pod-{number}" for number in range(8, 40)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe\x00", "malformed"),
        (b"[]", "version None"),
        (b"{}", "version None"),
        (b'{"schema_version": 2, "tunings": []}', "version 2, and this pyxfer reads 1"),
        (b'{"schema_version": "' + b"x" * 10_000 + b'"}', "this pyxfer reads 1"),
        (b'{"schema_version": 1}', "missing required field"),
        (b'{"schema_version": 1, "tunings": [{"key": 3}]}', "Expected `object`"),
    ],
)
def test_a_broken_file_is_ignored_with_a_reason_and_overwritten(data: bytes, why: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    found = find_tuning(path, KEY)
    assert found.value is None
    assert f"{str(path)!r} is ignored (" in (found.reason or "")
    assert why in (found.reason or "")
    assert len(found.reason or "") < 500
    assert keep_tuning(path, KEY, TUNED) == ""
    assert find_tuning(path, KEY).value == TUNED


@pytest.mark.parametrize(
    "ring",
    [
        {"threads": 0},
        {"threads": 10**30},
        {"threads": "8"},
        {"chunk_bytes": 3},
        {"slots": -1},
        {"fill": "fast"},
        {"spin_us": 10**6 + 1},
    ],
)
def test_a_file_with_an_impossible_ring_is_ignored(ring: dict[str, Any], stored: Path) -> None:
    changed(stored, **ring)
    assert "is ignored" in (find_tuning(stored, KEY).reason or "")


def test_a_folder_in_place_of_the_file_is_reported(path: Path) -> None:
    path.mkdir(parents=True)
    assert "is ignored" in (find_tuning(path, KEY).reason or "")
    assert keep_tuning(path, KEY, TUNED).startswith("the tuning is not kept: ")


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    remark = keep_tuning(tmp_path / "kept" / "ring.json", KEY, TUNED)
    assert remark.startswith("the tuning is not kept: the folder ")


def test_a_folder_that_cannot_be_written_to_is_reported() -> None:
    remark = keep_tuning(Path("/proc/ring.json"), KEY, TUNED)
    assert remark.startswith("the tuning is not kept: '/proc/ring.json' cannot be written")


def test_the_folder_is_private(stored: Path) -> None:
    assert stored.parent.stat().st_mode & 0o777 == 0o700


STORE_OFTEN = """
import sys
from pathlib import Path
from ring_samples import make_key, make_tuned
from pyxfer._upload.settings import keep_tuning

for number in range(20):
    keep_tuning(Path(sys.argv[1]), make_key(host=sys.argv[2]), make_tuned(seconds=float(number)))
"""


def test_concurrent_processes_never_leave_a_broken_file(path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", STORE_OFTEN, str(path), who], env=environ) for who in "ab"]
    while any(writer.poll() is None for writer in writers):
        assert find_tuning(path, KEY).reason == ""
    assert [writer.returncode for writer in writers] == [0, 0]
    assert msgspec.json.decode(path.read_bytes(), type=TuningFile).tunings


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PYXFER_CACHE": "/own", "XDG_CACHE_HOME": "/shared"}, "/own/ring.json"),
        ({"XDG_CACHE_HOME": "/shared"}, "/shared/pyxfer/ring.json"),
        ({"XDG_CACHE_HOME": "/shared", "PYXFER_CACHE": ""}, "/shared/pyxfer/ring.json"),
        ({}, "/home/user/.cache/pyxfer/ring.json"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/user/.cache/pyxfer/ring.json"),
    ],
)
def test_the_path_of_the_file(environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert str(cache_path(environ).value) == expected


def test_the_file_can_be_switched_off() -> None:
    assert cache_path({"PYXFER_CACHE": "off"}).reason == "PYXFER_CACHE is off, so nothing is kept"


def test_a_user_without_a_home_folder_gets_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert cache_path({}).reason == "this user has no home folder: set PYXFER_CACHE to a folder"


A_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(A_DRIVER)
    return tmp_path


def test_the_key_has_the_versions_of_the_driver_and_its_cuda(engine: Engine, root: Path) -> None:
    assert tuning_key(engine, 0, root).driver == f"580.95.05, CUDA {engine.driver_version()}"


def test_the_key_has_an_unknown_driver_if_the_kernel_does_not_report_it(engine: Engine, tmp_path: Path) -> None:
    assert tuning_key(engine, 0, tmp_path).driver == f"unknown, CUDA {engine.driver_version()}"


def test_the_key_has_the_usable_cpus(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "usable_cpus", lambda: 3)
    assert tuning_key(engine, 0).cpus_usable == 3
