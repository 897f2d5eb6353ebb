"""Runs of links on real GPUs: everything is verified, copies overlap, and no rate exceeds its peak."""

from __future__ import annotations

import pytest

import pyxfer
from pyxfer._document import codec
from pyxfer._document.links import HOST_END, MIN_OVERLAP, Links
from pyxfer._document.machines import MAX_SHARE

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def run() -> Links:
    return pyxfer.links(require_gpu=True, seed=1)


def test_a_run_is_complete_and_verified(run: Links) -> None:
    assert (run.ended, run.failure) == ("complete", None)
    assert all(flow.verified.value is not False for row in run.traffics for flow in row.flows)
    missing = {f"{row._summary()}" for row in run.traffics if row.gbps is None and row.peer_access is not True}
    assert not missing
    assert codec.decode(Links, codec.encode(run)) == run


def test_a_run_keeps_its_budget(run: Links) -> None:
    assert run.duration_s <= run.parameters.budget_s * 1.05


def test_valid_trials_overlap(run: Links) -> None:
    assert all(trial.overlap >= MIN_OVERLAP for row in run.traffics if len(row.flows) > 1 for trial in row.valid)


def test_no_rate_exceeds_its_peak(run: Links) -> None:
    shares = [flow.peak_share.value for row in run.traffics for flow in row.flows if flow.peak_share.value is not None]
    assert all(share <= MAX_SHARE for share in shares)


def test_latency_grows_with_the_distance_and_the_load(run: Links) -> None:
    own, host = run.latency("self").ns, run.latency("host").ns
    assert own is not None
    assert host is not None
    assert own < host
    full = run.latency("host", load=1.0)
    assert full.ns is not None
    assert full.ns > host
    assert full.load_gbps.value


def test_each_multiprocessor_is_measured(run: Links) -> None:
    row = next(row for row in run.latencies if row.target == HOST_END and row.multiprocessor_ns)
    assert row.fastest.value is not None
    assert row.slowest.value is not None
    assert row.fastest.value.ns <= row.slowest.value.ns


def test_a_batch_of_small_copies_is_faster_than_a_queue(run: Links) -> None:
    rates = {row.way: row.gbps for row in run.small if (row.device, row.direction, row.nbytes) == (0, "h2d", 4096)}
    queue, batch = rates["queue"], rates["batch"]
    if batch is None:
        pytest.skip("the driver has no cudaMemcpyBatchAsync")
    assert queue is not None
    assert batch > queue


def test_a_caller_gets_less_of_small_copies_than_the_device_does(run: Links) -> None:
    rows = [row for row in run.small if row.gbps is not None]
    assert rows
    # The device handles queued copies one at a time, with a gate before them or without: 5 % apart on an H100.
    most = {"queue": 1.1, "batch": 1.05}
    assert all(row.caller_gbps is not None and row.caller_gbps < most[row.way] * (row.gbps or 0.0) for row in rows)
    batches = [row for row in rows if (row.way, row.nbytes) == ("batch", 4096)]
    assert all((row.caller_gbps or 0.0) < 0.5 * (row.gbps or 0.0) for row in batches)


def test_pairs_and_all_gpus_together(run: Links) -> None:
    if len(run.devices) < 2:
        pytest.skip("one GPU")
    for direction in ("h2d", "d2h"):
        row = run.together(direction)
        assert row.gbps is not None
        assert row.sum_alone_gbps.value is not None
        assert row.gbps <= MAX_SHARE * row.sum_alone_gbps.value
    pair = run.pair(run.devices[0].device.index, run.devices[1].device.index)
    counted = {each.counter: each.counted.value for each in pair.counted if each.device == pair.flows[0].source}
    sent = next((each.sent for each in pair.counted if each.counter == "nvlink-sent"), 0)
    nvlink = counted.get("nvlink-sent")
    if run.peers[0].kind == "nvlink" and nvlink:
        assert nvlink == pytest.approx(sent, rel=0.1)
