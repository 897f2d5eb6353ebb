"""Documents of many hosts: they are made up as hosts write them, and the command judges them."""

from __future__ import annotations

import os
from pathlib import Path

import many_hosts
import pytest

from pyxfer._document.fleets import HostReport


def test_the_documents_can_be_read(tmp_path: Path) -> None:
    written = many_hosts.write_hosts(tmp_path, 2, 20)
    assert written == sum(path.stat().st_size for path in tmp_path.iterdir())
    report = HostReport.load(tmp_path / "node1.json")
    assert (report.host, len(report.devices), len(report.cells)) == ("node1", 8, 122)
    assert all(len(cell.samples) == 20 for cell in report.cells)


@pytest.mark.slow
def test_the_command_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    (tmp_path / "hosts").mkdir()
    many_hosts.write_hosts(tmp_path / "hosts", 6, 3)
    wall_s, cpu_s, most, line = many_hosts.judge(tmp_path / "hosts", tmp_path / "fleet.html")
    assert wall_s > 0 < cpu_s
    assert most > 10 << 20
    assert " of 6 " in line


def test_memory_is_that_of_the_process() -> None:
    assert many_hosts.memory_of(os.getpid()) > 10 << 20
    assert many_hosts.memory_of(2**22 + 1) == 0
