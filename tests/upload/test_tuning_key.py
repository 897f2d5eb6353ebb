from __future__ import annotations

import time
from pathlib import Path

import pytest
from ring_samples import make_tuned

from pyxfer._upload import settings
from pyxfer._upload.settings import TuningCache, key_of
from pyxfer.native import Engine

A_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(A_DRIVER)
    return tmp_path


def test_the_driver_is_named_by_its_own_version_and_that_of_its_cuda(engine: Engine, root: Path) -> None:
    assert key_of(engine, 0, root).driver == f"580.95.05, CUDA {engine.driver_version()}"


def test_a_driver_that_the_kernel_does_not_tell_has_that_of_its_cuda_alone(engine: Engine, tmp_path: Path) -> None:
    assert key_of(engine, 0, tmp_path).driver == f"unknown, CUDA {engine.driver_version()}"


def test_a_key_is_the_same_every_time(engine: Engine) -> None:
    assert key_of(engine, 0) == key_of(engine, 0)


def test_the_processors_that_may_be_used_are_in_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "usable_cpus", lambda: 3)
    assert key_of(engine, 0).cpus_usable == 3


def test_a_host_name_in_a_foreign_encoding_can_be_kept(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "h\udcff")
    cache = TuningCache(tmp_path / "ring.json")
    cache.store(key_of(engine, 0), make_tuned())
    assert cache.find(key_of(engine, 0)).value == make_tuned()


@pytest.mark.unsanitized(reason="it is about time")
def test_a_kept_tuning_is_there_in_milliseconds(engine: Engine, tmp_path: Path) -> None:
    cache = TuningCache(tmp_path / "ring.json")
    cache.store(key_of(engine, 0), make_tuned())

    def once() -> float:
        began_s = time.thread_time()
        assert cache.find(key_of(engine, 0)).value is not None
        return time.thread_time() - began_s

    assert min(once() for _ in range(5)) < 0.02
