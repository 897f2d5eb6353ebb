"""What can be compared, however it is given; and the same from Python."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from baseline_samples import all_slow, make_processes, make_sample, timed

import pyxfer
from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.inputs import sample_of
from pyxfer._baseline.store import open_store
from pyxfer._document import codec
from pyxfer._document.runs import Fact, Link, LinkState, Measurement, unknown
from pyxfer.errors import DocumentError, StoreError, UsageError

MEASURED = Path(__file__).parents[2] / "bench" / "results"
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
    BASELINE.save(tmp_path / "monday.json")
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


@pytest.mark.parametrize(("kind", "name"), [("examination", "an examination"), ("pytest", "a session of pytest")])
def test_a_document_of_another_kind_is_called_by_its_name(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"kind": kind, "schema_version": 1}))
    with pytest.raises(UsageError, match=f"is {name}, and not a run or a baseline; name files that hold one of these"):
        sample_of(path, "A")


def test_an_id_that_the_store_does_not_have_is_told(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "store.db")) as store:
        store.add_run(B[0])
    with pytest.raises((StoreError, UsageError), match="has no run 'r-000000000000'"):
        sample_of("r-000000000000", "A", str(tmp_path / "store.db"))


def test_a_comparison_is_not_compared_again(tmp_path: Path) -> None:
    path = tmp_path / "compared.json"
    path.write_bytes(codec.encode(compare_samples(make_sample("A"), make_sample("B"))))
    with pytest.raises(UsageError, match="is a comparison, and not a run or a baseline"):
        pyxfer.compare(path, A)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("[1, 2]")
    with pytest.raises(DocumentError, match=r"notes\.json"):
        pyxfer.compare(tmp_path / "notes.json", A)


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(UsageError, match="B is no run, baseline, file or store id"):
        pyxfer.compare(A, [1, 2])  # type: ignore[list-item]


def test_a_number_is_no_run() -> None:
    with pytest.raises(UsageError, match="A is no run, baseline, file or store id"):
        pyxfer.compare(3, A)  # type: ignore[arg-type]


def test_two_sides_of_one_name_are_told_apart() -> None:
    found = pyxfer.compare(BASELINE, BASELINE)
    assert (found.a, found.b) == ("baseline 'default' (A)", "baseline 'default' (B)")


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the documents of real hosts are not beside the tests")
def test_two_runs_of_a_real_host_in_one_minute_are_not_called_slow() -> None:
    found = pyxfer.compare(MEASURED / "host.json.gz", MEASURED / "ceiling.json.gz")
    assert {row.verdict for row in found.cells} == {"SAME", "AMBIGUOUS"}
    assert all(row.verdict == "SAME" for row in found.cells if row.text in ("h2d:pinned:64MiB", "d2h:pinned:64MiB"))


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the documents of real hosts are not beside the tests")
def test_a_real_host_on_half_a_link_is_slow_by_the_links_state_and_by_its_rate_alone() -> None:
    run = pyxfer.Run.load(MEASURED / "ceiling.json.gz")
    for link, code in ((halved(run.link), "link-narrow"), (halved(run.link, "no NVML"), "link-lesser")):
        rows = tuple(half_as_fast(row) for row in run.measurements)
        found = pyxfer.compare(run, msgspec.structs.replace(run, measurements=rows, link=link))
        assert (found.verdict, found.causes[0].code) == ("SLOW", code)


def halved(link: Link, unread: str = "") -> Link:
    """The link with eight lanes, or with a state that cannot be read."""
    state: Fact[LinkState] = unknown(unread) if unread else Fact(LinkState(5, 8))
    return msgspec.structs.replace(link, now=state, under_load=state)


def half_as_fast(row: Measurement) -> Measurement:
    """Page-locked memory goes at half its rate, and pageable memory at its own."""
    if row.memory == "pageable" or row.summary is None:
        return row
    return timed(row, [2 * trial.elapsed_s for trial in row.trials if trial.invalid is None])
