"""Whole hosts, each with one fault: exactly the findings that it deserves; the known hosts; and examining a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from doctor.cases import (
    GEN5_X16,
    LARGE,
    NO_CONFIG,
    bare_metal,
    copies,
    copy,
    counters,
    far,
    h200,
    h200_link,
    health,
    one_node,
    port,
    run_of,
)
from link_samples import h200_rate, make_links, peer_links
from samples import make_environment

from pyxfer._doctor import session
from pyxfer._doctor.examine import examine, examine_run, nearest_known, references
from pyxfer._doctor.links import examine_links
from pyxfer._document import codec
from pyxfer._document.examinations import (
    Bound,
    DeviceMemory,
    Examination,
    Finding,
    Health,
    PortControl,
    Reference,
    Status,
)
from pyxfer._document.links import Counted, FlowPlan
from pyxfer._document.machines import Fact, Hop, Link, LinkState, Placement, Side, unknown
from pyxfer._document.runs import Measurement, Run, Trial
from pyxfer._links.plan import TrafficPlan
from pyxfer._measure.link_runs import runs_of
from pyxfer._measure.sampler import Progress
from pyxfer.errors import UsageError

ABOVE = "0000:18:00.0"
GEN5_X8, GEN4_X16 = LinkState(5, 8), LinkState(4, 16)
H200_PEAK_GBPS = 58.449
PAGEABLE_GBPS: dict[Side, float] = {"h2d": 9.0, "d2h": 15.0}


@dataclass(frozen=True)
class Host:
    """A host by what differs from a good one. `gbps`: of pinned copies both ways, if the link does not decide it."""

    bad: str = ""
    """The findings as root: `status code`, sorted, separated by commas."""
    user: str | None = None
    """The same as an ordinary user, if they differ."""
    gbps: float | None = None
    link: Mapping[str, Any] = field(default_factory=dict)
    state: LinkState = GEN5_X16
    above: Hop | None = None
    ports: tuple[PortControl, ...] = (port(), port(ABOVE))
    run: Mapping[str, Any] = field(default_factory=dict)
    health: Mapping[str, Any] = field(default_factory=dict)


def upper(working: LinkState, most: LinkState) -> Hop:
    return Hop(ABOVE, Fact(working), Fact(most))


def placed(near: int, away: int) -> Any:
    return msgspec.structs.replace(one_node(), pages_by_node=Fact({"0": near, "1": away}))


REPLAYED, SLOWED = counters(40_000), make_environment(throttle_reasons=Fact(("hardware slowdown",)))
HOSTS: dict[str, Host] = {
    "healthy": Host(),
    "healthy, idle at generation 1": Host(link={"now": Fact(LinkState(1, 16))}),
    "link x8 of x16": Host("wrong link", state=GEN5_X8),
    "slot is x8": Host("wrong slot", state=GEN5_X8, link={"system_most": Fact(GEN5_X8)}),
    "generation 4 under load": Host("wrong link", state=GEN4_X16),
    "stuck at generation 1": Host("wrong link", state=LinkState(1, 16)),
    "board of generation 4": Host("suspicious slot", state=GEN4_X16, link={"system_most": Fact(GEN4_X16)}),
    "uplink x8 of x16": Host("wrong path", above=upper(GEN5_X8, GEN5_X16)),
    "uplink x8 by design": Host("suspicious path", above=upper(GEN5_X8, GEN5_X8)),
    "payload 128 of 256": Host(
        "suspicious payload", "suspicious ceiling, suspicious ceiling", gbps=51.8, link={"max_payload_bytes": Fact(128)}
    ),
    "payload 256 of 512": Host("suspicious payload", "", ports=(port(most=512), port(ABOVE, most=512))),
    "relaxed ordering off": Host("suspicious ordering", "", link={"relaxed_ordering": Fact(False)}),
    "88 % of the peak": Host("suspicious ceiling, suspicious ceiling", gbps=0.88 * H200_PEAK_GBPS),
    "84 % of the peak": Host(
        "suspicious ceiling, wrong ceiling", "suspicious ceiling, suspicious ceiling", gbps=0.847 * H200_PEAK_GBPS
    ),
    "half of the peak": Host("wrong ceiling, wrong ceiling", gbps=27.8),
    "93 % of the known host": Host("suspicious known-host", "", gbps=52.75),
    "memory far away": Host(
        "wrong ceiling, wrong ceiling, wrong numa-memory", gbps=43.0, run={"placement": placed(0, 4096)}
    ),
    "memory far away without a loss": Host("suspicious numa-memory", run={"placement": placed(0, 4096)}),
    "another node is nearer": Host("wrong numa-far", health={"far": far(58.0, 58.0)}),
    "no processor near": Host("suspicious numa-processors", health={"cpus_near": Fact(0)}),
    "replays": Host("suspicious replays", health={"after": REPLAYED}),
    "replays that cost": Host(
        "suspicious ceiling, suspicious ceiling, suspicious replays", gbps=51.0, health={"after": REPLAYED}
    ),
    "fatal errors": Host("wrong link-errors", health={"after": counters(fatal=1)}),
    "IOMMU that costs": Host(
        "suspicious ceiling, suspicious ceiling, suspicious iommu", gbps=50.5, health={"iommu": Fact("DMA-FQ")}
    ),
    "IOMMU without a loss": Host(health={"iommu": Fact("DMA-FQ")}),
    "ACS with two GPUs": Host("suspicious acs", "", ports=(port(), port(ABOVE, redirects=True)), health={"devices": 2}),
    "slowed down": Host("wrong throttling", run={"environment_after": SLOWED}),
    "slowed down, 93 % of the known host": Host("wrong throttling", gbps=52.75, run={"environment_after": SLOWED}),
    "another user": Host("suspicious sharing", run={"environment": {"other_gpu_processes": Fact((71,))}}),
    "uncorrected memory error": Host(
        "wrong device-memory", health={"device_memory": DeviceMemory(Fact(1), Fact(False), Fact(False))}
    ),
    "persistence off": Host("suspicious persistence", run={"environment": {"persistence": Fact(False)}}),
    "little shared memory": Host("suspicious shared-memory", health={"shared_memory_bytes": Fact(64 << 20)}),
    "2 processors": Host("suspicious container", health={"cpu_limit": Fact(Bound(2.0))}),
}


def link_of(host: Host, root: bool) -> Link:
    hops = (h200_link(host.state).hops[0], *([] if host.above is None else [host.above]))
    names = () if root else ("max_payload_bytes", "relaxed_ordering")
    hidden: dict[str, Any] = {name: unknown(NO_CONFIG) for name in names}
    return h200_link(host.state, hops=hops, **{**host.link, **hidden})


def copies_of(host: Host) -> tuple[Measurement, ...]:
    if host.gbps is None:
        peak_gbps = link_of(host, root=True).h2d_peak_gbps.value or 0.0
        return copies(peak_gbps / H200_PEAK_GBPS, link=link_of(host, root=True))
    return tuple(
        copy(side, gbps, memory)
        for side, plain in PAGEABLE_GBPS.items()
        for memory, gbps in (("pinned", host.gbps), ("pageable", plain))
    )


def faults(host: Host, root: bool) -> str:
    ports = host.ports
    if not root:
        ports = tuple(port(each.pci, most=None, redirects=None) for each in ports)
    run = bare_metal(link=link_of(host, root), measurements=copies_of(host), **host.run)
    findings = examine(run, health(**{"ports": ports, **host.health}), nearest_known(run).value)
    return ", ".join(
        sorted(f"{each.status} {each.code}" for each in findings if each.status in ("wrong", "suspicious"))
    )


@pytest.mark.parametrize("root", [True, False], ids=["root", "user"])
@pytest.mark.parametrize("name", HOSTS)
def test_each_host_has_the_findings_of_its_fault_and_no_others(name: str, root: bool) -> None:
    host = HOSTS[name]
    assert faults(host, root) == (host.bad if root or host.user is None else host.user)


def findings(run: Run, seen: Health | None = None) -> tuple[Finding, ...]:
    return examine(run, seen, nearest_known(run).value)


def test_nothing_is_wrong_with_a_good_h200() -> None:
    found = findings(h200(), health())
    assert {each.status for each in found} == {"fine", "unknown"}
    assert {each.subject for each in found if each.status == "unknown"} == {"ACS", "NUMA far memory"}
    assert "this is a virtual machine (Firecracker)" in {each.seen for each in found}


def test_the_worst_findings_come_first() -> None:
    link = h200_link(LinkState(5, 8), relaxed_ordering=Fact(False))
    order = [each.status for each in findings(bare_metal(link=link), health())]
    assert order == sorted(order, key=["wrong", "suspicious", "unknown", "fine"].index)
    assert order[0] == "wrong"


def test_the_health_of_a_saved_run_is_unknown() -> None:
    (saved,) = [each for each in findings(h200()) if each.code == "health"]
    assert saved.status == "unknown"


def test_for_host_memory_only_the_host_is_examined() -> None:
    run = h200(runtime="host", runtime_reason="No usable GPU: none is visible.")
    codes = {each.code for each in findings(run, health())}
    assert codes == {*("link", "contents", "huge-pages", "lock-limit", "container", "shared-memory", "virtual-machine")}
    (link,) = [each for each in findings(run, health()) if each.code == "link"]
    assert "no link to examine: No usable GPU" in link.seen


def test_a_failed_run_is_unknown_with_its_failure() -> None:
    run = h200(ended="failed", failure="the device was lost", measurements=())
    seen = {each.code: each for each in findings(run, health())}
    assert seen["measurement"].seen == "the device was lost"
    assert seen["ceiling"].status == "unknown"


def test_every_finding_has_its_own_subject() -> None:
    subjects = [each.subject for each in findings(h200(), health())]
    assert len(subjects) == len(set(subjects))


H200 = next(each for each in references() if each.device == "NVIDIA H200")


def known(name: str, device: str, link: LinkState, payload: int = 256) -> Reference:
    return msgspec.structs.replace(H200, name=name, device=device, link=link, max_payload_bytes=payload)


A100 = known("an A100", "NVIDIA A100-SXM4-80GB", LinkState(4, 16))
SLOW = known("an H200 at Gen4", "NVIDIA H200", LinkState(4, 16))
SMALL = known("an H200 with small packets", "NVIDIA H200", GEN5_X16, 128)


def nearest(run: Run) -> str:
    found = nearest_known(run, (A100, SLOW, SMALL, H200)).value
    assert found is not None
    return found.reference.name


def test_a_known_host_has_the_run_of_its_figures() -> None:
    for reference in references():
        run = run_of(reference)
        assert run.device.name == reference.device
        best = run.ceiling("h2d", 256 << 20)
        assert best.gbps == reference.gbps("h2d", "pinned", 256 << 20)


def test_the_nearest_has_the_same_device_then_link_then_payload() -> None:
    assert nearest(h200()) == H200.name
    assert nearest(h200(link=h200_link(LinkState(4, 16)))) == "an H200 at Gen4"
    assert nearest(h200(link=h200_link(max_payload_bytes=Fact(128)))) == "an H200 with small packets"
    a100 = msgspec.structs.replace(h200().device, name="NVIDIA A100-SXM4-80GB")
    assert nearest(h200(device=a100)) == "an A100"


def test_an_unknown_device_is_nearest_to_a_similar_link() -> None:
    other = msgspec.structs.replace(h200().device, name="NVIDIA L40S")
    assert nearest(h200(device=other, link=h200_link(LinkState(4, 16)))) in ("an A100", "an H200 at Gen4")


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (h200(link=h200_link(LinkState(5, 8))), "PCIe 5.0 x8 here"),
        (h200(link=h200_link(max_payload_bytes=unknown("takes root"))), "MaxPayload unknown here"),
        (h200(device=msgspec.structs.replace(h200().device, mig=Fact(True))), "a part of a GPU here"),
        (h200(device=msgspec.structs.replace(h200().device, confidential=Fact(True))), "encrypted here"),
        (h200(device=msgspec.structs.replace(h200().device, name="NVIDIA H100 PCIe")), "NVIDIA H100 PCIe here"),
    ],
)
def test_differences_from_the_known_host_are_listed(run: Run, word: str) -> None:
    found = nearest_known(run).value
    assert found is not None
    assert not found.alike
    assert word in found.differs[0]


def test_without_a_pcie_link_there_is_no_nearest_host() -> None:
    link = msgspec.structs.replace(h200_link(), kind="c2c", raw_peak_gbps=unknown("joined chip to chip"))
    assert "joined chip to chip" in (nearest_known(h200(link=link)).reason or "")


@pytest.fixture(scope="module")
def here() -> tuple[Examination, list[str]]:
    """This host, examined once over its own memory."""
    phases: list[str] = []

    def listen(progress: Progress) -> None:
        phases.append(progress.phase)

    return session.doctor("host", on_progress=listen), phases


def test_without_a_gpu_only_the_host_is_examined(here: tuple[Examination, list[str]]) -> None:
    found = {each.code: each.status for each in here[0].findings}
    assert found["link"] == "unknown"
    assert found["contents"] == "fine"
    assert {"lock-limit", "container", "shared-memory", "huge-pages", "virtual-machine"} <= set(found)
    assert not {"ceiling", "replays", "iommu"} & set(found)


def test_the_health_is_read_around_the_measurement(here: tuple[Examination, list[str]]) -> None:
    health = here[0].health.value
    assert health is not None
    assert health.moved_bytes > 0
    assert health.shared_memory_bytes.value is not None
    assert health.far.reason == "without a link no memory is far from it"
    assert health.before.replays.reason == "host memory, not a PCIe link"


def test_the_run_is_kept_without_its_trials(here: tuple[Examination, list[str]]) -> None:
    rows = here[0].run.measurements
    assert len(rows) == 4
    assert all(row.trials == () and row.summary is not None for row in rows)


def test_host_memory_and_a_required_gpu_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="leave one of the two options out"):
        session.doctor("host", require_gpu=True)


def test_the_moved_bytes_are_those_of_the_timed_copies() -> None:
    trials = (Trial(0, 1e-3, copies=16), Trial(1, 1e-3, copies=4))
    run = h200(measurements=(copy("h2d", 55.0, trials=trials), copy("d2h", 55.0)))
    assert session.moved_bytes(run) == 20 * LARGE


def test_a_saved_run_has_no_health() -> None:
    examination = examine_run(h200())
    assert examination.health.reason == "a saved run was examined, not the machine"
    assert examination.nearest.value is not None
    assert examination.worst == "fine"


@pytest.mark.parametrize("status", ["nonsense", "ceiling", None])
def test_an_unknown_status_is_refused(status: Status) -> None:
    examination = examine_run(h200())
    assert examination.of("wrong") == ()
    with pytest.raises(UsageError, match="choose one of wrong, suspicious, unknown, fine"):
        examination.of(status)


def run_from_node(node: Fact[int]) -> Run:
    placement = Placement(Fact(0), Fact("32-63"), node, Fact({"1": 9}))
    parameters = msgspec.structs.replace(h200().parameters, sizes_bytes=(LARGE,))
    return h200(placement=placement, parameters=parameters, measurements=(copy("h2d", 40.0), copy("d2h", 41.0)))


def test_far_rates_have_the_figures_of_both_nodes() -> None:
    far = session._far(h200(), Fact(run_from_node(Fact(1)))).value
    assert far is not None
    assert (far.near_node, far.far_node, far.nbytes) == (0, 1, LARGE)
    assert far.near_gbps == pytest.approx({"h2d": 55.55, "d2h": 55.41}, rel=1e-4)
    assert far.far_gbps == {"h2d": 40.0, "d2h": 41.0}


def test_a_node_that_the_kernel_refuses_has_no_figures() -> None:
    assert session._far(h200(), Fact(run_from_node(unknown("the kernel refuses")))).reason == "the kernel refuses"
    assert session._far(h200(), unknown("one node")).reason == "one node"


def test_a_run_may_take_its_memory_from_another_node() -> None:
    from pyxfer._ceiling.session import run_request

    request = session._request("host", (1 << 20,), ("pinned",), 0.1, complete=False)
    run = run_request(request, "host", require_gpu=False, memory_node=0)
    assert run.placement.device_node.reason == "host memory, not a PCIe link"
    assert run.placement.memory_node.reason != run.placement.device_node.reason


def codes(examination: Examination, status: str) -> set[str]:
    return {finding.code for finding in examination.findings if finding.status == status}


def wired(plan: TrafficPlan, flow: FlowPlan) -> float:
    """GPUs 0 and 1 share an uplink, and GPU 3 is at half its width."""
    if flow.side in ("h2d", "d2h") and flow.device == 3:
        return 27.0
    busy = sum(other.side == flow.side and other.device < 2 for other in plan.flows) if flow.device < 2 else 1
    return h200_rate(plan, flow) / (busy if flow.side in ("h2d", "d2h") else 1)


def test_each_gpu_has_a_run_of_its_own_copies() -> None:
    links = make_links()
    runs = runs_of(links)
    assert [run.device.index for run in runs] == [0, 1]
    for run in runs:
        assert [(row.direction, row.side) for row in run.measurements] == [
            *(("h2d", "h2d"), ("d2h", "d2h")),
            *(("both", "h2d"), ("both", "d2h"), ("both", "sum")),
        ]
        assert run.ceiling("h2d", "128MiB").gbps == pytest.approx(55.5, rel=1e-3)
        assert run.ceiling("both", "128MiB").gbps == pytest.approx(103.5, rel=1e-3)
        assert codec.decode(Run, codec.encode(run)) == run


def test_a_sound_host_has_no_fault_between_its_gpus() -> None:
    found = examine_links(make_links(4, groups=("together", "pairs")))
    assert not {"shared-uplink", "slow-link", "together", "no-nvlink", "another-way"} & (
        codes(found, "wrong") | codes(found, "suspicious")
    )
    assert "shared-uplink" in codes(found, "fine")
    assert codec.decode(Examination, codec.encode(found)) == found


def test_a_shared_uplink_and_a_slow_gpu_are_found() -> None:
    found = examine_links(make_links(4, wired, groups=("together",)))
    shared = [finding for finding in found.findings if finding.code == "shared-uplink"]
    assert {finding.subject for finding in shared} == {"GPUs 0 and 1, h2d", "GPUs 0 and 1, d2h"}
    slow = {finding.subject: finding.status for finding in found.findings if finding.code == "slow-link"}
    assert slow == {"host to 3, h2d": "wrong", "3 to host, d2h": "wrong", "host to 3, both": "wrong"} or set(slow) == {
        "host to 3, h2d",
        "3 to host, d2h",
    }
    assert any(finding.subject.startswith("GPU 3, ceiling") for finding in found.of("wrong"))


def test_a_limit_of_all_gpus_that_no_pair_shows_is_found() -> None:
    links = make_links(4, lambda plan, flow: 40.0 if len(plan.flows) == 4 else 55.0, groups=("together",))
    assert "together" in codes(examine_links(links), "suspicious")


def test_missing_nvlinks_and_bytes_on_another_way_are_found() -> None:
    links = make_links(4, groups=("host", "pairs"), peers=peer_links(4, bare=[(0, 2)]))
    assert "no-nvlink" in codes(examine_links(links), "suspicious")
    place = next(i for i, row in enumerate(links.traffics) if row.case == "read" and row.flows[0].destination == 1)
    row, rows = links.traffics[place], list(links.traffics)
    rows[place] = msgspec.structs.replace(row, counted=(Counted(row.flows[0].source, "pcie-sent", Fact(100), 100),))
    assert "another-way" not in codes(examine_links(msgspec.structs.replace(links, traffics=tuple(rows))), "wrong")
    counted = (*rows[place].counted, Counted(row.flows[0].source, "nvlink-sent", Fact(0), 100))
    rows[place] = msgspec.structs.replace(row, counted=counted)
    assert "another-way" in codes(examine_links(msgspec.structs.replace(links, traffics=tuple(rows))), "wrong")


def test_wrong_contents_are_found() -> None:
    links = make_links(groups=("host",))
    row = links.traffics[0]
    flow = msgspec.structs.replace(row.flows[0], verified=Fact(False))
    rows = (msgspec.structs.replace(row, flows=(flow,)), *links.traffics[1:])
    assert "links-contents" in codes(examine_links(msgspec.structs.replace(links, traffics=rows)), "wrong")


def test_a_run_without_copies_of_the_host_cannot_be_examined() -> None:
    with pytest.raises(UsageError):
        examine_links(make_links(groups=("pairs",)))
