"""TensorFlow's two hidden host copies, and their cost beyond 32 MiB.

glibc keeps a freed block of up to 32 MiB (DEFAULT_MMAP_THRESHOLD_MAX) for the next allocation. It gives a larger one
back to the kernel, so every page of the next block is new and costs a page fault. The number of page faults does not
depend on speed, so these tests also hold on a busy machine.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from frameworks.installed.conftest import PATIENCE_S, SLOW, needs

import pyxfer

pytestmark = SLOW
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
