"""Installed frameworks: ingest, measured and explained, TensorFlow's two hidden host copies, and workers in trouble."""

from __future__ import annotations

import io
import re
import statistics
from importlib import metadata
from pathlib import Path

import command_line
import pytest
from frameworks import own_routes
from frameworks.installed.conftest import PATIENCE_S, SLOW, TITLES, is_installed, needs

import pyxfer
from pyxfer._document import codec, runs
from pyxfer._document.runs import Run
from pyxfer._frameworks.registry import load_framework
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run

pytestmark = SLOW
SIZES = (1 << 20, 16 << 20, 48 << 20)

# Routes that alias the array's memory, and routes that copy it.
ALIASED = {
    "torch": {"torch.ingest"},
    "tensorflow": {"tf.ingest-rawop", "tf.ingest-dlpack"},
    "jax": {"jax.ingest-device-put"},
}

COPIED = {"torch": {"torch.ingest-copy"}, "tensorflow": {"tf.ingest"}, "jax": {"jax.ingest"}}

each_framework = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in ALIASED])


def worker_of(run: pyxfer.Run, name: str) -> runs.Worker:
    (found,) = [worker for worker in run.workers if worker.framework == name]
    return found


def rows_of(run: pyxfer.Run, name: str) -> list[pyxfer.Measurement]:
    """The framework's own rows."""
    return [row for row in run.measurements if row.worker == name and row.route_info is not None]


@each_framework
def test_the_worker_completes_and_reports_its_version(whole_run: pyxfer.Run, name: str) -> None:
    worker = worker_of(whole_run, name)
    assert (worker.ended, worker.reason) == ("complete", None)
    assert (worker.version.value or "").split("+")[0] in {metadata.version(each) for each in _distributions(name)}
    assert worker.cuda.reason == "the device is host memory, without a link"
    assert 0 < (worker.start_s.value or 0) < worker.duration_s


@each_framework
def test_every_ingest_route_is_timed_and_verified(whole_run: pyxfer.Run, name: str) -> None:
    rows = rows_of(whole_run, name)
    routes = [route.name for route in load_framework(name).routes if route.direction == "ingest"]
    assert [(row.nbytes, row.route) for row in rows] == [(size, route) for size in SIZES for route in routes]
    assert [row.route for row in rows if row.verified.value is not True] == []
    assert [row.route for row in rows if not any(trial.invalid is None for trial in row.trials)] == []


@each_framework
def test_a_route_that_aliases_the_array_has_no_bandwidth(whole_run: pyxfer.Run, name: str) -> None:
    lent = {row.route for row in rows_of(whole_run, name) if (row.rate.reason or "").startswith("no bytes were moved")}
    assert lent == ALIASED[name]


@each_framework
def test_a_route_that_copies_has_a_bandwidth_and_a_share(whole_run: pyxfer.Run, name: str) -> None:
    rows = [row for row in rows_of(whole_run, name) if row.gbps is not None]
    assert {row.route for row in rows} == COPIED[name]
    assert all(row.of_ceiling is not None for row in rows)
    references = [row for row in whole_run.measurements if row.worker == name and row.route == "raw.host-copy"]
    assert [row.nbytes for row in references if row.of_ceiling == pytest.approx(1.0)] == list(SIZES)


@needs("torch")
@pytest.mark.skipif(is_installed("cupy"), reason="CuPy is installed")
def test_a_missing_framework_is_a_row_with_the_install_command(whole_run: pyxfer.Run) -> None:
    worker = worker_of(whole_run, "cupy")
    assert worker.ended == "unavailable"
    assert (worker.reason or "").startswith("CuPy is not installed: pip install cupy-cuda12x")
    assert [row.rate.reason for row in rows_of(whole_run, "cupy")] == [worker.reason] * len(SIZES)
    assert whole_run.ended == "complete"


def _distributions(name: str) -> list[str]:
    installed = {each.metadata["Name"].lower().replace("_", "-") for each in metadata.distributions()}
    return [each for each in load_framework(name).distributions if each in installed]


def test_these_tests_know_every_framework() -> None:
    assert {*ALIASED, "cupy"} == set(TITLES)


COPYING = {"torch": "torch.ingest-copy", "tensorflow": "tf.ingest", "jax": "jax.ingest"}

each_copying = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in COPYING])


@each_copying
def test_explaining_an_ingest_route_shows_its_time_and_a_faster_one(name: str) -> None:
    run = pyxfer.explain(COPYING[name], "16MiB", device="host", budget=4.0, seed=1, patience=PATIENCE_S)
    (row,) = [each for each in run.measurements if each.route == COPYING[name]]
    assert run.tracing.value is not None
    assert row.dma.reason == "nothing crosses the link"
    breakdown = row.breakdown.value
    assert breakdown is not None
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
    assert {part.name for part in breakdown.parts} <= {"preparing", "finishing"}

    stream = io.StringIO()
    print_run(run, Page(stream, columns=80))
    page = stream.getvalue()
    # Beside the parts if the call takes longer than one copy, else above them.
    assert re.search(
        r"what one copy in host memory takes|^one copy +\S+ \w+ in host memory; the call", page, re.MULTILINE
    )
    assert "because it copies nothing" in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80


@each_copying
def test_every_breakdown_of_a_run_sums_to_the_trial(whole_run: pyxfer.Run, name: str) -> None:
    traced = 0
    for row in whole_run.measurements:
        if row.worker == name and row.breakdown.value is not None:
            parts = row.breakdown.value.parts
            assert sum(part.seconds for part in parts) == row.breakdown.value.elapsed_s
            traced += 1
    assert traced


# glibc keeps a freed block of up to 32 MiB (DEFAULT_MMAP_THRESHOLD_MAX) for the next allocation. It gives a larger one
# back to the kernel, so every page of the next block is new and costs a page fault. The number of page faults does not
# depend on speed, so these tests also hold on a busy machine.
MIB = 1 << 20
HUGE_PAGE = 2 * MIB
KEPT, GIVEN_BACK = 16 * MIB, 48 * MIB


def row_of(run: pyxfer.Run, route: str, nbytes: int) -> pyxfer.Measurement:
    (found,) = [row for row in run.measurements if row.route == route and row.nbytes == nbytes]
    return found


def faults_of(row: pyxfer.Measurement) -> float:
    """The page faults of a usual call."""
    return statistics.median(trial.faults for trial in row.trials if trial.faults is not None)


@needs("tensorflow")
def test_up_to_32_mib_every_call_of_tensorflow_reuses_memory(whole_run: pyxfer.Run) -> None:
    assert faults_of(row_of(whole_run, "tf.ingest", KEPT)) < KEPT / HUGE_PAGE


@needs("tensorflow")
def test_beyond_32_mib_every_call_of_tensorflow_touches_new_pages(whole_run: pyxfer.Run) -> None:
    # NumPy asks for huge pages for the first copy; with those alone one buffer cannot be new with fewer faults.
    assert faults_of(row_of(whole_run, "tf.ingest", GIVEN_BACK)) >= GIVEN_BACK / HUGE_PAGE


@needs("tensorflow")
def test_no_call_touches_new_pages_if_malloc_keeps_its_memory(
    meeting_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del meeting_place
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(4 << 30))
    run = pyxfer.frameworks(
        ["tensorflow"],
        route=["tf.ingest"],
        device="host",
        size=[GIVEN_BACK],
        budget=2.0,
        seed=1,
        patience=PATIENCE_S,
    )
    row = row_of(run, "tf.ingest", GIVEN_BACK)
    assert row.verified.value is True
    assert faults_of(row) < GIVEN_BACK / HUGE_PAGE
    assert run.workers[0].settings["MALLOC_MMAP_MAX_"] == "0"


@needs("tensorflow")
@pytest.mark.parametrize("route", ["tf.ingest-rawop", "tf.ingest-dlpack"])
def test_routes_of_tensorflow_without_copies_touch_no_new_page(whole_run: pyxfer.Run, route: str) -> None:
    assert faults_of(row_of(whole_run, route, GIVEN_BACK)) < GIVEN_BACK / HUGE_PAGE


@needs("tensorflow", "jax")
def test_unaligned_memory_aborts_tensorflow_and_all_else_is_measured(meeting_place: Path) -> None:
    del meeting_place
    pyxfer.register_route(own_routes.make_route("tf.misaligned", own_routes.Misaligned))
    run = pyxfer.frameworks(
        ["tensorflow", "jax"],
        route=["tf.misaligned", "tf.ingest", "jax.ingest"],
        device="host",
        size="64KiB",
        budget=1.0,
        seed=1,
        patience=PATIENCE_S,
    )
    worker = run.workers[0]
    assert (worker.framework, worker.ended) == ("tensorflow", "crashed")
    assert worker.reason == "it crashed (SIGABRT), while tf.misaligned at 64 KiB was being timed"
    assert any("Check failed: IsAligned()" in line for line in worker.log), worker.log
    rows = {row.route: row for row in run.measurements if row.route_info is not None}
    assert rows["tf.misaligned"].rate.reason == worker.reason
    assert rows["tf.ingest"].gbps is not None
    assert rows["jax.ingest"].gbps is not None
    assert [each.ended for each in run.workers[1:]] == ["complete", "complete"]
    assert run.ended == "complete"


@pytest.mark.parametrize("name", [pytest.param("torch", marks=needs("torch")), pytest.param("jax", marks=needs("jax"))])
def test_over_the_link_every_route_says_that_no_gpu_is_usable(name: str) -> None:
    result = command_line.pyxfer(
        "frameworks", name, "--direction", "h2d", "--size", "64KiB", "--export-json", "-", CUDA_VISIBLE_DEVICES=""
    )
    assert result.returncode == 4
    run = codec.decode(Run, result.stdout.encode())
    assert [row.route for row in run.measurements if row.direction != "h2d"] == []
    assert run.measurements
    reasons = {row.rate.reason for row in run.measurements}
    assert all((reason or "").startswith("No usable GPU: ") for reason in reasons), reasons
    assert {worker.ended for worker in run.workers} == {"complete"}


@needs("torch", "tensorflow")
def test_ctrl_c_keeps_the_results_and_starts_no_other_framework(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ("frameworks", "torch", "tensorflow", "--device", "host", "--size", "1MiB,64MiB", "--budget", "60s")
    result = command_line.interrupt_when(
        "PyTorch: measuring", *arguments, "--precision", "0.0001%", "--export-json", str(path)
    )
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    run = Run.load(path)
    assert run.ended == "interrupted"
    assert [worker.ended for worker in run.workers] == ["interrupted"]
    assert "TensorFlow: starting" not in result.stderr
