"""Measuring in a new process, and every ending of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from baseline_samples import make_copy
from samples import make_parameters, make_run

from pyxfer._baseline import measure
from pyxfer._baseline.measure import Processes, measure_process, request_again, run_request
from pyxfer._document.runs import Run
from pyxfer.errors import MeasurementError, UsageError

LINK = "link=1e7:2e-6:1e7:2e-6"
QUICK = run_request(["host"], ["h2d"], ["pinned"], ["auto"], [65536], 0.5)


@pytest.fixture
def run_instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the process run this code instead of measuring."""
    return lambda code: monkeypatch.setattr(measure, "_BOOT", code)


def message() -> str:
    with pytest.raises(MeasurementError) as caught:
        measure_process(QUICK)
    return str(caught.value)


def test_a_process_measures_its_order_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYXFER_HOSTRT", LINK)
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    waits: list[float] = []
    run = measure_process(QUICK, waits.append)
    assert isinstance(run, Run)
    assert (run.ended, run.parameters.sizes_bytes, run.parameters.directions) == ("complete", (65536,), ("h2d",))
    assert 0.005 < (run.measurements[0].gbps or 0) < 0.0101
    assert waits == sorted(waits)
    assert waits
    assert [path.name for path in tmp_path.iterdir()] == ["json.py"], "it left a file behind"


def test_the_parameters_of_a_run_can_be_measured_again() -> None:
    parameters = make_parameters(modes=("async", "streams:2"), precision=0.01, budget_s=2.5, fresh=True)
    streams = make_copy("h2d", "pinned", "streams:2", 65536)
    request = request_again(["GPU-1"], make_run(parameters=parameters, measurements=(streams,)))
    expected = {"--device=GPU-1", "--mode=async,streams:2", "--budget=2.5s", "--precision=0.01"}
    assert {*expected, "--fresh", "--require-gpu", "--no-trace"} <= set(request.words)


def test_a_run_of_automatic_modes_is_repeated_with_automatic_modes() -> None:
    parameters = make_parameters(modes=("memcpy", "async"))
    rows = (make_copy("h2d", "pinned", "async", 65536), make_copy("h2d", "pageable", "memcpy", 65536))
    assert "--mode=auto" in request_again(["0"], make_run(parameters=parameters, measurements=rows)).words


def test_an_order_for_host_memory_requires_no_gpu() -> None:
    assert "--require-gpu" not in QUICK.words


def test_an_invalid_order_is_refused_with_the_message_of_the_process() -> None:
    with pytest.raises(UsageError, match="'vram' is unknown"):
        measure_process(run_request(["host"], ["h2d"], ["vram"], ["auto"], [65536], 0.5))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed (SIGSEGV)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL; possibly out of memory)"),
        (
            "import sys; print('first\\npyxfer: the last words', file=sys.stderr); sys.exit(7)",
            "ended by itself with exit code 7: the last words",
        ),
        ("pass", "measured nothing: There is no file"),
    ],
    ids=["crash", "kill", "exit", "no run"],
)
def test_the_ending_of_a_process_is_named(run_instead: Callable[[str], None], code: str, words: str) -> None:
    run_instead(code)
    assert message().startswith(f"A measuring process {words}")


def ends_within(seconds: float, pid: int) -> bool:
    """Whether the process ends: a killed process may need a moment for its cleanup."""
    until = time.monotonic() + seconds
    stat = Path(f"/proc/{pid}/stat")
    while time.monotonic() < until:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
def test_a_hung_process_is_killed_with_its_children(
    run_instead: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    child = f"import os, pathlib, time; pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(600)"
    run_instead(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    monkeypatch.setattr(measure, "STARTING_S", 1.5)
    assert "had not ended after" in message()
    if started.exists():
        assert ends_within(30.0, int(started.read_text()))


def test_a_device_lost_before_the_first_measurement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYXFER_HOSTRT", "lose=cudaMalloc:1:999")
    assert "A measuring process measured nothing: cudaMalloc failed" in message()


@pytest.mark.slow
def test_an_interrupt_returns_the_measured_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYXFER_HOSTRT", LINK)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupt(waited_s: float) -> None:
        if any(tmp_path.glob("pyxfer-*/run.json")):  # the process has saved its run for the first time
            raise KeyboardInterrupt
        assert waited_s < 60

    run = measure_process(run_request(["host"], ["h2d"], ["pinned"], ["auto"], [65536], 60, 1e-8), interrupt)
    assert isinstance(run, Run)
    assert run.ended == "interrupted"
    assert run.measurements[0].trials
    assert not list(tmp_path.iterdir())


def test_an_interrupt_at_the_end_of_a_process_marks_a_complete_run_as_interrupted(
    run_instead: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    saved, copied = tmp_path / "saved.json", tmp_path / "copied"
    make_run().save(saved)
    run_instead(
        "import json, shutil, sys, time; given = json.loads(sys.stdin.readline()); "
        "path = next(each for each in given if each.startswith('--export-json=')).partition('=')[2]; "
        f"shutil.copy({str(saved)!r}, path); open({str(copied)!r}, 'w').close(); time.sleep(600)"
    )

    def interrupt(waited_s: float) -> None:
        if copied.exists():
            raise KeyboardInterrupt

    assert measure_process(QUICK, interrupt).ended == "interrupted"


def test_an_interrupt_before_the_first_measurement_is_raised(run_instead: Callable[[str], None]) -> None:
    def interrupt(waited_s: float) -> None:
        raise KeyboardInterrupt

    run_instead("import time; time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        measure_process(QUICK, interrupt)


def test_a_process_waits_for_its_order_while_another_measures(run_instead: Callable[[str], None]) -> None:
    run_instead("import sys; sys.exit(3 if sys.stdin.readline() else 0)")
    with Processes() as started:
        first = started.take(more=True)
        second = started.take(more=False)
        third = started.take(more=False)
        assert len({each.process.pid for each in (first, second, third)}) == 3
        for each in (first, second):
            each.begin(["ceiling"])
            assert each.process.wait(60) == 3
            each.close()
        third.process.stdin.close()  # type: ignore[union-attr]
        assert third.process.wait(60) == 0, "it measured without a request"
        third.close()


def test_a_process_that_is_not_needed_is_ended(run_instead: Callable[[str], None]) -> None:
    run_instead("import time; time.sleep(600)")
    with Processes() as started:
        measured = started.take(more=True)
        measured.close()
        waiting = started._ready
    assert waiting is not None
    assert measured.process.returncode == waiting.process.returncode == -9
