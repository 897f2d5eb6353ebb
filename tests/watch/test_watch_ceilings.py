"""Ceilings: raw copies at the sizes of a window's copies, and interpolation between two sizes."""

from __future__ import annotations

import pytest
from msgspec import structs
from samples import KIB, MIB, make_run
from watch.copying import copies, session, window_of

from pyxfer._document.runs import Run
from pyxfer._watch.ceilings import RunCeilings, measure_ceilings, sizes_to_measure
from pyxfer._watch.options import checked_ceilings
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing


def gbps(ceilings: RunCeilings, nbytes: int) -> float:
    found = ceilings.gbps("h2d", "pinned", nbytes)
    assert found.value is not None, found.reason
    return found.value


@pytest.fixture
def run() -> Run:
    """A saved run with two sizes."""
    return make_run()


def best_s(run: Run, nbytes: int) -> float:
    rows = [row for row in run.measurements if (row.direction, row.memory, row.nbytes) == ("h2d", "pinned", nbytes)]
    return min(row.elapsed_s for row in rows if row.elapsed_s is not None)


def test_the_ceiling_at_a_measured_size_is_the_measurement(run: Run) -> None:
    assert gbps(RunCeilings(run), 16 * MIB) == pytest.approx(16 * MIB / best_s(run, 16 * MIB) / 1e9)


def test_the_time_between_two_sizes_is_interpolated_in_logarithms(run: Run) -> None:
    middle = 256 * KIB  # as many octaves from 4 KiB as from 16 MiB
    seconds = (best_s(run, 4 * KIB) * best_s(run, 16 * MIB)) ** 0.5
    assert gbps(RunCeilings(run), middle) == pytest.approx(middle / seconds / 1e9)


def test_below_the_smallest_size_the_time_is_constant(run: Run) -> None:
    assert gbps(RunCeilings(run), 4) == pytest.approx(4 / best_s(run, 4 * KIB) / 1e9)


def test_above_the_largest_size_the_rate_is_constant(run: Run) -> None:
    ceilings = RunCeilings(run)
    assert gbps(ceilings, 1024 * MIB) == pytest.approx(gbps(ceilings, 16 * MIB))


def test_memory_that_was_not_measured_has_no_ceiling_and_the_reason(run: Run) -> None:
    found = RunCeilings(run).gbps("h2d", "write-combined", 4096)
    assert found.reason == "no ceiling was measured for h2d and write-combined memory"


def test_a_staged_copy_is_not_a_ceiling(run: Run) -> None:
    staged = structs.replace(run.measurements[0], memory="pageable", mode="staged", route="raw.pageable-staged")
    found = RunCeilings(structs.replace(run, measurements=(staged,))).gbps("h2d", "pageable", staged.nbytes)
    assert found.reason == "no ceiling was measured for h2d and pageable memory"


def test_close_sizes_are_measured_as_one(engine: Engine) -> None:
    with session() as watched:
        for nbytes in (8 * KIB, 10 * KIB, MIB):
            with copies(nbytes) as made:
                made.send()
    directions, sizes = sizes_to_measure(window_of(watched))
    assert directions == ("h2d",)
    assert sizes == (9 * KIB, MIB)


@pytest.mark.slow
def test_ceilings_are_measured_on_the_device_of_the_window(engine: Engine) -> None:
    testing.model_link(1e8, 20e-6, 1e8, 20e-6)  # 40 ms a copy: a pause of a few milliseconds makes no difference
    with copies(4 * MIB) as made, session() as watched:
        made.send()
    assert watched.target is not None
    ceilings, remarks = measure_ceilings(window_of(watched), watched.target)
    assert ceilings.gbps("h2d", "pinned", 4 * MIB).value == pytest.approx(0.1, rel=0.15)
    assert ceilings.gbps("d2h", "pinned", 4 * MIB).value is None
    assert remarks == ()


def test_nothing_is_measured_for_a_window_without_copies(engine: Engine) -> None:
    with session() as watched:
        pass
    assert watched.target is not None
    before = testing.calls()
    ceilings, _ = measure_ceilings(window_of(watched), watched.target)
    assert testing.calls() == before
    assert ceilings.gbps("h2d", "pinned", 4096).reason == "nothing crossed the link in this window"


def test_a_device_that_fails_leaves_the_reason_and_a_remark(engine: Engine) -> None:
    with copies() as made, session() as watched:
        made.send()
    testing.fail("cudaMalloc", 1, 2)
    assert watched.target is not None
    ceilings, remarks = measure_ceilings(window_of(watched), watched.target)
    assert "the ceiling could not be measured: " in (ceilings.gbps("h2d", "pinned", 4096).reason or "")
    assert [remark.code for remark in remarks] == ["no-ceiling"]


def test_ceilings_that_are_neither_a_run_nor_a_path_are_refused() -> None:
    with pytest.raises(UsageError, match="the path of a saved run, or None"):
        checked_ceilings(7)  # type: ignore[arg-type]
