"""Flows on real GPUs, and runs of links: contents, latencies, overlap, and rates below their peaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from native.scenarios import HOST, Flows, durations_s

import pyxfer
from pyxfer._document import codec
from pyxfer._document.links import HOST_END, MIN_OVERLAP, Links
from pyxfer._document.machines import MAX_SHARE

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import FlowStamps

pytestmark = pytest.mark.gpu

MIB = 1 << 20
NBYTES = 64 * MIB
HOPS = 4096
SEED = 3
SECONDS = 0.2
MULTIPROCESSOR_COUNT = 16


@pytest.fixture
def flows(gpu_engine: Engine) -> Iterator[Flows]:
    with Flows(gpu_engine) as made:
        yield made
    assert gpu_engine.take_cleanup_failures() == []


@pytest.fixture
def two_peers(gpu_engine: Engine) -> None:
    if gpu_engine.device_count() < 2 or not gpu_engine.can_access_peer(0, 1) or not gpu_engine.can_access_peer(1, 0):
        pytest.skip("this needs two GPUs that can access each other's memory")


def rate(stamps: FlowStamps, nbytes: int = NBYTES) -> float:
    """Bytes per second of the flow's items while they ran."""
    return nbytes / float(np.median(durations_s(stamps)))


def overlap(found: list[FlowStamps]) -> float:
    """The time in which all were busy, as a share of that in which any was."""
    begins = [int(stamps.begin_ns[0]) for stamps in found]
    ends = [int(stamps.end_ns[-1]) for stamps in found]
    return (min(ends) - max(begins)) / (max(ends) - min(begins))


def assert_in_order(found: list[FlowStamps]) -> None:
    for stamps in found:
        assert (durations_s(stamps) > 0).all()
        assert (stamps.begin_ns[1:] >= stamps.end_ns[:-1]).all()
        assert not stamps.late
        assert 0 < stamps.clock_error_ns < 100e3


def test_the_driver_makes_the_kernels_for_each_device(gpu_engine: Engine) -> None:
    for device in range(gpu_engine.device_count()):
        with closing(gpu_engine.Kernels(device)) as kernels:
            assert 0 < kernels.load_s < 20


@pytest.mark.parametrize("engine_word", ["ce", "sm"])
@pytest.mark.parametrize(("source", "destination"), [(HOST, 0), (0, HOST), (0, 0)])
@pytest.mark.parametrize("nbytes", [16, 16 * 4099, NBYTES + 16 * 77])
def test_copies_are_complete(
    flows: Flows, engine_word: Literal["ce", "sm"], source: int, destination: int, nbytes: int
) -> None:
    _assert_copied(flows, engine_word, source, destination, nbytes, 0)


@pytest.mark.parametrize("engine_word", ["ce", "sm"])
@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("access", [True, False])
def test_copies_between_peers_are_complete(
    flows: Flows, two_peers: None, engine_word: Literal["ce", "sm"], by: int, access: bool
) -> None:
    for pair in ((0, 1), (1, 0)):
        (flows.engine.enable_peer if access else flows.engine.disable_peer)(*pair)
    _assert_copied(flows, engine_word, 0, 1, NBYTES + 16 * 77, by)


def _assert_copied(
    flows: Flows, engine_word: Literal["ce", "sm"], source: int, destination: int, nbytes: int, by: int
) -> None:
    engine, around = flows.engine, 4096
    memory = {side: flows.memory(side, nbytes + around) for side in {source, destination}}
    at_source = memory[source]
    at_destination = memory[destination] if source != destination else flows.memory(destination, nbytes + around)
    for side, address, seed in ((source, at_source, SEED), (destination, at_destination, SEED + 1)):
        if side == HOST:
            engine.fill(address, nbytes + around, seed)
        else:
            engine.fill_device(side, address, nbytes + around, seed)
    flow = flows.copy(
        source, destination, nbytes, by=by, engine=engine_word, source=at_source, destination=at_destination, depth=1
    )
    assert_in_order(flows.run(flow))
    if destination == HOST:
        assert engine.first_unlike(at_destination, nbytes, SEED) is None
        behind = engine.first_unlike(at_destination, nbytes + around, SEED + 1)
    else:
        assert engine.first_wrong_at(destination, at_destination, nbytes, SEED) is None
        behind = engine.first_wrong_at(destination, at_destination, nbytes + around, SEED + 1)
    assert behind is not None  # the first bytes are not those of before
    assert behind < nbytes


def test_a_kernel_writes_nothing_behind_the_end(flows: Flows) -> None:
    engine, nbytes = flows.engine, 16 * 4099
    source, destination = flows.memory(HOST, nbytes), flows.memory(HOST, nbytes)
    middle = flows.memory(0, nbytes)
    engine.fill(source, nbytes, SEED)
    engine.fill(destination, nbytes, SEED + 1)
    flows.run(flows.copy(HOST, 0, nbytes, engine="sm", source=source, destination=middle, depth=1))
    flows.run(flows.copy(0, HOST, nbytes - 16, engine="sm", source=middle, destination=destination, depth=1))
    assert engine.first_unlike(destination, nbytes, SEED) in range(nbytes - 16, nbytes)
    assert engine.first_unlike(destination, nbytes - 16, SEED) is None


@pytest.mark.parametrize("gate", ["kernel", "host"])
def test_both_directions_overlap_on_one_gpu(flows: Flows, gate: Literal["kernel", "host"]) -> None:
    found = flows.run(flows.copy(HOST, 0, NBYTES), flows.copy(0, HOST, NBYTES), seconds=SECONDS, gate=gate)
    assert_in_order(found)
    assert [stamps.gate for stamps in found] == [gate, gate]
    assert overlap(found) > 0.9
    assert abs(int(found[0].begin_ns[0]) - int(found[1].begin_ns[0])) < 200e3


def test_all_gpus_copy_at_the_same_time(flows: Flows) -> None:
    found = flows.run(
        *(flows.copy(HOST, device, NBYTES) for device in range(flows.engine.device_count())), seconds=SECONDS
    )
    assert_in_order(found)
    assert overlap(found) > 0.9


def test_a_flow_has_the_rate_of_a_gated_window(flows: Flows) -> None:
    engine = flows.engine
    host, device = flows.memory(HOST, NBYTES), flows.memory(0, NBYTES)
    with closing(engine.Copier(0)) as copier:
        windows = [
            copier.gated("async", engine.Lane("h2d", host, device, NBYTES, NBYTES, 1), 4, 1, 0) for _ in range(9)
        ]
    (stamps,) = flows.run(flows.copy(HOST, 0, NBYTES, source=host, destination=device), seconds=SECONDS)
    assert rate(stamps) == pytest.approx(NBYTES / float(np.median([each.elapsed_s for each in windows])), rel=0.03)


@pytest.mark.parametrize(("source", "destination"), [(HOST, 0), (0, HOST)])
def test_a_kernel_nearly_has_the_rate_of_the_copy_engine(flows: Flows, source: int, destination: int) -> None:
    rates = [
        rate(flows.run(flows.copy(source, destination, NBYTES, engine=word), seconds=SECONDS)[0])
        for word in ("ce", "sm")
    ]
    assert 0.7 < rates[1] / rates[0] < 1.1


def test_a_paced_flow_has_its_pace(flows: Flows) -> None:
    (full,) = flows.run(flows.copy(HOST, 0, MIB), seconds=SECONDS)
    (half,) = flows.run(flows.copy(HOST, 0, MIB, pace_bytes_per_s=rate(full, MIB) / 2), seconds=SECONDS)
    assert len(half.end_ns) == pytest.approx(len(full.end_ns) / 2, rel=0.1)


def test_a_hop_takes_the_time_of_a_round_trip(flows: Flows) -> None:
    far, near = flows.chase(0, HOST, 2 * MIB, HOPS), flows.chase(0, 0, 2 * MIB, HOPS)
    (host,) = flows.run(far, seconds=0.05)
    (local,) = flows.run(near, seconds=0.05)
    host_ns, local_ns = (float(np.median(stamps.kernel_ns)) / HOPS for stamps in (host, local))
    assert 200 < host_ns < 3000
    assert 20 < local_ns < host_ns
    for stamps in (host, local):
        assert_in_order([stamps])
        assert 0.2 < float(np.median(stamps.cycles / stamps.kernel_ns)) < 4  # GHz
        assert (stamps.kernel_ns <= (stamps.end_ns - stamps.begin_ns) * 1.01 + 2000).all()


def test_a_chase_goes_through_the_multiprocessors(flows: Flows) -> None:
    count = flows.engine.device_attribute(0, MULTIPROCESSOR_COUNT)
    (stamps,) = flows.run(flows.chase(0, HOST, MIB, 64, multiprocessor=-2), seconds=SECONDS)
    wanted = np.arange(len(stamps.multiprocessor)) % count
    ran = stamps.multiprocessor >= 0
    assert (stamps.multiprocessor[ran] == wanted[ran]).all()
    assert ran.mean() > 0.8  # a block may not get the wanted one, and a slice of a GPU has others


def test_a_chase_runs_on_one_multiprocessor(flows: Flows) -> None:
    (stamps,) = flows.run(flows.chase(0, HOST, MIB, 64, multiprocessor=1), seconds=0.01)
    assert set(stamps.multiprocessor.tolist()) <= {1, -1}


def test_a_hop_is_not_faster_while_the_link_is_busy(flows: Flows) -> None:
    chase = flows.chase(0, HOST, 2 * MIB, HOPS)
    (idle,) = flows.run(chase, seconds=0.05)
    busy, _ = flows.run(chase, flows.copy(HOST, 0, NBYTES), seconds=SECONDS)
    assert float(np.median(busy.kernel_ns)) > 0.95 * float(np.median(idle.kernel_ns))


def test_peers_are_faster_with_access(flows: Flows, two_peers: None) -> None:
    engine = flows.engine
    flow = flows.copy(0, 1, NBYTES, by=1)
    rates = []
    for access in (False, True):
        for pair in ((0, 1), (1, 0)):
            (engine.enable_peer if access else engine.disable_peer)(*pair)
        rates.append(rate(flows.run(flow, seconds=SECONDS)[0]))
    assert rates[1] > rates[0]


def test_a_chase_reads_the_memory_of_a_peer(flows: Flows, two_peers: None) -> None:
    (stamps,) = flows.run(flows.chase(1, 0, 2 * MIB, HOPS), seconds=0.05)
    assert 100 < float(np.median(stamps.kernel_ns)) / HOPS < 5000


# --- runs of links ----------------------------------------------------------------------------------------------------


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
    rates = {row.mode: row.gbps for row in run.small if (row.device, row.direction, row.nbytes) == (0, "h2d", 4096)}
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
    assert all(row.caller_gbps is not None and row.caller_gbps < most[row.mode] * (row.gbps or 0.0) for row in rows)
    batches = [row for row in rows if (row.mode, row.nbytes) == ("batch", 4096)]
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
