"""Documents to verdicts: bad files, cohorts large and small, confirmations, duplicates, hosts that are not judged."""

from __future__ import annotations

import errno
import gzip
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fleet_samples import (
    CELLS,
    HOSTILE,
    LATENCY,
    arrivals,
    by_name,
    judged,
    later,
    make_cell,
    make_fleet,
    make_host,
    make_hosts,
    slow_names,
)
from marks import slow
from samples import make_device, make_environment, make_run

from pyxfer._document import codec, fleets
from pyxfer._document.fleets import CohortCell, Fleet, HostReport, HostState
from pyxfer._document.machines import Fact, Remark
from pyxfer._fleet import collect
from pyxfer._fleet.collect import Arrival, arrival_of, read_confirmations, read_reports, row_of
from pyxfer._fleet.judge import hosts_to_confirm, judge
from pyxfer._report.fleet_formats import drain_lines, nagios_line, npd_line
from pyxfer._report.kinds import chart_of, charts_of
from pyxfer.errors import UsageError

PINNED = "h2d:gpu0:pinned:256MiB"


def test_equal_hosts_are_fine() -> None:
    fleet = judged(make_hosts(60))
    assert {host.verdict for host in fleet.hosts} == {"fine"}
    assert hosts_to_confirm(fleet) == ()
    (cohort,) = fleet.cohorts
    assert [cell.judged_by for cell in cohort.cells] == ["cohort"] * len(CELLS)
    assert cohort.cells[0].usual.value == pytest.approx(55.0, rel=0.001)


def test_a_flagged_host_is_suspect_until_it_is_measured_again() -> None:
    fleet = judge(arrivals(make_hosts(60, {7: 0.03})))
    assert [host.host for host in fleet.with_verdict("suspect")] == ["n7"]
    assert by_name(fleet)["n7"].losses[0].confirmed is None
    wanted = hosts_to_confirm(fleet)
    assert wanted[0] == "n7"
    assert len(wanted) == 3


def test_a_loss_that_stays_is_slow_and_one_that_goes_away_is_fine() -> None:
    hosts = make_hosts(60, {7: 0.03})
    found = by_name(judged(hosts, make_hosts(60, seed=2)))["n7"]
    assert (found.verdict, found.losses[0].confirmed) == ("fine", False)
    fleet = judged(hosts)
    assert slow_names(fleet) == ["n7"]
    (loss,) = by_name(fleet)["n7"].losses
    assert (loss.cell.text, loss.confirmed) == (PINNED, True)
    assert loss.stated == pytest.approx(0.03, abs=0.005)
    assert loss.usual == pytest.approx(55.0, rel=0.001)
    assert hosts_to_confirm(fleet) == ()


def test_what_the_controls_have_lost_as_well_is_no_loss_of_the_host() -> None:
    again = [
        make_host(report.host or "", {cell.cell.text: (cell.value.value or 0) * 0.95 for cell in report.cells})
        for report in make_hosts(60, seed=2)
    ]
    assert slow_names(judged(make_hosts(60, {7: 0.03}), again)) == []


def second_looks(hosts: list[HostReport], *own: HostReport) -> list[Arrival]:
    """Later documents of the controls, with the same figures, and of other hosts."""
    controls = hosts_to_confirm(judge(arrivals(hosts)))[1:]
    return arrivals([*map(later, (report for report in hosts if report.host in controls)), *map(later, own)])


def codes_of(fleet: Fleet) -> set[str]:
    return {remark.code for remark in (*fleet.remarks, *(each for cohort in fleet.cohorts for each in cohort.remarks))}


@pytest.mark.parametrize(
    ("again", "controls", "code"),
    [
        ({"began_at": "2026-11-23T12:00:00+00:00"}, True, "too-early"),
        ({"began_at": "2024-01-01T00:00:00+00:00"}, True, "too-early"),
        ({}, False, "no-control"),
        (None, True, "unanswered"),
    ],
    ids=["as early", "earlier", "without controls", "no document"],
)
def test_a_second_measurement_that_confirms_nothing_has_a_remark(
    again: dict[str, str] | None, controls: bool, code: str
) -> None:
    hosts = make_hosts(60, {7: 0.03})
    second = Arrival("n7", "lost", "the node went away", None, "ssh")
    if again is not None:
        (second,) = arrivals([msgspec.structs.replace(later(hosts[7]), **again)])
    fleet = judge(arrivals(hosts), confirmations=[*(second_looks(hosts) if controls else ()), second])
    assert by_name(fleet)["n7"].verdict == "suspect"
    assert codes_of(fleet) == {code}
    assert len(fleet.hosts) == 60


def test_what_can_be_found_depends_on_the_intervals_of_the_hosts() -> None:
    sure, unsure = judged(make_hosts(60)), judged([widened(report) for report in make_hosts(60, {7: 0.03})])
    assert slow_names(unsure) == []

    def limit(fleet: Fleet) -> float:
        return next(cell.detection_limit.value or 0 for cell in fleet.cohorts[0].cells if cell.cell.text == PINNED)

    assert limit(sure) < 0.03 < limit(unsure)


def widened(report: HostReport) -> HostReport:
    """The same figures, known within 3 %."""
    cells = [
        msgspec.structs.replace(cell, low=0.97 * cell.value.value, high=1.03 * cell.value.value)
        for cell in report.cells
        if cell.value.value is not None
    ]
    return msgspec.structs.replace(report, cells=tuple(cells))


def test_of_several_confirmations_most_decide() -> None:
    hosts = make_hosts(60, {7: 0.03})
    good = make_hosts(60)[7]

    def verdict(*again: HostReport) -> str:
        fleet = judge(arrivals(hosts), confirmations=second_looks(hosts, *again))
        return by_name(fleet)["n7"].verdict

    assert verdict(hosts[7], hosts[7]) == "slow"
    assert verdict(hosts[7], good, good) == "fine"


def test_a_higher_latency_is_a_loss() -> None:
    hosts = make_hosts(60, {7: -0.25}, cell=LATENCY, cells={LATENCY: 1100.0})
    (loss,) = by_name(judged(hosts))["n7"].losses
    assert loss.stated == pytest.approx(0.25, abs=0.01)
    assert loss.value > loss.usual
    assert slow_names(judged(make_hosts(60, {7: 0.25}, cell=LATENCY, cells={LATENCY: 1100.0}))) == []


def test_the_state_of_the_link_is_evidence_and_no_cohort() -> None:
    facts = {"link capability": "PCIe 5.0 x16", "link state": "PCIe 4.0 x16"}
    hosts = make_hosts(60, {7: 0.48})
    hosts[7] = msgspec.structs.replace(hosts[7], facts=facts)
    fleet = judged(hosts)
    assert len(fleet.cohorts) == 1
    assert slow_names(fleet) == ["n7"]


@pytest.mark.parametrize(
    "other",
    [
        {"devices": (make_device(name="NVIDIA L4"),)},
        {"facts": {"link capability": "PCIe 4.0 x16"}},
        {"devices": (make_device(), make_device(index=1))},
        {"environment": make_environment(cpu_model=Fact("AMD EPYC"))},
        {"environment": make_environment(virtual_machine=Fact("KVM"))},
    ],
)
def test_what_hosts_have_in_common_decides_about_cohorts(other: dict[str, Any]) -> None:
    assert len(judge(arrivals([make_host("a"), make_host("b", **other)])).cohorts) == 2


def test_two_groups_have_no_slow_host_and_their_losses() -> None:
    fleet = judged(make_hosts(16, dict.fromkeys((1, 2, 3, 4), 0.08)))
    assert slow_names(fleet) == []
    groups = fleet.cohorts[0].cells[0].groups
    assert groups is not None
    assert groups.slower == (1, 2, 3, 4)
    assert groups.loss == pytest.approx(0.08, abs=0.005)
    assert [(each.what, each.slow, each.of_slow, each.others) for each in fleet.contrasts] == [("rack", 4, 4, 0)]


def test_the_cause_is_what_slow_hosts_share() -> None:
    (contrast,) = judged(make_hosts(256, dict.fromkeys((1, 20, 30, 40), 0.05))).contrasts
    assert (contrast.what, contrast.value, contrast.label) == ("rack", "r7", True)
    assert (contrast.slow, contrast.of_slow, contrast.others, contrast.of_others) == (4, 4, 0, 252)
    assert [cell.text for cell in contrast.cells] == [PINNED]
    assert contrast.hosts == (1, 20, 30, 40)


@pytest.mark.parametrize(
    ("began_at", "codes"),
    [("2026-11-20T12:00:00+00:00", ["duplicates"]), ("2199-01-01T00:00:00", ["future", "duplicates"])],
)
def test_the_newest_document_that_is_not_of_the_future_is_judged(began_at: str, codes: list[str]) -> None:
    other = make_host("n7", {PINNED: 20.0}, began_at=began_at)
    fleet = judged([other, *make_hosts(60)])
    assert [(host.state, host.verdict) for host in fleet.hosts if host.host == "n7"] == [
        ("duplicate", "not judged"),
        ("measured", "fine"),
    ]
    assert slow_names(fleet) == []
    assert [remark.code for remark in fleet.remarks] == codes
    assert fleet.host("n7").state == "measured"


def test_one_machine_under_two_names_and_several_versions_are_remarks() -> None:
    rows = [*arrivals(make_hosts(12)), row_of(make_host("n3"), "10.0.0.3", "ssh")]
    (remark,) = judge(rows).remarks
    assert remark.code == "one-machine"
    assert "n3" in remark.text
    new = make_host("n99", environment=make_environment(pyxfer="9.0"))
    assert [remark.code for remark in judge(arrivals([*make_hosts(20), new])).remarks] == ["versions"]


def test_a_document_under_another_name_speaks_for_no_host() -> None:
    hosts = make_hosts(60)
    planted = make_hosts(60, {7: 0.2})[7]
    planted = msgspec.structs.replace(planted, began_at="2026-11-23T18:00:00+00:00")
    unnamed = row_of(planted, "n7", "zz.json")
    # Neither in place of the host's own document, nor as its confirmation.
    second = replace(unnamed, report=later(planted))
    fleet = judge([*arrivals(hosts), unnamed], confirmations=[*second_looks(hosts), second])
    assert {host.verdict for host in fleet.hosts if host.host == "n7"} == {"fine", "not judged"}
    slow = make_hosts(60, {7: 0.2})
    fleet = judge(arrivals(slow), confirmations=[*second_looks(slow), replace(second, report=later(later(planted)))])
    assert by_name(fleet)["n7"].verdict == "suspect"
    assert codes_of(fleet) == {"other-name"}
    # Without another document it is judged, and not drained.
    fleet = judge(
        [unnamed, *(row for row in arrivals(slow) if row.host != "n7")], confirmations=[*second_looks(slow), second]
    )
    assert slow_names(fleet) == ["n7"]
    assert drain_lines(fleet) == ""


def test_hosts_that_were_measured_beside_another_pyxfer_are_named() -> None:
    hosts = make_hosts(20)
    hosts[3] = msgspec.structs.replace(hosts[3], remarks=(Remark("contended", "another pyxfer (process 7)"),))
    (remark,) = judged(hosts).remarks
    assert remark.code == "contended"
    assert "n3" in remark.text


@pytest.mark.parametrize("began_at", ["1970-01-01T00:00:00+00:00", "2199-01-01T00:00:00"])
def test_a_clock_that_is_off_changes_no_verdict(began_at: str) -> None:
    hosts = make_hosts(60, {7: 0.03})
    hosts[7] = msgspec.structs.replace(hosts[7], began_at=began_at)
    assert slow_names(judged(hosts)) == ["n7"]


@pytest.mark.parametrize("state", ["late", "lost", "busy", "failed", "unreadable", "no GPU"])
def test_a_host_in_trouble_is_a_row_and_changes_no_verdict(state: HostState) -> None:
    fleet = judge([Arrival("trouble", state, "why", None, "ssh"), *arrivals(make_hosts(20))])
    hosts = by_name(fleet)
    row = hosts.pop("trouble")
    assert (row.state, row.verdict, row.reason, row.cohort) == (state, "not judged", "why", None)
    assert {host.verdict for host in hosts.values()} == {"fine"}
    assert hosts_to_confirm(fleet) == ()


def test_a_failed_host_is_judged_by_the_figures_that_it_has() -> None:
    hosts = make_hosts(60, {7: 0.05})
    hosts[7] = msgspec.structs.replace(hosts[7], ended="failed", failure="GPU 1 is lost")
    hosts[8] = msgspec.structs.replace(hosts[8], ended="failed", failure="GPU 1 is lost")
    found = by_name(judged(hosts))
    assert found["n7"].verdict == "slow"
    assert (found["n8"].verdict, found["n8"].reason) == ("not judged", "GPU 1 is lost")


def test_a_cell_of_a_few_hosts_is_not_judged() -> None:
    extra = make_host("n99", {**CELLS, "d2h:gpu0:pageable:1MiB": 1.0})
    cells = {cell.cell.text: cell for cell in judge(arrivals([*make_hosts(20), extra])).cohorts[0].cells}
    assert cells["d2h:gpu0:pageable:1MiB"].judged_by == "none"
    assert cells["d2h:gpu0:pageable:1MiB"].detection_limit.reason


def test_an_empty_fleet_is_a_document() -> None:
    assert judge([]).hosts == ()


def test_hostile_names_change_no_verdict() -> None:
    hosts = [*make_hosts(59), make_host(HOSTILE, {**CELLS, PINNED: 40.0}, labels={HOSTILE: HOSTILE})]
    assert slow_names(judged(hosts)) == [HOSTILE]


SMALL = "h2d:gpu0:pinned:4KiB"
PAGEABLE = "h2d:gpu0:pageable:256MiB"
OTHER = {"link capability": "PCIe 4.0 x16"}


def cells_of(*hosts: HostReport) -> dict[str, CohortCell]:
    (cohort,) = judge(arrivals(list(hosts))).cohorts
    return {cell.cell.text: cell for cell in cohort.cells}


def with_peak(host: str, value: float, peak: float = 28.0) -> HostReport:
    return make_host(host, {}, cells=(make_cell(PINNED, value, peak),), facts=OTHER)


def test_one_host_is_held_against_a_known_host_with_its_gpu_and_link() -> None:
    cell = cells_of(make_host("a", {PINNED: 55.0}))[PINNED]
    assert cell.judged_by == "known host"
    assert cell.usual.value == pytest.approx(55.5, abs=0.1)
    assert cell.detection_limit.value == pytest.approx(0.05, abs=0.005)


def test_pageable_memory_has_more_room() -> None:
    hosts = [make_host("a", {PINNED: 55.0, PAGEABLE: 7.0}), make_host("b", {PINNED: 55.0, PAGEABLE: 3.0})]
    assert slow_names(judged(hosts)) == ["b"]


def test_without_a_known_host_pinned_copies_are_held_against_the_peak() -> None:
    hosts = [with_peak("a", 26.0), with_peak("b", 13.0)]
    assert cells_of(*hosts)[PINNED].judged_by == "peak"
    assert slow_names(judged(hosts)) == ["b"]


def test_three_hosts_without_a_peak_are_compared_with_each_other() -> None:
    hosts = [make_host(name, {SMALL: rate}, facts=OTHER) for name, rate in (("a", 10.0), ("b", 5.0), ("c", 10.1))]
    assert cells_of(*hosts)[SMALL].judged_by == "few hosts"
    assert set(hosts_to_confirm(judge(arrivals(hosts)))) == {"a", "b", "c"}
    assert slow_names(judged(hosts)) == ["b"]
    unequal = [make_host(name, {SMALL: rate}, facts=OTHER) for name, rate in (("a", 10.0), ("b", 8.0), ("c", 12.0))]
    assert slow_names(judged(unequal)) == []


def test_two_hosts_of_which_nothing_is_known_are_not_judged() -> None:
    hosts = [make_host(name, {SMALL: rate}, facts=OTHER) for name, rate in (("a", 10.0), ("b", 5.0))]
    fleet = judged(hosts)
    assert {host.verdict for host in fleet.hosts} == {"not judged"}
    assert by_name(fleet)["a"].reason
    assert fleet.cohorts[0].cells[0].judged_by == "none"


def test_a_wide_interval_is_no_loss() -> None:
    unsure = make_cell(PINNED, 52.0, width=0.2)
    host = msgspec.structs.replace(make_host("a", {}), cells=(unsure,))
    assert slow_names(judged([host])) == []


@pytest.mark.parametrize(("is_known", "beside"), [(True, "a known host"), (False, "what the link could do")])
def test_equal_hosts_that_are_all_slow_get_a_remark(is_known: bool, beside: str) -> None:
    rates = {f"n{number}": 13.0 + number / 1000 for number in range(20)}
    slow = [make_host(name, {PINNED: rate}) if is_known else with_peak(name, rate) for name, rate in rates.items()]
    (remark,) = judge(arrivals(slow)).cohorts[0].remarks
    assert remark.code == "all-slow"
    assert PINNED in remark.text
    assert beside in remark.text
    assert judge(arrivals(make_hosts(20))).cohorts[0].remarks == ()


DRAWN_CELLS = (
    "h2d:gpu0:pinned:256MiB",
    "h2d:gpu1:pinned:256MiB",
    "d2h:gpu0:pageable:16MiB",
    "links.latency.idle:host-gpu0:2MiB",
    "links.together.h2d.ce:host-all:128MiB",
)


def random_host(chance: random.Random, number: int) -> HostReport:
    """Figures that are missing, equal, noisy, or as far off as a document may have them."""
    values: dict[str, float | None] = {}
    for cell in DRAWN_CELLS:
        if chance.random() < 0.9:
            noisy = 10 * (1 + 0.01 * chance.gauss(0, 1))
            values[cell] = chance.choice([None, 10.0, 10.0, noisy, noisy, 5.0, 1e-5, 1e8])
    fields: dict[str, Any] = {
        "labels": {"rack": chance.choice("ab")} if chance.random() < 0.5 else {},
        "ended": chance.choice(["complete", "complete", "interrupted", "failed"]),
        "facts": {} if chance.random() < 0.3 else {"link capability": "PCIe 5.0 x16", "driver": chance.choice("xy")},
    }
    return make_host(f"n{number if chance.random() < 0.9 else 0}", values, **fields)


@pytest.mark.parametrize("seed", [*range(12), *map(slow, range(12, 40))])
def test_any_fleet_is_judged_saved_and_shown(seed: int) -> None:
    chance = random.Random(seed)
    hosts = [random_host(chance, number) for number in range(chance.choice([1, 2, 3, 4, 5, 6, 10, 30]))]
    rows = arrivals(hosts)
    again = [replace(chance.choice(rows), host=name) for name in hosts_to_confirm(judge(rows)) if chance.random() < 0.8]
    fleet = judge(rows, confirmations=again)
    assert len(fleet.hosts) == len(hosts)
    assert codec.decode(Fleet, codec.encode(fleet)) == fleet
    assert fleet.text()
    assert drain_lines(fleet).count("\n") <= len(fleet.with_verdict("slow"))
    assert {npd_line(fleet, None)[1], nagios_line(fleet, None)[1]} <= {0, 1, 2, 3}
    assert all(chart_of(fleet, name) for name in charts_of(fleet))


@pytest.mark.parametrize("value", [1e-300, 1e300, 0.0])
def test_a_figure_that_no_host_has_is_a_bad_document(value: float) -> None:
    row = arrival_of(codec.encode(make_host("n1", {"h2d:gpu0:pinned:4KiB": value})), None, "f")
    assert (row.state, row.report) == ("unreadable", None)


def write(path: Path, *hosts: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for host in hosts:
        make_host(host).save(path / f"{host}.json")


def test_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "a", "n2", "n1")
    write(tmp_path / "a" / "inner", "n3")
    make_host("n4").save(tmp_path / "n4.json.gz")
    found = read_reports([tmp_path / "n4.json.gz", tmp_path / "a"])
    assert [row.host for row in found] == ["n4", "n1", "n2", "n3"]
    assert {row.state for row in found} == {"measured"}
    assert found[1].source == str(tmp_path / "a" / "n1.json")


def test_samples_stay_in_the_files(tmp_path: Path) -> None:
    whole = make_host("n1")
    whole.save(tmp_path / "n1.json")
    (row,) = read_reports([tmp_path])
    assert row.report is not None
    assert all(cell.samples == () and cell.value.value for cell in row.report.cells)
    assert msgspec.structs.replace(row.report, cells=whole.cells) == whole


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\x00\xff rubbish", "not JSON"),
        (codec.encode(make_host())[:2000], "cut short"),
        (codec.encode(make_run()), "is a run"),
        (b"[]", "not a pyxfer host"),
        (codec.encode(make_host()).replace(b'"schema_version": 1', b'"schema_version": 99'), "upgrade pyxfer"),
        (codec.encode(make_host()).replace(b'"ended": "complete"', b'"ended": 7'), "ended"),
        (
            codec.seal(
                codec.encode(make_host("n1", {"h2d:gpu0:pinned:4KiB": 1.0})).replace(b'"value": 1.0', b'"value": -1.0')
            ),
            "cells[0]",
        ),
        (codec.encode(make_host()).replace(b'"580.65"', b'"580.66"'), "digest"),
    ],
)
def test_a_bad_document_is_a_row_with_its_reason(data: bytes, word: str, tmp_path: Path) -> None:
    (tmp_path / "node-9.json").write_bytes(data)
    make_host("n1").save(tmp_path / "n1.json")
    good, bad = read_reports([tmp_path])
    assert good.state == "measured"
    assert (bad.host, bad.state, bad.report) == ("node-9", "unreadable", None)
    assert word in (bad.reason or "")


def test_documents_larger_than_those_of_hosts_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "n1")
    most = 2 * (tmp_path / "n1.json").stat().st_size
    monkeypatch.setattr(collect, "MAX_HOST_BYTES", most)
    monkeypatch.setattr(fleets, "MAX_CELLS", 3)
    (tmp_path / "large.json").write_bytes(bytes(most + 1))
    (tmp_path / "packed.json").write_bytes(gzip.compress(bytes(most + 1)))
    (tmp_path / "fleet.json").write_bytes(bytes(most + 1))
    cells = {f"h2d:gpu0:pinned:{size}MiB": 1.0 for size in (1, 2, 4, 8)}
    make_host("many", cells).save(tmp_path / "many.json.gz")
    rows = {row.host: (row.state, row.reason or "") for row in read_reports([tmp_path])}
    assert {host: state for host, (state, _) in rows.items()} == {
        "n1": "measured",
        **dict.fromkeys(("large", "packed", "many"), "unreadable"),
    }
    assert "larger than" in rows["large"][1]
    assert "larger than" in rows["packed"][1]
    assert "no host has more than 3" in rows["many"][1]


def test_only_regular_files_of_a_folder_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("no document")
    (tmp_path / ".pyxfer-1.tmp").write_text("half")
    write(tmp_path, "n1")
    assert [row.host for row in read_reports([tmp_path])] == ["n1"]


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "n1")
    (tmp_path / "rack").mkdir()
    scan = os.scandir

    def refused(path: str) -> Any:
        if os.fspath(path).endswith("rack"):  # root may read every folder
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(UsageError, match=r"The folder '.*rack' cannot be read \(Permission denied\)\."):
        read_reports([tmp_path])


def test_the_verdicts_beside_the_documents_are_no_host(tmp_path: Path) -> None:
    write(tmp_path, "n1")
    make_fleet().save(tmp_path / "fleet.json")
    assert [row.host for row in read_reports([tmp_path])] == ["n1"]
    assert [row.state for row in read_reports([tmp_path / "fleet.json"])] == ["unreadable"]


@pytest.mark.parametrize(("place", "given"), [("hosts", "hosts"), (".", "."), ("hosts", "hosts/n1.json")])
def test_confirmations_are_in_a_folder_of_their_own(place: str, given: str, tmp_path: Path) -> None:
    write(tmp_path / place, "n1", "n2")
    write(tmp_path / "confirmations", "n1", "n2")
    (tmp_path / "confirmations" / "n2.json").write_text("{")
    assert [(row.host, row.state) for row in read_reports([tmp_path / place])] == [
        ("n1", "measured"),
        ("n2", "measured"),
    ]
    found = read_confirmations([tmp_path / given])
    assert [(row.host, row.state) for row in found] == [("n1", "measured"), ("n2", "unreadable")]
    assert found[0].named


def test_states_of_hosts() -> None:
    cells: dict[str, float | None] = {"h2d:gpu0:pinned:256MiB": None}
    assert arrival_of(codec.encode(make_host("n1", ended="interrupted")), None, "f").state == "incomplete"
    assert arrival_of(codec.encode(make_host("n1", cells)), None, "f").state == "failed"
    failed = arrival_of(codec.encode(make_host("n1", ended="failed", failure="the GPU is lost")), None, "f")
    assert (failed.state, failed.reason) == ("failed", "the GPU is lost")
    without = arrival_of(codec.encode(make_host("n1", runtime="host", runtime_reason="no driver")), None, "f")
    assert (without.state, without.reason) == ("no GPU", "no driver")
    on_purpose = arrival_of(codec.encode(make_host("n1", runtime="host", runtime_reason="")), None, "f")
    assert on_purpose.state == "measured"


def test_a_launcher_names_the_host_itself() -> None:
    assert arrival_of(codec.encode(make_host("vm")), "node-1", "ssh").host == "node-1"
    assert arrival_of(b"rubbish", "node-1", "ssh").host == "node-1"


def test_many_files_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_MANY", 3)
    monkeypatch.setattr(collect, "_BATCH", 2)
    for report in make_hosts(5):
        report.save(tmp_path / f"{report.host}.json")
    (tmp_path / "n3.json").write_bytes(b"rubbish")
    found = read_reports([tmp_path])
    assert [(row.host, row.state) for row in found] == [
        (f"n{number}", "unreadable" if number == 3 else "measured") for number in range(5)
    ]
