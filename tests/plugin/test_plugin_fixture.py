"""The fixture `xfer`, and the class for asv, found and run as asv finds and runs benchmarks."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from pyxfer._pytest.fixture import How, Timing, Xfer
from pyxfer.asv import Transfers
from pyxfer.errors import MeasurementError, UsageError
from pyxfer.native import Engine


@pytest.fixture
def own(link: Any) -> Xfer:
    """What a test gets as `xfer`, in host memory."""
    return Xfer(Timing("a.py::test", How("host", budget=0.05)))


def test_a_copy_has_a_bandwidth_and_a_share(suite: Any, link: Any) -> None:
    suite.write("""
        def test_copy(xfer, copying):
            with copying(1 << 20) as copy:
                xfer(copy, nbytes=1 << 20)
            found = xfer.result
            assert found.gbps == found.measurement.gbps and found.reason is None
            assert found.measurement.summary.median_s == found.elapsed_s and 0 < found.of_ceiling
    """)
    suite.run("--xfer-json=out.json", budget="300ms").assert_outcomes(passed=1)
    found = suite.only()
    gbps, ceiling = found.measurement.gbps, found.ceiling.value.gbps
    assert 0 < gbps < 0.101
    assert 0 < ceiling < 0.101
    assert found.measurement.of_ceiling > 0


class Value:
    alive: ClassVar[weakref.WeakSet[Value]] = weakref.WeakSet()

    def __init__(self) -> None:
        assert not Value.alive
        Value.alive.add(self)


def test_only_one_value_is_kept(own: Xfer) -> None:
    assert own(Value, nbytes=4096) in Value.alive


def test_a_value_of_another_size_has_a_remark(own: Xfer) -> None:
    source = np.ones(4096, np.uint8)
    own(lambda: source, nbytes=8192)
    assert "other-size" in [remark.code for remark in own.result.measurement.remarks]


def test_a_second_use_is_refused(own: Xfer) -> None:
    own(lambda: None, nbytes=4096)
    with pytest.raises(UsageError, match=r"already used in this test.*parametrize"):
        own(lambda: None, nbytes=4096)


async def a_coroutine() -> None:
    pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda own: own(None, nbytes=1), "callable; got NoneType"),
        (lambda own: own(a_coroutine, nbytes=1), "xfer would not time the work of an async "),
        (lambda own: own(print, nbytes=0), "nbytes 0 is not a whole number of at least 1: "),
        (lambda own: own(print, nbytes=True), "nbytes True is not a whole number"),
        (lambda own: own(print, nbytes=1.5), "nbytes 1.5 is not a whole number"),
        (lambda own: own(print, nbytes="64M"), "nbytes .*ambiguous"),
        (lambda own: own(print, nbytes=1, direction="up"), "'up'"),
        (lambda own: own(print, nbytes=1, stream="a"), "stream"),
        (lambda own: own.result, "not used yet in this test"),
    ],
)
def test_invalid_arguments_are_refused(own: Xfer, call: Callable[[Xfer], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(own)


@pytest.mark.parametrize("nbytes", [np.int64(4096), "4KiB"])
def test_nbytes_may_be_a_numpy_integer_or_text(own: Xfer, nbytes: Any) -> None:
    own(lambda: None, nbytes=nbytes)
    assert type(own.result.measurement.nbytes) is int
    assert own.result.measurement.nbytes == 4096


def test_further_positional_arguments_are_those_of_the_function(own: Xfer) -> None:
    assert own(int, "ff", 16, nbytes=4096) == 255


def test_the_call_is_known_with_the_packages_of_its_arrays(own: Xfer) -> None:
    own(np.copy, np.ones(4096), nbytes=4096)
    assert own.called is not None
    assert (own.called.path, own.called.source) == (Path(__file__), "own(np.copy, np.ones(4096), nbytes=4096)")
    assert "numpy" in own.called.packages


def test_an_exception_of_the_function_is_raised_unchanged(suite: Any, link: Any) -> None:
    suite.write("""
        import pytest

        def test_raises(xfer):
            calls = iter(range(5))
            def fails():
                if next(calls) == 3:  # the first that is timed
                    raise KeyError("mine")
            with pytest.raises(KeyError, match="mine"):
                xfer(fails, nbytes=4096)

        def test_fails(xfer):
            def fails():
                raise ValueError("as any other")
            xfer(fails, nbytes=4096)

        def test_skips(xfer):
            xfer(lambda: pytest.skip("not today"), nbytes=4096)

        def test_after(xfer, copying):
            with copying(4096) as copy:
                xfer(copy, nbytes=4096)
            assert xfer.result.elapsed_s
    """)
    result = suite.run("--xfer-json=out.json")
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["E * ValueError: as any other"])
    result.stdout.no_fnmatch_line("*self._timing.of*")
    assert [test.test for test in suite.session().tests] == ["test_it.py::test_after"]


def test_events_are_recorded_on_the_given_stream(own: Xfer, engine: Engine) -> None:
    with closing(engine.Stream(0)) as stream:
        own(lambda: None, nbytes=4096, stream=stream.handle)
    assert own.result.measurement.bracket == "stream"


def test_disabled_xfer_calls_once_and_uses_no_device(suite: Any) -> None:
    suite.write("""
        import sys, pytest, pyxfer

        @pytest.mark.xfer(min_of_ceiling=1.0)
        def test_call(xfer):
            calls = []
            assert xfer(lambda value: calls.append(1) or value, "value", nbytes=4096) == "value"
            assert calls == [1] and not xfer.enabled
            with pytest.raises(pyxfer.UsageError, match="check xfer.enabled"):
                xfer.result
    """)
    result = suite.bare("--xfer-disable")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*pyxfer:*")


discovery = pytest.importorskip("asv_runner.discovery")
SUITE = """
from pyxfer.asv import Transfers
import numpy as np

class Copy(Transfers):
    params = (1 << 16, 1 << 20)
    device = "host"
    budget = 0.2

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


class Nothing(Transfers):
    device = "host"
    budget = 0.1

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
