"""Runs an nvbandwidth binary and parses its JSON output.

The format is that of versions 0.5 to 0.8, as documented: an object "nvbandwidth" with "testcases", each of which has a
"bandwidth_matrix" of strings ("55.58" or "N/A") with one row for the host and one column per GPU. An "error" belongs to
the whole output or to a testcase. Plain text may precede the object.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pyxfer._document.machines import Fact, Side, unknown
from pyxfer._document.runs import Direction
from pyxfer.errors import MeasurementError, UsageError

# pyxfer's direction of each testcase, and the side whose rate it prints.
TESTCASES: dict[str, tuple[Direction, Side]] = {
    "host_to_device_memcpy_ce": ("h2d", "h2d"),
    "device_to_host_memcpy_ce": ("d2h", "d2h"),
    "host_to_device_bidirectional_memcpy_ce": ("both", "h2d"),
    "device_to_host_bidirectional_memcpy_ce": ("both", "d2h"),
}
MIB = 1 << 20
TIMEOUT_S = 180.0


class Answer(msgspec.Struct, frozen=True):
    """The output of one run of nvbandwidth: versions, and GB/s by testcase."""

    version: Fact[str]
    git_version: Fact[str]
    driver: Fact[str]
    gbps: dict[str, Fact[float]]


def check_binary(binary: Path) -> None:
    """Raise `UsageError` if the path cannot be run."""
    if shutil.which(binary) is None:
        raise UsageError(f"{str(binary)!r} is not executable; give the path of a built nvbandwidth.")


def check_sizes(sizes: Iterable[int]) -> None:
    """Raise `UsageError` if a size is not a whole number of MiB."""
    for nbytes in sizes:
        if nbytes % MIB:
            raise UsageError(f"nvbandwidth takes whole MiB, and {nbytes} bytes is not; give sizes such as 64MiB.")


def run(binary: Path, nbytes: int, device_uuid: str | None) -> Answer:
    """Run the four testcases at one size; only the device `device_uuid` is visible to nvbandwidth."""
    return read_answer(run_cases(binary, nbytes, tuple(TESTCASES), device_uuid))


def run_cases(binary: Path, nbytes: int, names: Sequence[str], visible: str | None) -> str:
    """The output of a run of these testcases. `visible`: the value of CUDA_VISIBLE_DEVICES, if not inherited."""
    command = [str(binary), "--json", "--bufferSize", str(nbytes // MIB), "--testcase", *names]
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, env=environment, check=False
        )
    except OSError as error:
        reason = f"{str(binary)!r} could not be run ({error.strerror}); give an nvbandwidth built for this machine."
        raise UsageError(reason) from error
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{binary} did not end within {TIMEOUT_S:.0f} s and was stopped.") from error
    if done.returncode < 0:
        raise MeasurementError(f"{binary} was ended by signal {-done.returncode}. {_first_line(done.stderr)}".rstrip())
    return done.stdout or done.stderr


def read_answer(text: str) -> Answer:
    """Parse the output of nvbandwidth; a testcase without a rate has the reason."""
    body = _body(text)
    cases = body.get("testcases")
    found = {case["name"]: case for case in cases or () if isinstance(case, dict) and isinstance(case.get("name"), str)}
    if body.get("error") and not found:
        raise MeasurementError(f"nvbandwidth failed: {str(body['error']).strip()}")
    gbps = {name: _rate(found.get(name), body.get("error")) for name in TESTCASES}
    return Answer(_text(body, "version"), _text(body, "git_version"), _text(body, "Driver Version"), gbps)


def read_matrices(text: str) -> dict[str, list[list[float | None]]]:
    """The matrices of all testcases that ran; None for a cell without a finite number above zero.

    Several matrices of one testcase follow each other, as those of each direction and of their total.
    """
    cases = _body(text).get("testcases")
    known = [case for case in cases or () if isinstance(case, dict) and isinstance(case.get("bandwidth_matrix"), list)]
    return {
        str(case.get("name")): [[_cell(cell) for cell in row] for row in case["bandwidth_matrix"]] for case in known
    }


def _cell(text: object) -> float | None:
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _body(text: str) -> dict[str, Any]:
    """The last object with the key "nvbandwidth": after an error the tool prints a second, more complete one."""
    body: dict[str, Any] | None = None
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict) and isinstance(value.get("nvbandwidth"), dict):
                body = value["nvbandwidth"]
        start = text.find("{", end)
    if body is None:
        first_line = _first_line(text) or "empty"
        raise MeasurementError(
            f"nvbandwidth printed no JSON result (first line: {first_line}). --json needs version 0.5 or later."
        )
    return body


def _rate(case: dict[str, Any] | None, error: object) -> Fact[float]:
    if case is None:
        return unknown(f"nvbandwidth did not run it{_because(error)}")
    status = case.get("status", "no status")
    matrix = case.get("bandwidth_matrix")
    if not matrix:
        return unknown(f"nvbandwidth reported {status}{_because(case.get('error') or error)}")
    try:
        cell = matrix[0][0]
        gbps = float(cell)
    except (TypeError, ValueError, IndexError, KeyError):
        return unknown(f"nvbandwidth printed {json.dumps(matrix)} in place of a rate")
    if not math.isfinite(gbps) or gbps <= 0:
        return unknown(f"nvbandwidth printed {cell} in place of a rate")
    return Fact(gbps)


def _because(error: object) -> str:
    return f": {str(error).strip()}" if error else ""


def _text(body: dict[str, Any], key: str) -> Fact[str]:
    value = body.get(key)
    return Fact(str(value)) if value else unknown(f'nvbandwidth printed no "{key}"')


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]
