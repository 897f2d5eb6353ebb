"""Runs as metrics: read back by prometheus-client, and by promtool where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import msgspec
import pytest
from doctor.cases import copy, h200
from samples import FORMULA, SCRIPT

from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Run
from pyxfer._report.prometheus import Exported, exposition
from pyxfer.errors import UsageError

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")

NOT_READ: Fact[int] = unknown("NVML is not here")
HOSTILE = f'a"b\\c\nd{{e="f"}} {SCRIPT} {FORMULA}'


def written(*runs: Run, replays: Fact[int] = NOT_READ) -> bytes:
    return exposition([Exported(run, replays) for run in runs])


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every series that a reader finds; a series that is there twice fails the test."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in parser.text_string_to_metric_families(text.decode()):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            assert sample.timestamp is None
            found[key] = sample.value
    return found


def values(text: bytes, name: str, **labels: str) -> list[float]:
    """The values of all series that have these labels."""
    wanted = set(labels.items())
    return [value for (found, has), value in samples(text).items() if found == name and wanted <= set(has)]


def test_bandwidths_link_states_peaks_and_known_replays_have_their_labels() -> None:
    way = {"direction": "h2d", "side": "h2d", "memory": "pinned", "mode": "async", "size_bytes": str(256 << 20)}
    text = written(h200())
    assert values(text, "pyxfer_copy_bandwidth_bytes_per_second", device="0", **way) == [pytest.approx(55.55e9)]
    assert values(text, "pyxfer_copy_peak_ratio", **way) == [pytest.approx(0.9504, abs=1e-3)]
    for state in ("under_load", "slot_most", "device_most"):
        assert values(text, "pyxfer_link_generation", state=state) == [5]
        assert values(text, "pyxfer_link_lanes", state=state) == [16]
    assert values(text, "pyxfer_link_peak_bytes_per_second", direction="h2d") == [pytest.approx(58.449e9, rel=1e-4)]
    assert values(written(h200(), replays=Fact(7)), "pyxfer_link_replays_total") == [7]
    assert b"replays" not in text


def test_names_follow_the_conventions() -> None:
    names = {name.removeprefix("pyxfer_") for name, _ in samples(written(h200(), replays=Fact(1)))}
    assert names == {
        *("build_info", "device_info", "run_timestamp_seconds"),
        *("copy_bandwidth_bytes_per_second", "copy_peak_ratio"),
        *("link_generation", "link_lanes", "link_peak_bytes_per_second", "link_replays_total"),
    }


def test_two_runs_of_one_device_are_one_series() -> None:
    older = h200(environment={"taken_at": "2020-01-01T00:00:00+00:00"})
    assert values(written(h200(), older), "pyxfer_run_timestamp_seconds") == [1763713800.0]
    assert values(written(h200(measurements=())), "pyxfer_device_info") == [1]


def test_only_the_fastest_plausible_raw_copy_of_each_way_counts() -> None:
    taken_in = msgspec.structs.replace(copy("h2d", 9.0), direction="ingest", side="ingest")
    left_out = (taken_in, copy("h2d", None), copy("h2d", 20.0, variant="fresh"))
    of_workers = (copy("h2d", 50.0, worker="torch"), copy("h2d", 55.0, worker="jax"), copy("h2d", 54.0))
    for rows, rates in ((left_out, []), ((*left_out, *of_workers), [55e9])):
        text = written(h200(measurements=rows))
        assert values(text, "pyxfer_copy_bandwidth_bytes_per_second") == rates
    text = written(h200(measurements=(copy("h2d", 138.0), copy("h2d", 55.0, worker="torch"), copy("d2h", 55.0))))
    for name in ("pyxfer_copy_bandwidth_bytes_per_second", "pyxfer_copy_peak_ratio"):
        assert values(text, name, side="h2d") == []  # beyond the peak
        assert len(values(text, name, side="d2h")) == 1


@pytest.mark.parametrize(
    "text", ["2025-11-21T08:30:00.5Z", "2025-11-21T09:30:00.5+01:00", "2025-11-21T08:30:00.500000"]
)
def test_a_time_is_in_seconds_since_1970(text: str) -> None:
    assert values(written(h200(environment={"taken_at": text})), "pyxfer_run_timestamp_seconds") == [1763713800.5]


@pytest.mark.parametrize("text", ["never", "", "9999999-01-01"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        written(h200(environment={"taken_at": text}))


@pytest.mark.parametrize("name", [HOSTILE, "\x00\x1b[31m", "\udcff", "é漢"])
def test_names_are_preserved(name: str) -> None:
    text = written(h200(environment={"host": name}))
    label = name.encode(errors="backslashreplace").decode()
    assert values(text, "pyxfer_device_info", host=label) == [1]


def test_promtool_accepts_the_metrics() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    text = written(h200(environment={"host": HOSTILE}), replays=Fact(3))
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_without_prometheus_client_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"pip install prometheus-client"):
        written(h200())
