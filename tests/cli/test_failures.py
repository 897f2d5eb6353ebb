from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from command_line import pyxfer
from explain_samples import make_explain_run, make_explained
from framework_samples import make_aliased
from pages import Terminal
from samples import make_measurement, make_missing, make_parameters, make_run

from pyxfer._cli.failures import as_exit_codes, end_as, say, why_invalid
from pyxfer._document import runs
from pyxfer._document.runs import Fact, Trial, unknown
from pyxfer.errors import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DocumentError,
    MeasurementError,
    PyxferError,
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
        (DocumentError("not a run"), 2, "pyxfer: not a run\n"),
        (CudaUnavailableError(*NO_DRIVER), 3, "pyxfer: No usable GPU: Load the driver.\n"),
        (DeviceLostError(*NO_DRIVER), 4, "Load the driver."),
        (CudaMemoryError(*NO_DRIVER), 4, "Load the driver."),
        (CudaError(*NO_DRIVER), 4, "Load the driver."),
        (MeasurementError("no trial is valid"), 4, "pyxfer: no trial is valid\n"),
        (PyxferError("anything else"), 4, "pyxfer: anything else\n"),
        (MemoryError(), 4, "not enough host memory"),
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


def test_an_error_in_pyxfer_is_not_caught() -> None:
    with pytest.raises(ZeroDivisionError), as_exit_codes():
        raise ZeroDivisionError


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


def test_a_run_with_some_missing_values_is_valid() -> None:
    assert why_invalid(make_run()) == ""
    end_as(make_run())


def test_an_explained_route_that_copies_nothing_is_valid() -> None:
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", 1 << 20)
    others = make_explain_run().measurements
    parameters = make_parameters(explained=aliased.route, directions=("ingest",), sizes_bytes=(1 << 20,))
    assert why_invalid(make_explain_run(measurements=(*others, aliased), parameters=parameters)) == ""


def test_an_interrupted_run_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(lambda: end_as(make_run(ended="interrupted")), capsys) == (130, "")
