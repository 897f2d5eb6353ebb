"""`pyxfer baseline`: what a user types and reads, stores that fail, exit codes of save and check."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import junitparser
import pytest
from baseline.store.making import make_baseline, run_at
from baseline_samples import make_processes
from command_line import pyxfer
from in_process import Command
from samples import make_run
from typer.testing import CliRunner

from pyxfer._baseline.store import open_store
from pyxfer._cli import baseline as verb
from pyxfer._cli.main import app
from pyxfer._cli.output import rescued
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline
from pyxfer._document.runs import Run
from pyxfer.errors import MeasurementError, StoreError
from pyxfer.native import choose


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with two baselines of one name on two hosts, and one whose name attacks the terminal."""
    path = str(tmp_path / "store.db")
    monkeypatch.setenv("PYXFER_STORE", path)
    with open_store(path) as opened:
        for host in ("node-7", "node-8"):
            opened.add_baseline(make_baseline(host=host))
        slower = tuple(run_at(day, slower=1 + day / 100) for day in (1, 2, 3))
        opened.add_baseline(make_baseline("two\nlines \x1b[31m", labels={"slot\n": "<b>3"}, runs=slower))
    return path


def output_of(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["baseline", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.usefixtures("store")
def test_list_can_be_restricted_to_a_host() -> None:
    kept = json.loads(output_of("list", "--host", "node-8", "--export-json", "-"))["baselines"]
    assert [(each["fingerprint"]["host"], each["name"]) for each in kept] == [("node-8", "default")]
    assert "no baseline of the host 'node-9'" in output_of("list", "--host", "node-9")


def test_an_empty_name_is_refused_and_not_the_default(command: Command) -> None:
    ended = command("baseline", "save", "--name", "", "--device", "host")
    assert (ended.returncode, "The name of a baseline" in ended.stderr) == (2, True)


@pytest.mark.usefixtures("store")
def test_show_has_processes_and_cells() -> None:
    text = output_of("show", "two\nlines \x1b[31m")
    assert "two\\nlines \\x1b[31m: node-7" in text
    assert "slot\\n  <b>3" in text
    assert text.count("2026-01-0") == 4, "when it was made, and each process"
    assert text.splitlines()[-1].split() == ["h2d:pinned:16MiB", "53.92", "53.39", "54.45", "3"]


@pytest.mark.usefixtures("store")
def test_an_ambiguous_name_needs_a_host_or_an_id() -> None:
    message = output_of("show", code=2)
    assert "2 machines have a baseline 'default': name one by its id, b-" in message
    assert "node-8, GPU-" in message
    assert "default: node-8" in output_of("show", "--host", "node-8")
    found = json.loads(output_of("show", "--host", "node-8", "--export-json", "-"))
    assert found["baseline"]["fingerprint"]["host"] == "node-8"
    assert "default: node-8" in output_of("show", found["id"])


@pytest.mark.usefixtures("store")
def test_the_own_host_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "node-8")
    assert "default: node-8" in output_of("show")


@pytest.mark.usefixtures("store")
def test_an_unknown_name_lists_the_known_names() -> None:
    assert "no baseline 'old': name one of 'default', 'two\\nlines" in output_of("show", "old", code=2)


@pytest.mark.usefixtures("store")
def test_remove_keeps_the_history() -> None:
    assert "removed the baseline 'default' of node-7" in output_of("remove", "default", "--host", "node-7")
    kept = json.loads(output_of("list", "--export-json", "-"))["baselines"]
    assert [each["name"] for each in kept] == ["two\nlines \x1b[31m", "default"]
    assert "no baseline 'default' of the host 'node-7'" in output_of("remove", "default", "--host", "node-7", code=2)
    history = CliRunner().invoke(app, ["history", "--host", "node-7"])
    assert "points: 6" in history.output


@pytest.mark.usefixtures("store")
def test_an_export_can_be_imported_into_another_store(tmp_path: Path) -> None:
    file, other = str(tmp_path / "b.json"), str(tmp_path / "other.db")
    assert "3 runs, to " in output_of("export", "default", file, "--host", "node-7")
    assert "added 'default' of node-7 as b-" in output_of("import", file, "--store", other)
    assert "already has this baseline as b-" in output_of("import", file, "--store", other)
    assert output_of("list", "--store", other).splitlines()[0].endswith(": 1")


@pytest.mark.usefixtures("store")
def test_an_export_to_stdout_is_only_the_document() -> None:
    result = CliRunner().invoke(app, ["baseline", "export", "default", "-", "--host", "node-7"])
    assert codec.decode(Baseline, result.stdout.encode()) == make_baseline()


@pytest.mark.parametrize("verb", [["list"], ["export", "x", "-"]])
def test_a_missing_store_is_not_created(tmp_path: Path, verb: list[str]) -> None:
    path = tmp_path / "store.db"
    assert path.name in output_of(*verb, "--store", str(path), code=2)
    assert not path.exists()


class LostStore:
    """A store that fails after `takes` runs."""

    def __init__(self, takes: int) -> None:
        self.left = takes

    def add_run(self, run: Any, labels: Any) -> str:
        del run, labels
        if not self.left:
            raise StoreError("the server is gone; start it again")
        self.left -= 1
        return "r-1"


def keeper(takes: int, runs: int) -> verb._Keeper:
    made = verb._Keeper(LostStore(takes), {})  # type: ignore[arg-type]
    for _ in range(runs):
        made.keep(make_run())
    return made


def code_of(kept: verb._Keeper, *, is_slow: bool) -> int:
    with pytest.raises(SystemExit) as end:
        verb._end_check(make_processes(1), kept, is_slow=is_slow, interrupted=False)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_lost_runs_are_counted_with_the_reason() -> None:
    assert keeper(1, 3).trouble.endswith("not stored (2): the server is gone; start it again")


@pytest.mark.parametrize(("is_slow", "code"), [(True, 1), (False, 4)])
def test_a_slow_cell_takes_precedence_over_lost_runs(
    is_slow: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(keeper(0, 1), is_slow=is_slow) == code
    assert "not stored (1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (0, ""),
        (1, "pyxfer: no baseline was saved; runs in the history: 1 of 3\n"),
        (2, "pyxfer: no baseline was saved; runs in the history: 2 of 3\n"),
    ],
)
def test_an_interrupted_save_counts_its_runs(
    ended: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter(make_processes(ended) if ended else ())

    def measure() -> Run:
        for run in runs:
            return run
        raise KeyboardInterrupt

    store: Any = LostStore(3)
    with pytest.raises(KeyboardInterrupt):
        verb._measure_all(measure, 3, lambda: nullcontext(store), {})
    assert (capsys.readouterr().err, store.left) == (words, 3 - ended)


def test_a_baseline_that_the_store_refused_is_saved_to_a_file() -> None:
    baseline = make_baseline()
    path = rescued(baseline, "baseline", "pyxfer-test-", "a verb").partition(",")[0].split()[-1]
    assert Baseline.load(path) == baseline


def test_a_save_that_measures_nothing_leaves_no_store(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Run:
        raise MeasurementError("it measured nothing")

    monkeypatch.setattr(verb, "_measuring", lambda *_: fail)
    assert command("baseline", "save", "--device", "host", "--store", str(tmp_path / "store.db")).returncode == 4
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_created_is_refused_before_measuring(tmp_path: Path, command: Command) -> None:
    result = command("baseline", "save", "--device", "host", "--store", str(tmp_path / "no" / "store.db"))
    assert result.returncode == 2
    assert "create its folder first" in result.stderr


# --- save and check, in processes of their own -----------------------------------------------------------------------


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
def measured(kept: Path, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copy(str(kept), str(tmp_path / "store.db")))


def check(store: str, *options: str, link: str = LINK) -> tuple[int, str, str]:
    result = pyxfer("baseline", "check", "--device", "host", "--store", store, *options, PYXFER_HOSTRT=link)
    return result.returncode, result.stdout, result.stderr


def test_an_unchanged_host_passes(measured: str) -> None:
    code, page, _ = check(measured, link=FASTER)
    assert (code, "SLOW" in page) == (0, False)
    assert "host memory, not over a link" in page


@pytest.mark.slow
def test_a_confirmed_loss_exits_with_1_and_fails_in_junit(measured: str, tmp_path: Path) -> None:
    path = tmp_path / "check.xml"
    code, page, said = check(measured, "--export-junit", str(path), "--retries", "2", link=SLOWER)
    assert (code, page.startswith("SLOW: 1 of 2 cells of now is slower than baseline 'default'")) == (1, True)
    assert "measuring in process 3 of at most 3" in said
    assert "SLOW, confirmed" in page
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    assert (suite.tests, suite.failures) == (2, 1)
    with open_store(measured) as opened:
        points = [group.points for group in opened.history("h2d:pinned:256KiB").groups]
    assert [len(each) for each in points] == [3 + 3], "every run of a check is in the history"


@pytest.mark.slow
def test_a_baseline_grows_by_sittings_and_by_checks_that_pass(measured: str) -> None:
    save = pyxfer("baseline", "save", *QUICK, "--add", "--processes", "1", "--store", measured, PYXFER_HOSTRT=LINK)
    assert save.returncode == 0, save.stderr
    code, _, said = check(measured, "--add", "--tolerance", "90%")
    assert (code, "added the runs to the baseline 'default'" in said) == (0, True)
    with open_store(measured) as opened:
        (found,) = opened.baselines()
        grown = opened.baseline_of_id(found.id)
    assert (len(grown.runs), found.earlier, grown.labels) == (5, 2, {"slot": "3"})
    code, _, said = check(measured, "--add", "--retries", "0", link=SLOWER)
    assert "added the runs" not in said


@without_gpu
@pytest.mark.parametrize("verb", ["save", "check"])
def test_without_a_gpu_it_is_refused(command: Command, verb: str, measured: str) -> None:
    result = command("baseline", verb, "--store", measured)
    assert result.returncode == 3
    assert "A baseline describes a link; one of host memory" in result.stderr


def test_a_baseline_without_runs_is_refused_before_measuring(command: Command, measured: str) -> None:
    with closing(sqlite3.connect(measured)) as connection, connection:
        connection.execute("DELETE FROM pyxfer_baseline_runs")
    result = command("baseline", "check", "--device", "host", "--store", measured)
    assert (result.returncode, result.stdout) == (2, "")
    assert "measuring" not in result.stderr
