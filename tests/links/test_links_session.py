"""Runs of links on the host runtime: their plan, their memory, what is found, how they end, and unusual machines."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ceiling.troubles import once_measuring
from link_samples import link_device, make_links
from links.conftest import GB, Host, Measure, share_uplinks
from machine import fake_host
from machine.fake_host import GPU, EngineParts, Port, Properties, gpu, make_path, nvml, without_nvml
from samples import make_device, make_link

import pyxfer
from pyxfer._document import codec
from pyxfer._document.links import GROUPS, HOST_END, FlowPlan, Links, LinksParameters, Traffic, Trait
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import LEFT_OUT
from pyxfer._links import chases, resources, session, surroundings, traffic
from pyxfer._links import plan as links_plan
from pyxfer._links.plan import LinksRequest, d2h, h2d, latencies, make_request, traffics, write
from pyxfer._links.resources import PIECE_BYTES, Memory, checked_pieces
from pyxfer._links.surroundings import HOST_PAGE_TABLES, INTEGRATED, PAGEABLE_ACCESS, traits
from pyxfer._measure.sampler import Progress
from pyxfer._report.link_words import TRAITS, trait_texts
from pyxfer.errors import CleanupWarning, CudaError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

# In GB/s: a copy lasts a millisecond.
SLOW = 0.25


def rows(run: Links, group: str, case: str) -> list[Traffic]:
    return [row for row in run.traffics if (row.group, row.case) == (group, case)]


@pytest.mark.slow
def test_every_group_is_measured_and_verified(measure: Measure) -> None:
    run = measure(2, engine="sm", size="32KiB", complete=True)
    assert (run.ended, run.failure) == ("complete", None)
    assert {row.group for row in run.traffics} == {"host", "together", "pairs", "local"}
    assert all(flow.verified.value for row in run.traffics for flow in row.flows)
    assert all(row.gbps for row in run.traffics)
    assert all(row.ns for row in run.latencies)
    assert all(row.verified.value and row.gbps for row in run.small)
    assert codec.decode(Links, codec.encode(run)) == run


def test_small_copies_have_gaps_between_them(measure: Measure, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = []
    lane = engine.Lane

    def noting(direction, host, device, nbytes, stride, slots):  # type: ignore[no-untyped-def]
        gaps.append(stride - nbytes)
        return lane(direction, host, device, nbytes, stride, slots)

    monkeypatch.setattr(engine, "Lane", noting)
    run = measure(1, group="small")
    assert {row.mode for row in run.small if row.gbps} == {"batch", "queue"}
    assert gaps
    assert min(gaps) > 0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no row out, however long a busy machine takes for the fewest rounds."""
    for limit in ("PREPARING_S", "MEASURING_S"):
        monkeypatch.setattr(session, limit, 3600.0)


@pytest.mark.usefixtures("patient")
def test_what_a_caller_gets_of_small_copies_has_the_calls(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    call_s = 5e-5
    monkeypatch.setattr(traffic, "MAX_IN_BATCH", 8)
    run = measure(1, group="small", prepare=lambda: testing.model_issue(call_s, call_s))
    assert {row.mode for row in run.small} == {"batch", "queue"}
    for row in run.small:
        assert row.verified.value
        assert min(row.caller_seconds) >= call_s > min(row.seconds)
        assert (row.caller_gbps or 0.0) < (row.gbps or 0.0)
        assert row.caller_copies >= row.copies
    assert codec.decode(Links, codec.encode(run)) == run


def test_a_shared_uplink_is_found(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    share_uplinks(monkeypatch, Host(link=SLOW, uplinks=[((0, 1), SLOW)]))
    run = measure(2, SLOW, group="together")
    assert run.together("h2d").gbps == pytest.approx(SLOW, rel=0.1)
    assert run.together("h2d").sum_alone_gbps.value == pytest.approx(2 * SLOW, rel=0.1)
    groups = run.interference.groups.value or ()
    found = {(group.direction, group.devices, group.tree) for group in groups}
    assert found == {("h2d", (0, 1), "hidden"), ("d2h", (0, 1), "hidden")}
    assert all(group.keeps == pytest.approx(0.5, abs=0.01) for group in groups)


@pytest.mark.slow
def test_the_side_that_loses_beside_the_other_is_measured(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of equal numbers of copies the faster streams end first, so that all are busy for a part of the time only.
    monkeypatch.setattr(traffic, "MIN_OVERLAP", 0.2)
    share_uplinks(monkeypatch, Host(link=SLOW), beside_d2h=0.4)
    run = measure(2, SLOW, group="together")
    shares = {
        (flow.side, flow.device): flow.alone_share.value.value
        for flow in run.together("both").flows
        if flow.alone_share.value is not None
    }
    assert len(shares) == 4
    assert {place for place, share in shares.items() if share < 0.6} == {("h2d", 0), ("h2d", 1)}


@pytest.mark.slow
def test_a_run_far_beyond_its_budget_says_so(measure: Measure) -> None:
    assert "late" in {remark.code for remark in measure(1, group="local", budget=0.001).remarks}
    assert "late" not in {remark.code for remark in measure(1, group="local", engine="ce", budget=20.0).remarks}


def test_kernels_interpreted_beyond_the_budget_are_left_out(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyxfer._links.plan.INTERPRETED_BYTES_PER_S", 1.0)
    run = pyxfer.links("host", group="local", size="256KiB", budget=0.1)
    reasons = {row.engine: row.total.reason for row in run.traffics}
    assert reasons == {"ce": None, "sm": LEFT_OUT}


@pytest.mark.parametrize("limit", ["PREPARING_S", "MEASURING_S"])
def test_rows_beyond_the_budget_are_left_out(measure: Measure, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(session, limit, -3600.0)
    run = measure(1, group=("host", "small"), size="64KiB")
    reasons = {row.total.reason or "" for row in run.traffics if row.gbps is None}
    assert {reason.partition(",")[0] for reason in reasons} == {"it was left out"}
    assert sum(row.gbps is not None for row in run.traffics) + sum(row.gbps is not None for row in run.small) <= 1
    (late,) = [remark.text for remark in run.remarks if remark.code == "late"]
    assert f"{len(run.traffics) + len(run.small) - 1} rows" in late


@pytest.mark.slow
def test_one_gpu_has_no_pairs_and_the_run_says_so(measure: Measure) -> None:
    run = measure(1, group=("host", "together", "pairs", "local"))
    assert run.sharing is None
    assert {row.group for row in run.traffics} == {"host", "local"}
    assert "one-device" in {remark.code for remark in run.remarks}


@pytest.mark.parametrize("devices", ["0,0", "0,7", "nonsense", [0, "0"]])
def test_unknown_devices_and_one_named_twice_are_refused(measure: Measure, devices: str | list[str | int]) -> None:
    with pytest.raises(UsageError):
        measure(2, device=devices)


@pytest.mark.slow
def test_only_the_chosen_devices_are_measured(measure: Measure) -> None:
    run = measure(3, device="2,0", group="together")
    assert run.parameters.devices == (2, 0)
    assert {flow.device for row in run.traffics for flow in row.flows} == {0, 2}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("seed", [1, 3])
def test_no_trial_through_the_host_uses_the_peer_link(measure: Measure, seed: int) -> None:
    """Latencies of the same pairs need peer access, and run between the trials of rows without it."""

    def wire() -> None:
        for pair in ((0, 1), (1, 0)):
            testing.model_pair(*pair, 4 * GB)

    run = measure(2, group=("pairs", "latency"), seed=seed, budget=0.1, prepare=wire)
    off = [row for row in run.traffics if row.case == "through-host"]
    assert {row.peer_access for row in off} == {False}
    assert all(row.gbps for row in off)
    rates = [sum(trial.nbytes) / trial.seconds / GB for row in off for trial in row.trials]
    assert len(rates) >= 12
    assert max(rates) < 1.01  # the links to the host


def test_refused_peer_access_is_the_reason_of_its_pair(measure: Measure) -> None:
    run = measure(2, group=("host", "pairs"), prepare=lambda: testing.refuse_peer(0, 1, True))
    missing = [row for row in run.traffics if row.gbps is None]
    assert missing
    assert {row.group for row in missing} == {"pairs"}
    assert all("Peer" in (row.total.reason or "") for row in missing)
    assert all(row.gbps for row in (*rows(run, "host", "h2d"), *rows(run, "pairs", "through-host")))


@pytest.mark.slow
def test_kernels_that_the_driver_refuses_are_the_reason_of_their_rows(measure: Measure) -> None:
    testing.fail("cuModuleLoadData", 1, 222)
    run = measure(1, group=("host", "latency"), engine=("ce", "sm"))
    by_engine = {row.engine: row for row in rows(run, "host", "h2d")}
    assert by_engine["ce"].gbps
    assert "kernels are not available" in (by_engine["sm"].total.reason or "")
    assert run.devices[0].kernels_s.value is None
    assert all(row.ns is None for row in run.latencies)


def test_multiprocessors_on_which_nothing_ran_are_named(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chases, "attribute", lambda *_: 6)  # the host runtime has the numbers 0 to 3
    run = measure(1, group="latency")
    (row,) = (row for row in run.latencies if row.multiprocessor_ns)
    assert [number for number, _ in row.multiprocessor_ns] == [0, 1, 2, 3]
    (remark,) = (remark for remark in row.remarks if remark.code == "multiprocessors")
    assert "4, 5" in remark.text


@pytest.mark.parametrize(("value", "said"), [("1", True), ("0", False)])
def test_blocking_launches_are_said(measure: Measure, monkeypatch: pytest.MonkeyPatch, value: str, said: bool) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)
    remarks = measure(1, group="local").remarks
    assert ("launch-blocking" in {remark.code for remark in remarks}) is said


def test_memory_that_one_gpu_lacks_costs_only_its_rows(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Memory, key: tuple[object, ...], device: int, nbytes: int = 0) -> object:
        if device == 1:
            raise CudaError(2, "cudaErrorMemoryAllocation", "cudaMalloc", "here", "out of memory", "")
        return real(self, key, device, nbytes)

    real = Memory._device
    monkeypatch.setattr(Memory, "_device", full)
    run = measure(2, group=("host", "local"))
    assert {row.flows[0].device for row in run.traffics if row.gbps is None} == {1}
    assert {row.flows[0].device for row in run.traffics if row.gbps} == {0}


def end_at(phase: str) -> Callable[[Progress], None]:
    """Ctrl-C at the first progress report of a phase."""
    done: list[Progress] = []

    def hear(progress: Progress) -> None:
        if progress.phase == phase and not done:
            done.append(progress)
            raise KeyboardInterrupt

    return hear


def test_ctrl_c_keeps_the_rows_so_far(measure: Measure) -> None:
    saved: list[Links] = []
    run = measure(2, group="together", on_progress=end_at("measuring"), save_to=saved.append)
    assert run.ended == "interrupted"
    assert any(row.gbps for row in run.traffics)
    assert saved[-1] == run
    assert codec.decode(Links, codec.encode(run)) == run


def test_ctrl_c_before_the_first_trial_is_an_interrupted_run(measure: Measure) -> None:
    run = measure(2, group="together", on_progress=end_at("preparing"))
    assert run.ended == "interrupted"
    assert all("interrupted" in (row.total.reason or "") for row in run.traffics)
    assert "near:" not in run.text()


def test_a_gpu_that_disappears_ends_the_run_with_its_rows(measure: Measure) -> None:
    lose = once_measuring(lambda: testing.lose_device(700))
    with pytest.warns(CleanupWarning):
        run = measure(2, group="together", on_progress=lose, budget=5.0)
    assert run.ended == "failed"
    assert "700" in (run.failure or "")
    assert any(row.gbps for row in run.traffics)
    testing.reset()


def test_contents_that_do_not_arrive_make_no_rate(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "arrived", lambda *_: False)
    run = measure(1, group="host")
    assert all(flow.verified.value is False and flow.gbps is None for row in run.traffics for flow in row.flows)
    assert all(row.total.reason == "the contents were wrong" for row in run.traffics)


NBYTES = 1 << 20


@pytest.fixture
def held(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    testing.set_device_count(2)
    monkeypatch.setattr(resources, "PIECE_BYTES", NBYTES // 8)
    made = Memory(engine, {0: unknown("one node"), 1: unknown("one node")}, seed=5)
    yield made
    for buffer in made.held:
        buffer.close()


@pytest.mark.parametrize("seed", range(5))
def test_all_of_a_small_copy_is_checked_and_always_both_ends_of_a_large_one(seed: int) -> None:
    sizes = [PIECE_BYTES] * 3 + [16]
    assert checked_pieces(sum(sizes), seed) == [(n, n * PIECE_BYTES, size) for n, size in enumerate(sizes)]
    found = checked_pieces(100 * PIECE_BYTES, seed)
    assert (found[0][0], found[-1]) == (0, (99, 99 * PIECE_BYTES, PIECE_BYTES))
    assert len(set(found)) == 4


@pytest.mark.parametrize("flow", [h2d(0), d2h(0), write(0, 1)], ids=["h2d", "d2h", "peer"])
def test_only_what_was_copied_has_arrived(held: Memory, flow: FlowPlan) -> None:
    source, landing = held.source(flow, None, NBYTES), held.landing(flow, None, NBYTES)
    assert source.seed is not None
    held.poison(landing, NBYTES)
    assert not held.arrived(landing, NBYTES, source.seed)
    ctypes.memmove(landing.address, source.address, NBYTES)  # the simulated devices have ordinary memory
    assert held.arrived(landing, NBYTES, source.seed)
    ctypes.c_uint8.from_address(landing.address + NBYTES - 1).value ^= 255
    assert not held.arrived(landing, NBYTES, source.seed)


def test_each_source_has_contents_of_its_own_and_flows_to_one_gpu_land_apart(held: Memory) -> None:
    seeds = {held.source(flow, None, NBYTES).seed for flow in (h2d(0), h2d(1), d2h(0), d2h(1))}
    assert len(seeds) == 4
    assert held.source(h2d(0), None, NBYTES) is held.source(h2d(0), None, NBYTES)
    landings = [held.landing(flow, None, NBYTES).address for flow in (h2d(0), write(1, 0), write(0, 0))]
    assert len(set(landings)) == 3


def request(groups: Any = GROUPS, **changes: Any) -> LinksRequest:
    settings = {"devices": None, "engines": ("ce", "sm"), "size": None, "precision": 0.005, "budget": None, "seed": 1}
    return make_request(groups=groups, **{**settings, **changes})


def parameters(devices: Sequence[int], groups: Any = GROUPS, **changes: Any) -> LinksParameters:
    return request(groups, **changes).parameters(devices, 1 << 40, interpreted=False)


def cases(devices: int, groups: Any = GROUPS, nodes: int = 1) -> Counter[tuple[str, str, str]]:
    plans = traffics(parameters(range(devices), groups), range(nodes))
    assert len({plan.name for plan in plans}) == len(plans)
    return Counter((plan.group, plan.case, plan.engine) for plan in plans)


def test_two_gpus_have_every_case_of_a_pair() -> None:
    found = cases(2)
    for engine in ("ce", "sm"):
        assert [found["host", case, engine] for case in ("h2d", "d2h", "both")] == [2, 2, 2]
        assert [found["together", case, engine] for case in ("h2d", "d2h", "both")] == [1, 1, 1]
        assert [found["pairs", case, engine] for case in ("read", "write", "both-read", "both-write")] == [2, 2, 1, 1]
        assert found["local", "copy", engine] == 2
    assert found["pairs", "through-host", "ce"] == 2
    assert not any(case in ("ring", "all-pairs", "all-to-one-read", "beside-h2d") for _, case, _ in found)


def test_more_gpus_have_patterns_and_an_interference_map() -> None:
    found = cases(4)
    assert [found["pairs", case, "sm"] for case in ("read", "both-write", "all-to-one-read", "one-to-all-write")] == [
        *(12, 6, 4, 4)
    ]
    assert found["pairs", "ring", "ce"] == found["pairs", "all-pairs", "ce"] == 1
    assert [found["together", f"beside-{side}", "ce"] for side in ("h2d", "d2h")] == [6, 6]
    assert found["together", "beside-h2d", "sm"] == 0


def test_a_brief_request_has_few_rows_that_show_every_gpu_and_both_ways_of_it() -> None:
    eight = traffics(parameters(range(8), "together"), range(2), brief=True)
    alone = [(plan.group, plan.case, *plan.devices) for plan in eight if len(plan.flows) == 1]
    assert alone == [("host", case, device) for device in range(8) for case in ("h2d", "d2h")]
    assert [(plan.group, plan.case, plan.engine, len(plan.flows)) for plan in eight[len(alone) :]] == [
        ("together", "h2d", "ce", 8),
        ("together", "d2h", "ce", 8),
        ("pairs", "ring", "ce", 8),
    ]
    (one,) = traffics(parameters([0], "together"), range(2), brief=True)
    assert (one.group, one.case, {flow.side for flow in one.flows}) == ("host", "both", {"h2d", "d2h"})
    found = latencies(parameters(range(8), "together"), range(2), brief=True)
    assert [(plan.device, plan.target) for plan in found] == [(device, HOST_END) for device in range(8)]


def test_all_pairs_of_many_gpus_are_measured_but_not_at_once() -> None:
    found = cases(12)
    assert [found["pairs", "read", "ce"], found["together", "beside-h2d", "ce"]] == [132, 66]
    assert found["pairs", "all-pairs", "ce"] == 0


def test_one_gpu_has_no_pairs_and_together_brings_the_copies_alone_that_it_is_compared_with() -> None:
    assert {group for group, _, _ in cases(1)} == {"host", "local"}
    assert {group for group, _, _ in cases(2, "together")} == {"host", "together"}


def test_a_read_is_issued_by_its_reader_and_a_write_by_its_writer() -> None:
    for plan in traffics(parameters([3, 5], "pairs"), []):
        for flow in plan.flows:
            if plan.case.endswith("read"):
                assert flow.device == flow.destination
            else:
                assert flow.device == flow.source
            assert plan.peer_access == (plan.case != "through-host")


def test_numa_needs_two_nodes() -> None:
    assert not cases(2, "numa")
    assert cases(2, "numa", nodes=2)["numa", "h2d", "ce"] == 4
    assert {plan.node for plan in latencies(parameters([0], "numa"), [0, 1])} == {0, 1}


def test_latencies_are_of_host_peers_and_the_gpu_itself_under_each_load() -> None:
    found = latencies(parameters([0, 1], "latency"), [0])
    assert len({plan.name for plan in found}) == len(found)
    assert {(plan.device, plan.target) for plan in found} == {(a, b) for a in (0, 1) for b in (HOST_END, 0, 1)}
    assert {plan.load for plan in found if plan.target == HOST_END} == {0.0, 0.5, 1.0}
    assert {plan.load for plan in found if plan.target == plan.device} == {0.0}


def test_the_budget_grows_with_the_gpus() -> None:
    assert [parameters(range(count)).budget_s for count in (1, 2, 8)] == [15.0, 30.0, 120.0]
    assert parameters(range(8), budget="9s").budget_s == 9.0
    assert request(devices="0, 1").devices == ("0", "1")
    assert request(devices=3).devices == (3,)


@pytest.mark.parametrize(
    ("size", "free_bytes", "interpreted", "sizes"),
    [
        (None, 1 << 40, False, (links_plan.HOST_BYTES, links_plan.PEER_BYTES, links_plan.LOCAL_BYTES)),
        (None, 1 << 30, False, (64 << 20, 64 << 20, 128 << 20)),
        (None, 1 << 40, True, (links_plan.INTERPRETED_BYTES,) * 3),
        ("4MiB", 1 << 30, True, (4 << 20,) * 3),
    ],
)
def test_copies_fit_into_the_free_memory_unless_their_size_is_given(
    size: str | None, free_bytes: int, interpreted: bool, sizes: tuple[int, int, int]
) -> None:
    found = request(size=size).parameters([4, 5], free_bytes, interpreted=interpreted)
    assert found.devices == (4, 5)
    assert (found.host_bytes, found.peer_bytes, found.local_bytes) == sizes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("groups", "everything"), ("groups", ""), ("engines", "tma"), ("precision", 0), ("budget", -1), ("seed", -1)],
        *[("size", "1MiB,2MiB"), ("size", "1000"), ("size", "4KiB")],
        *[("devices", ""), ("devices", "0,"), ("devices", ())],
    ],
)
def test_invalid_arguments_are_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError):
        request(**{name: value})


OTHER = "0000:5d:00.0"


@dataclass
class Attributes:
    """An engine with these attributes; the driver does not know the others."""

    known: dict[int, int] = field(default_factory=dict)

    def device_attribute(self, device: int, attribute: int) -> int:
        if attribute not in self.known:
            raise CudaError(1, "cudaErrorInvalidValue", "cudaDeviceGetAttribute", "here", "invalid argument", "")
        return self.known[attribute]


def in_tree(root: Path) -> Path:
    make_path(root, Port("0000:3a:01.0"), Port(GPU))
    return root


GRACE = Attributes({PAGEABLE_ACCESS: 1, HOST_PAGE_TABLES: 1, INTEGRATED: 0})
CASES: list[tuple[Attributes, dict[str, Any], set[Trait]]] = [
    (Attributes(), {}, set()),
    (GRACE, {}, {"c2c"}),
    (Attributes({PAGEABLE_ACCESS: 1, HOST_PAGE_TABLES: 0, INTEGRATED: 0}), {}, {"hmm"}),
    (Attributes({PAGEABLE_ACCESS: 1, HOST_PAGE_TABLES: 1, INTEGRATED: 1}), {}, {"integrated"}),
    (Attributes(), {"mig": Fact(True)}, {"mig"}),
    (Attributes(), {"vgpu": Fact(True)}, {"vgpu"}),
    (Attributes(), {"pci": Fact("0000:99:00.0")}, {"no-tree"}),
    (Attributes(), {"runtime": "host"}, set()),
]


@pytest.mark.parametrize(("engine", "device", "found"), CASES)
def test_a_gpu_is_recognised(engine: Any, device: dict[str, Any], found: set[Trait], tmp_path: Path) -> None:
    changed = msgspec.structs.replace(gpu(), **device)
    assert set(traits(engine, changed, make_link(), in_tree(tmp_path))) == found


def test_wsl_is_recognised_by_its_kernel(tmp_path: Path) -> None:
    fake_host.write(in_tree(tmp_path), proc__version="Linux version 5.15.167.4-microsoft-standard-WSL2 (gcc)\n")
    engine: Any = Attributes()
    assert "wsl2" in traits(engine, gpu(), make_link(), tmp_path)


@pytest.mark.parametrize("trait", TRAITS)
def test_each_trait_has_a_sentence(trait: Trait) -> None:
    devices = (link_device(make_device(), traits=(trait,)),)
    (text,) = trait_texts(make_links(1, devices=devices, groups=("host",)))
    assert text.startswith("GPU 0 ")


def test_grace_has_the_peak_of_its_c2c_link_and_none_of_pci_express() -> None:
    reason = "host and device are joined chip to chip (NVLink-C2C), so no PCIe peak applies"
    link = make_link(
        kind="c2c", raw_peak_gbps=unknown(reason), h2d_peak_gbps=unknown(reason), d2h_peak_gbps=unknown(reason)
    )
    device = link_device(make_device(name="NVIDIA GH200 480GB"), link=link, c2c_gbps=Fact(450.0), traits=("c2c",))
    assert device.host_peak_gbps("h2d").value == 450.0
    run = make_links(1, rate_of=lambda *_: 342.0, devices=(device,), groups=("host",))
    assert run.traffics[0].flows[0].peak_share.value == pytest.approx(342 / 450, rel=1e-3)
    bare = msgspec.structs.replace(device, c2c_gbps=unknown("NVML cannot be opened"))
    run = make_links(1, rate_of=lambda *_: 342.0, devices=(bare,), groups=("host",))
    assert run.traffics[0].flows[0].peak_share.value is None
    assert "NVML" in (run.traffics[0].flows[0].peak_share.reason or "")


def test_an_integrated_gpu_has_no_peak(tmp_path: Path) -> None:
    engine = FakeLinks([Properties(integrated=True)], known={INTEGRATED: 1})
    found = surroundings.read_device(engine, gpu(), without_nvml(), tmp_path)
    assert found.host_peak_gbps("h2d").value is None
    assert found.traits == ("integrated",)


@dataclass
class LinkParts(EngineParts):
    """An engine with attributes and peers."""

    known: dict[int, int] = field(default_factory=dict)
    refuses: bool = False

    def device_attribute(self, device: int, attribute: int) -> int:
        return self.known.get(attribute, 0)

    def can_access_peer(self, device: int, peer: int) -> bool:
        if self.refuses:
            raise CudaError(999, "cudaErrorUnknown", "cudaDeviceCanAccessPeer", "here", "unknown error", "")
        return True


FakeLinks: Any = LinkParts


def pair() -> list[Any]:
    return [gpu(), msgspec.structs.replace(gpu(pci=OTHER), index=1)]


def test_peers_without_nvml_have_no_peak_and_the_reason() -> None:
    for peer in surroundings.read_peers(FakeLinks(), pair(), without_nvml()):
        assert (peer.access.value, peer.kind, peer.peak_gbps.value) == (True, "unknown", None)
        assert "NVML" in (peer.peak_gbps.reason or "")
    (first, _) = surroundings.read_peers(FakeLinks(refuses=True), pair(), without_nvml())
    assert first.access.value is None


def test_peers_that_nvlink_does_not_join_are_reached_over_pci_express() -> None:
    library = nvml(nvmlDeviceGetP2PStatus=lambda *_: 4)
    assert {peer.kind for peer in surroundings.read_peers(FakeLinks(), pair(), library)} == {"pcie"}


def test_the_tree_shows_gpus_below_one_switch(tmp_path: Path) -> None:
    make_path(tmp_path, Port("0000:3a:01.0"), Port("0000:3b:00.0"), Port("0000:3c:00.0"), Port("0000:3d:00.0"))
    below = tmp_path / "sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0"
    (below / "0000:3c:01.0/0000:5d:00.0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:5d:00.0").symlink_to(below / "0000:3c:01.0/0000:5d:00.0")
    devices = [gpu(pci="0000:3d:00.0"), msgspec.structs.replace(gpu(pci=OTHER), index=1)]
    assert surroundings.read_tree(devices, tmp_path).value == ((0, 1),)


def test_a_machine_without_a_tree_says_so(tmp_path: Path) -> None:
    assert surroundings.read_tree(pair(), tmp_path).reason == surroundings.NO_TREE
    assert surroundings.read_tree([gpu()], tmp_path).value is None


def test_memory_of_gpus_is_no_node_for_host_buffers(tmp_path: Path) -> None:
    nodes = {f"sys__devices__system__node__node{n}__cpulist": cpus for n, cpus in ((0, "0-71\n"), (1, "\n"))}
    fake_host.write(
        tmp_path, **nodes, sys__devices__system__node__online="0-1\n", sys__devices__system__node__has_memory="0-1\n"
    )
    assert surroundings.host_nodes(tmp_path).value == (0,)


def test_nodes_without_memory_are_left_out(tmp_path: Path) -> None:
    nodes = {f"sys__devices__system__node__node{n}__cpulist": f"{n}\n" for n in (0, 1)}
    fake_host.write(
        tmp_path, **nodes, sys__devices__system__node__online="0-1\n", sys__devices__system__node__has_memory="1\n"
    )
    assert surroundings.host_nodes(tmp_path).value == (1,)
    assert surroundings.host_nodes(tmp_path / "nothing").value is None
