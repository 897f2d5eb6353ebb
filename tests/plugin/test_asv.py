"""The class for asv, found and run as asv finds and runs benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyxfer.asv import Transfers
from pyxfer.errors import MeasurementError

discovery = pytest.importorskip("asv_runner.discovery")

SUITE = """
from pyxfer.asv import Transfers
import numpy as np

class Copy(Transfers):
    params = (1 << 16, 1 << 20)
    device = "host"
    budget_s = 0.2

    def setup(self, nbytes):
        super().setup(nbytes)
        self.source = np.ones(nbytes, np.uint8)
        self.target = np.empty_like(self.source)

    def transfer(self, nbytes):
        np.copyto(self.target, self.source)
"""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The benchmarks that asv discovers in a suite."""
    folder = tmp_path / "own_benchmarks"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "copies.py").write_text(SUITE)
    monkeypatch.syspath_prepend(tmp_path)
    yield {each.name: each for each in discovery.disc_benchmarks(str(folder))}
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_benchmarks"]:
        del sys.modules[name]


def test_asv_finds_subclasses_and_not_the_base(found: dict[str, Any]) -> None:
    assert set(found) == {f"copies.Copy.{name}" for name in ("time_transfer", "track_bandwidth", "track_of_ceiling")}


def test_asv_knows_sizes_and_units(found: dict[str, Any]) -> None:
    units = {name.rpartition(".")[2]: each.unit for name, each in found.items()}
    assert units == {"time_transfer": "seconds", "track_bandwidth": "GB/s", "track_of_ceiling": "share of the ceiling"}
    for each in found.values():
        assert [list(map(int, sizes)) for sizes in each.params] == [[1 << 16, 1 << 20]]
        assert each.param_names == ["nbytes"]


@pytest.mark.parametrize("name", ["track_bandwidth", "track_of_ceiling"])
def test_asv_runs_the_tracked_methods(found: dict[str, Any], name: str) -> None:
    benchmark = found[f"copies.Copy.{name}"]
    benchmark.set_param_idx(1)
    assert not benchmark.do_setup()
    assert benchmark.do_run() > 0
    benchmark.do_teardown()


def test_asv_runs_the_timed_method(found: dict[str, Any]) -> None:
    benchmark = found["copies.Copy.time_transfer"]
    benchmark.set_param_idx(0)
    assert not benchmark.do_setup()
    benchmark.func(1 << 16)


class Nothing(Transfers):
    device = "host"
    budget_s = 0.1

    def transfer(self, nbytes: int) -> None:
        pass


def test_an_impossible_bandwidth_is_an_error() -> None:
    each = Nothing()
    each.setup(1 << 24)
    with pytest.raises(MeasurementError, match="not all bytes moved"):
        each.track_bandwidth(1 << 24)


def test_without_a_gpu_asv_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyxfer.native import load

    try:
        load("cuda").device_count()
    except Exception:  # noqa: BLE001 - any error means that no GPU is usable
        monkeypatch.setattr(Nothing, "device", 0)
        with pytest.raises(NotImplementedError, match="no usable GPU"):
            Nothing().setup(4096)
    else:
        pytest.skip("there is a GPU")
