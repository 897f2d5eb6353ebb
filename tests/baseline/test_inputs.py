"""The sides of `pyxfer.compare`: objects, files, and names and ids in a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from baseline_samples import all_slow, make_processes, timed

import pyxfer
from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.inputs import sample_of
from pyxfer._baseline.store import open_store
from pyxfer._document.machines import Fact, Link, LinkState, unknown
from pyxfer._document.runs import Measurement
from pyxfer.errors import UsageError

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


@pytest.mark.parametrize("tolerance", ["0.2", "3 percent", 0, 2, True, None])
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
    with pytest.raises(UsageError, match=f"is {name}, and not a run, links or a baseline"):
        sample_of(path, "A")


@pytest.mark.parametrize("side", [3, [1, 2]])
def test_another_type_is_refused(side: Any) -> None:
    with pytest.raises(UsageError, match="B is not a run"):
        pyxfer.compare(A, side)


def test_two_sides_of_one_name_get_different_names() -> None:
    found = pyxfer.compare(BASELINE, BASELINE)
    assert (found.a, found.b) == ("baseline 'default' (A)", "baseline 'default' (B)")


@pytest.mark.skipif(not MEASURED.is_dir(), reason="bench/results is missing")
def test_two_runs_of_a_real_host_within_a_minute_are_not_slow() -> None:
    found = pyxfer.compare(MEASURED / "host.json.gz", MEASURED / "ceiling.json.gz")
    assert {row.verdict for row in found.cells} == {"SAME", "AMBIGUOUS"}
    assert all(row.verdict == "SAME" for row in found.cells if row.text in ("h2d:pinned:64MiB", "d2h:pinned:64MiB"))


@pytest.mark.skipif(not MEASURED.is_dir(), reason="bench/results is missing")
def test_half_the_link_of_a_real_host_is_found_by_its_state_and_by_its_rate() -> None:
    run = pyxfer.Run.load(MEASURED / "ceiling.json.gz")
    for link, code in ((halved(run.link), "link-narrow"), (halved(run.link, "no NVML"), "link-lesser")):
        rows = tuple(half_as_fast(row) for row in run.measurements)
        half = msgspec.structs.replace(run, measurements=rows, link=link)
        found = pyxfer.compare([run, again(run)], [half, again(half)])
        assert (found.verdict, found.causes[0].code) == ("SLOW", code)


def again(run: pyxfer.Run) -> pyxfer.Run:
    """Another process with the same times."""
    return msgspec.structs.replace(run, duration_s=run.duration_s + 1)


def halved(link: Link, unread: str = "") -> Link:
    """The link with eight lanes, or with a state that cannot be read."""
    state: Fact[LinkState] = unknown(unread) if unread else Fact(LinkState(5, 8))
    return msgspec.structs.replace(link, now=state, under_load=state)


def half_as_fast(row: Measurement) -> Measurement:
    """The measurement at half its rate, if it is of page-locked memory."""
    if row.memory == "pageable" or row.summary is None:
        return row
    return timed(row, [2 * trial.elapsed_s for trial in row.trials if trial.invalid is None])
