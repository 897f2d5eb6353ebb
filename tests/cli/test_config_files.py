"""The files that a user keeps defaults in: what they set, what they do not, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from baseline.store.making import make_baseline
from command_line import environment
from in_process import TREE, Command
from samples import make_run
from typer.testing import CliRunner

import pyxfer as px
from pyxfer import _config
from pyxfer._cli.defaults import KEYS, WITHOUT_FILES, options_by_table
from pyxfer._cli.main import app
from pyxfer._fleet.launch import HostJob
from pyxfer._upload.settings import settings_set

Write = Callable[[str], Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the pyproject.toml of the current folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYXFER_STORE", raising=False)
    monkeypatch.delenv("PYXFER_RING", raising=False)
    monkeypatch.delenv("PYXFER_READ_RING", raising=False)
    return _writer(folder / "pyproject.toml")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the user's file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "xdg" / "pyxfer").mkdir(parents=True)
    return _writer(tmp_path / "xdg" / "pyxfer" / "config.toml")


def _writer(path: Path) -> Write:
    def write(text: str) -> Path:
        path.write_text(text)
        return path

    return write


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Calls a verb without its work, and returns the values of its options."""

    def call(*words: str) -> dict[str, Any]:
        found, names = TREE, [word for word in words if not word.startswith("-")]
        while names and hasattr(found, "commands"):
            found = found.get_command(None, names.pop(0))
        seen: dict[str, Any] = {}
        monkeypatch.setattr(found, "callback", lambda **given: seen.update(given))
        TREE(list(words), prog_name="pyxfer", standalone_mode=False)
        return seen

    return call


# --- what the files set ----------------------------------------------------------------------------------------------


def test_an_option_comes_before_the_project_the_user_and_the_built_in_default(
    project: Write, user: Write, values: Any
) -> None:
    user('budget = "1s"\nprecision = "3%"\ndirection = "h2d"\n')
    project('[tool.pyxfer]\nbudget = "2s"\ndirection = "d2h"\n')
    found = values("ceiling", "--direction", "both")
    assert (found["direction"], found["budget"], found["precision"]) == ("both", "2s", "3%")
    assert found["size"] == "4KiB:256MiB:x4"


def test_a_table_of_a_verb_comes_before_that_of_its_group_and_the_top(project: Write, user: Write, values: Any) -> None:
    user('[baseline.check]\ntolerance = "9%"\n')
    project(
        '[tool.pyxfer]\ntolerance = "1%"\nretries = 1\ndevice = "host"\n'
        "[tool.pyxfer.baseline]\nretries = 2\n"
        "[tool.pyxfer.baseline.check]\nretries = 3\n"
    )
    check = values("baseline", "check")
    assert (check["tolerance"], check["retries"], check["device"]) == ("1%", 3, "host")
    assert values("compare", "a", "b")["tolerance"] == "1%"


def test_the_command_without_a_verb_takes_what_stands_at_the_top(project: Write, values: Any) -> None:
    project('[tool.pyxfer]\nbudget = "2s"\n[tool.pyxfer.ceiling]\nbudget = "3s"\n')
    assert values()["budget"] == "2s"
    assert values("ceiling")["budget"] == "3s"


def test_every_kind_of_value(project: Write, values: Any) -> None:
    project('[tool.pyxfer]\nlabel = ["slot=3", "rack=r7"]\ndevice = 1\nrequire_gpu = true\nprocesses = 2\n')
    found = values("baseline", "save")
    assert list(found["label"]) == ["slot=3", "rack=r7"]
    assert (found["device"], found["require_gpu"], found["processes"]) == ("1", True, 2)
    assert list(values("baseline", "save", "--label", "a=b")["label"]) == ["a=b"]


def test_a_switch_that_a_file_turns_on_can_be_turned_off(project: Write, values: Any) -> None:
    switches = {name for name, option in options_by_table(TREE)[()].items() if option.is_flag}
    project("[tool.pyxfer]\n" + "".join(f"{name} = true\n" for name in switches))
    found = values("ceiling", "--no-require-gpu", "--trace")
    assert (found["require_gpu"], found["no_trace"], found["details"]) == (False, False, True)
    assert [name for name in switches if not _switch(name).secondary_opts] == []


def _switch(name: str) -> Any:
    return options_by_table(TREE)[()][name]


def test_an_argument_is_not_set_by_the_option_of_its_name(project: Write, command: Command) -> None:
    project('[tool.pyxfer]\nroute = "torch.*"\n')
    assert "Missing argument 'ROUTE'" in command("explain").stderr


def test_the_nearest_file_with_a_table_counts(
    project: Write, values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("[tool.pyxfer]\nbudget = 6\n")
    inner = tmp_path / "project" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.other]\nbudget = 7\n[")
    monkeypatch.chdir(inner)
    assert values("ceiling")["budget"] == "6"
    (inner.parent / "pyproject.toml").write_text("[tool.pyxfer]\nbudget = 8\n")
    assert values("ceiling")["budget"] == "8"


def test_the_keys_are_options_and_no_table_has_the_name_of_one() -> None:
    tables = options_by_table(TREE)
    assert tables[()].keys() == KEYS
    assert not {word for words in tables for word in words} & (KEYS | set(_config.OF_THE_MACHINE))


# --- what counts as given --------------------------------------------------------------------------------------------


def test_a_value_of_a_file_is_not_refused_as_an_option_is(
    project: Write, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run().save(tmp_path / "run.json")
    project('[tool.pyxfer]\ndevice = "0"\nbudget = "2s"\nrequire_gpu = false\ngroup = "host"\n')
    assert command("doctor", str(tmp_path / "run.json")).returncode == 0
    assert command("doctor", str(tmp_path / "run.json"), "--budget", "2s").returncode == 2
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "none.db"))
    assert "--group" not in command("baseline", "save", "--add").stderr
    assert "--group" in command("baseline", "save", "--add", "--group", "host").stderr
    assert command("--budget", "1s", "info").returncode == 2
    assert command("info").returncode == 0


def test_links_of_a_baseline_keep_their_own_budget_and_size(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyxfer._cli import baseline

    asked = []

    def stop(started: object, request: Any, *_: object) -> None:
        asked.append({word.partition("=")[0]: word.partition("=")[2] for word in request.words})
        raise px.UsageError("Enough.")

    monkeypatch.setattr(baseline, "_measuring", stop)
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "store.db"))
    project('[tool.pyxfer]\nbudget = "2s"\nsize = "4KiB,8KiB"\ndirection = "h2d"\ndevice = "host"\n')
    for words in (["--links"], ["--links", "--budget", "3s"], []):
        CliRunner().invoke(app, ["baseline", "save", *words])
    assert [each["--budget"] for each in asked] == ["15s", "3s", "2s"]
    assert ["--size" in asked[0], asked[2]["--size"]] == [False, "4096,8192"]


# --- the facts of the machine ----------------------------------------------------------------------------------------


def test_python_and_the_command_line_use_the_store_and_the_ring_of_the_files(
    project: Write, user: Write, tmp_path: Path, command: Command
) -> None:
    user(f'store = "{tmp_path / "user.db"}"\nring = "threads=3"\n')
    with px.open_store() as store:
        assert store.shown == repr(str(tmp_path / "user.db"))
        store.add_baseline(make_baseline())
    assert command("baseline", "list").returncode == 0
    assert settings_set(os.environ)[0].threads == 3
    ring = json.loads(command("info", "--export-json", "-").stdout)["rings"][0]
    assert (ring["ring"]["threads"], ring["source"]) == (3, "given")
    assert f"ring in '{tmp_path}" in ring["reason"]
    project('[tool.pyxfer]\nring = "threads=4"\nstore = "own.db"\n')
    assert settings_set(os.environ)[0].threads == 4
    assert settings_set(os.environ, "PYXFER_READ_RING")[0].threads is None
    project('[tool.pyxfer]\nread_ring = "threads=5"\nstore = "own.db"\n')
    assert settings_set(os.environ, "PYXFER_READ_RING")[0].threads == 5
    assert "project/own.db" in command("baseline", "list").stderr


def test_a_relative_path_begins_at_the_file(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project('[tool.pyxfer]\nstore = "own.db"\n')
    (path.parent / "a").mkdir()
    monkeypatch.chdir(path.parent / "a")
    with px.open_store() as store:
        assert store.shown == repr(str(path.parent / "own.db"))


def test_a_variable_comes_before_the_files(project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project('[tool.pyxfer]\nring = "threads=4"\nstore = "own.db"\n')
    monkeypatch.setenv("PYXFER_RING", "threads=5")
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "variable.db"))
    assert settings_set(os.environ)[0].threads == 5
    with px.open_store() as store:
        assert store.shown == repr(str(tmp_path / "variable.db"))


def test_device_and_budget_do_not_apply_to_python(project: Write) -> None:
    project('[tool.pyxfer]\ndevice = "7"\nprecision = "40%"\n')
    run = px.ceiling("host", size="4KiB", direction="h2d", memory="pinned", budget=0.01, trace=False)
    assert run.parameters.precision != 0.4


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budgt = 1", "tool.pyxfer.budgt in FILE is unknown: did you mean budget?"),
        ("require-gpu = true", "tool.pyxfer.require-gpu in FILE is unknown: did you mean require_gpu?"),
        ("stores = 'a'", "tool.pyxfer.stores in FILE is unknown: did you mean store?"),
        ("[tool.pyxfer.celing]", "tool.pyxfer.celing in FILE is unknown: did you mean ceiling?"),
        ("[tool.pyxfer.baseline.chek]", "tool.pyxfer.baseline.chek in FILE is unknown: did you mean check?"),
        ("[tool.pyxfer.ceiling]\ntolerance = '1%'", "tool.pyxfer.ceiling.tolerance in FILE is unknown: its table has "),
        ("[tool.pyxfer.ceiling]\nstore = 'a'", "tool.pyxfer.ceiling.store in FILE is unknown: "),
        ("export_json = 'a'", "tool.pyxfer.export_json in FILE is unknown: "),
        ("[tool.pyxfer.fleet.run]\nprogram = 'sh'", "tool.pyxfer.fleet.run.program in FILE is unknown: "),
        ("[tool.pyxfer.fleet.host]\nbudget = '9s'", "tool.pyxfer.fleet.host in FILE is unknown: "),
        ("ceiling = 1", "tool.pyxfer.ceiling in FILE is a command and not a key: write a table [tool.pyxfer.ceiling]."),
        ("budget = true", "tool.pyxfer.budget in FILE is True and not text: "),
        ("budget = 1.5", "tool.pyxfer.budget in FILE is 1.5 and not text: "),
        ("[tool.pyxfer.budget]\na = 1", "tool.pyxfer.budget in FILE is {'a': 1} and not text: "),
        ("label = 'a=b'", "tool.pyxfer.label in FILE is 'a=b' and not a list of texts: "),
        ("label = [1]", "tool.pyxfer.label in FILE is [1] and not a list of texts: "),
        ("require_gpu = 'yes'", "tool.pyxfer.require_gpu in FILE is 'yes' and not a switch: "),
        ("retries = '5'", "tool.pyxfer.retries in FILE is '5' and not a whole number: "),
        ("retries = true", "tool.pyxfer.retries in FILE is True and not a whole number: "),
        ("retries = 50", "tool.pyxfer.retries in FILE: 50 is not in the range "),
        ("'a b' = 1", "tool.pyxfer.'a b' in FILE is unknown: "),
        (r'"\u001b[31m" = 1', r"tool.pyxfer.'\x1b[31m' in FILE is unknown: "),
        (f"{'k' * 1000} = 1", f"tool.pyxfer.'{'k' * 59} in FILE is unknown: "),
        ("store = 5", "tool.pyxfer.store in FILE is not text: "),
        ("ring = ['threads=1']", "tool.pyxfer.ring in FILE is not text: "),
        ("budget = ", "FILE is not valid TOML ("),
        ("budget = '\\\udcff'", "FILE is not valid TOML ("),
    ],
)
def test_one_line_names_file_and_key(project: Write, command: Command, text: str, message: str) -> None:
    path = project("")
    path.write_bytes(f"[tool.pyxfer]\n{text}\n".encode(errors="surrogateescape"))
    for words in (("ceiling",), ()):
        ended = command(*words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"pyxfer: {message.replace('FILE', repr(str(path)))}")
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["tool = 1 # pyxfer", "[tool]\npyxfer = 1"])
def test_what_is_no_table_is_refused(project: Write, command: Command, text: str) -> None:
    project(text)
    ended = command("ceiling")
    assert ended.returncode == 2
    assert "is not a table: write [tool.pyxfer]." in ended.stderr


def test_a_file_that_cannot_be_read_is_refused_and_a_pipe_is_no_file(
    project: Write, command: Command, user: Write, values: Any
) -> None:
    path = project("")
    path.unlink()
    path.symlink_to("/proc/self/mem")  # reading it fails also for root
    ended = command("ceiling")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert f"{str(path)!r} cannot be read (" in ended.stderr
    path.unlink()
    os.mkfifo(path)
    user("budget = 5\n")
    assert values("ceiling")["budget"] == "5"


def test_a_value_that_the_verb_refuses_is_told_with_its_file(project: Write, command: Command) -> None:
    path = project('[tool.pyxfer.ceiling]\nbudget = "soon"\n')
    ended = command("ceiling", "--device", "host")
    assert ended.returncode == 2
    assert f"tool.pyxfer.ceiling.budget in {str(path)!r}" in ended.stderr
    assert str(path) not in command("ceiling", "--device", "host", "--budget", "later").stderr


def test_a_value_that_python_refuses_is_told_with_its_file(project: Write, command: Command) -> None:
    path = project('[tool.pyxfer]\ndevice = "no-such"\n')
    assert f"tool.pyxfer.device in {str(path)!r}" in command("ceiling").stderr
    assert str(path) not in command("ceiling", "--device", "neither").stderr


def test_a_password_is_not_shown(project: Write, command: Command) -> None:
    project('[tool.pyxfer]\nstore = "postgresql://user:hush@server:port/db"\n')
    ended = command("baseline", "list")
    assert (ended.returncode, "hush" in ended.stderr) == (2, False)


# --- when no file is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("ceiling", "--help"), ("baseline", "check", "-h")])
def test_help_and_version_read_no_file(project: Write, command: Command, words: tuple[str, ...]) -> None:
    project("[tool.pyxfer]\nbroken")
    assert command(*words).returncode == 0


def test_the_file_of_a_watched_script_is_read_although_the_script_has_help(project: Write, values: Any) -> None:
    project('[tool.pyxfer.watch]\nskip = "10"\n')
    assert values("watch", "train.py", "--help")["skip"] == "10"


def test_completion_reads_no_defaults(project: Write) -> None:
    project("[tool.pyxfer]\nbroken")
    line = {"_PYXFER_COMPLETE": "complete_bash", "COMP_WORDS": "pyxfer ceiling --mem", "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, [], env=line, prog_name="pyxfer")
    assert result.stdout.split() == ["--memory"]


def test_without_a_table_the_reader_of_toml_is_not_loaded(project: Write) -> None:
    project("[project]\nname = 'other'\n")
    script = "import sys; from pyxfer import _config; print(_config.read_config(), 'tomllib' in sys.modules)"
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert result.stdout == "() False\n"


# --- processes that pyxfer starts ------------------------------------------------------------------------------------


def test_the_processes_of_a_baseline_measure_what_they_were_asked(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyxfer._baseline.measure import measure_process, run_request
    from pyxfer._document.runs import Run

    project(
        '[tool.pyxfer]\nbudget = "soon"\nring = "threads=2"\n'
        '[tool.pyxfer.ceiling]\nfresh = true\nsize = "8KiB"\nmemory = "pageable"\n'
    )
    run = measure_process(run_request(["host"], ["h2d"], ["pinned"], ["auto"], [4096], 0.01))
    assert isinstance(run, Run)
    assert run.parameters.fresh is False
    assert (run.parameters.sizes_bytes, run.parameters.memories) == ((4096,), ("pinned",))


def test_a_host_of_a_fleet_is_measured_as_the_run_asks(project: Write, values: Any) -> None:
    assert ("fleet", "host") in WITHOUT_FILES
    project('[tool.pyxfer]\ndevice = "7"\nrequire_gpu = true\nlabel = ["a=b"]\nbudget = "1s"\nquiet = true\n')
    found = values(*HostJob(program=(), budget_s=6.0, labels={"rack": "r7"}, devices="host").command())
    assert (list(found["label"]), found["device"], found["budget"]) == (["rack=r7"], "host", "6s")
    assert (found["require_gpu"], found["quiet"]) == (False, False)


def test_a_run_of_a_fleet_passes_its_defaults_on(project: Write, values: Any) -> None:
    project('[tool.pyxfer]\nlabel = ["rack=r7"]\ndevice = "1"\n[tool.pyxfer.fleet.run]\nbudget = "15s"\n')
    found = values("fleet", "run")
    assert (list(found["label"]), found["device"], found["budget"]) == (["rack=r7"], "1", "15s")
