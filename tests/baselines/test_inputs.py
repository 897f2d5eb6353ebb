"""What can be compared, however it is given; and the same from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from baseline_samples import all_slow, make_processes, make_sample

import pyxfer
from pyxfer import baseline_documents, comparison_documents
from pyxfer.baselines.checking import make_baseline
from pyxfer.baselines.comparing import compare_samples
from pyxfer.baselines.inputs import sample_of
from pyxfer.baselines.store import open_store
from pyxfer.errors import DocumentError, StoreError, UsageError

A, B = make_processes(3, 1), make_processes(3, 2, slower=all_slow(1.1))
BASELINE = make_baseline("default", {}, A, "2025-11-21T08:30:00+00:00")


def test_runs_of_several_processes_are_compared() -> None:
    found = pyxfer.compare(A, B)
    assert (found.verdict, found.a, found.b) == ("SLOW", "A", "B")
    assert {(row.a_processes, row.b_processes) for row in found.cells} == {(3, 3)}


def test_a_single_run_is_held_against_a_baseline() -> None:
    found = pyxfer.compare(BASELINE, B[0], tolerance=0.2)
    assert (found.verdict, found.a, found.tolerance) == ("SAME", "baseline 'default'", 0.2)


def test_files_are_compared_by_their_names(tmp_path: Path) -> None:
    baseline_documents.save(BASELINE, tmp_path / "monday.json")
    B[0].save(tmp_path / "today.json")
    found = pyxfer.compare(tmp_path / "monday.json", str(tmp_path / "today.json"))
    assert (found.a, found.b, found.verdict) == ("monday.json", "today.json", "SLOW")


def test_a_file_goes_before_an_id_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    A[0].save("r-0123456789ab")
    assert sample_of("r-0123456789ab", "A").runs == (A[0],)


def test_what_a_store_keeps_is_found_by_id_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "store.db")
    monkeypatch.setenv("PYXFER_STORE", path)
    with open_store(path) as store:
        baseline_id, run_id = store.add_baseline(BASELINE), store.add_run(B[0])
    assert sample_of(run_id, "A").runs == (B[0],)
    assert sample_of(baseline_id, "A").runs == sample_of("baseline:default", "A").runs == A


def test_an_id_that_the_store_does_not_have_is_told(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "store.db")) as store:
        store.add_run(B[0])
    with pytest.raises((StoreError, UsageError), match="has no run 'r-000000000000'"):
        sample_of("r-000000000000", "A", str(tmp_path / "store.db"))


def test_a_comparison_is_not_compared_again(tmp_path: Path) -> None:
    path = tmp_path / "compared.json"
    path.write_bytes(comparison_documents.encode(compare_samples(make_sample("A"), make_sample("B"))))
    with pytest.raises(UsageError, match="is a comparison, and not a run or a baseline"):
        pyxfer.compare(path, A)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("[1, 2]")
    with pytest.raises(DocumentError, match=r"notes\.json"):
        pyxfer.compare(tmp_path / "notes.json", A)


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(UsageError, match="B is no run, baseline, file or store id"):
        pyxfer.compare(A, [1, 2])  # type: ignore[list-item]


def test_two_sides_of_one_name_are_told_apart() -> None:
    found = pyxfer.compare(BASELINE, BASELINE)
    assert (found.a, found.b) == ("baseline 'default' (A)", "baseline 'default' (B)")
