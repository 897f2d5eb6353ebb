from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import in_terminal, pyxfer
from in_process import Command

from pyxfer._document.runs import Run
from pyxfer._measure.sampler import FEWEST_ROUNDS


def test_bare_pyxfer_tells_what_this_host_does_and_what_to_try_next() -> None:
    result = pyxfer("--budget", "1s", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("device  host memory, not a PCIe link\n")
    assert "ceiling at 64 MiB" in result.stdout
    assert "pageable at 64 MiB" in result.stdout
    assert "pyxfer list" in result.stdout.split("Try next")[1]
    assert "peak" not in result.stdout


def test_bare_pyxfer_takes_the_options_that_its_advice_names(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    options = ("--device", "host", "--sizes", "4KiB,64KiB", "--budget", "1us", "--precision", "2%")
    result = pyxfer(*options, "--export-json", str(path), PYXFER_HOSTRT="link=2e9:20e-6:1e9:20e-6")
    assert result.returncode == 0, result.stderr
    run = Run.load(path)
    assert (run.parameters.sizes_bytes, run.parameters.precision, run.parameters.budget_s) == (
        (4096, 65536),
        0.02,
        1e-6,
    )
    assert min(len(row.trials) for row in run.measurements) >= FEWEST_ROUNDS
    assert "ceiling at 64 KiB" in result.stdout
    card = result.stdout.split("Try next")[0]
    assert "a budget of " in card
    assert set(re.findall(r"--[a-z-]+", card)) <= {"--budget", "--precision", "--sizes", "--export-json"}


def test_an_option_of_bare_pyxfer_before_a_verb_is_refused(command: Command) -> None:
    result = command("--budget", "1s", "list")
    assert result.returncode == 2
    assert "write it after list" in result.stderr


@pytest.mark.slow
def test_the_card_fits_a_terminal_of_80_columns() -> None:
    code, text = in_terminal(NO_COLOR="1", CUDA_VISIBLE_DEVICES="")
    assert code == 0
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("option", [("--sizes", "64M"), ("--budget", "40h"), ("--precision", "0.5")], ids=" ".join)
def test_an_invalid_value_is_named_by_its_option(option: tuple[str, str]) -> None:
    result = pyxfer(*option)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"pyxfer: {option[0]}")
