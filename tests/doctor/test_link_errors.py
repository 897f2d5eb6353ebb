"""Errors of the link, compared with the rate that PCI Express allows."""

from __future__ import annotations

import math

import pytest
from doctor.cases import counters, found, health, only, port_errors

from pyxfer._doctor import link
from pyxfer._document.examinations import Finding, Health, PortErrors
from pyxfer._document.runs import unknown

TB = 10**12


def of_replays(count: int | None, moved_bytes: int = TB, before: int = 0, rollovers: int = 0) -> Finding:
    grown = None if count is None else before + count
    seen = health(before=counters(before), after=counters(grown, replay_rollovers=rollovers), moved_bytes=moved_bytes)
    return only(link.replays, health=seen)


def test_the_allowed_errors_grow_with_the_bytes() -> None:
    assert [link.most_errors(nbytes) for nbytes in (0, TB // 8, TB)] == [0, 5, 18]


@pytest.mark.parametrize("terabytes", [1, 10, 60, 62, 63, 100, 1000])
def test_the_allowed_errors_are_three_deviations_above_the_mean(terabytes: int) -> None:
    mean = 8 * terabytes
    assert mean + 2.8 * math.sqrt(mean) <= link.most_errors(terabytes * TB) <= mean + 3.7 * math.sqrt(mean)


@pytest.mark.parametrize(("count", "status"), [(0, "fine"), (18, "fine"), (19, "suspicious"), (5000, "suspicious")])
def test_replays_beyond_the_bit_error_rate_are_suspicious(count: int, status: str) -> None:
    assert of_replays(count).status == status


def test_replays_are_shown_per_terabyte() -> None:
    assert "19 sent again while 300 GB crossed, 63.3 per TB" in of_replays(19, moved_bytes=3 * TB // 10).seen


def test_earlier_replays_are_shown_and_not_judged() -> None:
    finding = of_replays(0, before=70_000)
    assert finding.status == "fine"
    assert finding.seen.endswith("; 70000 before")


def test_a_link_that_retrained_is_wrong() -> None:
    assert of_replays(4, rollovers=1).status == "wrong"


def test_a_counter_that_was_reset_is_unknown() -> None:
    seen = health(before=counters(9), after=counters(2))
    finding = only(link.replays, health=seen)
    assert (finding.status, finding.seen) == ("unknown", "the count went from 9 to 2, so it was reset in between")


def test_a_missing_counter_is_unknown() -> None:
    assert of_replays(None).seen == "Not Supported"


def test_without_moved_bytes_no_error_is_allowed() -> None:
    assert of_replays(1, moved_bytes=0).status == "suspicious"
    assert "nothing crossed" in of_replays(0, moved_bytes=0).seen


def of_errors(before: Health, **after: object) -> Finding:
    return only(link.link_errors, health=health(before=before.before, after=counters(**after)))  # type: ignore[arg-type]


def errors(**after: object) -> Finding:
    ports = (port_errors("0000:3b:00.0"), port_errors("0000:3a:01.0"))
    return of_errors(health(before=counters(ports=ports)), **{"ports": ports, **after})


def test_no_error_is_fine_with_the_number_of_places() -> None:
    assert (errors().status, errors().seen) == ("fine", "no error, counted in 3 places")
    assert errors(correctable=7).seen == "7 corrected, none uncorrected, counted in 3 places"


def test_a_port_that_is_gone_is_not_counted() -> None:
    assert errors(ports=(port_errors("0000:3a:01.0"),)).seen == "no error, counted in 2 places"


def test_only_places_that_can_be_read_are_counted() -> None:
    one = counters(nonfatal=None, fatal=None, ports=(port_errors("0000:3b:00.0", None, None, None),))
    assert only(link.link_errors, health=health(before=one, after=one)).seen == "no error, counted in 1 place"


@pytest.mark.parametrize("kind", ["nonfatal", "fatal"])
def test_an_uncorrected_error_of_a_port_is_wrong_and_names_the_port(kind: str) -> None:
    ports = (port_errors("0000:3b:00.0"), port_errors("0000:3a:01.0", **{kind: 1}))
    finding = errors(ports=ports)
    assert finding.status == "wrong"
    assert "1 at 0000:3a:01.0" in finding.seen


def test_an_uncorrected_error_of_the_gpu_is_wrong() -> None:
    finding = errors(nonfatal=1)
    assert finding.status == "wrong"
    assert "1 at the GPU" in finding.seen


@pytest.mark.parametrize(("count", "status"), [(7, "fine"), (8, "suspicious")])
def test_the_allowed_number_of_errors_may_be_corrected(count: int, status: str) -> None:
    assert link.most_errors(health().moved_bytes) == 7
    assert errors(correctable=count).status == status


def test_earlier_errors_are_not_judged() -> None:
    ports = (port_errors("0000:3b:00.0", 900, 3, 1),)
    before = health(before=counters(correctable=900, nonfatal=3, ports=ports))
    assert of_errors(before, correctable=900, nonfatal=3, ports=ports).status == "fine"


def test_without_counters_errors_are_unknown() -> None:
    silent = PortErrors("0000:3b:00.0", *[unknown("no AER")] * 3)
    nothing = counters(correctable=None, nonfatal=None, fatal=None, ports=(silent,))
    finding = only(link.link_errors, health=health(before=nothing, after=nothing))
    assert (finding.status, finding.seen) == ("unknown", "Not Supported")


def test_a_saved_run_has_no_counters() -> None:
    assert found(link.replays, health=None) == found(link.link_errors, health=None) == []
