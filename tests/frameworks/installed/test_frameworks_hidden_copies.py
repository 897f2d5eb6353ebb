"""What each call copies on the host without saying so: TensorFlow's two copies, and what they cost beyond 32 MiB.

A block that is freed glibc keeps for the next one, up to 32 MiB (DEFAULT_MMAP_THRESHOLD_MAX). A larger one it gives
back to the kernel, and every page of the next one is new: a page fault each. Their number is no matter of speed, so it
holds on a busy machine too.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from frameworks.installed.available import PATIENCE_S, SLOW, needs
from route_checks import HUGE_PAGES

import pyxfer

pytestmark = SLOW
MIB = 1 << 20
SMALL_PAGE, HUGE_PAGE = 4096, 2 * MIB
KEPT, GIVEN_BACK = 16 * MIB, 48 * MIB
# Two copies take twice the time of one where nothing else does; the rest is for the noise of a busy machine.
SHARE_OF_TWO_COPIES = 0.65


def row_of(run: pyxfer.Run, route: str, nbytes: int) -> pyxfer.Measurement:
    (found,) = [row for row in run.measurements if row.route == route and row.nbytes == nbytes]
    return found


def faults_of(row: pyxfer.Measurement) -> float:
    """The page faults of a usual call."""
    return statistics.median(trial.faults for trial in row.trials if trial.faults is not None)


@needs("tensorflow")
def test_tensorflow_constant_takes_as_long_as_two_copies_or_longer(whole_run: pyxfer.Run) -> None:
    share = row_of(whole_run, "tf.ingest", GIVEN_BACK).of_ceiling
    assert share is not None
    assert 0 < share <= SHARE_OF_TWO_COPIES


@needs("tensorflow")
def test_within_32_mib_tensorflow_gets_the_same_memory_again_for_every_call(whole_run: pyxfer.Run) -> None:
    assert faults_of(row_of(whole_run, "tf.ingest", KEPT)) < KEPT / HUGE_PAGE


@needs("tensorflow")
def test_beyond_32_mib_every_call_of_tensorflow_meets_new_pages(whole_run: pyxfer.Run) -> None:
    # NumPy asks for huge pages for the first copy; with those alone one buffer cannot be new with fewer faults.
    assert faults_of(row_of(whole_run, "tf.ingest", GIVEN_BACK)) >= GIVEN_BACK / HUGE_PAGE


@needs("tensorflow")
def test_where_malloc_gives_nothing_back_no_call_meets_new_pages(
    meeting_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del meeting_place
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(4 << 30))
    run = pyxfer.frameworks(
        ["tensorflow"],
        routes=["tf.ingest"],
        device="host",
        sizes=[GIVEN_BACK],
        budget_s=2.0,
        seed=1,
        patience_s=PATIENCE_S,
    )
    row = row_of(run, "tf.ingest", GIVEN_BACK)
    assert row.verified.value is True
    assert faults_of(row) < GIVEN_BACK / HUGE_PAGE
    assert run.workers[0].settings["MALLOC_MMAP_MAX_"] == "0"


@needs("tensorflow")
@pytest.mark.parametrize("route", ["tf.ingest-rawop", "tf.ingest-dlpack"])
def test_the_ways_of_tensorflow_that_copy_nothing_meet_no_new_page(whole_run: pyxfer.Run, route: str) -> None:
    assert faults_of(row_of(whole_run, route, GIVEN_BACK)) < GIVEN_BACK / HUGE_PAGE


@pytest.mark.parametrize(
    ("route", "copies"),
    [
        pytest.param("torch.ingest", 0, marks=needs("torch")),
        pytest.param("torch.ingest-copy", 1, marks=needs("torch")),
        pytest.param("jax.ingest", 2, marks=needs("jax")),
        pytest.param("jax.ingest-device-put", 0, marks=needs("jax")),
    ],
)
def test_a_call_makes_new_as_many_buffers_as_its_table_promises_copies(
    whole_run: pyxfer.Run, route: str, copies: int
) -> None:
    if "[always]" in HUGE_PAGES.read_text():
        pytest.skip("transparent huge pages are always on, so that page faults do not count copies")
    row = row_of(whole_run, route, GIVEN_BACK)
    assert row.nature is not None
    assert row.nature.host_copies == copies
    assert round(faults_of(row) * SMALL_PAGE / GIVEN_BACK) == copies
