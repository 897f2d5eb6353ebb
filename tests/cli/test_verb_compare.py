"""`pyxfer compare` and `pyxfer history`: files and what a store keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from baseline.store.making import run_at
from baseline_samples import Slower, all_slow, as_usual, make_processes, on_host
from command_line import pyxfer as in_a_process
from in_process import Command
from typer.testing import CliRunner

from pyxfer._baseline.check import make_baseline
from pyxfer._baseline.store import open_store
from pyxfer._cli.main import app
from pyxfer._document.baselines import Baseline
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


def test_two_runs_have_an_assumed_spread_and_never_fail(pyxfer: Command, files: dict[str, str]) -> None:
    result = pyxfer("compare", files["run"], files["slow_run"], "--export-json", "-")
    assert "one-process" in {remark["code"] for remark in json.loads(result.stdout)["remarks"]}
    assert pyxfer("compare", files["run"], files["slow_run"], "--fail-on", "slower:5%").returncode == 0


def test_stored_runs_are_named_by_id_or_name(pyxfer: Command, store: tuple[str, str, str]) -> None:
    path, baseline_id, run_id = store
    for first in (baseline_id, "baseline:default"):
        result = pyxfer("compare", first, run_id, "--store", path)
        assert result.returncode == 0, result.stderr
        assert f"of {run_id} are slower than baseline 'default'" in result.stdout


@pytest.mark.parametrize(
    ("b", "words"),
    [
        ("host", "was measured in host memory, without a GPU"),
        ("nowhere.json", "nowhere.json"),
        ("r-0123456789ab", "has no run"),
        ("baseline:winter", "has no baseline 'winter'"),
    ],
)
def test_incomparable_inputs_are_refused(
    pyxfer: Command, b: str, words: str, files: dict[str, str], store: tuple[str, str, str]
) -> None:
    result = pyxfer("compare", files["fast"], files.get(b, b), "--store", store[0])
    assert result.returncode in (2, 4)
    assert words in result.stderr
    assert (result.stdout, "Traceback" in result.stderr) == ("", False)


@pytest.fixture
def two_hosts(tmp_path: Path) -> str:
    """Two hosts, one of which was slow on its last day."""
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        for day in (1, 2, 3, 4):
            opened.add_run(run_at(day, host="node-7", slower=1.12 if day == 4 else 1.0))
            opened.add_run(run_at(day, host="node\n8"))
    return path


def output_of(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["history", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_many_hosts_have_one_line_each(two_hosts: str) -> None:
    with open_store(two_hosts) as opened:
        for number in range(6):
            opened.add_run(run_at(1, host=f"other-{number}"))
    lines = output_of("--store", two_hosts).splitlines()
    assert lines[0].startswith("Newest of 8 histories of h2d:pinned:16MiB")
    assert lines[2].split()[:1] == ["node-7"]
    assert "-10.7 %" in lines[2]
    assert len(lines) == 10


def test_as_json_it_has_every_point(two_hosts: str) -> None:
    found = json.loads(output_of("--store", two_hosts, "--export-json", "-"))
    assert [(group["host"], len(group["points"])) for group in found["groups"]] == [("node\n8", 4), ("node-7", 4)]
    assert found["schema_version"] == 1


def test_as_csv_a_host_is_not_a_formula(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        run_id = opened.add_run(run_at(host="=1+1"))
    header, row = output_of("--store", path, "--export-csv", "-").splitlines()
    assert header.split(",")[:6] == ["host", "runtime", "device", "gpu", "cell", "worker"]
    assert row.startswith("'=1+1,cuda,NVIDIA H200,GPU-6a1f2c3d")
    assert run_id in row
