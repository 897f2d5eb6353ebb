"""This machine before it is measured, its baselines in a store, and fingerprints of machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from baseline_samples import make_processes, named_host
from samples import MARKUP, make_device, make_environment, make_link, make_run

import pyxfer
from pyxfer._baseline.check import find_baseline, make_baseline, this_machine
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.store import Store, open_store
from pyxfer._document.machines import Fact, LinkState, unknown
from pyxfer._document.runs import Run
from pyxfer.errors import CudaUnavailableError, UsageError
from pyxfer.native import choose

HERE = make_run()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with the baseline `default` of this machine."""
    with open_store(str(tmp_path / "store.db")) as opened:
        keep(opened, HERE)
        yield opened


def keep(store: Store, run: Run, name: str = "default") -> None:
    store.add_baseline(make_baseline(name, {}, make_processes(run=run), "2025-11-21T08:30:00+00:00"))


def refusal(store: Store, run: Run, name: str = "default") -> str:
    with pytest.raises(UsageError) as caught:
        find_baseline(store, name, fingerprint_of(run))
    return str(caught.value)


def test_a_new_driver_and_kernel_do_not_hide_the_baseline(store: Store) -> None:
    upgraded = make_run(environment=make_environment(driver=Fact("600.1"), kernel="7.0"))
    assert find_baseline(store, "default", fingerprint_of(upgraded)).name == "default"


def test_a_missing_name_is_refused_with_the_stored_name(store: Store) -> None:
    text = refusal(store, HERE, "summer")
    assert "no baseline 'summer' of this machine (node-7, GPU-" in text
    assert "it has 'default' of this machine (--name)" in text


def test_the_baseline_of_the_same_gpu_is_nearer_than_one_of_the_same_host(store: Store) -> None:
    moved = make_run(environment=named_host("node-9"), device=make_device(uuid=Fact("GPU-moved")))
    keep(store, moved)
    here = make_run(device=make_device(uuid=Fact("GPU-moved")))
    assert "where the host's name is 'node-9' and not 'node-7'" in refusal(store, here)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"environment": named_host("container-8f2a")}, "the host's name is 'node-7' and not 'container-8f2a'"),
        (
            {"device": make_device(uuid=Fact("GPU-new"))},
            "the GPU is 'GPU-6a1f2c3d-0001-0002-0003-000000000004' and not 'GPU-new'",
        ),
        ({"device": make_device(mig=Fact(True))}, "MIG is '' and not 'on'"),
        (
            {"environment": make_environment(cpu_model=unknown("no cpuinfo"))},
            "the CPU is 'INTEL(R) XEON(R) PLATINUM 8568Y+' and not ''",
        ),
    ],
)
def test_a_value_of_this_machine_that_differs_is_reported(store: Store, changed: dict[str, Any], words: str) -> None:
    assert refusal(store, make_run(**changed)).partition(", where ")[2].startswith(f"{words}; pyxfer")


def test_a_baseline_of_another_host_and_gpu_is_not_near(store: Store) -> None:
    stranger = make_run(environment=named_host("other"), device=make_device(uuid=Fact("GPU-other")))
    assert refusal(store, stranger).endswith("of this machine (other, GPU-other); pyxfer baseline save makes one")


@pytest.mark.skipif(choose().runtime == "cuda", reason="a GPU answers here")
def test_without_a_gpu_a_baseline_is_refused() -> None:
    with pytest.raises(CudaUnavailableError, match="one of host memory"):
        this_machine("0")


def test_host_memory_has_the_identity_of_its_runs() -> None:
    found, selector = this_machine("host")
    run = pyxfer.ceiling("host", sizes="4KiB", directions=("h2d",), memories=("pageable",), budget_s=0.3, trace=False)
    assert (found.runtime, found.link_kind, selector) == ("host", "none", "host")
    assert identity(found) == identity(fingerprint_of(run))


# --- fingerprints -----------------------------------------------------------------------------------------------------


def key(**overrides: Any) -> str:
    return identity(fingerprint_of(make_run(**overrides)))


def test_a_fingerprint_has_the_machine_and_its_link() -> None:
    found = fingerprint_of(make_run())
    assert (found.host, found.runtime, found.device, found.link_kind) == ("node-7", "cuda", "NVIDIA H200", "pcie")
    assert (found.link_now.value, found.driver_major.value, found.runtime_major.value) == ("PCIe 5.0 x16", 570, 12)


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
