"""What writes the files, streams and pages of all verbs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from samples import make_run

from pyxfer._ceiling.session import ceiling
from pyxfer._cli.failures import NotKeptError
from pyxfer._cli.output import Exports, run_exports
from pyxfer._document import codec, files
from pyxfer._document.runs import Remark, Run
from pyxfer.errors import UsageError


def test_exports_are_written_in_their_formats(tmp_path: Path) -> None:
    run = make_run()
    run_exports(str(tmp_path / "r.json"), str(tmp_path / "r.csv"), str(tmp_path / "r.md")).finish(run)
    assert Run.load(tmp_path / "r.json") == run
    assert (tmp_path / "r.csv").read_text() == run.to_csv()
    assert (tmp_path / "r.md").read_text() == run.to_markdown()


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


def test_only_files_get_the_run_while_it_measures(tmp_path: Path) -> None:
    assert run_exports("-", None, None).saver is None
    exports = run_exports(str(tmp_path / "r.json"), None, None)
    assert exports.saver == exports.save


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


def test_a_write_that_fails_at_the_end_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    exports = run_exports(str(folder / "r.json"), None, None)
    folder.rmdir()
    with pytest.raises(NotKeptError, match="cannot be written"):
        exports.finish(make_run())


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


def test_a_descriptor_that_is_open_for_reading_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as file, pytest.raises(UsageError, match="Bad file descriptor"):
        run_exports(f"/dev/fd/{file.fileno()}", None, None)


def test_the_path_of_stdout_is_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    exports = run_exports("/dev/stdout", None, None)
    assert exports.takes_stdout
    exports.finish(make_run())
    assert capsys.readouterr().out.encode() == codec.encode(make_run())
    with pytest.raises(UsageError, match="Only one export"):
        run_exports("/dev/stdout", "-", None)


def test_an_interrupted_run_does_not_wait_for_the_reader_of_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    exports = run_exports(str(tmp_path / "fifo"), None, str(tmp_path / "run.md"))
    with pytest.raises(NotKeptError, match="no program reads it"):
        exports.finish(make_run(ended="interrupted"))
    assert (tmp_path / "run.md").exists()


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
    run = ceiling("host", sizes=(4096,), directions=("h2d",), budget_s=0.1, save_to=exports.save)
    exports.finish(run)
    assert writers == {"pyxfer-saving"}
    assert Run.load(tmp_path / "run.json") == run


def test_a_file_that_is_lost_at_the_end_keeps_the_page_and_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exports: Exports[str] = Exports(("/dev/full", str), (str(tmp_path / "it.md"), str))
    with pytest.raises(NotKeptError, match="/dev/full"):
        exports.deliver("# it", lambda page: page.line("the page"))
    assert (tmp_path / "it.md").read_text() == "# it"
    assert capsys.readouterr().out == "the page\n"


def test_a_finished_result_on_stdout_has_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    exports: Exports[str] = Exports(("-", str))
    exports.deliver("{}", lambda page: page.line("the page"))
    assert capsys.readouterr().out == "{}"
