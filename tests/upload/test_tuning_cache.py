"""The file of tunings: what can be wrong with it and about it, and several processes at once."""

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

from pyxfer._document.tunings import RingSetup, TuningFile
from pyxfer._upload.settings import TuningCache, cache_path

KEY = make_key()
TUNED = make_tuned()
ONE_OTHER_EACH = {
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
    assert TuningCache(path).store(KEY, TUNED) == ""
    return path


def changed(path: Path, **changes: Any) -> None:
    """Rewrite the ring of the only tuning."""
    whole = json.loads(path.read_text())
    whole["tunings"][0]["tuning"]["ring"].update(changes)
    path.write_text(json.dumps(whole))


def test_what_is_stored_is_found_again(stored: Path) -> None:
    assert TuningCache(stored).find(KEY).value == TUNED


@pytest.mark.parametrize("name", ONE_OTHER_EACH)
def test_whatever_a_tuning_depends_on_is_in_its_key(name: str, stored: Path) -> None:
    found = TuningCache(stored).find(make_key(**{name: ONE_OTHER_EACH[name]}))
    assert (found.value, found.reason) == (None, "")


def test_every_part_of_the_key_is_among_those() -> None:
    assert set(ONE_OTHER_EACH) == set(KEY.__struct_fields__)


def test_a_newer_tuning_takes_the_place_of_an_older_one(stored: Path) -> None:
    newer = make_tuned(seconds=0.5)
    TuningCache(stored).store(KEY, newer)
    assert TuningCache(stored).find(KEY).value == newer
    assert len(json.loads(stored.read_text())["tunings"]) == 1


def test_tunings_of_other_machines_stay(stored: Path) -> None:
    TuningCache(stored).store(make_key(host="other"), TUNED)
    assert TuningCache(stored).find(KEY).value == TUNED


def test_the_file_does_not_grow_without_end(path: Path) -> None:
    cache = TuningCache(path)
    for number in range(40):
        cache.store(make_key(host=f"pod-{number}"), TUNED)
    hosts = [each["key"]["host"] for each in json.loads(path.read_text())["tunings"]]
    assert hosts == [f"pod-{number}" for number in range(8, 40)]


def test_no_file_is_no_trouble(path: Path) -> None:
    assert TuningCache(path).find(KEY).reason == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe\x00", "malformed"),
        (b"[]", "of version None"),
        (b"{}", "of version None"),
        (b'{"schema_version": 1, "tunings": []}', "of version 1, and this pyxfer knows 2"),
        (b'{"schema_version": "' + b"x" * 10_000 + b'"}', "and this pyxfer knows 2"),
        (b'{"schema_version": 2}', "missing required field"),
        (b'{"schema_version": 2, "tunings": [{"key": 3}]}', "Expected `object`"),
        (b"[" * 100_000, ""),
        (b" " * (1 << 20) + b"{}", "larger than any that pyxfer writes"),
    ],
)
def test_a_broken_file_is_ignored_with_a_remark_and_written_anew(data: bytes, why: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    found = TuningCache(path).find(KEY)
    assert found.value is None
    assert f"{str(path)!r} is not used (" in (found.reason or "")
    assert why in (found.reason or "")
    assert len(found.reason or "") < 500
    assert TuningCache(path).store(KEY, TUNED) == ""
    assert TuningCache(path).find(KEY).value == TUNED


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_ignored(keep: float, stored: Path) -> None:
    data = stored.read_bytes()
    stored.write_bytes(data[: int(len(data) * keep)])
    assert "is not used" in (TuningCache(stored).find(KEY).reason or "")


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
        {"slots": 16, "chunk_bytes": 64 << 20},
    ],
)
def test_a_ring_that_no_tuning_ends_with_is_ignored(ring: dict[str, Any], stored: Path) -> None:
    changed(stored, **ring)
    assert "is not used" in (TuningCache(stored).find(KEY).reason or "")


def test_a_folder_in_its_place_is_no_crash(path: Path) -> None:
    path.mkdir(parents=True)
    assert "is not used" in (TuningCache(path).find(KEY).reason or "")
    assert TuningCache(path).store(KEY, TUNED).startswith("the tuning is not kept: ")


def test_a_pipe_in_its_place_is_not_waited_for(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    assert "it is no file" in (TuningCache(path).find(KEY).reason or "")
    assert TuningCache(path).store(KEY, TUNED).endswith("is no file; PYXFER_CACHE names another folder")


def test_a_folder_that_cannot_be_made_is_one_remark(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    remark = TuningCache(tmp_path / "kept" / "ring.json").store(KEY, TUNED)
    assert remark.startswith("the tuning is not kept: the folder ")
    assert remark.endswith("; PYXFER_CACHE names another folder")


def test_a_folder_that_cannot_be_written_to_is_one_remark() -> None:
    remark = TuningCache(Path("/proc/ring.json")).store(KEY, TUNED)
    assert remark.startswith("the tuning is not kept: '/proc/ring.json' cannot be written")
    assert remark.endswith("; PYXFER_CACHE names another folder")


def test_nothing_is_left_beside_the_file(stored: Path) -> None:
    assert os.listdir(stored.parent) == ["ring.json"]


def test_only_the_user_may_look_into_the_folder(stored: Path) -> None:
    assert stored.parent.stat().st_mode & 0o777 == 0o700


STORE_OFTEN = """
import sys
from pathlib import Path
from ring_samples import make_key, make_tuned
from pyxfer._upload.settings import TuningCache

for number in range(20):
    TuningCache(Path(sys.argv[1])).store(make_key(host=sys.argv[2]), make_tuned(seconds=float(number)))
"""


def test_several_processes_never_leave_a_torn_file(path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([sys.executable, "-c", STORE_OFTEN, str(path), who], env=environ) for who in "ab"]
    cache = TuningCache(path)
    while any(writer.poll() is None for writer in writers):
        assert cache.find(KEY).reason == ""
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
def test_where_the_file_lies(environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert str(cache_path(environ).value) == expected


def test_it_can_be_switched_off() -> None:
    assert cache_path({"PYXFER_CACHE": "off"}).reason == "PYXFER_CACHE is off, so nothing is kept"


def test_a_user_without_a_home_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert cache_path({}).reason == "this user has no home; name a folder with PYXFER_CACHE"


def test_a_setup_counts_its_memory() -> None:
    assert RingSetup(4, 1 << 20, 3, "plain", 20).pinned_bytes == 3 << 20
