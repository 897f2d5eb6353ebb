"""The order of the readings of both tools, and the table made from them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import peers
import pytest
from samples import make_device, make_environment, make_measurement, make_missing, make_run

import pyxfer
from pyxfer._document.runs import Fact, Rate, Run, unknown
from pyxfer.errors import UsageError

SIZE = 64 << 20


def reading(tool: peers.Tool, number: int, gbps: float | None, test: peers.Test = ("h2d", "h2d")) -> peers.Reading:
    rate = unknown("out of memory") if gbps is None else Fact(gbps)
    return peers.Reading(tool, number, *test, SIZE, rate)


def row_of(readings: list[peers.Reading], tolerance: float = 0.005) -> peers.Row:
    return peers.compare(readings, tolerance)[0]


def in_rounds(tool: peers.Tool, *gbps: float | None) -> list[peers.Reading]:
    return [reading(tool, number, value) for number, value in enumerate(gbps)]


def test_the_rates_are_the_medians_of_the_rounds() -> None:
    row = row_of(in_rounds("nvbandwidth", 55.0, 54.0, 56.0) + in_rounds("pyxfer", 50.0, 55.1, 60.0))
    assert (row.nvbandwidth_gbps.value, row.pyxfer_gbps.value) == (55.0, 55.1)


def test_the_difference_is_taken_inside_each_round() -> None:
    drifting = row_of(in_rounds("nvbandwidth", 50.0, 40.0, 55.0) + in_rounds("pyxfer", 50.1, 40.08, 55.11))
    assert drifting.difference.value == pytest.approx(0.002)
    assert drifting.within


@pytest.mark.parametrize(("gbps", "within"), [(50.25, True), (49.75, True), (50.26, False), (49.7, False)])
def test_a_difference_up_to_the_tolerance_passes_in_either_direction(gbps: float, within: bool) -> None:
    assert row_of(in_rounds("nvbandwidth", 50.0) + in_rounds("pyxfer", gbps), 0.0050001).within is within


def test_a_round_with_one_reading_does_not_count() -> None:
    row = row_of(in_rounds("nvbandwidth", 50.0, 50.0) + in_rounds("pyxfer", None, 50.1))
    assert row.difference.value == pytest.approx(0.002)


def test_a_test_without_readings_of_one_tool_fails_with_the_reason() -> None:
    row = row_of(in_rounds("nvbandwidth", 50.0) + in_rounds("pyxfer", None))
    assert row.pyxfer_gbps.reason == "out of memory"
    assert row.difference.reason == "no round has both"
    assert not row.within


def document(readings: list[peers.Reading]) -> peers.Peers:
    return peers.Peers(
        device=make_device(),
        environment=make_environment(),
        nvbandwidth_version=Fact("v0.8"),
        nvbandwidth_git_version=Fact("v0.8"),
        nvbandwidth_driver=Fact("580.10"),
        tolerance=0.005,
        rounds=1,
        rows=peers.compare(readings, 0.005),
        readings=tuple(readings),
    )


def test_the_table_has_test_size_rates_difference_and_verdict() -> None:
    both: peers.Test = ("both", "d2h")
    pair = [reading("nvbandwidth", 0, 50.69, both), reading("pyxfer", 0, 50.5, both)]
    lines = peers.table(document(pair)).splitlines()
    assert lines[0].split("  ")[-1].strip() == "within 0.5 %"
    assert lines[5].split() == ["both,", "d2h", "side", "64", "MiB", "50.69", "50.50", "-0.37", "%", "yes"]


def test_the_table_has_the_reason_of_a_missing_rate() -> None:
    text = peers.table(document(in_rounds("nvbandwidth", 50.0) + in_rounds("pyxfer", None)))
    assert "h2d at 64 MiB, pyxfer: out of memory" in text


def test_the_document_survives_json() -> None:
    before = document(in_rounds("nvbandwidth", 50.0) + in_rounds("pyxfer", 50.1))
    assert msgspec.json.decode(msgspec.json.encode(before), type=peers.Peers) == before


def test_each_round_reverses_the_order_of_tools_and_sizes() -> None:
    seen: list[tuple[str, int, int]] = []

    def tool(name: str) -> peers.Read:
        def read(number: int, nbytes: int) -> list[peers.Reading]:
            seen.append((name, number, nbytes))
            return []

        return read

    peers.interleave((tool("a"), tool("b")), (1, 2), 2)
    first = [("a", 0, 1), ("b", 0, 1), ("a", 0, 2), ("b", 0, 2)]
    assert seen == [*first, ("b", 1, 2), ("a", 1, 2), ("b", 1, 1), ("a", 1, 1)]


def test_a_reading_is_the_measurement_of_that_direction_side_and_size() -> None:
    nbytes = 16 << 20
    both = make_measurement(nbytes, "d2h", direction="both")
    run = make_run(measurements=(make_measurement(nbytes, "d2h"), both))
    found = peers.from_run(run, 0, ("both", "d2h"), nbytes)
    assert (found.gbps.value, found.summary) == (both.gbps, both.summary)


def test_a_measurement_without_a_rate_keeps_its_reason() -> None:
    run = make_run(measurements=(make_missing("the gate timed out"),))
    assert peers.from_run(run, 0, ("h2d", "h2d"), 16 << 20).gbps.reason == "the gate timed out"


def test_a_missing_measurement_has_a_reason() -> None:
    found = peers.from_run(make_run(measurements=()), 0, ("h2d", "h2d"), SIZE)
    assert found.gbps.value is None
    assert found.gbps.reason


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [("--rounds", "0", "at least 1"), ("--sizes", "4KiB", "whole MiB"), ("--tolerance", "2", "share")],
)
def test_bad_options_are_refused_before_anything_runs(option: str, value: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        peers.main(["--nvbandwidth", "nvbandwidth", option, value])


PRINTED = """cat <<'END'
{"nvbandwidth": {"version": "v0.8", "testcases": [
  {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["55.45"]]},
  {"name": "device_to_host_memcpy_ce", "bandwidth_matrix": [["55.37"]]},
  {"name": "host_to_device_bidirectional_memcpy_ce", "bandwidth_matrix": [["52.43"]]},
  {"name": "device_to_host_bidirectional_memcpy_ce", "bandwidth_matrix": [["50.51"]]}
]}}
END"""
CEILING: dict[peers.Test, float] = {
    ("h2d", "h2d"): 55.46,
    ("d2h", "d2h"): 55.36,
    ("both", "h2d"): 52.40,
    ("both", "d2h"): 50.60,
}


def ceiling(sizes: tuple[int, ...], **_: object) -> Run:
    """Stands in for `pyxfer.ceiling` on a GPU."""
    made = [
        msgspec.structs.replace(make_measurement(side=side), direction=direction, nbytes=sizes[0], rate=fact(gbps))
        for (direction, side), gbps in CEILING.items()
    ]
    return make_run(measurements=tuple(made))


def fact(gbps: float) -> Fact[Rate]:
    return Fact(Rate(gbps=gbps, low_gbps=None, high_gbps=None))


@pytest.mark.parametrize(("tolerance", "status"), [("0.5%", 0), ("0.1%", 1)])
def test_the_script_prints_the_table_writes_the_document_and_exits_by_the_tolerance(
    tolerance: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pyxfer, "ceiling", ceiling, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("nvbandwidth").write_text(f"#!/bin/sh\n{PRINTED}\n")
    Path("nvbandwidth").chmod(0o755)
    options = ["--nvbandwidth", "nvbandwidth", "--tolerance", tolerance, "--rounds", "2", "--export-json", "peers.json"]
    assert peers.main(options) == status
    written = msgspec.json.decode(Path("peers.json").read_bytes(), type=peers.Peers)
    assert len(written.readings) == 2 * 2 * 2 * 4
    assert peers.table(written) in capsys.readouterr().out
