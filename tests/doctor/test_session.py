"""An examination of this host, of a saved run, and of a run of links."""

from __future__ import annotations

import msgspec
import pytest
from doctor.cases import LARGE, copy, h200
from link_samples import h200_rate, make_links, peer_links

from pyxfer._doctor import session
from pyxfer._doctor.examine import examine_run
from pyxfer._doctor.links import examine_links
from pyxfer._document import codec
from pyxfer._document.examinations import Examination, Status
from pyxfer._document.links import Counted, FlowPlan
from pyxfer._document.machines import Fact, Placement, unknown
from pyxfer._document.runs import Run, Trial
from pyxfer._links.plan import TrafficPlan
from pyxfer._measure.link_runs import runs_of
from pyxfer._measure.sampler import Progress
from pyxfer.errors import UsageError


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
