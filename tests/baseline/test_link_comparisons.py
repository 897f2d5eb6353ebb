"""Comparing links: what is found of a slow host, what is not found of an equal one, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from baseline.link_processes import make_process, make_processes, make_sample, shared_uplink, slow_pair, without_nvlinks
from link_samples import h200_rate, link_device, make_links, peer_links
from samples import make_device, make_run

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.figures import Figure, figures_of
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Comparison
from pyxfer._document.cells import parse_cell
from pyxfer._document.links import FlowPlan, Links
from pyxfer._document.machines import Fact
from pyxfer._links.plan import TrafficPlan
from pyxfer.errors import UsageError

MADE_AT = "2025-11-21T09:00:00+00:00"


def slow(comparison: Comparison) -> set[str]:
    return {row.text for row in comparison.cells if row.verdict == "SLOW"}


def causes(comparison: Comparison) -> list[str]:
    return [cause.code for cause in comparison.causes]


def compared(**settings: Any) -> Comparison:
    alike = {name: settings[name] for name in ("count", "gpus") if name in settings}
    return compare_samples(make_sample("A", **alike), make_sample("B", seed=2, **settings))


def refusal(a: Sample, b: Sample) -> str:
    with pytest.raises(UsageError) as caught:
        compare_samples(a, b)
    return str(caught.value)


def test_a_slow_pair_is_found_and_nothing_else() -> None:
    found = compared(count=5, gpus=4, rate_of=slow_pair(1, 2))
    expected = {
        f"links.pairs.{case}.{engine}:gpu1-gpu2"
        for case, engine in (("write", "ce"), ("write", "sm"), ("read", "ce"), ("read", "sm"), ("through-host", "ce"))
    }
    alone = {text.rpartition(":")[0] for text in slow(found) if text.split(".")[2] in ("read", "write", "through-host")}
    assert alone == expected
    assert all(("1" in text and "2" in text) or "all" in text for text in slow(found))
    # One of twelve streams at half its rate takes 4 % of all pairs.
    unsure = {row.text for row in found.cells if row.verdict == "AMBIGUOUS"}
    assert unsure == {f"links.pairs.all-pairs.{engine}:all:512MiB" for engine in ("ce", "sm")}


def test_a_shared_uplink_slows_copies_together_and_not_alone() -> None:
    found = compared(rate_of=shared_uplink(0, 1))
    assert slow(found) == {
        f"links.together.{case}:128MiB"
        for engine in ("ce", "sm")
        for case in (
            *(f"h2d.{engine}:{ends}" for ends in ("host-gpu0", "host-gpu1", "host-gpu0+gpu1")),
            f"both.{engine}:gpu0+gpu1",
        )
    }
    assert causes(found)[:1] == ["shared-uplink"]
    assert "only-together" in causes(found)
    assert "share an uplink in h2d" in found.causes[0].text


def test_a_slow_gpu_is_named() -> None:
    def rate(plan: TrafficPlan, flow: FlowPlan) -> float:
        touches = 2 in (flow.source, flow.destination)
        return h200_rate(plan, flow) * (0.7 if touches and len(plan.flows) == 1 else 1.0)

    found = compared(gpus=4, rate_of=rate)
    (one,) = (cause for cause in found.causes if cause.code == "one-gpu")
    assert "GPU 2" in one.text


def test_lost_nvlinks_and_lost_access_are_causes() -> None:
    lost = tuple(
        msgspec.structs.replace(peer, access=Fact(False)) if peer.source == 1 else peer for peer in peer_links(2)
    )
    runs = make_processes(seed=2, rate_of=slow_pair(0, 1))
    changed = [msgspec.structs.replace(without_nvlinks(run, 0, 12), peers=lost) for run in runs]
    found = compare_samples(make_sample("A"), Sample("B", tuple(changed)))
    texts = {cause.code: cause.text for cause in found.causes}
    assert "GPU 0 has 12 active NVLinks, and had 18" in texts["nvlinks"]
    assert "1 to 0" in texts["peer-access"]


def test_a_link_trained_lower_is_a_cause_of_its_gpu_only() -> None:
    def rate(plan: TrafficPlan, flow: FlowPlan) -> float:
        return h200_rate(plan, flow) * (0.5 if flow.device == 1 and flow.side in ("h2d", "d2h") else 1.0)

    runs = []
    for run in make_processes(seed=2, rate_of=rate):
        first, second = run.devices
        link = second.link
        state = link.under_load.value or link.now.value
        assert state is not None
        narrow = msgspec.structs.replace(state, width=8)
        devices = (first, msgspec.structs.replace(second, link=msgspec.structs.replace(link, under_load=Fact(narrow))))
        runs.append(msgspec.structs.replace(run, devices=devices))
    found = compare_samples(make_sample("A"), Sample("B", tuple(runs)))
    (cause,) = (cause for cause in found.causes if cause.code == "link-narrow")
    assert cause.text.startswith("GPU 1: The link is trained at PCIe 5.0 x8")
    assert {difference.what for difference in found.differences} >= {"link"}


def test_a_longer_latency_is_slow() -> None:
    def longer(number: int) -> Any:
        links = make_process(number, seed=2, groups=("host", "latency"))
        rows = tuple(
            msgspec.structs.replace(row, p50=Fact(msgspec.structs.replace(row.p50.value, ns=2 * (row.ns or 0.0))))
            if row.target == row.device and row.load == 0 and row.p50.value is not None
            else row
            for row in links.latencies
        )
        return msgspec.structs.replace(links, latencies=rows)

    before = make_sample("A", groups=("host", "latency"))
    found = compare_samples(before, Sample("B", tuple(longer(number) for number in range(3))))
    assert {text.rpartition(":")[0] for text in slow(found)} == {
        f"links.latency.idle:gpu{gpu}-gpu{gpu}" for gpu in (0, 1)
    }
    row = next(row for row in found.cells if row.text == "links.latency.idle:gpu0-gpu0:2MiB")
    assert row.a_s.value == pytest.approx(142e-9, rel=0.01)
    assert row.b_s.value == pytest.approx(284e-9, rel=0.01)


def test_a_cell_with_wrong_contents_is_not_compared() -> None:
    def damaged(links: Any) -> Any:
        row = links.traffics[0]
        flow = msgspec.structs.replace(row.flows[0], verified=Fact(False))
        return msgspec.structs.replace(
            links, traffics=(msgspec.structs.replace(row, flows=(flow,)), *links.traffics[1:])
        )

    found = compare_samples(make_sample("A"), Sample("B", tuple(map(damaged, make_processes(seed=2)))))
    (row,) = (row for row in found.cells if row.ratio.value is None)
    assert row.text == "links.host.h2d.ce:host-gpu0:128MiB"
    assert "contents differ" in row.why


# --- refused ---------------------------------------------------------------------------------------------------------


def test_links_are_not_compared_with_a_ceiling_run() -> None:
    run = Sample("run.json", (make_run(),))
    assert "links.json is of links, whose rates are those of many copies" in refusal(make_sample("links.json"), run)
    assert "run.json times single copies" in refusal(run, make_sample("links.json"))


def test_another_number_of_gpus_is_refused_with_both_numbers() -> None:
    assert "A is of 2 x H200 and B of 4 x H200" in refusal(make_sample("A"), make_sample("B", seed=2, gpus=4))


def test_the_same_gpus_under_other_numbers_are_refused() -> None:
    devices = tuple(link_device(make_device(index=n, uuid=Fact(f"GPU-{1 - n}"))) for n in (0, 1))
    other = make_sample("B", seed=2, devices=devices)
    assert "under different numbers" in refusal(make_sample("A"), other)


def test_gpus_of_another_host_are_compared_with_a_remark() -> None:
    devices = tuple(link_device(make_device(index=n, uuid=Fact(f"GPU-x{n}"))) for n in (0, 1))
    found = compare_samples(make_sample("A"), make_sample("B", seed=2, devices=devices))
    assert found.verdict == "SAME"
    assert "other-gpu" in {remark.code for remark in found.remarks}


def test_a_side_with_links_and_other_runs_is_refused() -> None:
    assert "links beside other runs" in refusal(Sample("A", (make_process(0, 1), make_run())), make_sample("B", seed=2))


# --- cells of links --------------------------------------------------------------------------------------------------


def by_text(links: Links) -> dict[str, Figure]:
    return {figure.cell.text: figure for figure in figures_of(links)}


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_every_cell_has_a_name_of_its_own_that_finds_it_alone(gpus: int) -> None:
    cells = [figure.cell for figure in figures_of(make_links(gpus, nodes=(0, 1)))]
    assert len(set(cells)) == len(cells)
    for cell in cells:
        pattern = parse_cell(cell.text)
        assert [other for other in cells if pattern.matches(other)] == [cell]


def test_gpus_together_have_a_total_and_their_streams_but_both_directions_only_a_total() -> None:
    texts = {
        text.removesuffix(":128MiB") for text in by_text(make_links(2)) if ".together." in text or ".both.ce" in text
    }
    assert {
        text for text in texts if text.endswith(("host-gpu0", "host-gpu1", "host-gpu0+gpu1")) and ".ce:" in text
    } == {f"links.together.h2d.ce:{ends}" for ends in ("host-gpu0", "host-gpu1", "host-gpu0+gpu1")}
    assert {text for text in texts if ".both.ce:" in text} == {
        *(f"links.host.both.ce:gpu{gpu}" for gpu in (0, 1)),
        "links.together.both.ce:gpu0+gpu1",
    }


def test_the_names_of_four_gpus() -> None:
    assert {
        "links.together.h2d.ce:host-all:128MiB",
        "links.together.both.sm:all:128MiB",
        "links.together.beside-d2h.ce:gpu2+gpu3-host:128MiB",
        "links.pairs.write.ce:gpu0-gpu3:512MiB",
        "links.pairs.through-host.ce:gpu3-gpu0:128MiB",
        "links.pairs.both-read.ce:gpu1+gpu2:512MiB",
        "links.pairs.all-to-one-write.ce:all-gpu3:512MiB",
        "links.pairs.one-to-all-read.ce:gpu3-all:512MiB",
        "links.pairs.ring.ce:all:512MiB",
        "links.local.copy.sm:gpu2-gpu2:2GiB",
        "links.numa.h2d.ce:node1-gpu2:128MiB",
        "links.latency.idle:host-gpu0:2MiB",
        "links.latency.idle:node1-gpu0:2MiB",
        "links.latency.load-100:gpu1-gpu0:2MiB",
        "links.small.batch:gpu2-host:4KiB",
    } <= by_text(make_links(4, nodes=(0, 1))).keys()


def test_a_name_without_engine_ends_or_size_matches_any() -> None:
    cells = [figure.cell for figure in figures_of(make_links(2))]

    def found(text: str) -> set[str]:
        pattern = parse_cell(text)
        return {cell.text for cell in cells if pattern.matches(cell)}

    assert found("links.pairs.write.ce") == {
        f"links.pairs.write.ce:{ends}:512MiB" for ends in ("gpu0-gpu1", "gpu1-gpu0")
    }
    assert found("links.pairs.write:gpu0-gpu1") == {
        f"links.pairs.write.{engine}:gpu0-gpu1:512MiB" for engine in ("ce", "sm")
    }
    assert found("links.pairs.wri") == set()
    assert found("links.latency:2MiB") == {text for text in found("links.latency") if text.endswith(":2MiB")}
    assert not any(parse_cell("h2d:pinned:64MiB").matches(cell) for cell in cells)


@pytest.mark.parametrize(
    "text",
    [
        "links.pairs.wri.te.ce",
        "links.pear",
        "links.pairs.write.cp",
        "links.pairs:gpu0-gpu1:512MiB:2",
        "links.pairs:512MiB:gpu0-gpu1",
        "links.pairs::512MiB",
    ],
)
def test_a_name_with_other_parts_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cell(text)


def test_a_rate_is_a_time_for_one_copy_and_a_latency_one_for_one_load() -> None:
    figures = by_text(make_links(2))
    pair, load = figures["links.pairs.write.ce:gpu0-gpu1:512MiB"], figures["links.latency.idle:host-gpu0:2MiB"]
    assert pair.gbps == pytest.approx(396.1, rel=1e-3)
    assert pair.seconds == pytest.approx((512 << 20) / 396.1e9, rel=1e-3)
    assert pair.rate is not None
    assert (pair.rate.low_gbps or 0.0) < pair.rate.gbps < (pair.rate.high_gbps or 0.0)
    assert load.seconds == pytest.approx(1181e-9, rel=1e-3)
    assert load.gbps == pytest.approx(8 / 1181, rel=1e-3)


def test_the_median_of_short_launches_is_no_cell_without_a_load() -> None:
    links = make_links(1)
    short = [row for row in links.latencies if row.hops < row.places]
    assert {row.load for row in short} == {0.0, 0.5, 1.0}
    assert sum(text.startswith("links.latency.") for text in by_text(links)) == len(links.latencies) - 2
