"""`--quiet`: neither progress nor a page, but errors, exports and exit codes as always."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from baseline.store.making import run_at
from command_line import pyxfer
from fleet.stand_ins import make_stand_ins
from fleet_samples import make_host
from in_process import TREE, Command
from samples import make_run

Words = tuple[str, ...]

HOST = ("--device", "host")
SMALL = (*HOST, "--size", "4KiB", "--budget", "0.1s")
PROCESS = (*HOST, "--size", "64KiB", "--budget", "0.1s", "--processes", "3")
# How each verb is called.
CALLS: dict[Words, Words] = {
    (): SMALL,
    ("ceiling",): (*SMALL, "--direction", "h2d", "--no-trace"),
    ("frameworks",): ("cupy", *SMALL),
    ("explain",): ("raw.pageable-memcpy", *SMALL),
    ("links",): (*HOST, "--group", "host", "--engine", "ce", "--size", "64KiB", "--budget", "0.1s"),
    ("doctor",): (*HOST, "--budget", "0.1s"),
    ("tune",): (*HOST, "--budget", "1us"),
    ("baseline", "save"): PROCESS,
    ("baseline", "check"): (*HOST, "--retries", "0", "--tolerance", "99%"),
    ("fleet", "host"): (*HOST, "--budget", "5s"),
    ("fleet", "run"): ("--via", "ssh", "--hosts", "node-1", "--no-confirm", "--output-folder", "out"),
    ("compare",): ("run.json", "run.json"),
    ("watch",): ("script.py",),
}


def quiet_verbs(group: Any, *above: str) -> set[Words]:
    found = {above} if any("--quiet" in each.opts for each in group.params) else set()
    for name, verb in getattr(group, "commands", {}).items():
        found |= quiet_verbs(verb, *above, name)
    return found


def test_every_verb_with_the_option_is_called_here() -> None:
    assert quiet_verbs(TREE) == CALLS.keys()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a run, a script, a store, and a host that ssh reaches."""
    made = make_stand_ins(tmp_path / "bin", {"node-1": {"script": f"cat {tmp_path / 'node-1.json'}"}})
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("PYXFER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_run().save("run.json")
    make_host("node-1").save("node-1.json")
    Path("script.py").write_text("print('its own')")
    return tmp_path


@pytest.mark.parametrize("verb", CALLS, ids=" ".join)
def test_neither_progress_nor_a_page_is_printed(folder: Path, verb: Words, command: Command) -> None:
    run = pyxfer if verb == ("watch",) else command  # a script writes to the streams of its process
    if verb == ("baseline", "check"):
        assert command("baseline", "save", *PROCESS).returncode == 0
    exports = () if verb == ("baseline", "save") else ("--export-json", "it.json")
    ended = run(*verb, "-q", *exports, *CALLS[verb])
    assert ended.stdout == ("its own\n" if verb == ("watch",) else "")
    # A busy machine, or one without frameworks, gives a reason to end with 4, which is the only line then.
    assert (ended.returncode, ended.stderr.count("\n")) in ((0, 0), (4, 1))
    if exports:
        assert json.loads((folder / "it.json").read_bytes())


def test_an_export_to_stdout_remains(folder: Path, command: Command) -> None:
    ended = command("compare", "run.json", "run.json", "--quiet", "--export-json", "-")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["cells"]


def test_the_exit_code_and_its_reason_remain(folder: Path, command: Command) -> None:
    run_at(1).save("before.json")
    run_at(2, slower=2.0).save("now.json")
    ended = command("compare", "before.json", "now.json", "--quiet", "--fail-on", "slower:5%")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
