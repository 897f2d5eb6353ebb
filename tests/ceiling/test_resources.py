from __future__ import annotations

import threading

import pytest

from pyxfer._ceiling.resources import RunResources
from pyxfer.errors import CancelledError, CudaError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024


def test_a_copier_is_created_once_for_each_number_of_streams(engine: Engine) -> None:
    resources = RunResources(engine, 0, 1.0)
    assert resources.copier(1) is resources.copier(1)
    assert resources.copier(2) is not resources.copier(1)
    assert resources.close() == []
    assert testing.allocated() == []


def test_a_failed_release_is_reported_and_the_rest_is_released(engine: Engine) -> None:
    resources = RunResources(engine, 0, 1.0)
    resources.allocate(["pinned"], 4 * KIB, 0)
    resources.copier(2)
    testing.fail("cuEventDestroy", 3, 700)
    testing.fail("cudaFreeHost", 1, 1)
    faults = resources.close()
    assert [fault.partition(" ")[0] for fault in faults] == ["cuEventDestroy", "cudaFreeHost"]
    assert testing.allocated() == []


def test_cancelling_ends_the_current_copy_and_later_ones(engine: Engine) -> None:
    testing.stall("cudaMemcpyAsync", 1, 60)
    resources = RunResources(engine, 0, 30.0)
    arena = resources.allocate(["pinned"], 4 * KIB, 0)
    lane = arena.lane("h2d", "pinned", 4 * KIB)
    timer = threading.Timer(0.1, resources.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        resources.copier(1).gated("async", lane, 2, 0, 0)
    assert resources.cancelled()
    testing.stall("cudaMemcpyAsync", 1, 60)
    with pytest.raises(CancelledError):  # a bench made later is cancelled from the start
        resources.copier(2).gated("async", lane, 2, 0, 0)
    timer.join()
    testing.release_stalls()
    resources.close()


def test_a_failed_copier_leaves_nothing_allocated(engine: Engine) -> None:
    resources = RunResources(engine, 0, 1.0)
    testing.fail("cuEventCreate", 5, 2)
    with pytest.raises(CudaError, match="cuEventCreate failed"):
        resources.copier(2)
    assert testing.allocated() == []
    assert resources.close() == []
