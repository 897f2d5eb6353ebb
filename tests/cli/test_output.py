"""What writes the files, streams, pages and progress of all verbs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from command_line import pyxfer, shell
from marks import slow
from measure.fakes import Clock
from pages import Terminal
from samples import make_run

from pyxfer._ceiling.session import ceiling
from pyxfer._cli.failures import ExitingOutput, NotKeptError
from pyxfer._cli.output import Exports, ProgressReport, run_exports
from pyxfer._document import codec, files
from pyxfer._document.machines import Remark
from pyxfer._document.runs import Run
from pyxfer._measure.sampler import Progress
from pyxfer.errors import UsageError


def test_a_dash_writes_to_stdout_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exports = run_exports("-", None, None)
    exports.save(make_run())
    assert capsys.readouterr().out == ""
    exports.finish(make_run())
    assert codec.decode(Run, capsys.readouterr().out.encode()) == make_run()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_is_reported_once_and_retried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    exports = run_exports(str(folder / "r.json"), None, None)
    folder.rename(tmp_path / "away")
    exports.keep(make_run())
    exports.keep(make_run())
    assert capsys.readouterr().err.count("retried at the end") == 1
    (tmp_path / "away").rename(folder)
    exports.finish(make_run())
    assert Run.load(folder / "r.json") == make_run()


@contextmanager
def read_from(descriptor: int) -> Iterator[list[bytes]]:
    """Read in a thread what is written to the other end; it is complete when the block has ended."""
    received: list[bytes] = []

    def read() -> None:
        with open(descriptor, "rb") as file:
            received.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    yield received
    reader.join()


@pytest.mark.parametrize("name", ["", ".gz"])
def test_a_fifo_gets_one_document_at_the_end(tmp_path: Path, name: str) -> None:
    fifo = tmp_path / f"fifo{name}"
    os.mkfifo(fifo)
    before, run = make_run(ended="interrupted"), make_run()
    held = os.open(fifo, os.O_RDWR)  # so that neither end waits for the other
    with read_from(os.open(fifo, os.O_RDONLY)) as received:
        exports = run_exports(str(fifo), None, None)
        exports.save(before)
        exports.finish(run)
        os.close(held)
    (tmp_path / "received").write_bytes(received[0])
    assert Run.load(tmp_path / "received") == run
    assert fifo.is_fifo()


def test_a_descriptor_gets_one_document_at_its_position(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        exports = run_exports(f"/dev/fd/{file.fileno()}", None, None)
        exports.save(make_run(ended="interrupted"))
        exports.finish(make_run())
        file.write(b"after\n")
    text = (tmp_path / "file").read_bytes()
    assert text == b"before\n" + codec.encode(make_run()) + b"after\n"


def test_the_path_of_stdout_is_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    exports = run_exports("/dev/stdout", None, None)
    assert exports.takes_stdout
    exports.finish(make_run())
    assert capsys.readouterr().out.encode() == codec.encode(make_run())
    with pytest.raises(UsageError, match="Only one export"):
        run_exports("/dev/stdout", "-", None)


def run_with(text: str) -> Run:
    return make_run(remarks=(Remark("note", text),))


def test_a_slow_disk_gets_only_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole = files.write_whole
    written: list[str | None] = []
    begun, may_write = SimpleQueue[None](), SimpleQueue[None]()

    def write_slowly(path: str, data: bytes, *_: Any) -> None:
        begun.put(None)
        may_write.get()
        written.append(codec.decode(Run, data).remarks[0].text)
        write_whole(path, data)

    monkeypatch.setattr(files, "write_whole", write_slowly)
    exports = run_exports(str(tmp_path / "run.json"), None, None)
    exports.save(run_with("first"))
    begun.get()
    later = [run_with(f"later {number}") for number in range(5)]
    for run in later:
        exports.save(run)
    assert written == []
    may_write.put(None)
    may_write.put(None)
    exports.finish(later[-1])
    assert written == ["first", "later 4"]


def test_the_measuring_thread_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole, writers = files.write_whole, set()

    def write(*arguments: Any) -> None:
        writers.add(threading.current_thread().name)
        write_whole(*arguments)

    monkeypatch.setattr(files, "write_whole", write)
    exports = run_exports(*(str(tmp_path / name) for name in ("run.json", "run.csv", "run.md")))
    run = ceiling("host", size=(4096,), direction=("h2d",), budget=0.1, save_to=exports.save)
    exports.finish(run)
    assert writers == {"pyxfer-saving"}
    assert Run.load(tmp_path / "run.json") == run
    assert (tmp_path / "run.csv").read_text() == run.to_csv()
    assert (tmp_path / "run.md").read_text() == run.to_markdown()


def test_a_file_that_is_lost_at_the_end_keeps_the_page_and_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exports: Exports[str] = Exports(("/dev/full", str), (str(tmp_path / "it.md"), str))
    with pytest.raises(NotKeptError, match="/dev/full"):
        exports.deliver("# it", lambda page: page.line("the page"))
    assert (tmp_path / "it.md").read_text() == "# it"
    assert capsys.readouterr().out == "the page\n"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    make_run().save(path)
    return path


def test_a_pipe_closed_at_the_start_exits_quietly() -> None:
    result = shell(f"(sleep 0.5; exec '{sys.executable}' -m pyxfer --help) | true")
    assert (result.returncode, result.stdout, result.stderr) == (141, "", "")


@pytest.mark.parametrize("words", ["show {}", "--help"])
def test_a_full_disk_is_reported_in_one_line(saved: Path, words: str) -> None:
    result = shell(f"pyxfer {words.format(saved)} > /dev/full")
    assert (result.returncode, result.stderr) == (4, "pyxfer: No space left on device (standard output).\n")


def test_an_error_of_stdout_that_a_library_ignores_is_raised_by_the_flush() -> None:
    with open("/dev/full", "wb") as full:
        stream = ExitingOutput(full)
        with contextlib.suppress(NotKeptError):
            stream.write("x" * 100_000)
        with pytest.raises(NotKeptError, match="No space left on device"):
            stream.flush()
        stream.detach()


def test_a_full_stdout_loses_no_export(tmp_path: Path) -> None:
    options = "--device host --direction h2d --size 4KiB --budget 100ms --no-trace"
    result = shell(f"pyxfer ceiling {options} --export-json {tmp_path}/run.json --export-md >(cat >&2) > /dev/full")
    assert result.returncode == 4
    assert Run.load(tmp_path / "run.json").ended == "complete"
    assert "| 4 KiB |" in result.stderr


def test_a_deleted_current_folder_is_a_usage_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && pyxfer watch --device host script.py"
    result = shell(command, PYTHONPATH=os.pathsep.join(sys.path))
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("lost", ["2> >(true)", slow("2>/dev/full")])
def test_an_unwritable_stderr_keeps_the_exit_code(tmp_path: Path, lost: str) -> None:
    result = shell(f"(sleep 0.5; exec '{sys.executable}' -m pyxfer show {tmp_path / 'none.json'}) {lost}")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "")


@pytest.mark.skipif(find_spec("vl_convert") is None, reason="the extra `report` is not installed")
def test_with_a_closed_stdin_charts_are_drawn(saved: Path, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    result = shell(f"pyxfer report {saved} -o {chart} --chart sizes <&-")
    assert (result.returncode, result.stderr) == (0, f"pyxfer: wrote '{chart}'\n")
    assert "<svg" in chart.read_text()


@pytest.mark.parametrize("closed", [slow(">&-"), ">&- 2>&-"])
def test_closed_streams_are_ignored(saved: Path, closed: str) -> None:
    result = shell(f"pyxfer show {saved} {closed}")
    assert (result.returncode, result.stderr) == (0, "")


def test_unencodable_names_are_escaped(tmp_path: Path) -> None:
    run = make_run(failure="caf\u00e9", ended="failed")
    run.save(tmp_path / "run.json")
    result = pyxfer("show", str(tmp_path / "run.json"), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0
    assert "Failed: caf\\xe9" in result.stdout


STEPS = (
    Progress("waking the link", 0.0, ""),
    Progress("measuring", 0.1, "4 KiB", 6.2),
    Progress("measuring", 0.5, "1 MiB", 3.9),
    Progress("page-locking", 1.0, ""),
)

LINES = "pyxfer: waking the link\npyxfer: measuring, about 7 s left\npyxfer: page-locking\n"


def reported(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    stream = Terminal()
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressReport() as report:
        for step in STEPS:
            report(step)
    return stream.getvalue()


def test_a_log_has_one_line_per_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressReport() as report:
        for step in STEPS:
            report(step)
    assert capsys.readouterr().err == LINES


def test_a_log_has_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr("pyxfer._cli.output.time", clock)
    with ProgressReport() as report:
        for second in range(25):
            clock.now_s = 100.0 + second
            # Also a phase that is full throughout, as tracing is.
            report(Progress("measuring", 1.0, "3 of 9 are precise", 40.0 - second))
    assert capsys.readouterr().err.splitlines() == [
        "pyxfer: measuring, about 40 s left",
        "pyxfer: measuring 3 of 9 are precise, about 30 s left",
        "pyxfer: measuring 3 of 9 are precise, about 20 s left",
    ]


def test_a_terminal_has_a_bar_that_disappears_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = reported(monkeypatch)
    assert "page-locking" in text
    assert "about 7 s left" in text
    assert text.endswith("\x1b[2K")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_has_lines(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    assert reported(monkeypatch, **variables) == LINES


def test_a_closed_stderr_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Gone())
    with ProgressReport() as report:
        report(STEPS[0])
