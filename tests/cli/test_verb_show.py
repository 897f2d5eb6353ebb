"""`pyxfer show` and `pyxfer report`, and `--report` of the verbs that measure."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import in_terminal, shell
from document_samples import TEXTS
from in_process import Command
from pages import full_run, printed
from report_samples import DOCUMENTS
from samples import make_environment, make_measurement, make_run

from pyxfer._document import codec
from pyxfer._document.codec import Kind
from pyxfer._document.derivations import derived
from pyxfer._report.kinds import print_document, table_of, to_markdown
from pyxfer._report.run import print_run

RUN = derived(full_run())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    RUN.save(path)
    return path


@pytest.mark.parametrize("kind", codec.KINDS, ids=lambda kind: kind.name)
def test_every_kind_is_shown_and_becomes_a_table(command: Command, tmp_path: Path, kind: Kind[Any]) -> None:
    (tmp_path / "it.json").write_bytes(TEXTS[kind.name])
    exports = ("--export-csv", str(tmp_path / "it.csv"), "--export-md", str(tmp_path / "it.md"))
    result = command("show", str(tmp_path / "it.json"), *exports)
    assert (result.returncode, result.stderr) == (0, "")
    document = codec.load(tmp_path / "it.json")
    assert type(document) is kind.struct
    assert result.stdout == printed(lambda page: print_document(document, page))
    assert (tmp_path / "it.md").read_text() == to_markdown(document)
    assert (tmp_path / "it.csv").read_bytes().decode() == table_of(document).to_csv()
    header, *rows = (tmp_path / "it.csv").read_text().splitlines()
    assert rows
    assert all(header.split(","))


def test_details_are_the_page_with_all_figures(command: Command, saved: Path) -> None:
    result = command("show", str(saved), "--details")
    assert result.stdout == printed(lambda page: print_run(RUN, page), details=True)


def test_a_dash_reads_stdin(saved: Path) -> None:
    result = shell(f"pyxfer show - < <(gzip -c {saved})")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == printed(lambda page: print_run(RUN, page))


def test_with_no_color_a_terminal_is_sent_no_escape(saved: Path) -> None:
    code, text = in_terminal("show", str(saved), NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_hostile_file_sends_a_terminal_nothing_but_colour(tmp_path: Path) -> None:
    bell = "\x1b]0;owned\x07\x1b[2Jname"
    make_run(ended="failed", failure=bell).save(tmp_path / "run.json")
    _, text = in_terminal("show", str(tmp_path / "run.json"))
    assert "owned" not in text
    assert "\x1b[2J" not in text
    assert "Failed: name" in text


drawing = pytest.mark.skipif(find_spec("vl_convert") is None, reason="the extra `report` is not installed")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    chosen = ("ceiling", "explain", "watch", "comparison", "examination", "baseline", "pytest", "links")
    paths = {name: tmp_path / f"{name}.json.gz" for name in chosen}
    for name, path in paths.items():
        codec.save(DOCUMENTS[name], path)
    return {name: str(path) for name, path in paths.items()}


@drawing
def test_documents_of_several_kinds_are_one_page(command: Command, tmp_path: Path) -> None:
    codec.save(make_run(measurements=(make_measurement(),), curves=()), tmp_path / "here.json")
    elsewhere = make_run(measurements=(make_measurement(),), curves=(), environment=make_environment(host="other"))
    codec.save(elsewhere, tmp_path / "elsewhere.json")
    codec.save(DOCUMENTS["comparison"], tmp_path / "comparison.json")
    names = [str(tmp_path / f"{name}.json") for name in ("here", "elsewhere", "comparison")]
    assert command("report", *names, "-o", str(tmp_path / "all.html")).returncode == 0
    page = (tmp_path / "all.html").read_text()
    assert page.count("<article") == 3
    assert [f'id="document-{number}"' in page for number in (1, 2, 3, 4)] == [True, True, True, False]


@drawing
def test_the_page_is_report_html_unless_a_name_whose_suffix_decides_is_given(
    command: Command, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("report", files["comparison"]).returncode == 0
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")
    assert command("report", files["explain"], "--output", "chart.PNG", "--chart", "waterfall").returncode == 0
    assert (tmp_path / "chart.PNG").read_bytes().startswith(b"\x89PNG")


@drawing
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "report.txt"), "end its name in .html, .svg, .png"),
        (("-o", "-"), "end its name in .html"),
        (("-o", "nowhere/report.html"), "nowhere"),
        (("-o", "x.svg", "--chart", "cells"), "waterfall, routes"),
        (("-o", "x.html", "--chart", "routes"), "--chart"),
        (("missing.json", "-o", "x.html"), "missing.json"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    command: Command,
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command("report", files["explain"], *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not list(tmp_path.glob("x.*"))


@drawing
@pytest.mark.unsanitized(reason="a sanitizer needs more memory than the limits")
@pytest.mark.parametrize(("limit_kib", "code"), [(1_500_000, 4), (200_000_000, 0)])
def test_under_a_limit_of_memory_another_process_draws(
    command: Command, files: dict[str, str], tmp_path: Path, limit_kib: int, code: int
) -> None:
    words, limited = ("report", files["explain"], "--chart", "waterfall", "-o"), tmp_path / "limited.svg"
    command(*words, str(tmp_path / "free.svg"))
    ended = shell(f"ulimit -v {limit_kib}; pyxfer {' '.join(words)} {limited}")
    assert (ended.returncode, ended.stderr.count("\n")) == (code, 1)
    if code == 0:
        assert limited.read_bytes() == (tmp_path / "free.svg").read_bytes()
    else:
        assert not limited.exists()


@drawing
def test_a_name_with_escapes_is_quoted(
    command: Command, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "\x1b]0;owned\x07.html"
    assert command("report", files["comparison"], "-o", name).stderr == f"pyxfer: wrote {name!r}\n"
    assert (tmp_path / name).exists()


@drawing
def test_a_verb_that_measures_writes_its_report(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    options = ("--device", "host", "--size", "4KiB,1MiB", "--budget", "0.2s", "--no-trace", "--direction", "h2d")
    ended = command("ceiling", *options, "--report", str(path))
    assert ended.returncode == 0
    assert "host memory" in path.read_text()
    assert "GB/s" in ended.stdout


@drawing
def test_a_report_that_cannot_be_written_at_the_end_keeps_the_other_files(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyxfer._report import webpage
    from pyxfer.errors import UsageError

    def refuse(*_: object) -> bytes:
        raise UsageError("nothing can be drawn")

    monkeypatch.setattr(webpage, "report_bytes", refuse)
    options = ("--device", "host", "--size", "4KiB", "--budget", "0.1s", "--no-trace", "--direction", "h2d")
    ended = command(
        "ceiling", *options, "--report", str(tmp_path / "x.html"), "--export-json", str(tmp_path / "run.json")
    )
    assert ended.returncode == 4
    assert "nothing can be drawn" in ended.stderr
    assert codec.load_any(tmp_path / "run.json", [kind.struct for kind in codec.KINDS]).measurements
