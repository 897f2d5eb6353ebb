"""Tables as text, documents, and exit statuses of the scripts in bench/."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import shared
from samples import make_device, make_environment

from pyxfer._document.runs import Device, Environment, unknown
from pyxfer.errors import CudaUnavailableError, DocumentError, MeasurementError, PyxferError, UsageError

NO_GPU = CudaUnavailableError(100, "cudaErrorNoDevice", "cudaGetDeviceCount", "", "no CUDA-capable device", "")


class Links(msgspec.Struct):
    """A document of a script."""

    device: Device
    environment: Environment


def test_columns_after_the_first_are_right_aligned() -> None:
    text = shared.aligned(["name", "GB/s"], [["a", "1.5"], ["longer", "55.58"]])
    assert text == "name     GB/s\n------  -----\na         1.5\nlonger  55.58"


def test_a_table_without_rows_is_its_header() -> None:
    assert shared.aligned(["name"], []) == "name\n----"


def test_the_machine_line_has_driver_and_date() -> None:
    line = shared.machine_line(make_device(), make_environment(driver=unknown("no driver")))
    assert line == "NVIDIA H200, INTEL(R) XEON(R) PLATINUM 8568Y+, driver unknown, pyxfer 0.1.0, 2025-11-21"


def test_a_table_follows_the_machine_line() -> None:
    result = Links(make_device(name="<b>"), make_environment())
    machine = shared.machine_line(result.device, result.environment)
    assert shared.page(result, ["size"], [["4 KiB"]]) == f"{machine}\n\nsize\n-----\n4 KiB"
    first, *rest = shared.markdown(result, ["size"], [["4 KiB"]]).splitlines()
    assert first.startswith(r"\<b\>, ")
    assert first.endswith(".")
    assert rest[-1] == "| 4 KiB |"


def test_a_document_is_json_that_ends_with_a_newline(tmp_path: Path) -> None:
    shared.write_document(tmp_path / "device.json", make_device())
    data = (tmp_path / "device.json").read_bytes()
    assert data.endswith(b"}\n")
    assert msgspec.json.decode(data, type=type(make_device())) == make_device()


@pytest.mark.parametrize(
    ("error", "status"),
    [(UsageError("x"), 2), (DocumentError("x"), 2), (NO_GPU, 3), (MeasurementError("x"), 4)],
    ids=["usage", "bad file", "no GPU", "not valid"],
)
def test_an_error_is_printed_and_has_the_exit_status_of_its_type(
    error: PyxferError, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise error

    with pytest.raises(SystemExit) as ended:
        shared.run_script(main)
    assert ended.value.code == status
    assert capsys.readouterr().err.endswith(f": {error}\n")


def test_an_interrupt_has_status_130_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        shared.run_script(main)
    assert ended.value.code == 130
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_script_exits_with_the_status_of_main() -> None:
    with pytest.raises(SystemExit) as ended:
        shared.run_script(lambda: 1)
    assert ended.value.code == 1
