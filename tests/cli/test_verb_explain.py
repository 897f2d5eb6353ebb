"""`pyxfer explain` without a GPU; tests/frameworks/installed has tests with frameworks."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from command_line import in_terminal, pyxfer, shell
from in_process import Command
from pages import line_with

from pyxfer._document.runs import Run

# A modelled link makes figures that repeat.
LINK = "link=2e9:20e-6:1e9:20e-6"
QUICK = ("explain", "raw.pageable-memcpy", "--device", "host", "--size", "1MiB", "--budget", "0.3s")


def test_a_raw_route_is_explained() -> None:
    result = pyxfer(*QUICK, PYXFER_HOSTRT=LINK)
    assert result.returncode == 0, result.stderr
    assert line_with(result.stdout, "raw.pageable-memcpy, h2d over host memory, 1 MiB: ")
    assert line_with(result.stdout, "the copy, at the ceiling's speed")
    assert line_with(result.stdout, "copied ").endswith("1 MiB from pageable memory")
    assert "Clocks\n" in result.stdout
    assert "Faster routes, measured in the same run\n" in result.stdout
    assert "Measured in host memory, not a PCIe link" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.slow
def test_the_direction_can_be_d2h() -> None:
    result = pyxfer(*QUICK, "--direction", "d2h", PYXFER_HOSTRT=LINK)
    assert "raw.pageable-memcpy, d2h over host memory, 1 MiB: " in result.stdout
    assert line_with(result.stdout, "copied ").endswith("to pageable memory")


def test_an_exported_run_prints_the_same_page(tmp_path: Path) -> None:
    paths = tmp_path / "run.json", tmp_path / "run.csv"
    measured = pyxfer(*QUICK, "--export-json", str(paths[0]), "--export-csv", str(paths[1]))
    shown = pyxfer("show", str(paths[0]))
    assert shown.returncode == 0
    assert shown.stdout == measured.stdout
    run = Run.load(paths[0])
    assert (run.kind, run.parameters.explained) == ("explain", "raw.pageable-memcpy")
    rows = {row["route"]: row for row in csv.DictReader(paths[1].read_text().splitlines())}
    assert rows["raw.pageable-memcpy"]["dma_bytes"] == str(1 << 20)


@pytest.mark.slow
def test_the_page_fits_a_terminal_of_80_columns() -> None:
    code, text = in_terminal(*QUICK, PYXFER_HOSTRT=LINK, NO_COLOR="1")
    assert code == 0
    page = text[text.index("device  ") :]
    assert "Where the time goes" in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("torch.too",), "Unknown route 'torch.too'. Did you mean torch.to"),
        (("torch.to", "--size", "1MiB,2MiB"), "is not a size"),
        (("torch.to", "--direction", "d2h"), "torch.to goes h2d"),
        ((), "Missing argument 'ROUTE'"),
    ],
)
def test_invalid_arguments_exit_with_2(command: Command, arguments: tuple[str, ...], sentence: str) -> None:
    result = command("explain", *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stdout == ""


@pytest.mark.slow
def test_without_a_gpu_a_frameworks_route_exits_with_4() -> None:
    result = pyxfer("explain", "torch.to", "--size", "64KiB", "--budget", "1s", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 4
    assert "\nNothing was measured\n" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_the_message_about_the_page_comes_after_it() -> None:
    asked = "pyxfer explain torch.to --size 64KiB --budget 1s 2>&1 | cat"
    lines = shell(asked, CUDA_VISIBLE_DEVICES="").stdout.splitlines()
    assert lines[-1] == "pyxfer: Nothing was measured, for the reasons above."


@pytest.mark.slow
def test_the_markdown_has_the_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.md"
    assert pyxfer(*QUICK, "--export-md", str(path), PYXFER_HOSTRT=LINK).returncode == 0
    text = path.read_text()
    assert "### Where the time of raw.pageable-memcpy goes\n" in text
    assert line_with(text, "| copying |")
    assert "all figures" not in pyxfer("explain", "--help", COLUMNS="200").stdout
