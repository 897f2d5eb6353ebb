"""One route of an explain run and what it is held against, as the page needs them."""

from __future__ import annotations

from dataclasses import dataclass

from pyxfer import model

_WAYS = {"h2d": "to the GPU", "d2h": "from the GPU", "both": "both ways", "ingest": "into a tensor in host memory"}
_WAYS_WITHOUT_GPU = {
    "h2d": "h2d over host memory",
    "d2h": "d2h over host memory",
    "both": "both ways over host memory",
    "ingest": _WAYS["ingest"],
}


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

    @property
    def way(self) -> str:
        """Where its bytes go, in words; no GPU is in them where there is none."""
        return (_WAYS_WITHOUT_GPU if self.run.runtime == "host" else _WAYS)[self.row.direction]

    @property
    def is_wrong(self) -> bool:
        """Whether what arrived was something else, so that none of its time says anything."""
        return self.row.verified.value is False


@dataclass(frozen=True)
class Better:
    """Another route that was faster beyond doubt, and how many times as fast it was.

    `times` is the ratio of the medians that the rows themselves show, each from all of its trials. Its ends are the
    least and the most that the intervals of both medians allow.
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
    raw = [m for m in (*alike, row) if m.may_be_ceiling and m.gbps is not None]
    return Explained(run, row, max(raw, key=lambda m: m.gbps or 0.0, default=None), tuple(alike))


def better_routes(explained: Explained, most: int) -> list[Better]:
    """What could be used in its place, the fastest first; a raw copy only in the place of a raw copy.

    Not every program can have another kind of memory: the fastest of those that do with the same one is among them.
    """
    alike = [other for other in explained.others if (other.nature is None) == (explained.row.nature is None)]
    found = [better for other in alike if (better := _better(explained.row, other)) is not None]
    found.sort(key=lambda better: better.times.value, reverse=True)
    drop_in = next((better for better in found if better.row.memory == explained.row.memory), None)
    if drop_in is None or drop_in in found[:most]:
        return found[:most]
    return [*found[: most - 1], drop_in]


def _better(row: model.Measurement, other: model.Measurement) -> Better | None:
    """None where it is not faster, not right, or not beyond doubt: both medians' intervals have to lie apart."""
    if other.verified.value is False or not _is_timed(other) or row.summary is None or other.summary is None:
        return None
    slow, quick = row.summary, other.summary
    if slow.low_s is None or slow.high_s is None or quick.low_s is None or quick.high_s is None:
        return None
    if quick.high_s >= slow.low_s or min(quick.low_s, quick.median_s, quick.high_s) <= 0:
        return None
    times = model.Share(slow.median_s / quick.median_s, slow.low_s / quick.high_s, slow.high_s / quick.low_s)
    return Better(other, quick.median_s, slow.median_s, times)


def _is_timed(m: model.Measurement) -> bool:
    """Whether its time is that of a transfer: it has a bandwidth, or it is right without copying anything."""
    return m.gbps is not None or copies_nothing(m)


def copies_nothing(m: model.Measurement) -> bool:
    """A tensor in host memory that uses the array's own memory."""
    return m.direction == "ingest" and m.rate.value is None and m.verified.value is True and m.summary is not None


def is_staged(m: model.Measurement) -> bool:
    """Whether threads fill, or empty, page-locked slots for it, raw or as a framework's route."""
    return m.mode == model.STAGED or (m.nature is not None and m.nature.staged)
