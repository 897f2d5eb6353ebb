"""What the doctor finds in a run of links, and the runs of its GPUs."""

from __future__ import annotations

import msgspec
import pytest
from link_samples import h200_rate, make_links, peer_links

from pyxfer._doctor.links import examine_links
from pyxfer._document import codec
from pyxfer._document.examinations import Examination
from pyxfer._document.links import Counted
from pyxfer._document.machines import Fact
from pyxfer._document.runs import Run
from pyxfer._links.plan import FlowPlan, TrafficPlan
from pyxfer._measure.link_runs import runs_of
from pyxfer.errors import UsageError


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
