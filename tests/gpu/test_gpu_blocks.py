"""Blocks between pools on a GPU: every method, indices on the device, graphs, streams and the measured choice."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import import_or_skip

import pyxfer
from pyxfer._document.blocks import BlockMethod
from pyxfer._upload.settings import CACHE_VARIABLE
from pyxfer.errors import UsageError

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
BLOCKS = 3000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))


@pytest.fixture
def torch() -> Any:
    return import_or_skip("torch")


def pool(kind: str, nbytes: int) -> NDArray[np.uint8]:
    make = pyxfer.empty_pinned if kind == "pinned" else np.empty
    made = cast("NDArray[np.uint8]", make((BLOCKS, nbytes), np.uint8))
    made[:] = np.random.default_rng(nbytes).integers(0, 256, made.shape, np.uint8)
    return made


def places(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(BLOCKS)[:count].astype(np.int64)


def on_host(tensor: Any) -> NDArray[np.uint8]:
    return cast("NDArray[np.uint8]", tensor.cpu().numpy())


@pytest.mark.parametrize("count", [1, 16, 257, 2999])
@pytest.mark.parametrize("nbytes", [16, 4096, 20000])
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *(("pinned", method) for method in ("auto", "loop", "batch", "kernel", "packed")),
        *(("pageable", method) for method in ("auto", "loop", "packed")),
    ],
)
def test_blocks_arrive_both_ways_and_nothing_else_changes(
    torch: Any, kind: str, method: BlockMethod, nbytes: int, count: int
) -> None:
    host, back = pool(kind, nbytes), pool(kind, nbytes)
    sources, destinations = places(count, 1), places(count, 2)
    with torch.cuda.stream(torch.cuda.Stream()):
        device = torch.full((BLOCKS, nbytes), 7, dtype=torch.uint8, device="cuda")
        pyxfer.copy_blocks(host, device, sources, destinations, method=method)
        expected = np.full((BLOCKS, nbytes), 7, np.uint8)
        expected[destinations] = host[sources]
        assert np.array_equal(on_host(device), expected)
        expected = back.copy()
        pyxfer.copy_blocks(device, back, destinations, sources, method=method)
    expected[sources] = host[sources]
    assert np.array_equal(back, expected)


def test_steps_are_one_copy_in_two_dimensions(torch: Any) -> None:
    host = pool("pinned", 4096)
    device = torch.zeros((BLOCKS, 4096), dtype=torch.uint8, device="cuda")
    pyxfer.copy_blocks(host, device, np.arange(0, 900, 3), np.arange(5, 305), method="strided")
    assert np.array_equal(on_host(device)[5:305], host[0:900:3])
    assert not on_host(device)[305:].any()


def test_indices_on_the_device(torch: Any) -> None:
    host = pool("pinned", 4096)
    device = torch.zeros((BLOCKS, 4096), dtype=torch.uint8, device="cuda")
    sources, destinations = (torch.from_numpy(places(1000, seed)).cuda() for seed in (3, 4))
    pyxfer.copy_blocks(host, device, sources, destinations)
    assert np.array_equal(on_host(device[destinations]), host[sources.cpu().numpy()])
    sources[3] = BLOCKS
    with pytest.raises(UsageError, match="outside its pool"):
        pyxfer.copy_blocks(host, device, sources, destinations)


def test_a_graph_copies_what_the_pool_holds_at_each_replay(torch: Any) -> None:
    host = pool("pinned", 4096)
    device = torch.zeros((BLOCKS, 4096), dtype=torch.uint8, device="cuda")
    sources, destinations = places(200, 5), places(200, 6)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    pyxfer.copy_blocks(host, device, sources[:1], destinations[:1])  # what a capture forbids is done before it
    device.zero_()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        pyxfer.copy_blocks(host, device, sources, destinations, block=False)
    assert not on_host(device).any()
    for seed in range(3):
        host[:] = np.random.default_rng(seed).integers(0, 256, host.shape, np.uint8)
        graph.replay()
        torch.cuda.synchronize()
        assert np.array_equal(on_host(device)[destinations], host[sources])


def test_copies_are_ordered_with_the_work_of_the_stream(torch: Any) -> None:
    host, back = pool("pinned", 1 << 14), pool("pinned", 1 << 14)
    everything = np.arange(BLOCKS)
    with torch.cuda.stream(torch.cuda.Stream()):
        device = torch.zeros((BLOCKS, 1 << 14), dtype=torch.uint8, device="cuda")
        for method in ("kernel", "batch", "loop"):
            pyxfer.copy_blocks(host, device, everything, places(BLOCKS, 7), block=False, method=method)
            device.add_(1)
            pyxfer.copy_blocks(device, back, places(BLOCKS, 7), everything, block=False, method=method)
            torch.cuda.current_stream().synchronize()
            assert np.array_equal(back, host + np.uint8(1))


def test_a_batch_is_refused_on_the_legacy_stream(torch: Any) -> None:
    device = torch.zeros((BLOCKS, 64), dtype=torch.uint8, device="cuda")
    with pytest.raises(UsageError, match="legacy default stream"):
        pyxfer.copy_blocks(pool("pinned", 64), device, [1, 5], [2, 9], method="batch")


def test_the_first_choice_is_measured_and_kept(torch: Any, tmp_path: Path) -> None:
    from pyxfer._blocks import api

    for shared in api._shared.values():
        shared.choices.clear()
    host = pool("pinned", 4096)
    device = torch.zeros((BLOCKS, 4096), dtype=torch.uint8, device="cuda")
    pyxfer.copy_blocks(host, device, places(500, 8), places(500, 9))
    (made,) = {choices for shared in api._shared.values() for choices in shared.choices}
    assert made is not None
    assert made.thresholds.made_by == "calibration"
    assert list(tmp_path.rglob("blocks.json"))


def test_kernels_that_copy_and_that_compute_are_timed_beside_blocks() -> None:
    run = pyxfer.blocks(size="64KiB", count="512", memory="pinned", order="random", budget=10, seed=1)
    assert run.blocks is not None
    found = run.blocks.beside.value or ()
    assert {(each.work, each.direction) for each in found} == set(product(("copy", "compute"), ("h2d", "d2h")))
