"""Clocks, persistence, other users, and the device's own memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor.cases import found, h200, health, only

from pyxfer._doctor import host
from pyxfer._document.examinations import DeviceMemory
from pyxfer._document.runs import Fact, Remark, Run, unknown


def after(**environment: Any) -> Run:
    """The H200, with another environment after the copies."""
    run = h200()
    return msgspec.structs.replace(run, environment_after=msgspec.structs.replace(run.environment, **environment))


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ((), "fine"),
        (("idle",), "fine"),
        (("software power cap",), "suspicious"),
        (("idle", "hardware thermal slowdown"), "wrong"),
        (("hardware power brake",), "wrong"),
        (("unnamed reason 0x1000",), "suspicious"),
    ],
)
def test_the_status_depends_on_the_reasons_for_lower_clocks(reasons: tuple[str, ...], status: str) -> None:
    assert only(host.throttling, after(throttle_reasons=Fact(reasons))).status == status


def test_throttling_that_cannot_be_read_is_unknown() -> None:
    run = h200(environment={"throttle_reasons": unknown("NVML is not here")})
    assert only(host.throttling, run).seen == "NVML is not here"


@pytest.mark.parametrize(
    ("mode", "status"), [(Fact(True), "fine"), (Fact(False), "suspicious"), (unknown("Not Supported"), "unknown")]
)
def test_persistence_mode_should_be_on(mode: Fact[bool], status: str) -> None:
    assert only(host.persistence, h200(environment={"persistence": mode})).status == status


@pytest.mark.parametrize(
    ("others", "status"), [(Fact(()), "fine"), (Fact((4711,)), "suspicious"), (unknown("in a container"), "unknown")]
)
def test_other_processes_on_the_gpu_are_suspicious(others: Fact[tuple[int, ...]], status: str) -> None:
    assert only(host.sharing, h200(environment={"other_gpu_processes": others})).status == status


def test_another_pyxfer_is_found_even_if_processes_cannot_be_seen() -> None:
    remark = Remark("contended", "Another pyxfer measured this device at the same time (process 7).")
    run = h200(environment={"other_gpu_processes": unknown("in a container")}, remarks=(remark,))
    finding = only(host.sharing, run)
    assert (finding.status, finding.seen) == ("suspicious", remark.text.rstrip("."))


@pytest.mark.parametrize(
    ("field", "code"), [("mig", "part-of-gpu"), ("vgpu", "part-of-gpu"), ("confidential", "confidential")]
)
def test_a_partial_or_encrypted_device_is_fine(field: str, code: str) -> None:
    device = msgspec.structs.replace(h200().device, **{field: Fact(True)})
    finding = only(host.partial_device, h200(device=device))
    assert (finding.code, finding.status) == (code, "fine")


def test_a_whole_gpu_has_no_such_finding() -> None:
    assert found(host.partial_device) == []


def memory(errors: int | None = 0, pending: bool | None = False, failed: bool | None = False) -> DeviceMemory:
    facts = [unknown("Not Supported") if value is None else Fact(value) for value in (errors, pending, failed)]
    return DeviceMemory(*facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (memory(), "fine"),
        (memory(1), "wrong"),
        (memory(0, False, True), "wrong"),
        (memory(0, True), "suspicious"),
        (memory(0, None, None), "fine"),
        (memory(None, None, None), "unknown"),
    ],
)
def test_the_status_depends_on_the_errors_of_the_device_memory(state: DeviceMemory, status: str) -> None:
    assert only(host.device_memory, health=health(device_memory=state)).status == status
