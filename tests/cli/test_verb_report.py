"""`pyxfer report`, and `--report` of the verbs that measure."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from in_process import Command
from report_samples import DOCUMENTS
from samples import make_environment, make_measurement, make_run

from pyxfer._document import codec

pytest.importorskip("vl_convert", reason="the extra `report` is not installed")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    chosen = ("ceiling", "explain", "watch", "comparison", "examination", "baseline", "pytest", "links")
    paths = {name: tmp_path / f"{name}.json.gz" for name in chosen}
    for name, path in paths.items():
        codec.save(DOCUMENTS[name], path)
    return {name: str(path) for name, path in paths.items()}


@pytest.mark.slow
def test_a_report_of_every_kind_in_one_page(command: Command, files: dict[str, str], tmp_path: Path) -> None:
    ended = command("report", *files.values(), "-o", str(tmp_path / "all.html"))
    assert (ended.returncode, ended.stdout) == (0, "")
    page = (tmp_path / "all.html").read_text()
    assert page.count("<article") == len(files)
    assert page.index("pyxfer ceiling") < page.index("pyxfer explain") < page.index("pyxfer watch")


@pytest.mark.slow
def test_documents_of_several_kinds_and_machines_are_one_page(command: Command, tmp_path: Path) -> None:
    codec.save(make_run(measurements=(make_measurement(),), curves=()), tmp_path / "here.json")
    elsewhere = make_run(measurements=(make_measurement(),), curves=(), environment=make_environment(host="other"))
    codec.save(elsewhere, tmp_path / "elsewhere.json")
    codec.save(DOCUMENTS["links"], tmp_path / "links.json")
    names = [str(tmp_path / f"{name}.json") for name in ("here", "elsewhere", "links")]
    assert command("report", *names, "-o", str(tmp_path / "all.html")).returncode == 0
    page = (tmp_path / "all.html").read_text()
    assert page.count("<article") == 3
    assert "different machines: node-7, other" in page


def test_a_document_of_a_later_version_is_refused_and_nothing_is_written(command: Command, tmp_path: Path) -> None:
    newer = json.loads(codec.encode(make_run()))
    (tmp_path / "newer.json").write_text(json.dumps({**newer, "schema_version": 99}))
    ended = command("report", str(tmp_path / "newer.json"), "-o", str(tmp_path / "x.html"))
    assert ended.returncode == 2
    assert "schema_version 99" in ended.stderr
    assert not (tmp_path / "x.html").exists()


def test_the_page_is_report_html_unless_it_is_named(
    command: Command, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("report", files["comparison"]).returncode == 0
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".PDF", b"%PDF")])
def test_the_suffix_decides_about_the_form(
    command: Command, files: dict[str, str], tmp_path: Path, suffix: str, begins: bytes
) -> None:
    path = tmp_path / f"chart{suffix}"
    assert command("report", files["explain"], "--output", str(path), "--chart", "waterfall").returncode == 0
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "report.txt"), "ends in .html, .svg, .png, .pdf"),
        (("-o", "-"), "ends in .html"),
        (("-o", "nowhere/report.html"), "nowhere"),
        (("-o", "x.svg", "--chart", "cells"), "waterfall, routes, trials"),
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


def test_without_the_extra_one_line_says_how_to_install_it(
    command: Command, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for arguments in (
        ("report", files["explain"], "-o", str(tmp_path / "x.html")),
        ("ceiling", "--device", "host", "--report", str(tmp_path / "x.html")),
        ("compare", files["ceiling"], files["ceiling"], "--report", str(tmp_path / "x.html")),
    ):
        ended = command(*arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "pip install 'pyxfer[report]'" in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_a_verb_that_measures_writes_its_report(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    options = ("--device", "host", "--sizes", "4KiB,1MiB", "--budget", "0.2s", "--no-trace", "--directions", "h2d")
    ended = command("ceiling", *options, "--report", str(path))
    assert ended.returncode == 0
    assert "host memory" in path.read_text()
    assert "GB/s" in ended.stdout


def test_a_saved_run_is_examined_and_reported(command: Command, files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "doctor.html"
    assert command("doctor", files["examination"], "--report", str(path)).returncode == 0
    assert "Findings" in path.read_text()


def test_a_comparison_is_reported(command: Command, files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "compared.svg"
    assert command("compare", files["ceiling"], files["ceiling"], "--report", str(path)).returncode == 0
    assert path.read_bytes().startswith(b"<svg")


def test_a_report_and_an_export_cannot_share_a_file(command: Command, tmp_path: Path) -> None:
    path = str(tmp_path / "x.html")
    ended = command("ceiling", "--device", "host", "--report", path, "--export-json", path)
    assert ended.returncode == 2
    assert "Two exports name the file" in ended.stderr


def test_a_report_that_cannot_be_written_at_the_end_keeps_the_other_files(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyxfer._report import webpage
    from pyxfer.errors import UsageError

    def refuse(*_: object) -> bytes:
        raise UsageError("nothing can be drawn")

    monkeypatch.setattr(webpage, "report_bytes", refuse)
    options = ("--device", "host", "--sizes", "4KiB", "--budget", "0.1s", "--no-trace", "--directions", "h2d")
    ended = command(
        "ceiling", *options, "--report", str(tmp_path / "x.html"), "--export-json", str(tmp_path / "run.json")
    )
    assert ended.returncode == 4
    assert "nothing can be drawn" in ended.stderr
    assert codec.load_any(tmp_path / "run.json", [kind.struct for kind in codec.KINDS]).measurements


def test_a_comparison_is_exported_for_ci(command: Command, files: dict[str, str], tmp_path: Path) -> None:
    github, bencher = tmp_path / "github.json", tmp_path / "bencher.json"
    ended = command(
        "compare",
        files["ceiling"],
        files["ceiling"],
        "--export-github",
        str(github),
        "--export-bencher",
        str(bencher),
    )
    assert ended.returncode == 0
    benchmarks, metrics = json.loads(github.read_bytes()), json.loads(bencher.read_bytes())
    assert len(benchmarks) == len(metrics) > 0
    assert {row["name"]: row["value"] for row in benchmarks} == {
        name: pytest.approx(metric["bandwidth"]["value"] / 1e9) for name, metric in metrics.items()
    }
