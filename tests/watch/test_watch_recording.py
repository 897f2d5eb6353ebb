"""The tracer of a window, and the variable that names its library to NVTX."""

from __future__ import annotations

import os

import pytest

from pyxfer._watch.recording import NVTX_VARIABLE, Recording, set_nvtx_library, unset_nvtx_library
from pyxfer.native import Engine
from pyxfer.native._host import testing

CAPACITY = 1 << 20


@pytest.fixture(autouse=True)
def _no_nvtx_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NVTX_VARIABLE, raising=False)


def test_a_recording_that_was_never_started_has_a_reason(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    assert recording.finish().reason == "trace: unavailable: it was never started"


def test_a_recording_can_be_closed_more_than_once(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    recording.start()
    recording.close()
    recording.close()
    assert recording.finish().value is None


def test_a_tracer_that_cannot_start_is_the_reason_of_tracing_and_records(engine: Engine) -> None:
    testing.refuse_activity(35)
    recording = Recording(engine, CAPACITY)
    recording.start()
    assert (recording.tracing.reason or "").startswith("trace: unavailable: ")
    assert recording.finish().reason == recording.tracing.reason


def test_too_little_memory_for_the_records_is_a_reason(engine: Engine) -> None:
    recording = Recording(engine, 1 << 60)
    recording.start()
    assert "give a smaller capacity" in (recording.finish().reason or "")


def test_the_host_runtime_does_not_set_the_nvtx_library(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    recording.start()
    assert NVTX_VARIABLE not in os.environ
    recording.finish()


def test_the_nvtx_library_is_set_and_unset() -> None:
    library = set_nvtx_library("/somewhere/libcupti.so.12")
    assert os.environ[NVTX_VARIABLE] == "/somewhere/libcupti.so.12"
    unset_nvtx_library(library)
    assert NVTX_VARIABLE not in os.environ


def test_the_nvtx_library_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NVTX_VARIABLE, "/own/library.so")
    unset_nvtx_library(set_nvtx_library("/somewhere/libcupti.so.12"))
    assert os.environ[NVTX_VARIABLE] == "/own/library.so"
