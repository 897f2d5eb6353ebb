from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import in_terminal, interrupt_when, pyxfer, shell
from in_process import Command
from marks import slow

from pyxfer._document.runs import NOT_ASKED, Run

# A modelled link makes figures that repeat; two sizes and one direction are measured in well under a second.
LINK = "link=2e9:20e-6:1e9:20e-6"
QUICK = ("--device", "host", "--directions", "h2d", "--sizes", "64KiB,1MiB,4MiB", "--budget", "0.2s")
# A link so slow that a run is still under way when something happens to it.
SLOW = "link=1e7:5e-3:1e7:5e-3"
LONG = (*QUICK[:4], "--sizes", "16KiB:64KiB:x1.2", "--precision", "0.0001%", "--budget", "10s")


@pytest.mark.slow
def test_without_a_gpu_host_memory_is_measured_and_named() -> None:
    result = pyxfer("ceiling", *QUICK, PYXFER_HOSTRT=LINK)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("device  host memory, not a PCIe link\n")
    assert "of peak" not in result.stdout


def test_the_table_has_the_measured_rates(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = pyxfer("ceiling", *QUICK, "--export-json", str(path), PYXFER_HOSTRT=LINK)
    row = next(line for line in result.stdout.splitlines() if line.strip().startswith("4 MiB"))
    shown = float(row.replace(" a", "").replace(" b", "").split()[-1])
    (pinned,) = (each for each in Run.load(path).measurements if (each.memory, each.nbytes) == ("pinned", 4 << 20))
    assert shown == pytest.approx(pinned.gbps, rel=0.01)
    assert shown <= 2.01


@pytest.mark.slow
def test_staged_copies_are_shown_with_their_ring() -> None:
    result = pyxfer("ceiling", *QUICK, "--modes", "auto,staged", PYXFER_HOSTRT=LINK, PYXFER_RING="threads=2,slots=3")
    assert result.returncode == 0, result.stderr
    heading = [line.split() for line in result.stdout.splitlines() if "memcpy" in line]
    assert heading[0][-3:] == ["memcpy", "staged", "pinned"]
    assert "\nthreads   2\nslots     3 of " in result.stdout
    assert "given by PYXFER_RING=threads=2,slots=3" in result.stdout


def test_progress_and_the_missing_gpu_go_to_stderr() -> None:
    result = pyxfer("ceiling", *QUICK[2:], CUDA_VISIBLE_DEVICES="")
    assert "No usable GPU" in result.stderr.splitlines()[0]
    assert "pyxfer: measuring" in result.stderr
    assert "No usable GPU" not in result.stdout
    assert "pyxfer: " not in result.stdout


def test_an_exported_run_prints_the_same_page(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    measured = pyxfer("ceiling", *QUICK, "--export-json", str(path))
    shown = pyxfer("show", str(path))
    assert shown.returncode == 0
    assert shown.stdout == measured.stdout


def test_every_export_is_written(tmp_path: Path) -> None:
    names = {"--export-json": "run.json", "--export-csv": "run.csv", "--export-md": "run.md"}
    result = pyxfer("ceiling", *QUICK, *(part for pair in names.items() for part in pair), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names.values())
    run = Run.load(tmp_path / "run.json")
    assert (tmp_path / "run.csv").read_text() == run.to_csv()
    assert (tmp_path / "run.md").read_text() == run.to_markdown()


@pytest.mark.slow
def test_an_export_to_stdout_moves_the_page_to_stderr() -> None:
    result = pyxfer("ceiling", *QUICK, "--export-json", "-")
    assert json.loads(result.stdout)["kind"] == "ceiling"
    assert "device  host memory, not a PCIe link" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--sizes", "0"), "is not above zero"),
        (("--sizes", "-4KiB"), "is not above zero"),
        (("--sizes", "lots"), "is not a size"),
        (("--sizes", "1024TiB"), "memory"),
        (("--directions", "sideways"), "--directions 'sideways' is unknown: choose one of h2d, d2h, both"),
        (("--directions", "h2d,"), "empty item"),
        (("--memories", "cardboard"), "--memories 'cardboard' is unknown: choose one of pageable, pinned"),
        (("--modes", "teleport"), "--modes 'teleport' is unknown"),
        (("--modes", "staged", "--memories", "pinned"), "add the memory pageable"),
        (("--precision", "0"), "is not above zero"),
        (("--precision", "200%"), "is not below 100%"),
        (("--budget", "0s"), "is not above zero"),
        (("--budget", "soon"), "write a duration such as"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_invalid_options_exit_with_2(command: Command, arguments: tuple[str, ...], sentence: str) -> None:
    result = command("ceiling", "--device", "host", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_lost_device_exits_with_4_and_keeps_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = pyxfer("ceiling", *LONG, "--export-json", str(path), PYXFER_HOSTRT=f"{SLOW};lose=cudaMemcpyAsync:200:999")
    assert result.returncode == 4
    assert "pyxfer: The run failed: " in result.stderr
    assert "Failed: " in result.stdout
    run = Run.load(path)
    assert run.ended == "failed"
    assert any(measurement.trials for measurement in run.measurements)


def test_a_budget_spent_on_preparation_is_reported() -> None:
    result = pyxfer("ceiling", *QUICK[:4], "--sizes", "64KiB", "--budget", "1us", PYXFER_HOSTRT=LINK)
    assert result.returncode == 0, result.stderr
    assert "Preparation took " in result.stdout
    assert "give a budget of " in result.stdout
    said = ["preparing beyond the budget", "measuring beyond the budget: 6 trials each", "tracing"]
    assert [line.removeprefix("pyxfer: ") for line in result.stderr.splitlines()][-3:] == said


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, *(slow(times) for times in (3, 6))])
def test_repeated_ctrl_c_prints_no_traceback(times: int) -> None:
    result = interrupt_when("measuring", "ceiling", *LONG, times=times, PYXFER_HOSTRT=SLOW)
    assert result.returncode in (130, -2)
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_loses_no_export(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = shell(f"pyxfer ceiling {' '.join(QUICK)} --export-json {path} | true")
    assert "Traceback" not in result.stderr
    assert result.returncode == 141
    assert Run.load(path).ended == "complete"


@pytest.mark.parametrize("target", [">(cat)", slow("/dev/fd/5 5>&1"), slow("/dev/stdout")])
def test_a_stream_gets_one_whole_document(target: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    page = "" if target == "/dev/stdout" else "> /dev/null"
    result = shell(f"{{ pyxfer ceiling {' '.join(QUICK)} --export-json {target} {page}; }} > {path}")
    assert result.returncode == 0, result.stderr
    assert Run.load(path).ended == "complete"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["measuring", "waiting for one"])
def test_one_ctrl_c_ends_a_run_into_a_fifo_without_a_reader(moment: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    arguments = LONG if moment == "measuring" else QUICK
    link = SLOW if moment == "measuring" else LINK
    result = interrupt_when(moment, "ceiling", *arguments, "--export-json", str(tmp_path / "fifo"), PYXFER_HOSTRT=link)
    assert result.returncode == 130
    assert "host memory" in result.stdout


@pytest.mark.slow
def test_a_closed_stderr_does_not_stop_a_run() -> None:
    result = shell(f"pyxfer ceiling {' '.join(QUICK)} 2> >(true)")
    assert result.returncode == 0
    assert "host memory, not a PCIe link" in result.stdout


@pytest.mark.slow
def test_the_usual_table_fits_a_terminal_of_80_columns() -> None:
    code, text = in_terminal("ceiling", "--device", "host", "--sizes", "4KiB:1MiB:x4", "--budget", "2s", NO_COLOR="1")
    assert code == 0
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert sum(line.lstrip().startswith("64 KiB ") for line in lines) == 3
    assert "\u2026" not in text


@pytest.mark.slow
def test_no_trace_skips_the_traced_trials(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = pyxfer("ceiling", *QUICK, "--no-trace", "--export-json", str(path))
    assert result.returncode == 0
    assert "tracing" not in result.stderr
    assert {each.dma.reason for each in Run.load(path).measurements} == {NOT_ASKED}
