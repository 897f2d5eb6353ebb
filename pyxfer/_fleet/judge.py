"""Documents to verdicts: every host is judged beside the hosts of its cohort."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import msgspec
import numpy as np

from pyxfer._document import fleets
from pyxfer._document.cells import Cell
from pyxfer._document.machines import Fact, Remark, unknown, version_of
from pyxfer._fleet.cohorts import (
    FEWEST,
    Expected,
    Table,
    columns_of,
    expected_again,
    expected_of,
    judge_few,
    peaks_of,
    rows_of,
    signs_of,
    slower_than_known,
    tables_of,
)
from pyxfer._fleet.collect import Arrival, has_figures
from pyxfer._fleet.contrast import contrasts, facts_of
from pyxfer._fleet.losses import Floats, Judged, answers_of, controls_of, judge_figures, looks_again
from pyxfer.units import first_of, parse_moment

_MAX_LOG = 50.0
"""A latency cannot rise further between the least and the most that documents may have."""
_MAX_NAMED = 3
_AHEAD_S = 600.0
"""A host's clock may be ahead by this much."""
_NO_CONTROL = Remark(
    "no-control",
    "no host without a loss was measured again: all hosts may be slower now, so no loss is confirmed",
    "measure two of the other hosts again, too",
)


@dataclass(frozen=True)
class _Verdicts:
    table: Table
    judged: Judged
    judges: tuple[fleets.Judge, ...]
    reason: str
    losses: dict[int, tuple[fleets.CellLoss, ...]]
    controls: frozenset[int]
    measured: dict[int, Floats]
    remarks: tuple[Remark, ...]
    peaks: tuple[Fact[float], ...] = ()


def judge(arrivals: Iterable[Arrival], *, confirmations: Sequence[Arrival] = ()) -> fleets.Fleet:
    """The verdicts, with one false alarm in 100 fleets.

    `confirmations`: what came back from hosts that were measured again, flagged ones and controls.
    """
    settings = fleets.FleetSettings()
    rows = _one_each(list(arrivals))
    again, second_remarks = _second_looks(confirmations, rows)
    # A host that failed, or was interrupted, is judged by the figures that it has.
    judged = [
        (number, row.report)
        for number, row in enumerate(rows)
        if row.state in ("measured", "incomplete", "failed") and row.report is not None and has_figures(row.report)
    ]
    tables = tables_of(judged)
    tests = _count_tests(tables)
    hosts = [_not_judged(row) for row in rows]
    cohorts = []
    for table in tables:
        reports = [report for place in table.places if (report := rows[place].report) is not None]
        expected = expected_of(table, reports) if len(reports) < settings.smallest_cohort else []
        looks = {row: again.get(rows[place].host) for row, place in enumerate(table.places)}
        measured = {row: rows_of(found, table.columns)[0] for row, found in looks.items() if found}
        verdicts = _judge_cohort(table, expected, measured, tests, settings)
        of_all = None if expected else slower_than_known(table, verdicts.judged.medians, reports)
        remarks = (*([of_all] if of_all else []), *verdicts.remarks)
        known_peaks = peaks_of(reports)
        found_peaks = (known_peaks.get(column.cell) for column in table.columns)
        peaks = tuple(unknown(fleets.NO_PEAK) if peak is None else Fact(peak) for peak in found_peaks)
        cohorts.append(replace(verdicts, peaks=peaks, remarks=remarks))
    return fleets.Fleet(
        kind="fleet",
        judged_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        pyxfer=version_of("pyxfer"),
        settings=settings,
        remarks=(*_remarks(rows, hosts, tables), *second_remarks),
        **_parts_of(cohorts, hosts, settings),
    )


def derive_fleet(fleet: fleets.Fleet) -> fleets.Fleet:
    tables = [_table_of(fleet, number) for number in range(len(fleet.cohorts))]
    tests, cohorts = _count_tests(tables), []
    for cohort, table in zip(fleet.cohorts, tables, strict=True):
        is_few = len(table.places) < fleet.settings.smallest_cohort
        expected = expected_again(cohort.cells, table) if is_few else []
        looks = {row: fleet.hosts[place].again for row, place in enumerate(table.places) if fleet.hosts[place].again}
        signs = signs_of(table.columns)
        again = {row: signs * np.log(np.array(found, np.float64)) for row, found in looks.items()}
        verdicts = _judge_cohort(table, expected, again, tests, fleet.settings)
        peaks = tuple(cell.peak for cell in cohort.cells)
        cohorts.append(replace(verdicts, peaks=peaks, remarks=cohort.remarks))
    hosts = [msgspec.structs.replace(host, verdict="not judged", losses=(), control=False) for host in fleet.hosts]
    return msgspec.structs.replace(fleet, **_parts_of(cohorts, hosts, fleet.settings))


def _parts_of(
    cohorts: Sequence[_Verdicts], hosts: list[fleets.FleetHost], settings: fleets.FleetSettings
) -> dict[str, Any]:
    for number, cohort in enumerate(cohorts):
        _put_verdicts(number, cohort, hosts)
    return {
        "cohorts": tuple(
            fleets.Cohort(
                each.table.alike,
                each.reason,
                tuple(_cell_of(each, place) for place in range(len(each.table.columns))),
                each.remarks,
            )
            for each in cohorts
        ),
        "hosts": tuple(hosts),
        "contrasts": tuple(found for cohort in cohorts for found in _contrasts_of(cohort, hosts, settings)),
    }


def _count_tests(tables: Sequence[Table]) -> int:
    return max(1, sum(int(np.count_nonzero(~np.isnan(table.figures))) for table in tables))


def _table_of(fleet: fleets.Fleet, number: int) -> Table:
    columns = columns_of({cell.cell: cell.unit for cell in fleet.cohorts[number].cells})
    places = tuple(place for place, host in enumerate(fleet.hosts) if host.cohort == number)
    shape = (len(places), len(columns))
    values, errors = (
        np.array([getattr(fleet.hosts[place], name) for place in places], np.float64).reshape(shape)
        for name in ("values", "errors")
    )
    return Table(fleet.cohorts[number].alike, places, columns, signs_of(columns) * np.log(values), errors)


def hosts_to_confirm(fleet: fleets.Fleet) -> tuple[str, ...]:
    """The hosts to measure again: those that were flagged, and two others of each of their cohorts."""
    waiting = [host for host in fleet.hosts if any(loss.confirmed is None for loss in host.losses)]
    cohorts = {host.cohort for host in waiting}
    controls = [host for host in fleet.hosts if host.control and host.cohort in cohorts]
    return tuple(host.host for host in (*waiting, *controls))


# --- rows ------------------------------------------------------------------------------------------------------------


def _one_each(rows: list[Arrival]) -> list[Arrival]:
    """Of several documents of one host one is judged; the others stay as rows.

    It is the newest of those whose file is named after the host, or else of all. One of the future counts only if it is
    the only one: a clock that was once ahead would win over all later documents.
    """
    now = time.time()
    by_host: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row.report is not None:
            by_host[row.host].append(place)
    for places in by_host.values():
        moments = [(place, _began_at(rows[place].report)) for place in places]
        best, _ = max(moments, key=lambda each: (rows[each[0]].named, each[1] <= now + _AHEAD_S, each[1], each[0]))
        for place in places:
            if place != best:
                reason = f"another document of this host is judged: {rows[best].source}"
                rows[place] = replace(rows[place], state="duplicate", reason=reason)
    return rows


def _second_looks(
    confirmations: Sequence[Arrival], rows: Sequence[Arrival]
) -> tuple[dict[str, list[fleets.HostReport]], list[Remark]]:
    """The second documents of each host that count, and why others do not.

    One that is not later than the first, by the host's clock, is a copy of it or of an earlier day, and would confirm
    any later coincidence. One that names its host by itself cannot confirm the loss of a host that was named.
    """
    first = {row.host: row for row in rows if row.report is not None and row.state != "duplicate"}
    looks: dict[str, list[fleets.HostReport]] = defaultdict(list)
    early = misnamed = 0
    for row in confirmations:
        judged = first.get(row.host)
        if row.report is None or not has_figures(row.report):
            continue
        if judged is not None and _began_at(row.report) <= _began_at(judged.report):
            early += 1
        elif judged is not None and judged.named and not row.named:
            misnamed += 1
        else:
            looks[row.host].append(row.report)
    return looks, list(_second_remarks([row for row in confirmations if row.report is None], early, misnamed))


def _began_at(report: fleets.HostReport | None) -> float:
    """Seconds since 1970 by the host's clock; no document is the oldest."""
    return -math.inf if report is None else parse_moment(report.began_at).timestamp()


def _not_judged(row: Arrival) -> fleets.FleetHost:
    report = row.report
    return fleets.FleetHost(
        host=row.host,
        state=row.state,
        reason=row.reason,
        source=row.source,
        named=row.named,
        verdict="not judged",
        labels={} if report is None else report.labels,
        facts={} if report is None else report.facts,
        wrong=() if report is None else tuple(f.code for f in report.findings if f.status == "wrong"),
        began_at=None if report is None else report.began_at,
        pyxfer=None if report is None or report.environment is None else report.environment.pyxfer,
    )


# --- a cohort --------------------------------------------------------------------------------------------------------


def _judge_cohort(
    table: Table,
    expected: Sequence[Expected | None],
    measured: Mapping[int, Floats],
    tests: int,
    s: fleets.FleetSettings,
) -> _Verdicts:
    """`expected`: what few hosts are held against. `measured`: the figures of rows that were measured again."""
    count = len(table.places)
    if count >= s.smallest_cohort:
        judged = judge_figures(table.figures, table.errors, table.families, tests, s)
        enough = np.count_nonzero(~np.isnan(table.figures), axis=0) >= s.smallest_cohort
        judges: tuple[fleets.Judge, ...] = tuple("cohort" if each else "none" for each in enough)
        judged.flagged[:, ~enough] = False
        reason = f"{count} hosts that should be equal"
    else:
        judged = judge_few(table, expected)
        judges = tuple("none" if each is None else each.judge for each in expected)
        reason = _few_reason(count, judges, s)
    looks = looks_again(judged, measured)
    answers, unsteady = answers_of(judged, looks, s)
    losses: dict[int, tuple[fleets.CellLoss, ...]] = defaultdict(tuple)
    for (row, cell), stays in answers.items():
        losses[row] += (_loss(table, judged, looks.get(row), row, cell, stays),)
    remarks = [
        Remark(
            "unsteady",
            f"{table.columns[cell].cell.text} is low on one host and then on another, so no host is called slow in it",
            "measure again when the hosts are idle",
        )
        for cell in unsteady
    ]
    if not looks and any(judged.flagged[row].any() for row in measured):
        remarks.append(_NO_CONTROL)
    return _Verdicts(table, judged, judges, reason, losses, controls_of(judged), dict(measured), tuple(remarks))


def _few_reason(hosts: int, judges: Sequence[fleets.Judge], s: fleets.FleetSettings) -> str:
    beside = {
        "known host": "a known host with the same GPU and link",
        "peak": "the peak of the link",
        "few hosts": "each other, with large losses only",
    }
    words = " and ".join(beside[each] for each in dict.fromkeys(judges) if each in beside)
    count = "1 host" if hosts == 1 else f"{hosts} hosts"
    least = f"fewer than {s.smallest_cohort} equal hosts show no spread"
    missing = f"no known host has this GPU and link, no peak is known, and {FEWEST} hosts are needed to compare them"
    return f"{count}; {least}; held against {words}" if words else f"{count}; {least}; {missing}"


def _loss(
    table: Table, judged: Judged, looks: Floats | None, row: int, cell: int, stays: bool | None
) -> fleets.CellLoss:
    column = table.columns[cell]
    again = [] if looks is None else [_share(look, column.sign) for look in looks[:, cell] if not math.isnan(look)]
    return fleets.CellLoss(
        cell=column.cell,
        value=math.exp(column.sign * table.figures[row, cell]),
        usual=math.exp(column.sign * judged.centres[row, cell]),
        loss=_share(judged.ratios[row, cell], column.sign),
        again=tuple(again),
        confirmed=stays,
    )


def _share(ratio: float, sign: int) -> float:
    """A loss as a share: how much lower a rate is, or how much higher a latency."""
    return -math.expm1(ratio) if sign > 0 else math.expm1(min(-ratio, _MAX_LOG))


# --- the document ----------------------------------------------------------------------------------------------------


def _cell_of(verdicts: _Verdicts, place: int) -> fleets.CohortCell:
    column, judged = verdicts.table.columns[place], verdicts.judged
    hosts = int(np.count_nonzero(~np.isnan(verdicts.table.figures[:, place])))
    why = f"{hosts} hosts have this figure, and nothing else is known that it should reach"
    is_judged = verdicts.judges[place] != "none"

    def fact(value: float) -> Fact[float]:
        return Fact(float(value)) if is_judged and not math.isnan(value) else unknown(why)

    return fleets.CohortCell(
        cell=column.cell,
        unit=column.unit,
        hosts=hosts,
        judged_by=verdicts.judges[place],
        usual=fact(math.exp(column.sign * judged.medians[place])),
        spread=fact(judged.spreads[place]),
        first_loss=fact(_share(-judged.first[place], column.sign)),
        again_loss=fact(_share(-judged.again[place], column.sign)),
        detection_limit=fact(_share(-judged.limits[place], column.sign)),
        groups=_groups_of(verdicts, place),
        peak=verdicts.peaks[place],
    )


def _groups_of(verdicts: _Verdicts, place: int) -> fleets.CellGroups | None:
    split = verdicts.judged.splits.get(place)
    if split is None:
        return None
    sign, table, centres = verdicts.table.columns[place].sign, verdicts.table, verdicts.judged.centres
    slower, faster = (float(centres[group[0], place]) for group in (split.slower, split.faster))
    return fleets.CellGroups(
        slower=tuple(sorted(table.places[row] for row in split.slower)),
        faster=tuple(sorted(table.places[row] for row in split.faster)),
        slower_median=math.exp(sign * slower),
        faster_median=math.exp(sign * faster),
        loss=_share(slower - faster, sign),
    )


def _put_verdicts(number: int, verdicts: _Verdicts, hosts: list[fleets.FleetHost]) -> None:
    signs = signs_of(verdicts.table.columns)
    values, errors = np.exp(signs * verdicts.table.figures).tolist(), verdicts.table.errors.tolist()
    again = {row: np.exp(signs * looks).tolist() for row, looks in verdicts.measured.items()}
    judged_cells = [judge != "none" for judge in verdicts.judges]
    known = ~np.asarray(np.isnan(verdicts.table.figures[:, judged_cells]).all(axis=1))
    for row, place in enumerate(verdicts.table.places):
        losses = verdicts.losses.get(row, ())
        hosts[place] = msgspec.structs.replace(
            hosts[place],
            verdict=_verdict(losses, hosts[place], is_known=bool(known[row])),
            reason=hosts[place].reason or (None if known[row] else verdicts.reason),
            cohort=number,
            values=_known(values[row]),
            errors=_known(errors[row]),
            again=tuple(map(_known, again.get(row, ()))),
            losses=losses,
            control=row in verdicts.controls,
        )


def _known(values: Iterable[float]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values)


def _verdict(losses: Sequence[fleets.CellLoss], host: fleets.FleetHost, *, is_known: bool) -> fleets.HostVerdict:
    if any(loss.confirmed for loss in losses):
        return "slow"
    if any(loss.confirmed is None for loss in losses):
        return "suspect"
    return "fine" if is_known and host.state != "failed" else "not judged"


def _contrasts_of(
    verdicts: _Verdicts, hosts: Sequence[fleets.FleetHost], settings: fleets.FleetSettings
) -> Iterator[fleets.Contrast]:
    """What the slow hosts of a cohort share, or else the suspect ones, and the slower hosts of two groups."""
    members = {place: (place, facts_of(hosts[place].facts, hosts[place].labels)) for place in verdicts.table.places}

    def found(chosen: Set[int], left_out: Set[int], cells: Iterable[Cell]) -> tuple[fleets.Contrast, ...]:
        slow, others = ([members[n] for n in sorted(each)] for each in (chosen, members.keys() - left_out))
        return contrasts(slow, others, tuple(cells), settings.error_rate)

    for verdict in ("slow", "suspect"):
        chosen = {place for place in members if hosts[place].verdict == verdict}
        if chosen:
            cells = dict.fromkeys(loss.cell for place in sorted(chosen) for loss in hosts[place].losses)
            yield from found(chosen, {place for place in members if hosts[place].losses}, cells)
            break
    splits: dict[frozenset[int], dict[Cell, None]] = {}
    for cell, split in verdicts.judged.splits.items():
        slower = frozenset(verdicts.table.places[row] for row in split.slower)
        splits.setdefault(slower, {})[verdicts.table.columns[cell].cell] = None
    for slower, cells in splits.items():
        yield from found(slower, slower, cells)


def _remarks(rows: Sequence[Arrival], hosts: Sequence[fleets.FleetHost], tables: Sequence[Table]) -> Iterator[Remark]:
    judged = (hosts[place] for table in tables for place in table.places)
    versions = sorted({host.pyxfer for host in judged if host.pyxfer is not None})
    if len(versions) > 1:
        yield Remark(
            "versions",
            f"the hosts were measured by {len(versions)} versions of pyxfer: {', '.join(versions)}",
            "install the same version on every host",
        )
    owns = Counter(row.report.host for row in rows if row.report is not None and row.state != "duplicate")
    shared = sorted(name for name, count in owns.items() if name and count > 1)
    if shared:
        yield Remark(
            "one-machine",
            f"several hosts call themselves by one name: {first_of(shared, _MAX_NAMED)}",
            "if they are one machine under several names, its jobs slowed each other down; name it once",
        )
    contended = [row.host for row in rows if row.report and any(r.code == "contended" for r in row.report.remarks)]
    if contended:
        yield Remark(
            "contended",
            f"another pyxfer measured at the same time on {first_of(contended, _MAX_NAMED)}",
            "wait until an earlier run has ended, and measure again",
        )
    now = time.time()
    ahead = [row.host for row in rows if _began_at(row.report) > now + _AHEAD_S]
    if ahead:
        yield Remark(
            "future",
            f"the clock was ahead on {first_of(ahead, _MAX_NAMED)}: documents are of the future",
            "set these clocks",
        )
    doubled = sorted({row.host for row in rows if row.state == "duplicate"})
    if doubled:
        have = "1 host has" if len(doubled) == 1 else f"{len(doubled)} hosts have"
        yield Remark(
            "duplicates",
            f"{have} several documents, of which one is judged: the newest, or that whose file has the host's name",
            "if they are different hosts, give them different names",
        )


def _second_remarks(unanswered: Sequence[Arrival], too_early: int, misnamed: int) -> Iterator[Remark]:
    if unanswered:
        rows = [f"{row.host}: {row.state}, {row.reason or 'no reason given'}" for row in unanswered]
        which = first_of(rows, _MAX_NAMED, "; ")
        yield Remark("unanswered", f"no second measurement of {which}", "measure these hosts again")
    if too_early:
        text = f"{_ignored(too_early)}: the judged ones are as new or newer"
        yield Remark("too-early", text, "measure these hosts again")
    if misnamed:
        yield Remark("other-name", f"{_ignored(misnamed)}: their files have other names", "name them after the hosts")


def _ignored(count: int) -> str:
    return f"{'1 document does' if count == 1 else f'{count} documents do'} not count of hosts that were measured again"
