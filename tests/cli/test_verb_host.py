from __future__ import annotations

import pytest
from command_line import in_terminal, interrupt_when, pyxfer


def test_bare_pyxfer_tells_what_this_host_does_and_what_to_try_next() -> None:
    result = pyxfer(CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("device  host memory, not a PCIe link\n")
    assert "ceiling at 64 MiB" in result.stdout
    assert "pageable at 64 MiB" in result.stdout
    assert "pyxfer list" in result.stdout.split("Try next")[1]
    assert "peak" not in result.stdout


@pytest.mark.slow
def test_the_card_fits_a_terminal_of_80_columns() -> None:
    code, text = in_terminal(NO_COLOR="1", CUDA_VISIBLE_DEVICES="")
    assert code == 0
    assert max(len(line) for line in text.splitlines()) <= 80


def test_ctrl_c_ends_it_with_130() -> None:
    result = interrupt_when("measuring", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
