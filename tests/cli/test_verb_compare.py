"""`pyxfer compare`: files and what a store keeps, held against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from baseline_samples import Slower, all_slow, as_usual, make_processes, on_host
from command_line import in_terminal
from command_line import pyxfer as in_a_process
from in_process import Command

from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.store import open_store
from pyxfer._document.baselines import Baseline, Comparison
from pyxfer._document.runs import Run

MADE_AT = "2025-11-21T08:30:00+00:00"


@pytest.fixture
def pyxfer(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(capsys)


def baseline(seed: int, slower: Slower = as_usual) -> Baseline:
    return make_baseline("default", {}, make_processes(3, seed, slower=slower), MADE_AT)


def run(seed: int, slower: Slower = as_usual) -> Run:
    return make_processes(1, seed, slower=slower)[0]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Two baselines and two runs, the second of each a tenth slower, and one of host memory."""
    paths = {name: str(tmp_path / f"{name}.json") for name in ("fast", "slow", "run", "slow_run", "host")}
    baseline(1).save(paths["fast"])
    baseline(2, all_slow(1.1)).save(paths["slow"])
    run(3).save(paths["run"])
    run(4, all_slow(1.1)).save(paths["slow_run"])
    on_host(run(5)).save(paths["host"])
    return paths


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, str, str]:
    """A store with a baseline and a slower run, and the ids of both."""
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        return path, opened.add_baseline(baseline(1)), opened.add_run(run(4, all_slow(1.1)))


def test_a_comparison_exits_with_0(files: dict[str, str]) -> None:
    result = in_a_process("compare", files["fast"], files["slow"])
    assert result.returncode == 0
    assert result.stdout.startswith("SLOW: 12 of 12 cells of slow.json are slower than fast.json")


@pytest.mark.parametrize(("share", "code"), [("5%", 1), ("20%", 0)])
def test_fail_on_exits_with_1_if_a_cell_is_certainly_slower(
    pyxfer: Command, share: str, code: int, files: dict[str, str]
) -> None:
    result = pyxfer("compare", files["fast"], files["slow"], "--fail-on", f"slower:{share}")
    assert result.returncode == code
    assert ("certainly slower by more than 5%: 12" in result.stderr) == bool(code)


def test_fail_on_accepts_faster_cells(pyxfer: Command, files: dict[str, str]) -> None:
    assert pyxfer("compare", files["slow"], files["fast"], "--fail-on", "slower:1%").returncode == 0


def test_two_runs_have_an_assumed_spread_and_never_fail(pyxfer: Command, files: dict[str, str]) -> None:
    result = pyxfer("compare", files["run"], files["slow_run"], "--export-json", "-")
    assert "one-process" in {remark["code"] for remark in json.loads(result.stdout)["remarks"]}
    assert pyxfer("compare", files["run"], files["slow_run"], "--fail-on", "slower:5%").returncode == 0


def test_a_file_is_the_same_as_itself(pyxfer: Command, files: dict[str, str]) -> None:
    result = pyxfer("compare", files["fast"], files["fast"])
    assert result.stdout.startswith("SAME: 12 cells of fast.json (B) are within 3 % of fast.json (A).")


def test_one_call_exports_several_formats_and_prints_the_page(
    pyxfer: Command, files: dict[str, str], tmp_path: Path
) -> None:
    options = ("--export-json", str(tmp_path / "it.json"), "--export-md", str(tmp_path / "it.md"))
    result = pyxfer("compare", files["fast"], files["slow"], *options)
    assert result.stdout.startswith("SLOW")
    assert Comparison.load(tmp_path / "it.json").verdict == "SLOW"
    assert "| cell | A | B |" in (tmp_path / "it.md").read_text()


def test_json_on_stdout_can_be_parsed(pyxfer: Command, files: dict[str, str]) -> None:
    result = pyxfer("compare", files["fast"], files["slow"], "--export-json", "-")
    assert json.loads(result.stdout)["verdict"] == "SLOW"


def test_stored_runs_are_named_by_id_or_name(pyxfer: Command, store: tuple[str, str, str]) -> None:
    path, baseline_id, run_id = store
    for first in (baseline_id, "baseline:default"):
        result = pyxfer("compare", first, run_id, "--store", path)
        assert result.returncode == 0, result.stderr
        assert f"of {run_id} are slower than baseline 'default'" in result.stdout


def test_the_page_fits_a_terminal(files: dict[str, str]) -> None:
    code, text = in_terminal("compare", files["fast"], files["slow"], NO_COLOR="1")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        ("fast", "host", (), "was measured in host memory, without a GPU"),
        ("fast", "nowhere.json", (), "nowhere.json"),
        ("fast", "r-0123456789ab", (), "has no run"),
        ("fast", "baseline:winter", (), "has no baseline 'winter'"),
        ("fast", "slow", ("--fail-on", "faster:5%"), "--fail-on slower:5%"),
        ("fast", "slow", ("--fail-on", "slower"), "--fail-on slower:5%"),
        ("fast", "slow", ("--fail-on", "slower:x"), "--fail-on slower:SHARE 'x' is not a share"),
        ("fast", "slow", ("--tolerance", "0%"), "is not above zero"),
    ],
)
def test_incomparable_inputs_are_refused(
    pyxfer: Command,
    a: str,
    b: str,
    options: tuple[str, ...],
    words: str,
    files: dict[str, str],
    store: tuple[str, str, str],
) -> None:
    result = pyxfer("compare", files.get(a, a), files.get(b, b), *options, "--store", store[0])
    assert result.returncode in (2, 4)
    assert words in result.stderr
    assert (result.stdout, "Traceback" in result.stderr) == ("", False)


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "comparison"}', '{"kind": "baseline", "schema_version": 1}'])
def test_an_unknown_document_is_refused(pyxfer: Command, text: str, files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    result = pyxfer("compare", files["fast"], str(path))
    assert result.returncode == 2
    assert "odd.json" in result.stderr
