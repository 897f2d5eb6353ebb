"""`pyxfer baseline save` and `check`: stored runs, output and exit codes."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import junitparser
import pytest
from command_line import interrupt_when, pyxfer
from in_process import Command

from pyxfer._baseline.store import open_store
from pyxfer.native import choose

LINK = "link=5e8:2e-6:5e8:2e-6"
SLOWER = "link=5e7:2e-6:5e8:2e-6"
FASTER = "link=2e9:2e-6:2e9:2e-6"
QUICK = ("--device", "host", "--memory", "pinned", "--size", "256KiB", "--budget", "0.2s")
without_gpu = pytest.mark.skipif(choose().runtime == "cuda", reason="a GPU answers here")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has a baseline of this host's memory, as slow as a link."""
    store = tmp_path_factory.mktemp("kept") / "store.db"
    result = pyxfer(
        "baseline", "save", *QUICK, "--processes", "3", "--label", "slot=3", "--store", str(store), PYXFER_HOSTRT=LINK
    )
    assert result.returncode == 0, result.stderr
    assert "measuring in process 3 of 3" in result.stderr
    assert "host memory, not a PCIe link" in result.stdout
    assert "h2d:pinned:256KiB" in result.stdout
    return store


@pytest.fixture
def store(kept: Path, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copy(str(kept), str(tmp_path / "store.db")))


def check(store: str, *options: str, link: str = LINK) -> tuple[int, str, str]:
    result = pyxfer("baseline", "check", "--device", "host", "--store", store, *options, PYXFER_HOSTRT=link)
    return result.returncode, result.stdout, result.stderr


def test_an_unchanged_host_passes(store: str) -> None:
    code, page, _ = check(store, link=FASTER)
    assert (code, "SLOW" in page) == (0, False)
    assert "host memory, not over a link" in page


@pytest.mark.slow
def test_a_confirmed_loss_exits_with_1_and_fails_in_junit(store: str, tmp_path: Path) -> None:
    path = tmp_path / "check.xml"
    code, page, said = check(store, "--export-junit", str(path), "--retries", "2", link=SLOWER)
    assert (code, page.startswith("SLOW: 1 of 2 cells of now is slower than baseline 'default'")) == (1, True)
    assert "measuring in process 3 of at most 3" in said
    assert "SLOW, confirmed" in page
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures) == (2, 1)
    with open_store(store) as opened:
        points = [group.points for group in opened.history("h2d:pinned:256KiB").groups]
    assert [len(each) for each in points] == [3 + 3], "every run of a check is in the history"


@pytest.mark.slow
def test_a_baseline_grows_by_sittings_and_by_checks_that_pass(store: str) -> None:
    save = pyxfer("baseline", "save", *QUICK, "--add", "--processes", "1", "--store", store, PYXFER_HOSTRT=LINK)
    assert save.returncode == 0, save.stderr
    code, _, said = check(store, "--add", "--tolerance", "90%")
    assert (code, "added the runs to the baseline 'default'" in said) == (0, True)
    with open_store(store) as opened:
        (found,) = opened.baselines()
        grown = opened.baseline_of_id(found.id)
    assert (len(grown.runs), found.earlier, grown.labels) == (5, 2, {"slot": "3"})
    code, _, said = check(store, "--add", "--retries", "0", link=SLOWER)
    assert "added the runs" not in said


@without_gpu
@pytest.mark.parametrize("verb", ["save", "check"])
def test_without_a_gpu_it_is_refused(command: Command, verb: str, store: str) -> None:
    result = command("baseline", verb, "--store", store)
    assert result.returncode == 3
    assert "A baseline describes a link; one of host memory" in result.stderr


def test_an_unknown_baseline_lists_the_known_ones(command: Command, store: str) -> None:
    result = command("baseline", "check", "--device", "host", "--store", store, "--name", "summer")
    assert result.returncode == 2
    assert "has no baseline 'summer' of this machine" in result.stderr
    assert "it has 'default' of this machine (--name)" in result.stderr


def test_a_baseline_without_runs_is_refused_before_measuring(command: Command, store: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM pyxfer_baseline_runs")
    result = command("baseline", "check", "--device", "host", "--store", store)
    assert (result.returncode, result.stdout) == (2, "")
    assert "measuring" not in result.stderr


@pytest.mark.slow
def test_an_interrupted_save_keeps_its_runs(tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    command = ("baseline", "save", *QUICK, "--store", store)
    result = interrupt_when("measuring in process 2 of 5", *command, PYXFER_HOSTRT=LINK)
    assert result.returncode == 130
    assert re.search(r"no baseline was saved; runs in the history: [12] of 5", result.stderr)
    assert "Traceback" not in result.stderr
    with open_store(store) as opened:
        assert opened.baselines() == []
        assert opened.history("h2d:pinned:256KiB").groups
