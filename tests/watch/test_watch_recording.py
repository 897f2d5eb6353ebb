"""The tracer of a watch, and the library that is named to NVTX for as long as it is at work."""

from __future__ import annotations

import os

import pytest

from pyxfer._watch.recording import NVTX_VARIABLE, Recording, forget_for_nvtx, name_for_nvtx
from pyxfer.native import Engine
from pyxfer.native._host import testing

CAPACITY = 1 << 20


@pytest.fixture(autouse=True)
def _nobody_has_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NVTX_VARIABLE, raising=False)


def test_a_recording_that_was_never_started_has_the_reason(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    assert recording.finish().reason == "trace: unavailable: it was never started"


def test_it_can_be_closed_more_than_once(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    recording.start()
    recording.close()
    recording.close()
    assert recording.finish().value is None


def test_a_library_that_refuses_is_the_reason_of_both_the_tracing_and_the_records(engine: Engine) -> None:
    testing.refuse_activity(35)
    recording = Recording(engine, CAPACITY)
    recording.start()
    assert (recording.tracing.reason or "").startswith("trace: unavailable: ")
    assert recording.finish().reason == recording.tracing.reason


def test_records_that_memory_has_no_room_for_are_a_reason_and_no_error(engine: Engine) -> None:
    recording = Recording(engine, 1 << 60)
    recording.start()
    assert "give a smaller capacity" in (recording.finish().reason or "")


def test_the_host_runtime_is_not_named_to_nvtx(engine: Engine) -> None:
    recording = Recording(engine, CAPACITY)
    recording.start()
    assert NVTX_VARIABLE not in os.environ
    recording.finish()


def test_a_library_is_named_to_nvtx_and_taken_back() -> None:
    named = name_for_nvtx("/somewhere/libcupti.so.12")
    assert os.environ[NVTX_VARIABLE] == "/somewhere/libcupti.so.12"
    forget_for_nvtx(named)
    assert NVTX_VARIABLE not in os.environ


def test_what_the_user_has_named_to_nvtx_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NVTX_VARIABLE, "/own/library.so")
    forget_for_nvtx(name_for_nvtx("/somewhere/libcupti.so.12"))
    assert os.environ[NVTX_VARIABLE] == "/own/library.so"
