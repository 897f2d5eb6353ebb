"""Hosts of simulated fleets as documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from samples import make_device, make_environment

from pyxfer._document.cells import Cell, parse_cell
from pyxfer._document.fleets import Fleet, FleetHost, HostCell, HostReport
from pyxfer._document.machines import Fact, unknown
from pyxfer._fleet.cells import unit_of
from pyxfer._fleet.collect import Arrival, row_of
from pyxfer._fleet.judge import hosts_to_confirm, judge

CELLS = {"h2d:gpu0:pinned:256MiB": 55.0, "d2h:gpu0:pinned:256MiB": 54.0, "h2d:gpu0:pageable:256MiB": 12.0}
LATENCY = "links.latency.idle:host-gpu0:2MiB"


def make_cell(name: str, value: float | None, peak: float | None = None, width: float = 0.001) -> HostCell:
    """A cell with an interval of this relative width to both sides."""
    found: Fact[float] = unknown("the budget was over") if value is None else Fact(value)
    low, high = (None, None) if value is None else (value * (1 - width), value * (1 + width))
    cell = cell_named(name)
    return HostCell(cell, unit_of(cell), found, low, high, (), unknown("no peak") if peak is None else Fact(peak))


def cell_named(text: str) -> Cell:
    """The cell with this text."""
    fields: dict[str, Any] = {"group": "raw", "mode": "async", "variant": "warm", **parse_cell(text).fields}
    if fields["group"] == "raw":
        fields["mode"] = "memcpy" if fields["memory"] == "pageable" else "async"
        fields |= {"case": f"raw.{fields['memory']}-{fields['mode']}", "side": fields["direction"]}
    else:
        way = "latency" if fields["group"] == "latency" else fields["case"]
        fields |= {"mode": "", "memory": "pinned", "direction": way, "side": "sum" if "all" in text else way}
    found = Cell(**fields)
    assert found.text == text
    return found


def make_host(
    host: str = "node-1", values: Mapping[str, float | None] | None = None, environment: Any = None, **fields: Any
) -> HostReport:
    """A host whose cells have these values; they are those of `CELLS` by default."""
    surroundings = make_environment() if environment is None else environment
    cells = tuple(make_cell(name, value) for name, value in (CELLS if values is None else values).items())
    gpus = 1 + max((number for cell in cells for number in cell.cell.gpus), default=0)
    report = HostReport(
        kind="host",
        ended="complete",
        began_at="2026-11-23T12:00:00+00:00",
        duration_s=20.0,
        runtime="cuda",
        runtime_reason="a GPU was found",
        environment=msgspec.structs.replace(surroundings, host=host),
        devices=tuple(make_device(index=index) for index in range(gpus)),
        labels={},
        cells=cells,
        facts={"driver": "580.65", "link state": "PCIe 5.0 x16", "link capability": "PCIe 5.0 x16"},
        findings=(),
    )
    return msgspec.structs.replace(report, **fields)


def make_hosts(
    count: int,
    slow: dict[int, float] | None = None,
    cell: str = "h2d:gpu0:pinned:256MiB",
    spread: float = 0.001,
    seed: int = 1,
    cells: dict[str, float] | None = None,
) -> list[HostReport]:
    """Hosts `n0`, `n1`, ... with normal noise; `slow` has the loss of some of them in one cell.

    Slow hosts are in the rack r7, the others in five racks.
    """
    rng, lost = np.random.default_rng(seed), slow or {}
    hosts = []
    for number in range(count):
        values: dict[str, float | None] = {}
        for name, usual in (cells or CELLS).items():
            left = 1 - lost.get(number, 0.0) if name == cell else 1.0
            values[name] = usual * left * float(np.exp(spread * rng.standard_normal()))
        labels = {"rack": "r7" if number in lost else f"r{number % 5}"}
        hosts.append(make_host(f"n{number}", values, labels=labels))
    return hosts


def arrivals(hosts: list[HostReport]) -> list[Arrival]:
    """What a launcher has of these hosts."""
    return [replace(row_of(report, report.host or "", "file"), named=True) for report in hosts]


def later(report: HostReport) -> HostReport:
    """The same figures, measured an hour later if the clock shows that."""
    try:
        began_at = datetime.fromisoformat(report.began_at) + timedelta(hours=1)
    except ValueError:
        return report
    return msgspec.structs.replace(report, began_at=began_at.isoformat())


def judged(hosts: list[HostReport], again: list[HostReport] | None = None) -> Fleet:
    """The verdicts when flagged hosts and controls were measured again: by default with the same figures."""
    wanted = hosts_to_confirm(judge(arrivals(hosts)))
    seconds = [later(report) for report in (hosts if again is None else again) if report.host in wanted]
    return judge(arrivals(hosts), confirmations=arrivals(seconds))


def slow_names(fleet: Fleet) -> list[str]:
    """The names of slow hosts."""
    return [host.host for host in fleet.with_verdict("slow")]


def by_name(fleet: Fleet) -> dict[str, FleetHost]:
    """Hosts by name."""
    return {host.host: host for host in fleet.hosts}


HOSTILE = "<b>n\x1b[31m1</b>\n'; DROP TABLE hosts;-- $(reboot) \u202e"


def make_fleet() -> Fleet:
    """Forty hosts, of which two are slow, one has not answered, and one has a hostile name."""
    hosts = [*make_hosts(40, {3: 0.08, 5: 0.07}), make_host(HOSTILE, labels={"rack": HOSTILE})]
    whole = judged(hosts)
    late = judge([Arrival("n99", "late", "no answer within 25 s", None, "ssh")]).hosts
    return msgspec.structs.replace(
        whole, hosts=(*whole.hosts, *late), judged_at="2026-11-23T12:00:00+00:00", pyxfer="0.1"
    )
