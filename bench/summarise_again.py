"""Summarises committed documents again: intervals, rates, shares, curves and remarks by the present rule.

    python bench/summarise_again.py [DOCUMENT ...]

The default is every run, session of pytest and table of timers in bench/results. Medians and shares stay as they are,
because they follow from the trials alone. Rows without trials keep their intervals. Of the ceiling's share without its
ceiling's trials the interval is dropped. A document that has not changed is not written.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import shared
import timers

from pyxfer._ceiling import rows
from pyxfer._document import codec
from pyxfer._document.runs import Fact, Measurement, Remark, Run, Share, Trial
from pyxfer._document.sessions import XferSession
from pyxfer._frameworks.bench import MOST_ROUNDS
from pyxfer._measure import remarks, stats

RESULTS = Path(__file__).resolve().parent / "results"
OF_INTERVALS = {"few-trials", "drift", "bimodal", "unstable", "outliers", "exhausted", "share", "above-ceiling"}
SAME = 1e-6
"""Relative: another machine may round a median of ratios differently."""

replace = msgspec.structs.replace


def again(run: Run) -> Run:
    """The run with everything that depends on the rule of intervals computed again."""
    most = MOST_ROUNDS if run.kind == "frameworks" else None
    measurements = tuple(row_again(row, run, _ceiling_of(row, run.measurements), most) for row in run.measurements)
    return replace(run, measurements=measurements, curves=rows.curves(measurements) if run.curves else ())


def row_again(row: Measurement, run: Run | None, ceiling: Sequence[Trial], most: int | None = None) -> Measurement:
    """The same of one row; `ceiling` are the trials that its share is of, if there are any."""
    valid = [trial for trial in row.trials if trial.invalid is None]
    summary = rows.summary_of([trial.elapsed_s for trial in valid])
    if summary is None:
        return row
    share = row.ceiling_share
    if share.value is not None:
        found = rows.ceiling_share(valid, ceiling, row.rate) if ceiling else Fact(Share(share.value.value, None, None))
        share = found if found.value is not None else share
    doubts = [] if run is None else _doubts(row, valid, run, most)
    against = rows.share_remark(share.value, summary, valid, ceiling) if ceiling else None
    kept = [remark for remark in row.remarks if run is None or remark.code not in OF_INTERVALS]
    return replace(
        row,
        summary=summary,
        dispatch=rows.summary_of([trial.dispatch_s for trial in valid]),
        wall=rows.summary_of([trial.wall_s for trial in valid]),
        rate=row.rate if row.rate.value is None else Fact(stats.rate(row.moved_bytes, summary)),
        ceiling_share=share,
        remarks=(*doubts, *kept, *([] if against is None else [against])),
    )


def _doubts(row: Measurement, valid: Sequence[Trial], run: Run, most: int | None) -> list[Remark]:
    seconds = [trial.elapsed_s for trial in valid]
    doubt = remarks.instability(seconds, run.parameters.precision, run.parameters.budget_s)
    if doubt is None:
        return []
    return [rows.exhausted(doubt, len(valid)) if most is not None and len(row.trials) >= most else doubt]


def _ceiling_of(row: Measurement, every: Sequence[Measurement]) -> Sequence[Trial]:
    """The trials of the raw copy that gives the row's share."""
    share = row.ceiling_share.value
    if share is None:
        return ()
    for other in every:
        alike = (other.direction, other.side, other.nbytes) == (row.direction, row.side, row.nbytes)
        if not alike or other.nature is not None or other.variant != "warm":
            continue
        times = {trial.round: trial.elapsed_s for trial in other.trials if trial.invalid is None}
        own = {trial.round: trial.elapsed_s for trial in row.trials if trial.invalid is None}
        ratios = [times[number] / own[number] for number in times.keys() & own.keys() if times[number] and own[number]]
        if ratios and abs(median(ratios) / share.value - 1) < SAME:
            return other.trials
    return ()


def session_again(session: XferSession) -> XferSession:
    """A session of pytest; its ceilings have no trials."""
    return replace(
        session,
        tests=tuple(replace(each, measurement=row_again(each.measurement, None, ())) for each in session.tests),
    )


def timers_again(document: timers.Timers) -> timers.Timers:
    """The table of timers."""
    return replace(
        document,
        rows=tuple(
            timers.summarised(row.call, row.timer, [list(samples) for samples in row.rounds]) if row.rounds else row
            for row in document.rows
        ),
    )


def read(path: Path) -> dict[str, Any]:
    """A document, not yet checked, because its intervals may be of another rule."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def write_again(path: Path) -> bool:
    """Summarise one document again; whether it has changed. Documents of other kinds stay."""
    document = read(path)
    kind = document.get("kind")
    if kind == "timers":
        table = msgspec.convert(document, timers.Timers)
        newer = timers_again(table)
        if newer != table:
            shared.write_document(path, newer)
        return newer != table
    if kind not in ("ceiling", "explain", "frameworks", "pytest"):
        return False
    if kind == "pytest":
        before: Any = codec.convert(document, XferSession, str(path), "session")
        after: Any = session_again(before)
    else:
        before = codec.convert({**document, "schema_version": codec.RUN.version}, Run, str(path), "run")
        after = again(before)
    if after == before and document["schema_version"] == after.schema_version:
        return False
    codec.save(after, path)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Summarise the documents again and print which changed."""
    parser = argparse.ArgumentParser(description="Summarise committed documents again, by the present rule.")
    parser.add_argument("documents", type=Path, nargs="*", metavar="DOCUMENT")
    for path in parser.parse_args(arguments).documents or sorted(RESULTS.glob("*.json.gz")):
        print(f"{path.name}: {'written' if write_again(path) else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
