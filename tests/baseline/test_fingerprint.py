"""Fingerprints of machines, and their identity."""

from __future__ import annotations

from typing import Any

import pytest
from samples import MARKUP, make_device, make_environment, make_link, make_run

from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._document.runs import Fact, LinkState, Run, unknown


def key(**overrides: Any) -> str:
    return identity(fingerprint_of(make_run(**overrides)))


def test_a_fingerprint_has_the_machine_and_its_link() -> None:
    found = fingerprint_of(make_run())
    assert (found.host, found.runtime, found.device, found.link_kind) == ("node-7", "cuda", "NVIDIA H200", "pcie")
    assert (found.link_now.value, found.driver_major.value, found.runtime_major.value) == ("PCIe 5.0 x16", 570, 12)


def test_a_value_that_could_not_be_read_has_its_reason() -> None:
    found = fingerprint_of(make_run(environment=make_environment(driver=unknown("no NVML"))))
    assert found.driver_major.reason == "no NVML"


@pytest.mark.parametrize("version", ["", "unknown", "x570"])
def test_an_invalid_version_has_no_major(version: str) -> None:
    found = fingerprint_of(make_run(environment=make_environment(driver=Fact(version))))
    assert found.driver_major.reason is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": make_environment(host="node-8")},
        {"environment": make_environment(cpu_model=Fact("AMD EPYC"))},
        {"environment": make_environment(virtual_machine=Fact("kvm"))},
        {"device": make_device(uuid=Fact("GPU-ffffffff"))},
        {"device": make_device(mig=Fact(True))},
        {"device": make_device(confidential=Fact(True))},
        {"link": make_link(kind="c2c")},
        {"device": make_device(runtime="host")},
    ],
)
def test_another_machine_has_another_identity(changed: dict[str, Any]) -> None:
    assert key(**changed) != key()


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": make_environment(driver=Fact("600.1"), cuda_runtime="13.0")},
        {"environment": make_environment(kernel="6.9.0", taken_at="1999-01-01T00:00:00+00:00")},
        {"link": make_link(under_load=Fact(LinkState(4, 8)))},
        {"device": make_device(index=3, name="H200")},
        {"device": make_device(mig=unknown("NVML is not there"))},
    ],
)
def test_the_same_machine_keeps_its_identity(changed: dict[str, Any]) -> None:
    assert key(**changed) == key()


def test_two_hosts_of_one_name_differ_by_their_gpus() -> None:
    assert key(device=make_device(uuid=Fact("GPU-1"))) != key(device=make_device(uuid=Fact("GPU-2")))


@pytest.mark.parametrize("host", ["'; DROP TABLE runs; --", MARKUP, "a\nb\x00", "\udcff", "x" * 100_000])
def test_every_host_name_makes_a_short_ascii_key(host: str) -> None:
    found = key(environment=make_environment(host=host))
    assert found.isascii()
    assert found.isprintable()
    assert len(found) < 64


def test_a_device_without_a_uuid_is_identified_by_its_name() -> None:
    def without(name: str) -> Run:
        return make_run(device=make_device(uuid=unknown("none"), name=name))

    assert identity(fingerprint_of(without("one"))) != identity(fingerprint_of(without("other")))
