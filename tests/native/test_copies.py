from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from native.scenarios import NBYTES, SEED, lanes

from pyxfer.errors import CancelledError, DeviceTimeoutError
from pyxfer.native import Engine
from pyxfer.native._cuda import Copier, Lane
from pyxfer.native._host import testing

# Slower than this machine's memory, and different in the two directions.
H2D, D2H = 200e6, 100e6
LATENCY_S = 50e-6
ONCE_S = {"h2d": LATENCY_S + NBYTES / H2D, "d2h": LATENCY_S + NBYTES / D2H}


pytestmark = pytest.mark.usefixtures("protected_memory")


@pytest.fixture
def modelled(engine: Engine) -> Engine:
    testing.model_link(H2D, LATENCY_S, D2H, LATENCY_S)
    return engine


@pytest.fixture
def bench(modelled: Engine) -> Iterator[tuple[Copier, dict[str, Lane]]]:
    with lanes(modelled) as (h2d, d2h, _), closing(modelled.Copier(0, 2)) as copier:
        yield copier, {"h2d": h2d, "d2h": d2h}


def verified(engine: Engine, lane: Lane, scratch: tuple[int, int], copy: Callable[[], object]) -> bool:
    engine.prepare_check(0, lane, 0, SEED, scratch)
    copy()
    return engine.first_wrong(0, lane, 0, SEED, scratch, False) is None


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_gated_window_takes_the_modelled_time(bench: tuple[Copier, dict[str, Lane]], direction: str) -> None:
    copier, lane = bench
    sample = copier.gated("async", lane[direction], 8, 2, 0)
    assert (sample.copies, sample.invalid, sample.wall_s) == (8, "", None)
    assert sample.dispatch_s > 0
    assert sample.elapsed_s == pytest.approx(ONCE_S[direction], rel=1e-5)


def test_queued_copies_both_ways_overlap(bench: tuple[Copier, dict[str, Lane]]) -> None:
    copier, lane = bench
    h2d, d2h = copier.both_gated(lane["h2d"], lane["d2h"], 6, 2, (20, 6), 0)
    assert (h2d.invalid, d2h.invalid) == ("", "")
    assert h2d.elapsed_s == pytest.approx(ONCE_S["h2d"], rel=1e-5)
    assert d2h.elapsed_s == pytest.approx(ONCE_S["d2h"], rel=1e-5)


@pytest.mark.threads
@pytest.mark.parametrize("how", ["gated", "on_stream", "both_gated", "both_threads"])
def test_a_stuck_copy_can_be_cancelled(engine: Engine, how: str) -> None:
    testing.stall("cudaMemcpyAsync", 1, 60)
    with lanes(engine) as (h2d, d2h, _), closing(engine.Copier(0, 2)) as copier:
        calls: dict[str, Callable[[], object]] = {
            "gated": lambda: copier.gated("async", h2d, 4, 0, 0),
            "on_stream": lambda: copier.on_stream("async", h2d, 0),
            "both_gated": lambda: copier.both_gated(h2d, d2h, 4, 1, (1, 1), 0),
            "both_threads": lambda: copier.both_threads(h2d, d2h, 4, 0),
        }
        later = threading.Timer(0.1, copier.cancel)
        later.start()
        with pytest.raises(CancelledError, match="cancelled during"):
            calls[how]()
        later.join()
        testing.release_stalls()
    engine.take_cleanup_failures()


@pytest.mark.parametrize("how", ["gated", "both_gated"])
def test_a_stuck_copy_times_out(engine: Engine, how: str) -> None:
    testing.stall("cudaMemcpyAsync", 1, 60)
    with lanes(engine) as (h2d, d2h, _), closing(engine.Copier(0, 2, patience_s=0.1)) as copier:
        calls: dict[str, Callable[[], object]] = {
            "gated": lambda: copier.gated("async", h2d, 4, 0, 0),
            "both_gated": lambda: copier.both_gated(h2d, d2h, 4, 1, (1, 1), 0),
        }
        with pytest.raises(DeviceTimeoutError, match=r"did not finish .* within 0\.1 s\..*nvidia-smi"):
            calls[how]()
        testing.release_stalls()
    engine.take_cleanup_failures()
