"""`pyxfer metrics`: from a file or a store, into a file that a collector reads."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path

import msgspec
import pytest
from command_line import shell
from doctor.cases import copy, h200
from in_process import Command
from link_samples import make_links
from pages import host_run

from pyxfer._baseline.store import open_store
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Run

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")


def mine(index: int = 0, uuid: str = "GPU-1", gbps: float = 55.0) -> Run:
    """A run of a GPU of this host."""
    device = msgspec.structs.replace(h200().device, index=index, uuid=Fact(uuid))
    return h200(device=device, environment={"host": platform.node()}, measurements=(copy("h2d", gbps),))


def other() -> Run:
    """One of another host."""
    return h200(environment={"host": "another-host"})


def stored(tmp_path: Path, *runs: Run) -> str:
    path = str(tmp_path / "store.db")
    with open_store(path) as store:
        for run in runs:
            store.add_run(run)
    return path


def test_the_file_is_readable_for_all_users(tmp_path: Path) -> None:
    mine().save(tmp_path / "run.json")
    out = tmp_path / "pyxfer.prom"
    result = shell(f"umask 077; pyxfer metrics {tmp_path}/run.json --export-prometheus {out}")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert "pyxfer_copy_bandwidth_bytes_per_second{" in out.read_text()
    assert sorted(os.listdir(tmp_path)) == ["pyxfer.prom", "run.json"]


def test_a_run_with_copies_beyond_the_peak_is_refused(command: Command, tmp_path: Path) -> None:
    mine(gbps=138.0).save(tmp_path / "run.json")
    result = command("metrics", str(tmp_path / "run.json"))
    assert (result.returncode, "pyxfer_copy_" in result.stdout) == (2, False)
    assert "measurements[0].rate.gbps" in result.stderr


def test_a_file_name_that_is_not_collected_is_reported(command: Command, tmp_path: Path) -> None:
    mine().save(tmp_path / "run.json")
    result = command("metrics", str(tmp_path / "run.json"), "--export-prometheus", str(tmp_path / "pyxfer.txt"))
    assert result.returncode == 0
    assert "files that end in .prom" in result.stderr


def test_the_newest_run_of_each_gpu_of_this_host_is_exported(command: Command, tmp_path: Path) -> None:
    store = stored(tmp_path, mine(gbps=50.0), mine(1, "GPU-2", 51.0), mine(gbps=52.0), other())
    text = command("metrics", "--store", store).stdout
    rates = [line.rsplit(" ")[-1] for line in text.splitlines() if line.startswith("pyxfer_copy_bandwidth")]
    assert sorted(map(float, rates)) == [51e9, 52e9]


def test_a_store_without_a_run_of_this_host_is_refused(command: Command, tmp_path: Path) -> None:
    result = command("metrics", "--store", stored(tmp_path, other()))
    assert result.returncode == 2
    assert "pyxfer baseline save" in result.stderr


def test_a_run_in_host_memory_is_refused(command: Command, tmp_path: Path) -> None:
    host_run(mine()).save(tmp_path / "run.json")
    result = command("metrics", str(tmp_path / "run.json"))
    assert result.returncode == 2
    assert "host memory" in result.stderr


def test_a_failed_write_keeps_the_old_file(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "pyxfer.prom"
    out.write_text("old\n")
    result = command("metrics", str(tmp_path / "missing.json"), "--export-prometheus", str(out))
    assert result.returncode == 2
    assert out.read_text() == "old\n"


def test_saved_links_become_metrics_of_each_gpu(command: Command, tmp_path: Path) -> None:
    make_links(groups=("together",)).save(tmp_path / "links.json")
    ended = command("metrics", str(tmp_path / "links.json"))
    assert ended.returncode == 0
    assert sum(line.startswith("pyxfer_run_timestamp_seconds{") for line in ended.stdout.splitlines()) == 2
