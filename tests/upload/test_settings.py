"""The settings of a ring: their limits, how they fit a budget, and the variables that set them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from ring_samples import MIB, make_key, make_tuned
from upload.tunings import START

from pyxfer._document.codec import to_json
from pyxfer._document.tunings import KeptTuning, TuningFile
from pyxfer._machine import numa
from pyxfer._upload.settings import (
    PartialSettings,
    RingSettings,
    cache_path,
    default_settings,
    find_tuning,
    keep_tuning,
    make_ring,
    read_settings,
    settings_set,
    tuning_key,
)
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
MIN_SETTINGS: dict[str, Any] = {"threads": 1, "chunk_bytes": 4 * KIB, "slots": 2, "spin_us": 0}
MAX_SETTINGS: dict[str, Any] = {"threads": 64, "chunk_bytes": 64 * MIB, "slots": 4096, "spin_us": 10**6}
LITTLE = RingSettings(threads=1, chunk_bytes=4 * KIB, slots=2, fill="plain", spin_us=0)

rings = st.builds(
    RingSettings,
    threads=st.integers(1, 64),
    chunk_bytes=st.integers(12, 26).map(lambda power: 1 << power),
    slots=st.integers(2, 4096),
    fill=st.sampled_from(["plain", "streaming", "demoting"]),
    spin_us=st.just(20),
)


@pytest.mark.parametrize(
    ("budget_bytes", "slots", "chunk_bytes"),
    [
        (START.pinned_bytes, 512, 64 * KIB),
        (START.pinned_bytes - 1, 511, 64 * KIB),
        (MIB, 16, 64 * KIB),
        (MIB - 1, 31, 32 * KIB),
        (256 * KIB, 16, 16 * KIB),
        (32 * KIB, 2, 16 * KIB),
    ],
)
def test_a_budget_reduces_slots_to_16_then_chunks_to_16_kib_then_slots(
    budget_bytes: int, slots: int, chunk_bytes: int
) -> None:
    assert START.within(budget_bytes) == replace(START, slots=slots, chunk_bytes=chunk_bytes)


@given(rings, st.integers(32 * KIB, 1 << 38))
def test_settings_keep_their_threads_and_use_half_of_a_budget(settings: RingSettings, budget_bytes: int) -> None:
    within = settings.within(budget_bytes)
    assert within.pinned_bytes <= budget_bytes
    assert within.pinned_bytes > min(settings.pinned_bytes, budget_bytes) // 2
    assert within.threads == settings.threads


@given(rings, st.integers(0, 8 * KIB - 1))
def test_a_too_small_budget_is_refused_with_the_smallest_possible_one(settings: RingSettings, budget: int) -> None:
    with pytest.raises(UsageError, match="too small for any ring: give at least") as refused:
        settings.within(budget)
    least = min(32, 2 * settings.chunk_bytes // KIB)
    assert str(refused.value).endswith(f"at least {least} KiB")
    assert settings.within(least * KIB).pinned_bytes == least * KIB


@pytest.mark.parametrize("name", MIN_SETTINGS)
def test_values_outside_the_limits_are_refused_here_and_by_the_engine(name: str, engine: Engine) -> None:
    for value in (MIN_SETTINGS[name] - 1, MAX_SETTINGS[name] + 1):
        given = {**asdict(LITTLE), name: value}
        with pytest.raises(UsageError, match=f"{MIN_SETTINGS[name]} to {MAX_SETTINGS[name]}"):
            RingSettings(**given)
        with pytest.raises(ValueError, match="a ring has"):
            engine.Ring(0, **given)


@pytest.mark.parametrize("name", MIN_SETTINGS)
def test_the_engine_accepts_the_limits(name: str, engine: Engine) -> None:
    for value in (MIN_SETTINGS[name], MAX_SETTINGS[name]):
        settings = replace(LITTLE, **{name: value})
        with closing(make_ring(engine, 0, settings)) as ring:
            assert ring.pinned_bytes == settings.pinned_bytes


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 1), (3, 2), (9, 8), (64, 8)])
def test_the_default_leaves_one_cpu(cpus: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert default_settings().threads == threads


def test_make_ring_uses_the_settings(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    with closing(make_ring(engine, 0, replace(START, threads=2, fill="plain"))) as ring:
        assert (ring.threads, ring.chunk_bytes, ring.slots, ring.fill, ring.spin_us) == (2, 64 * KIB, 512, "plain", 20)
        assert sum(nbytes for kind, _, nbytes in testing.allocated() if kind == "pinned") == ring.pinned_bytes
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 2), (16, 15), (96, 15)])
def test_files_are_read_by_all_usable_processors_up_to_a_limit(
    cpus: int, threads: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    found = read_settings(engine, 0, {"PYXFER_RING": "threads=3,slots=9"})
    assert (found.threads, found.pinned_bytes) == (threads, 32 * MIB)
    by_hand = read_settings(engine, 0, {"PYXFER_READ_RING": "threads=3,slots=9,spin=1ms"})
    assert by_hand == replace(found, threads=3, slots=9, spin_us=1000)


def test_the_processors_of_the_devices_node_read_files(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def bound_to_three(*_: object) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4})
            yield

    monkeypatch.setattr(numa, "bind", bound_to_three)
    assert read_settings(engine, 0, {}).threads == 3


def test_a_ring_that_reads_files_takes_no_fill() -> None:
    with pytest.raises(UsageError, match=r"^PYXFER_READ_RING='threads=3,fill=plain' .* Example: PYXFER_READ_RING="):
        settings_set({"PYXFER_READ_RING": "threads=3,fill=plain"}, "PYXFER_READ_RING")


EXAMPLE = 'Example: PYXFER_RING="threads=8,chunk=64KiB,slots=512,fill=streaming"'


def read(text: str) -> PartialSettings:
    return settings_set({"PYXFER_RING": text})[0]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("threads=8,chunk=2MiB,slots=3,fill=plain,spin=20ms", PartialSettings(8, 2 * MIB, 3, "plain", 20_000)),
        *((text, PartialSettings(spin_us=0)) for text in ("spin=0", "spin=0ms", "spin=0 us")),
        *((text, PartialSettings()) for text in ("", "  ")),
    ],
)
def test_the_variable_has_any_settings(text: str, settings: PartialSettings) -> None:
    assert read(text) == settings


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("threads=65", "1 to 64 threads; got 65"),
        ("chunk=100KiB", "a power of two from 4096 to 67108864 bytes; got 102400"),
        ("slots=1", "2 to 4096 slots; got 1"),
        ("spin=2s", "0 to 1000000 microseconds to spin; got 2000000"),
        ("threads", "'threads' is not a setting"),
        ("threads=", "'' is not a whole number"),
        ("threads=\u0665", "is not a whole number"),
        ("threads=8,", "'' is not a setting"),
        ("thread=8", "'thread=8' is not a setting"),
        ("threads=8,threads=9", "threads is given twice"),
        ("chunk=2M", "ambiguous"),
        ("chunk=2 parsecs", "unknown unit"),
        ("spin=long", "duration"),
        ("fill=fast", "plain, streaming or demoting; got 'fast'"),
    ],
)
def test_an_invalid_variable_is_refused_with_the_cause_and_an_example(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=r"^PYXFER_RING=") as refused:
        read(text)
    assert why in str(refused.value)
    assert EXAMPLE in str(refused.value)


@pytest.mark.parametrize(
    ("some", "fill"),
    [
        (PartialSettings(threads=8), "streaming"),
        (PartialSettings(threads=9), "demoting"),
        (PartialSettings(slots=64), "demoting"),
        (PartialSettings(threads=2, fill="demoting"), "demoting"),
    ],
)
def test_few_given_threads_replace_demoting_by_streaming(some: PartialSettings, fill: str) -> None:
    assert some.applied_to(START).fill == fill


@pytest.mark.parametrize(
    ("some", "names"),
    [
        (PartialSettings(), ""),
        (PartialSettings(threads=1), "threads"),
        (PartialSettings(1, MIB), "threads and chunk"),
        (PartialSettings(1, MIB, fill="plain"), "threads, chunk and fill"),
        (PartialSettings(1, slots=2), "threads and slots"),
        (PartialSettings(1, MIB, 2), "threads, chunk and slots"),
    ],
)
def test_names_lists_the_given_settings(some: PartialSettings, names: str) -> None:
    assert some.names == names
    assert some.needs_no_tuning == (names == "threads, chunk and slots")


# --- the file of tunings ----------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_tuning_with_another_key_is_not_found(name: str, stored: Path) -> None:
    assert find_tuning(stored, make_key(**{name: OTHER_VALUES[name]})) == (None, "")


def test_a_newer_tuning_replaces_an_older_one_with_the_same_key(stored: Path) -> None:
    assert find_tuning(stored, KEY) == (TUNED, "")
    newer = make_tuned(seconds=0.5)
    keep_tuning(stored, KEY, newer)
    assert find_tuning(stored, KEY) == (newer, "")
    assert len(json.loads(stored.read_text())["tunings"]) == 1


def test_the_file_keeps_the_newest_32_tunings(path: Path) -> None:
    for number in range(40):
        keep_tuning(path, make_key(host=f"pod-{number}"), TUNED)
    hosts = [entry["key"]["host"] for entry in json.loads(path.read_text())["tunings"]]
    assert hosts == [f"pod-{number}" for number in range(8, 40)]


def with_ring(**ring: Any) -> bytes:
    """A file whose only tuning has another ring."""
    document = json.loads(to_json(TuningFile(1, (KeptTuning(KEY, TUNED),))))
    document["tunings"][0]["tuning"]["ring"].update(ring)
    return json.dumps(document).encode()


BROKEN = [
    (b"", "truncated"),
    (b"{", "truncated"),
    (b"\xff\xfe\x00", "malformed"),
    (b"[]", "version None"),
    (b"{}", "version None"),
    (b'{"schema_version": 2, "tunings": []}', "version 2, and this pyxfer reads 1"),
    (b'{"schema_version": "' + b"x" * 10_000 + b'"}', "this pyxfer reads 1"),
    (b'{"schema_version": 1}', "missing required field"),
    (b'{"schema_version": 1, "tunings": [{"key": 3}]}', "Expected `object`"),
    (with_ring(threads=0), "1 to 64 threads"),
    (with_ring(threads="8"), "Expected `int`"),
    (with_ring(fill="fast"), "'fast'"),
]


@pytest.mark.parametrize(("data", "why"), BROKEN)
def test_a_broken_file_is_ignored_with_a_reason_and_overwritten(data: bytes, why: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    found, trouble = find_tuning(path, KEY)
    assert found is None
    assert f"{str(path)!r} is ignored (" in trouble
    assert why in trouble
    assert len(trouble) < 500
    assert keep_tuning(path, KEY, TUNED) == ""
    assert find_tuning(path, KEY) == (TUNED, "")


def test_a_file_that_cannot_be_written_is_reported(path: Path) -> None:
    path.mkdir(parents=True)
    assert "is ignored" in find_tuning(path, KEY)[1]
    for place in (path, path.parent / "a file" / "ring.json"):
        (path.parent / "a file").touch()
        assert keep_tuning(place, KEY, TUNED).startswith("the tuning is not kept: ")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PYXFER_CACHE": "off"}, None),
        ({"PYXFER_CACHE": "/own", "XDG_CACHE_HOME": "/shared"}, "/own/ring.json"),
        ({"XDG_CACHE_HOME": "/shared"}, "/shared/pyxfer/ring.json"),
        ({"XDG_CACHE_HOME": "/shared", "PYXFER_CACHE": ""}, "/shared/pyxfer/ring.json"),
        ({}, "/home/user/.cache/pyxfer/ring.json"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/user/.cache/pyxfer/ring.json"),
    ],
)
def test_the_path_of_the_file(environ: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert cache_path(environ).then(str).value == expected


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
