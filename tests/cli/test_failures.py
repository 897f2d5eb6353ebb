"""Errors, exit codes and Ctrl-C: the handler, and Ctrl-C while modules are loaded."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from command_line import pyxfer, shell
from explain_samples import make_explain_run, make_explained
from framework_samples import make_aliased
from link_samples import make_links
from pages import Terminal
from samples import make_measurement, make_missing, make_parameters, make_run

from pyxfer._cli import failures
from pyxfer._cli.failures import as_exit_codes, end_as, say, why_invalid
from pyxfer._document import runs
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Trial
from pyxfer.errors import (
    ArrayFileError,
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DocumentError,
    MeasurementError,
    PyxferError,
    StoreError,
    UsageError,
)

NO_DRIVER = (
    100,
    "cudaErrorNoDevice",
    "cudaGetDeviceCount",
    "",
    "no CUDA-capable device is detected",
    "Load the driver.",
)


unsanitized = pytest.mark.unsanitized(reason="a sanitizer needs more memory than the limits")
# Commands in another folder find pyxfer as these tests do.
OWN_PATH = {"PYTHONPATH": os.pathsep.join(sys.path)}


def ended_by(action: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught, as_exit_codes():
        action()
    assert isinstance(caught.value.code, int)
    return caught.value.code, capsys.readouterr().err


def throw(error: BaseException) -> Callable[[], object]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UsageError("no such size"), 2, "pyxfer: no such size\n"),
        (ArrayFileError("not a file of arrays"), 2, "pyxfer: not a file of arrays\n"),
        (DocumentError("not a run"), 2, "pyxfer: not a run\n"),
        (StoreError("not a store"), 2, "pyxfer: not a store\n"),
        (CudaUnavailableError(*NO_DRIVER), 3, "pyxfer: No usable GPU: Load the driver.\n"),
        (DeviceLostError(*NO_DRIVER), 4, "Load the driver."),
        (CudaMemoryError(*NO_DRIVER), 4, "Load the driver."),
        (CudaError(*NO_DRIVER), 4, "Load the driver."),
        (MeasurementError("no trial is valid"), 4, "pyxfer: no trial is valid\n"),
        (PyxferError("anything else"), 4, "pyxfer: anything else\n"),
        (MemoryError(), 4, "not enough host memory"),
        (SystemError("error return without exception set"), 4, "not enough host memory"),
        (ImportError("it.so: failed to map segment from shared object"), 4, "not enough host memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run.json"), 2, "No space left on device (run.json)"),
        (OSError("something odd"), 2, "something odd"),
        (KeyboardInterrupt(), 130, "pyxfer: interrupted\n"),
    ],
)
def test_errors_have_a_message_and_an_exit_code(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, text = ended_by(throw(error), capsys)
    assert got == code
    assert sentence in text
    assert "Traceback" not in text


@unsanitized
@pytest.mark.parametrize("verb", ["show {}", "report -o it.html {}"])
def test_a_document_that_does_not_fit_into_memory_is_an_error_of_memory(verb: str, tmp_path: Path) -> None:
    document = tmp_path / "run.json"
    with document.open("wb") as file:
        file.truncate(400 << 20)
    result = shell(f"cd {tmp_path}; ulimit -v 500000; pyxfer {verb.format(document)}", **OWN_PATH)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (4, "", 1)
    assert "memory" in result.stderr


@unsanitized
def test_a_small_document_is_shown_in_little_memory(tmp_path: Path) -> None:
    make_run().save(tmp_path / "run.json.gz")
    result = shell(f"ulimit -v 500000; pyxfer show {tmp_path}/run.json.gz")
    assert (result.returncode, result.stderr) == (0, "")


@unsanitized
def test_too_little_memory_for_a_measurement_is_an_error_of_memory(tmp_path: Path) -> None:
    # Each trial of both directions starts threads, whose stacks have the size of `ulimit -s`.
    options = "--device host --direction both --size 4KiB --budget 100ms --no-trace"
    result = shell(f"ulimit -s 1000000; ulimit -v 1500000; pyxfer ceiling {options}", OPENBLAS_NUM_THREADS="1")
    assert result.returncode == 4
    assert "memory" in result.stderr.splitlines()[-1]
    assert "OperatingSystem" not in result.stderr


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemError("bad argument to internal function")])
def test_an_error_in_pyxfer_is_not_caught(error: Exception) -> None:
    with pytest.raises(type(error)), as_exit_codes():
        raise error


@pytest.mark.parametrize("module", ["typer", "sqlalchemy"])
def test_an_error_in_pyxfer_does_not_exit_with_1(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("1 / 0\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    result = pyxfer("baseline", "check", "--device", "host", "--store", "none.db", cwd=tmp_path, PYTHONPATH=path)
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr.startswith("Traceback ")
    assert "ZeroDivisionError" in result.stderr


def test_a_long_message_wraps_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", terminal)
    say("a sentence of many words " * 8)
    assert max(len(line) for line in terminal.getvalue().splitlines()) <= 40
    assert terminal.getvalue().replace("\n", " ").split() == f"pyxfer: {'a sentence of many words ' * 8}".split()


def test_a_message_has_no_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    say("name \x1b[2J\x07 with\nlines")
    assert capsys.readouterr().err == "pyxfer: name with lines\n"


def replaced(**changes: object) -> runs.Run:
    return make_run(measurements=(msgspec.structs.replace(make_measurement(), **changes),))


ALL_INVALID = tuple(Trial(round=i, elapsed_s=1e-3, invalid="the gate timed out") for i in range(3))


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (make_run(ended="failed", failure="the GPU is gone"), "The run failed: the GPU is gone"),
        (make_run(measurements=()), "Nothing was measured"),
        (make_run(measurements=(make_missing(),)), "Nothing was measured"),
        (replaced(verified=Fact(False)), "Data arrived wrong"),
        (make_run(measurements=(make_missing(trials=ALL_INVALID),)), "no valid trial"),
        (make_explain_run(make_explained(rate=unknown("elided"))), "tf.function has no bandwidth: elided"),
    ],
)
def test_an_invalid_run_exits_with_4_and_the_reason(
    run: runs.Run, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = ended_by(lambda: end_as(run), capsys)
    assert code == 4
    assert reason in text


def test_an_explained_route_that_copies_nothing_is_valid() -> None:
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", 1 << 20)
    others = make_explain_run().measurements
    parameters = make_parameters(explained=aliased.route, directions=("ingest",), sizes_bytes=(1 << 20,))
    assert why_invalid(make_explain_run(measurements=(*others, aliased), parameters=parameters)) == ""


def test_an_interrupted_run_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(lambda: end_as(make_run(ended="interrupted")), capsys) == (130, "")


def test_exit_codes_of_invalid_links() -> None:
    good = make_links(1, groups=("host",))
    end_as(good)
    row = good.traffics[0]
    flow = msgspec.structs.replace(row.flows[0], verified=Fact(False), rate=unknown("the contents were wrong"))
    wrong = msgspec.structs.replace(row, flows=(flow,))
    for run, code in (
        (msgspec.structs.replace(good, ended="interrupted"), 130),
        (msgspec.structs.replace(good, ended="failed", failure="gone"), 4),
        (msgspec.structs.replace(good, traffics=(wrong, *good.traffics[1:])), 4),
        (msgspec.structs.replace(good, traffics=()), 4),
    ):
        with pytest.raises(SystemExit) as end:
            end_as(run)
        assert end.value.code == code


# Code compiled from text, as in dataclasses and SQLAlchemy. If a KeyboardInterrupt passes through it, Python ends
# `python -m` by the signal even if the exception is caught.
PRESSED = '''
exec("""
import os, signal
os.kill(os.getpid(), signal.SIGINT)
while True:
    pass
""")
'''
# Python prints what is raised there, and goes on.
DROPPED = """
import os, signal

class Pressed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

Pressed()
import time

time.sleep(5)
"""


@pytest.mark.parametrize("pressed", [PRESSED, DROPPED])
@pytest.mark.parametrize(("module", "words"), [("typer", ""), ("sqlalchemy", "pyxfer: interrupted\n")])
def test_ctrl_c_during_an_import_exits_with_130(module: str, words: str, pressed: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(pressed)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    result = pyxfer("history", "--store", "none.db", cwd=tmp_path, PYTHONPATH=path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", words)


def test_only_the_first_ctrl_c_raises() -> None:
    handler = failures.InterruptHandler()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    handler(2, None)
    handler(2, None)


def test_a_late_second_ctrl_c_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    handler = failures.InterruptHandler()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    monkeypatch.setattr(failures, "PATIENCE_S", -1.0)
    handler(2, None)
    assert codes == [130]


IN_A_DESTRUCTOR = """
import signal, time
from pyxfer._cli.failures import install_interrupt_handler

class Pressed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Broken:
    def __del__(self):
        1 / 0

install_interrupt_handler()
try:
    for kind in {kinds}:
        kind()
    time.sleep(5)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


def ended_in_a_destructor(kinds: str) -> tuple[str, str]:
    script = IN_A_DESTRUCTOR.format(kinds=kinds)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return result.stdout, result.stderr


@pytest.mark.parametrize("times", [1, 3])
def test_a_dropped_ctrl_c_is_sent_again(times: int) -> None:
    assert ended_in_a_destructor(f"[Pressed] * {times}") == ("interrupted\n", "")


def test_other_unraisable_exceptions_are_printed() -> None:
    said, warned = ended_in_a_destructor("[Broken, Pressed]")
    assert (said, warned.startswith("Exception ignored in"), "CtrlC" in warned) == ("interrupted\n", True, False)
    assert warned.count("ZeroDivisionError") == 1


def test_a_panic_of_a_library_is_an_error_in_pyxfer() -> None:
    script = """
from pyxfer._cli import main

class Panic(BaseException):
    pass

def app(**_):
    raise Panic("a library in Rust")

main.app = app
main.run()
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == failures.NOT_VALID
    assert "a library in Rust" in result.stderr
