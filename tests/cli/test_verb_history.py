"""`pyxfer history`: tables, lines, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from baseline.store.making import run_at
from command_line import in_terminal
from samples import make_device
from typer.testing import CliRunner

from pyxfer._baseline.store import open_store
from pyxfer._cli.main import app
from pyxfer._document.runs import unknown


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two hosts, one of which was slow on its last day."""
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        for day in (1, 2, 3, 4):
            opened.add_run(run_at(day, host="node-7", slower=1.12 if day == 4 else 1.0))
            opened.add_run(run_at(day, host="node\n8"))
    return path


def output_of(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["history", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_a_host_has_a_table_of_its_runs(store: str) -> None:
    lines = output_of("--store", store, "--host", "node-7", "--cell", "h2d:pinned:16MiB").splitlines()
    assert lines[0] == "h2d:pinned:16MiB on node-7, GPU-6a1f2c3d-0001-0002-0003-000000000004"
    assert lines[1] == "points: 4, median 55.00 GB/s"
    assert lines[2].endswith("10 runs are needed")
    assert " ".join(lines[3].split()) == "time (UTC) GB/s 95 % interval to median -15 % +15 % run"
    assert " ".join(lines[4].split()[:-1]) == "2026-01-01 08:30 55.00 54.97 to 55.02 +0.0 % .....*....."
    assert " ".join(lines[7].split()[:-1]) == "2026-01-04 08:30 49.10 49.08 to 49.12 -10.7 % .*...|....."


def test_hosts_are_groups(store: str) -> None:
    text = output_of("--store", store)
    assert "h2d:pinned:16MiB on node-7, GPU-" in text
    assert "h2d:pinned:16MiB on node\\n8, GPU-" in text


def test_host_memory_is_named(store: str) -> None:
    memory = make_device(runtime="host", name="host memory", uuid=unknown("not a GPU"))
    with open_store(store) as opened:
        opened.add_run(run_at(1, host="laptop", device=memory, runtime="host"))
    assert "h2d:pinned:16MiB on laptop, host memory, not a PCIe link" in output_of("--store", store)


def test_a_page_fits_a_terminal(store: str) -> None:
    code, text = in_terminal("history", "--store", store, NO_COLOR="1")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80


def test_many_hosts_have_one_line_each(store: str) -> None:
    with open_store(store) as opened:
        for number in range(6):
            opened.add_run(run_at(1, host=f"other-{number}"))
    lines = output_of("--store", store).splitlines()
    assert lines[0].startswith("Newest of 8 histories of h2d:pinned:16MiB")
    assert lines[2].split()[:1] == ["node-7"]
    assert "-10.7 %" in lines[2]
    assert len(lines) == 10


def test_since_leaves_out_older_runs(store: str) -> None:
    assert "points: 2" in output_of("--store", store, "--host", "node-7", "--since", "2026-01-03")
    assert "No stored measurement matches" in output_of("--store", store, "--since", "1d")


def test_as_json_it_has_every_point(store: str) -> None:
    found = json.loads(output_of("--store", store, "--export-json", "-"))
    assert [(group["host"], len(group["points"])) for group in found["groups"]] == [("node\n8", 4), ("node-7", 4)]
    assert found["schema_version"] == 1


def test_as_csv_it_has_a_row_for_each_point(store: str) -> None:
    rows = list(csv.DictReader(io.StringIO(output_of("--store", store, "--export-csv", "-"))))
    assert len(rows) == 8
    assert (rows[0]["host"], rows[0]["cell"]) == ("node\n8", "h2d:pinned:16MiB")


def test_as_csv_a_host_is_not_a_formula(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with open_store(path) as opened:
        run_id = opened.add_run(run_at(host="=1+1"))
    header, row = output_of("--store", path, "--export-csv", "-").splitlines()
    assert header.split(",")[:6] == ["host", "runtime", "device", "gpu", "cell", "worker"]
    assert row.startswith("'=1+1,cuda,NVIDIA H200,GPU-6a1f2c3d")
    assert run_id in row


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--since", "soon"], "since 'soon' is not a time: write 30d"),
        (["--cell", "up"], "write a cell such as h2d:pinned:256MiB"),
    ],
)
def test_invalid_options_are_refused(store: str, arguments: list[str], sentence: str) -> None:
    assert sentence in output_of("--store", store, *arguments, code=2)


def stored_history(folder: Path, slower_from: int) -> str:
    """20 runs of one host, slower by 10 % from one of them on."""
    path = str(folder / "store.db")
    with open_store(path) as opened:
        for day in range(1, 21):
            opened.add_run(run_at(day, slower=(1.11 if day >= slower_from else 1.0) * (1 + 0.001 * (day % 3))))
    return path


def changes_of(store: str) -> list[list[dict[str, Any]]]:
    return [group["changes"] for group in json.loads(output_of("--store", store, "--export-json", "-"))["groups"]]


def test_a_change_is_named_with_its_first_run(tmp_path: Path) -> None:
    store = stored_history(tmp_path, slower_from=11)
    ((change,),) = changes_of(store)
    assert change["taken_at"].startswith("2026-01-11")
    assert change["after_gbps"] < 0.92 * change["before_gbps"]
    (line,) = [line for line in output_of("--store", store).splitlines() if " slower, " in line]
    assert "since 2026-01-11 08:30" in line
    assert change["run_id"] in line


def test_a_history_without_a_step_has_no_change(tmp_path: Path) -> None:
    store = stored_history(tmp_path, slower_from=99)
    assert changes_of(store) == [[]]
    assert " slower, " not in output_of("--store", store)


def test_a_history_has_a_report(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    store, page = stored_history(tmp_path, slower_from=11), tmp_path / "history.html"
    output_of("--store", store, "--report", str(page))
    text = page.read_text(encoding="utf-8")
    assert "Bandwidth over time" in text
    assert "1 of 1 histories have changed" in text
