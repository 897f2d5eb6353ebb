"""The sides of `pyxfer.compare`, and this machine with its baselines and its fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from baseline_samples import all_slow, make_processes, named_host
from samples import MARKUP, make_device, make_environment, make_link, make_run

import pyxfer
from pyxfer._baseline.check import find_baseline, make_baseline, this_machine
from pyxfer._baseline.fingerprints import fingerprint_of, identity
from pyxfer._baseline.inputs import sample_of
from pyxfer._baseline.store import Store, open_store
from pyxfer._document.machines import Fact, LinkState, unknown
from pyxfer._document.runs import Run
from pyxfer.errors import CudaUnavailableError, UsageError
from pyxfer.native import choose

MEASURED = Path(__file__).parents[2] / "bench" / "results"
A, B = make_processes(3, 1), make_processes(3, 2, slower=all_slow(1.1))
BASELINE = make_baseline("default", {}, A, "2025-11-21T08:30:00+00:00")


def test_runs_of_several_processes_are_compared() -> None:
    found = pyxfer.compare(A, B)
    assert (found.verdict, found.a, found.b) == ("SLOW", "A", "B")
    assert {(row.a_processes, row.b_processes) for row in found.cells} == {(3, 3)}


def test_a_run_is_compared_with_a_baseline() -> None:
    found = pyxfer.compare(BASELINE, B[0], tolerance="20%")
    assert (found.verdict, found.a, found.tolerance) == ("SAME", "baseline 'default'", 0.2)


@pytest.mark.parametrize("tolerance", ["0.2", "3 percent", "100%", 0, 1, 2, -0.1, True, None])
def test_a_tolerance_that_is_not_a_share_is_refused(tolerance: Any) -> None:
    with pytest.raises(UsageError, match="tolerance"):
        pyxfer.compare(A, B, tolerance=tolerance)


def test_files_are_compared_under_their_names(tmp_path: Path) -> None:
    BASELINE.save(tmp_path / "monday.json")
    B[0].save(tmp_path / "today.json")
    found = pyxfer.compare(tmp_path / "monday.json", str(tmp_path / "today.json"))
    assert (found.a, found.b, found.verdict) == ("monday.json", "today.json", "SLOW")


def test_a_file_has_precedence_over_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    A[0].save("r-0123456789ab")
    assert sample_of("r-0123456789ab", "A").runs == (A[0],)


def test_stored_runs_and_baselines_are_found_by_id_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "store.db")
    monkeypatch.setenv("PYXFER_STORE", path)
    with open_store(path) as store:
        baseline_id, run_id = store.add_baseline(BASELINE), store.add_run(B[0])
    assert sample_of(run_id, "A").runs == (B[0],)
    assert sample_of(baseline_id, "A").runs == sample_of("baseline:default", "A").runs == A


@pytest.mark.parametrize(
    ("kind", "name"),
    [("examination", "an examination"), ("pytest", "a session of pytest"), ("comparison", "a comparison")],
)
def test_a_document_of_another_kind_is_refused_with_its_kind(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"kind": kind, "schema_version": 1}))
    with pytest.raises(UsageError, match=f"is {name}, not a run, links or a baseline"):
        sample_of(path, "A")


@pytest.mark.parametrize("side", [3, [1, 2]])
def test_another_type_is_refused(side: Any) -> None:
    with pytest.raises(UsageError, match="B is not a run"):
        pyxfer.compare(A, side)


def test_two_sides_of_one_name_get_different_names() -> None:
    found = pyxfer.compare(BASELINE, BASELINE)
    assert (found.a, found.b) == ("baseline 'default' (A)", "baseline 'default' (B)")


# --- this machine ----------------------------------------------------------------------------------------------------


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
    assert refusal(store, make_run(**changed)).partition(", where ")[2].startswith(f"{words}: make one")


def test_a_baseline_of_another_host_and_gpu_is_not_near(store: Store) -> None:
    stranger = make_run(environment=named_host("other"), device=make_device(uuid=Fact("GPU-other")))
    assert refusal(store, stranger).endswith("of this machine (other, GPU-other): make one with pyxfer baseline save.")


@pytest.mark.skipif(choose().runtime == "cuda", reason="a GPU answers here")
def test_without_a_gpu_a_baseline_is_refused() -> None:
    with pytest.raises(CudaUnavailableError, match="one of host memory"):
        this_machine("0")


def test_host_memory_has_the_identity_of_its_runs() -> None:
    found, selector = this_machine("host")
    run = pyxfer.ceiling("host", size="4KiB", direction=("h2d",), memory=("pageable",), budget=0.3, trace=False)
    assert (found.runtime, found.link_kind, selector) == ("host", "none", ("host",))
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
