"""One route of an explain run and what it is held against, as the page needs them."""

from __future__ import annotations

from dataclasses import dataclass

from pyxfer import model, stats

WAYS = {"h2d": "to the GPU", "d2h": "from the GPU", "both": "both ways", "ingest": "into a tensor in host memory"}


@dataclass(frozen=True)
class Explained:
    """The row in question, its ceiling in the same rounds, and every other row."""

    run: model.Run
    row: model.Measurement
    ceiling: model.Measurement | None
    others: tuple[model.Measurement, ...]

    @property
    def on_host(self) -> bool:
        """Whether nothing of it crosses a link, because it stays in host memory or because there is no GPU."""
        return self.row.direction == "ingest" or self.run.runtime == "host"


@dataclass(frozen=True)
class Better:
    """Another route that was faster beyond doubt: the medians of both in the rounds that they share, and their ratio.

    `times` is the median of the ratios round by round, with its interval.
    """

    row: model.Measurement
    seconds: float
    instead_of_s: float
    times: model.Share


def find_explained(run: model.Run) -> Explained | None:
    """None in a run that has no row of what was asked for, because it ended before there was one."""
    rows = [m for m in run.measurements if m.route == run.parameters.explained and m.variant == "warm"]
    if not rows:
        return None
    row = rows[0]
    alike = [m for m in run.measurements if (m.direction, m.nbytes) == (row.direction, row.nbytes) and m is not row]
    raw = [m for m in (*alike, row) if m.nature is None and m.gbps is not None and m.variant == "warm"]
    return Explained(run, row, max(raw, key=lambda m: m.gbps or 0.0, default=None), tuple(alike))


def better_routes(explained: Explained, most: int) -> list[Better]:
    """What could be used in its place, the fastest first; a raw copy only in the place of a raw copy."""
    alike = [other for other in explained.others if (other.nature is None) == (explained.row.nature is None)]
    found = [better for other in alike if (better := _better(explained.row, other)) is not None]
    return sorted(found, key=lambda better: better.times.value, reverse=True)[:most]


def _better(row: model.Measurement, other: model.Measurement) -> Better | None:
    """None where it is not faster, not right, or not beyond doubt: both medians' intervals have to lie apart."""
    if other.verified.value is False or not _is_timed(other) or row.summary is None or other.summary is None:
        return None
    low_s, high_s = row.summary.low_s, other.summary.high_s
    if low_s is None or high_s is None or high_s >= low_s:
        return None
    own = {trial.round: trial.elapsed_s for trial in row.trials if trial.invalid is None}
    shared = [t for t in other.trials if t.invalid is None and t.round in own and t.elapsed_s > 0]
    if not shared:
        return None
    quick, slow = [trial.elapsed_s for trial in shared], [own[trial.round] for trial in shared]
    times = stats.ratio_share(slow, quick)
    if times.low is not None and times.low <= 1:
        return None
    return Better(other, stats.summarise(quick).median_s, stats.summarise(slow).median_s, times)


def _is_timed(m: model.Measurement) -> bool:
    """Whether its time is that of a transfer: it has a bandwidth, or it is right without copying anything."""
    return m.gbps is not None or copies_nothing(m)


def copies_nothing(m: model.Measurement) -> bool:
    """A tensor in host memory that uses the array's own memory."""
    return m.direction == "ingest" and m.rate.value is None and m.verified.value is True and m.summary is not None
