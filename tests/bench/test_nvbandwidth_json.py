"""Parsing of nvbandwidth's output; the samples have its documented format."""

from __future__ import annotations

from pathlib import Path

import nvbandwidth_json
import pytest

from pyxfer.errors import MeasurementError, UsageError

H2D, D2H = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"
BOTH_H2D, BOTH_D2H = "host_to_device_bidirectional_memcpy_ce", "device_to_host_bidirectional_memcpy_ce"

VERSION_0_8 = """{
  "nvbandwidth" : {
    "CUDA Runtime Version" : 13000,
    "Driver Version" : "580.10",
    "GPU Device list" : [ "0: NVIDIA H200 (00000000:19:00): (node)" ],
    "git_version" : "v0.8",
    "testcases" : [
      {
        "bandwidth_description" : "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix" : [ [ "55.58" ] ],
        "name" : "host_to_device_memcpy_ce",
        "status" : "Passed",
        "sum" : 55.58
      },
      {
        "bandwidth_matrix" : [ [ "55.4412" ] ],
        "name" : "device_to_host_memcpy_ce",
        "status" : "Passed"
      },
      {
        "bandwidth_matrix" : [ [ "N/A" ] ],
        "name" : "host_to_device_bidirectional_memcpy_ce",
        "status" : "Passed"
      },
      {
        "name" : "device_to_host_bidirectional_memcpy_ce",
        "status" : "Waived"
      }
    ],
    "version" : "v0.8",
    "warning" : "NOTE: the buffer {64 MiB} is smaller than the default."
  }
}
"""

VERSION_0_5 = """Running host_to_device_memcpy_ce { on device 0.
{"nvbandwidth": {"testcases": [
  {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [[25.5, 12.1]], "status": "Passed"}
], "version": "v0.5"}}
NOTE: results may vary.
"""


def test_rates_are_read_from_strings() -> None:
    answer = nvbandwidth_json.read_answer(VERSION_0_8)
    assert answer.gbps[H2D].value == 55.58
    assert answer.gbps[D2H].value == 55.4412


def test_versions_are_read() -> None:
    answer = nvbandwidth_json.read_answer(VERSION_0_8)
    assert (answer.version.value, answer.git_version.value, answer.driver.value) == ("v0.8", "v0.8", "580.10")


def test_a_cell_without_a_number_gives_a_reason() -> None:
    rate = nvbandwidth_json.read_answer(VERSION_0_8).gbps[BOTH_H2D]
    assert rate.reason == 'nvbandwidth printed [["N/A"]] in place of a rate'


def test_a_waived_testcase_gives_a_reason() -> None:
    assert nvbandwidth_json.read_answer(VERSION_0_8).gbps[BOTH_D2H].reason == "nvbandwidth reported Waived"


def test_text_around_the_object_and_numbers_as_cells_are_accepted() -> None:
    assert nvbandwidth_json.read_answer(VERSION_0_5).gbps[H2D].value == 25.5


def test_the_first_column_is_the_only_visible_device() -> None:
    assert nvbandwidth_json.read_answer(VERSION_0_5).gbps[H2D].value != 12.1


def test_fields_that_an_older_version_lacks_have_a_reason() -> None:
    answer = nvbandwidth_json.read_answer(VERSION_0_5)
    assert answer.git_version.reason == 'nvbandwidth printed no "git_version"'
    assert answer.gbps[D2H].reason == "nvbandwidth did not run it"


def test_an_error_of_one_testcase_is_its_reason() -> None:
    text = f'{{"nvbandwidth": {{"testcases": [{{"name": "{H2D}", "status": "Error", "error": "no host memory "}}]}}}}'
    assert nvbandwidth_json.read_answer(text).gbps[H2D].reason == "nvbandwidth reported Error: no host memory"


def test_the_last_of_several_objects_is_used() -> None:
    first = '{"nvbandwidth": {"error": "early"}}'
    assert nvbandwidth_json.read_answer(first + VERSION_0_8).gbps[H2D].value == 55.58


def test_an_error_without_testcases_is_raised_with_its_text() -> None:
    with pytest.raises(MeasurementError, match=r"\[CUDA_ERROR_NO_DEVICE\] no device"):
        nvbandwidth_json.read_answer('{"nvbandwidth": {"error": "[CUDA_ERROR_NO_DEVICE] no device\\n"}}')


@pytest.mark.parametrize("text", [VERSION_0_8[:200], "ERROR: Invalid Arguments\n./nvbandwidth -j", "", '{"other": {}}'])
def test_output_without_a_result_is_refused(text: str) -> None:
    with pytest.raises(MeasurementError, match="no JSON result"):
        nvbandwidth_json.read_answer(text)


@pytest.mark.parametrize("cell", ['"nan"', '"-1"', '"inf"', '"0"'])
def test_an_impossible_rate_gives_a_reason(cell: str) -> None:
    text = f'{{"nvbandwidth": {{"testcases": [{{"name": "{H2D}", "bandwidth_matrix": [[{cell}]]}}]}}}}'
    reason = nvbandwidth_json.read_answer(text).gbps[H2D].reason
    assert reason is not None
    assert "in place of a rate" in reason


def program(folder: Path, body: str) -> Path:
    path = folder / "nvbandwidth"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_size_testcases_and_device_are_passed_to_the_binary(tmp_path: Path) -> None:
    binary = program(
        tmp_path,
        'printf \'{"nvbandwidth": {"version": "%s", "git_version": "%s", "testcases": []}}\''
        ' "$*" "$CUDA_VISIBLE_DEVICES"',
    )
    answer = nvbandwidth_json.run(binary, 64 << 20, "GPU-1")
    assert answer.version.value == f"--json --bufferSize 64 --testcase {H2D} {D2H} {BOTH_H2D} {BOTH_D2H}"
    assert answer.git_version.value == "GPU-1"


def test_a_size_that_is_not_whole_mib_is_refused() -> None:
    with pytest.raises(UsageError, match="4096"):
        nvbandwidth_json.check_sizes((64 << 20, 4096))


def test_a_file_that_is_not_executable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a program")
    with pytest.raises(UsageError, match="notes'"):
        nvbandwidth_json.check_binary(tmp_path / "notes")


def test_a_program_for_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nvbandwidth").write_bytes(b"\x7fELF of another kind")
    (tmp_path / "nvbandwidth").chmod(0o755)
    with pytest.raises(UsageError, match="Exec format error"):
        nvbandwidth_json.run(tmp_path / "nvbandwidth", 64 << 20, None)


def test_a_binary_that_crashes_is_reported_with_its_signal(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"signal 6\b.*no luck"):
        nvbandwidth_json.run(program(tmp_path, "echo no luck >&2; kill -ABRT $$"), 64 << 20, None)


def test_a_binary_that_prints_no_json_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="cannot load libcuda"):
        nvbandwidth_json.run(program(tmp_path, "echo cannot load libcuda >&2; exit 127"), 64 << 20, None)
