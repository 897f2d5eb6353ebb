"""Every command reads back the document that it has just written, with all checks.

Those of `pyxfer fleet host` and `baseline check` take long; their own tests read theirs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.watched_scripts import COPYING, Script
from command_line import pyxfer
from fleet_samples import make_hosts
from in_process import Command
from marks import slow
from samples import make_run

from pyxfer._document import codec
from pyxfer._document.baselines import Comparison

TWO = "devices=2;link-of=0:1e9:1e-6:1e9:1e-6;link-of=1:1e9:1e-6:1e9:1e-6"
HOST = ("--device", "host", "--sizes", "4KiB,64KiB", "--budget", "0.2s")
LINKS = ("links", "--size", "64KiB", "--budget", "0.2s", "--groups")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        slow((), 0),
        (("ceiling", *HOST), 0),
        slow(("ceiling", *HOST, "--modes", "auto,streams:2,batch,staged", "--fresh", "--directions", "h2d,d2h"), 0),
        slow(("frameworks", *HOST), 4),
        (("explain", "raw.pageable-memcpy", "--device", "host", "--size", "64KiB", "--budget", "0.2s"), 0),
        slow(("explain", "raw.pinned-async", "--device", "host", "--size", "64KiB", "--budget", "0.2s"), 0),
        slow((*LINKS, "host", "--devices", "host"), 0),
        slow((*LINKS, "together,pairs,local"), 0),
        slow(("links", "--devices", "host", "--budget", "0.2s", "--groups", "latency"), 0),
        (("links", "--devices", "host", "--budget", "0.2s", "--groups", "small"), 0),
        slow(("doctor", "--device", "host"), 0),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_document_that_was_measured_is_read_again(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    path = tmp_path / "it.json"
    own = HOST if not words else ()
    written = pyxfer(*words, *own, "--export-json", str(path), PYXFER_HOSTRT=TWO, CUDA_VISIBLE_DEVICES="")
    assert written.returncode == code, written.stderr
    shown = pyxfer("show", str(path))
    assert shown.returncode == 0, shown.stderr


def test_a_watch_is_read_again(tmp_path: Path) -> None:
    assert Script(tmp_path).watched(COPYING).kind == "watch"


def test_verdicts_on_a_fleet_are_read_again(command: Command, tmp_path: Path) -> None:
    for report in make_hosts(20, {7: 0.08}):
        report.save(tmp_path / f"{report.host}.json")
    path = str(tmp_path / "fleet.json")
    assert command("fleet", "judge", str(tmp_path), "--export-json", path).returncode == 0
    assert command("show", path).returncode == 0


def test_a_comparison_is_read_again(command: Command, tmp_path: Path) -> None:
    runs, path = [str(tmp_path / "a.json"), str(tmp_path / "b.json")], tmp_path / "it.json"
    for run in runs:
        make_run().save(run)
    assert command("compare", *runs, "--export-json", str(path)).returncode == 0
    assert codec.decode(Comparison, path.read_bytes()).cells
