"""Documents of all kinds can be saved compressed, and all commands read them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TypeAlias

import pytest
from baseline_samples import make_processes
from doctor.cases import h200
from in_process import Command
from watch_samples import make_watched
from xfer_samples import session

from pyxfer._baseline.check import make_baseline
from pyxfer._doctor.session import examine_run
from pyxfer._document.baselines import Baseline
from pyxfer._document.examinations import Examination
from pyxfer._document.runs import Run
from pyxfer._document.sessions import XferSession
from pyxfer._document.watches import Watched
from pyxfer._watch.options import checked_ceilings

Document: TypeAlias = Run | Watched | Examination | XferSession | Baseline

PROCESSES = make_processes(3)
DOCUMENTS: dict[str, Document] = {
    "run": PROCESSES[0],
    "gpu_run": h200(),
    "watch": make_watched(),
    "examination": examine_run(h200()),
    "session": session(),
    "baseline": make_baseline("default", {}, PROCESSES, "2025-11-21T08:30:00+00:00"),
}
every_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@every_document
def test_a_document_is_compressed_if_the_name_ends_in_gz(document: Document, tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.json", tmp_path / "packed.json.gz"
    document.save(plain)
    document.save(packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert type(document).load(packed) == type(document).load(plain)


@pytest.mark.parametrize("words", ["show run", "doctor gpu_run", "compare baseline run", "baseline import baseline"])
def test_commands_read_compressed_files_with_any_name(
    words: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for folder in ("plain", "packed"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for name, document in DOCUMENTS.items():
            document.save("saved.json.gz" if folder == "packed" else name)
            if folder == "packed":
                Path("saved.json.gz").rename(name)
        answers.append(command(*words.split(), *(["--store", "new.db"] if "import" in words else [])))
    assert answers[0].returncode == 0
    assert answers[0].stdout == answers[1].stdout


def test_the_ceilings_of_a_watch_are_read_from_a_compressed_run(tmp_path: Path) -> None:
    PROCESSES[0].save(tmp_path / "run.json.gz")
    assert checked_ceilings(tmp_path / "run.json.gz") == Run.load(tmp_path / "run.json.gz")


def test_an_export_is_compressed_if_the_name_ends_in_gz(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    arguments = ("--device", "host", "--sizes", "64KiB", "--budget", "100ms", "--no-trace", "--export-json", str(path))
    assert command("ceiling", *arguments).returncode == 0
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert Run.load(path).kind == "ceiling"
