"""The page of a fleet: its sentence, hosts, causes, groups, limits and missing hosts."""

from __future__ import annotations

import io

import pytest
from fleet_samples import CELLS, HOSTILE, arrivals, judged, make_fleet, make_host, make_hosts

from pyxfer._document.fleets import Fleet
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.judge import judge
from pyxfer._report.fleet import print_fleet
from pyxfer._report.fleet_words import chance_text, contrast_text, sentence
from pyxfer._report.layout import Page


def page(fleet: Fleet, columns: int | None = 100) -> str:
    stream = io.StringIO()
    print_fleet(fleet, Page(stream, columns))
    return stream.getvalue()


def late(count: int) -> list[Arrival]:
    return [Arrival(f"late-{number}", "late", "no answer within 25 s", None, "ssh") for number in range(count)]


def test_the_sentence_has_the_number_the_worst_host_and_the_cause() -> None:
    text = sentence(judged(make_hosts(256, {1: 0.05, 20: 0.08, 30: 0.05, 40: 0.05})))
    assert text.startswith("4 of 256 hosts are slow: n20 ")
    assert "in h2d:gpu0:pinned:256MiB" in text
    assert "rack=r7 on 4 of 4 slow hosts and 0 of 252 others" in text


def test_without_a_slow_host_the_sentence_says_what_would_have_been_found() -> None:
    assert (
        sentence(judged(make_hosts(60)))
        == "No host of 60 is slow; a loss of 1.4 % of any pinned copy would have been found."
    )


def test_an_unconfirmed_loss_is_no_slow_host() -> None:
    text = sentence(judge(arrivals(make_hosts(60, {7: 0.05}))))
    assert text.startswith("1 of 60 hosts was low in one look and may be slow: n7 ")


def test_two_groups_are_in_the_sentence() -> None:
    text = sentence(judged(make_hosts(16, dict.fromkeys((1, 2, 3, 4), 0.08))))
    assert "two groups of 4 and 12 hosts" in text


def test_hosts_that_were_not_measured_are_counted_with_their_reason() -> None:
    text = page(judge([*arrivals(make_hosts(20)), *late(12)]))
    assert "12 not judged" in text
    assert "late-0, late-1, late-2, late-3, late-4 and 7 more: no answer within 25 s" in text


def test_older_documents_of_a_host_are_no_further_hosts() -> None:
    older = [make_host(f"n{n}", began_at="2026-11-22T12:00:00+00:00") for n in range(3)]
    lines = page(judge(arrivals([*older, *make_hosts(20)]))).splitlines()
    assert "hosts   20: 20 fine" in lines
    assert "not judged" not in lines[0]
    assert page(judge(arrivals([make_host("n1", cells=())] * 2))).startswith("None of 1 host could")


def test_the_sentence_counts_the_hosts_that_were_not_judged() -> None:
    first = sentence(judge([*arrivals(make_hosts(20)), *late(12)]))
    assert first.startswith("No host of 20 is slow")
    assert first.endswith("; 12 more were not judged.")
    assert sentence(judge([*arrivals(make_hosts(20)), *late(1)])).endswith("; 1 more was not judged.")


@pytest.mark.parametrize("rows", [[], late(3)])
def test_a_fleet_without_figures_says_so(rows: list[Arrival]) -> None:
    assert f"None of {len(rows)} hosts could be judged" in page(judge(rows))


def test_only_the_worst_hosts_are_listed() -> None:
    slow = dict.fromkeys(range(14), 0.05)
    text = page(judged(make_hosts(400, slow)))
    assert "and 4 more; --export-json has all" in text


def test_gpus_of_a_host_have_one_line() -> None:
    cells = {f"h2d:gpu{gpu}:pinned:256MiB": 55.0 for gpu in range(8)}
    lines = [line for line in page(judged(make_hosts(60, cells=cells))).splitlines() if "256MiB" in line]
    assert len(lines) == 1
    assert lines[0].startswith("h2d:gpu:pinned:256MiB")


@pytest.mark.parametrize("columns", [80, 100, None])
def test_a_hostile_name_cannot_leave_its_line(columns: int | None) -> None:
    host = make_host(HOSTILE, {**CELLS, "h2d:gpu0:pinned:256MiB": 20.0}, labels={HOSTILE: HOSTILE})
    text = page(judged([*make_hosts(59), host]), columns)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not any(line.startswith("'; DROP") for line in text.splitlines())


def test_a_chance_is_told_unless_there_is_none() -> None:
    (sure,) = judged(make_hosts(256, dict.fromkeys((1, 2, 3, 4), 0.05))).contrasts
    assert chance_text(sure) == "no coincidence"
    hosts = [
        make_host(name, {"h2d:gpu0:pinned:4KiB": rate}, facts={"governor": governor})
        for name, rate, governor in (("a", 10.0, "performance"), ("b", 5.0, "powersave"), ("c", 10.1, "performance"))
    ]
    (hint,) = judged(hosts).contrasts
    assert contrast_text(hint) == "governor=powersave on 1 of 1 slow host and 0 of 2 others"
    assert chance_text(hint).startswith("may be a coincidence")


def test_the_document_prints_itself() -> None:
    fleet = make_fleet()
    assert fleet.report() == page(fleet, 80)
    assert repr(fleet) == "<Fleet 42 hosts: 2 slow, 0 suspect, 1 not judged>"
    assert "n3" in fleet._repr_html_()
