from __future__ import annotations

from pathlib import Path

import pytest
from samples import make_run

from pyxfer._cli.output import Exports
from pyxfer._document import codec, exports
from pyxfer._document.runs import Run
from pyxfer.errors import UsageError


def test_exports_are_written_in_their_formats(tmp_path: Path) -> None:
    run = make_run()
    Exports(str(tmp_path / "r.json"), str(tmp_path / "r.csv"), str(tmp_path / "r.md")).finish(run)
    assert Run.load(tmp_path / "r.json") == run
    assert (tmp_path / "r.csv").read_text() == exports.run_csv(run)
    assert (tmp_path / "r.md").read_text() == exports.run_markdown(run)


def test_a_dash_writes_to_stdout_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exports = Exports("-", None, None)
    exports.save(make_run())
    assert capsys.readouterr().out == ""
    exports.finish(make_run())
    assert codec.decode(Run, capsys.readouterr().out.encode()) == make_run()
    assert list(tmp_path.iterdir()) == []


def test_only_an_export_to_stdout_moves_the_page_to_stderr(tmp_path: Path) -> None:
    assert Exports(None, "-", str(tmp_path / "r.md")).takes_stdout
    assert not Exports(None, str(tmp_path / "r.csv"), None).takes_stdout


def test_two_exports_to_stdout_are_refused() -> None:
    with pytest.raises(UsageError, match="only one export"):
        Exports("-", "-", None)


def test_two_exports_to_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two exports name the file"):
        Exports(str(tmp_path / "run"), str(tmp_path / "run"), None)


def test_an_unwritable_file_is_refused_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make the folder first"):
        Exports(None, None, str(tmp_path / "none" / "r.md"))


def test_a_failed_write_is_reported_once_and_retried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    exports = Exports(str(folder / "r.json"), None, None)
    folder.rename(tmp_path / "away")
    exports.save(make_run())
    exports.save(make_run())
    assert capsys.readouterr().err.count("retried at the end") == 1
    (tmp_path / "away").rename(folder)
    exports.finish(make_run())
    assert Run.load(folder / "r.json") == make_run()


def test_a_write_that_fails_at_the_end_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    exports = Exports(str(folder / "r.json"), None, None)
    folder.rmdir()
    with pytest.raises(UsageError, match="cannot be written"):
        exports.finish(make_run())
