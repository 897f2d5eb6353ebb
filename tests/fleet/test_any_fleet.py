"""Whatever hosts send, a fleet is judged, saved and shown."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fleet_samples import arrivals, make_host

from pyxfer._document import codec
from pyxfer._document.fleets import Fleet, HostReport
from pyxfer._fleet.collect import arrival_of
from pyxfer._fleet.judge import hosts_to_confirm, judge
from pyxfer._report.fleet_formats import drain_lines, nagios_line, npd_line, to_junit
from pyxfer._report.kinds import chart_of, charts_of

CELLS = (
    "h2d:gpu0:pinned:256MiB",
    "h2d:gpu1:pinned:256MiB",
    "d2h:gpu0:pageable:16MiB",
    "links.latency.idle:host-gpu0:2MiB",
    "links.together.h2d.ce:host-all:128MiB",
)


def random_host(chance: random.Random, number: int) -> HostReport:
    """Figures that are missing, equal, noisy, or as far off as a document may have them."""
    values: dict[str, float | None] = {}
    for cell in CELLS:
        if chance.random() < 0.9:
            noisy = 10 * (1 + 0.01 * chance.gauss(0, 1))
            values[cell] = chance.choice([None, 10.0, 10.0, noisy, noisy, 5.0, 1e-5, 1e8])
    fields: dict[str, Any] = {
        "labels": {"rack": chance.choice("ab")} if chance.random() < 0.5 else {},
        "ended": chance.choice(["complete", "complete", "interrupted", "failed"]),
        "facts": {} if chance.random() < 0.3 else {"link capability": "PCIe 5.0 x16", "driver": chance.choice("xy")},
    }
    return make_host(f"n{number if chance.random() < 0.9 else 0}", values, **fields)


@pytest.mark.parametrize("seed", range(40))
def test_any_fleet_is_judged_saved_and_shown(seed: int) -> None:
    chance = random.Random(seed)
    hosts = [random_host(chance, number) for number in range(chance.choice([1, 2, 3, 4, 5, 6, 10, 30]))]
    rows = arrivals(hosts)
    again = {name: [chance.choice(hosts)] for name in hosts_to_confirm(judge(rows)) if chance.random() < 0.8}
    fleet = judge(rows, confirmations=again)
    assert len(fleet.hosts) == len(hosts)
    assert codec.decode(Fleet, codec.encode(fleet)) == fleet
    assert fleet.report()
    assert to_junit(fleet)
    assert drain_lines(fleet).count("\n") <= len(fleet.with_verdict("slow"))
    assert {npd_line(fleet, None)[1], nagios_line(fleet, None)[1]} <= {0, 1, 2, 3}
    assert all(chart_of(fleet, name) for name in charts_of(fleet))


@pytest.mark.parametrize("value", [1e-300, 1e300, 0.0])
def test_a_figure_that_no_host_has_is_a_bad_document(value: float) -> None:
    row = arrival_of(codec.encode(make_host("n1", {"h2d:gpu0:pinned:4KiB": value})), None, "f")
    assert (row.state, row.report) == ("unreadable", None)
