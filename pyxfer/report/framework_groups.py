"""What a frameworks run holds, by framework and direction: the ceiling's rows, then the routes from fast to slow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyxfer import model, units

from .text import clean

_TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "cupy": "CuPy", "jax": "JAX"}
_WAYS = {"h2d": "to the GPU", "d2h": "from the GPU", "both": "both ways", "ingest": "into a tensor in host memory"}
_LONGEST_NAME = 40
_MB = 1000.0
_NO_SPEED = -math.inf


@dataclass(frozen=True)
class Row:
    """One route of one worker at every size."""

    name: str
    at: Mapping[int, model.Measurement]
    marks: Mapping[int, str]

    @property
    def any(self) -> model.Measurement:
        """One of its measurements, for what is the same in all of them."""
        return next(iter(self.at.values()))

    @property
    def raw(self) -> bool:
        """Whether it belongs to the ceiling rather than to the framework."""
        return self.any.nature is None

    @property
    def usual(self) -> bool:
        """Whether it is the call that most people write."""
        return self.any.nature is not None and self.any.nature.usual

    @property
    def letters(self) -> str:
        """The letters of all its notes, each once."""
        return "".join(sorted(set("".join(self.marks.values()))))

    def gbps(self, nbytes: int) -> float | None:
        """Its bandwidth at a size, where it has one."""
        return self.at[nbytes].gbps if nbytes in self.at else None

    def copies_nothing(self, nbytes: int) -> bool:
        """Whether it is right and timed and has no bandwidth, in host memory: the tensor uses the array's memory."""
        m = self.at.get(nbytes)
        return m is not None and m.direction == "ingest" and m.rate.value is None and _is_right_and_timed(m)

    def speed(self, nbytes: int) -> float | None:
        """What makes one route faster than another: how soon it is done, whether it copies anything or not."""
        if self.gbps(nbytes) is None and not self.copies_nothing(nbytes):
            return None
        elapsed_s = self.at[nbytes].elapsed_s
        return 1 / elapsed_s if elapsed_s else None


@dataclass(frozen=True)
class Group:
    """A framework in one direction; `largest` is the size at which its routes are compared."""

    framework: str
    direction: str
    rows: tuple[Row, ...]
    elsewhere: tuple[Row, ...]
    sizes: tuple[int, ...]
    largest: int

    @property
    def routes(self) -> tuple[Row, ...]:
        """The framework's own rows."""
        return tuple(row for row in self.rows if not row.raw)

    @property
    def ceiling(self) -> Row | None:
        """The faster of the raw rows."""
        return self._fastest([row for row in self.rows if row.raw], self.largest)

    @property
    def usual(self) -> Row | None:
        """The call that most people write, where it is among the routes."""
        return next((row for row in self.routes if row.usual), None)

    @property
    def best(self) -> Row | None:
        """The fastest route at the largest size."""
        return self.best_at(self.largest)

    def best_at(self, nbytes: int) -> Row | None:
        """The fastest route at a size, of those that did not bring wrong bytes."""
        right = [row for row in self.routes if nbytes in row.at and row.at[nbytes].verified.value is not False]
        return self._fastest(right, nbytes)

    @staticmethod
    def _fastest(rows: Sequence[Row], nbytes: int) -> Row | None:
        known = [row for row in rows if row.speed(nbytes) is not None]
        return max(known, key=lambda row: row.speed(nbytes) or _NO_SPEED, default=None)


def group_rows(run: model.Run, marks: Sequence[str]) -> list[Group]:
    """Every framework and direction of the run, in the order of its workers."""
    homes = _frameworks_of_workers(run)
    found: dict[tuple[str, str], dict[tuple[str | None, str, str], list[int]]] = {}
    for index, m in enumerate(run.measurements):
        group = found.setdefault((_framework(m, homes), m.direction), {})
        group.setdefault((m.worker, m.route, m.variant), []).append(index)
    order = list(dict.fromkeys([*homes.values(), *(framework for framework, _ in found)]))
    keys = sorted(found, key=lambda key: (order.index(key[0]), list(_WAYS).index(key[1])))
    return [_group(run, marks, key, list(found[key].values())) for key in keys]


def title(framework: str) -> str:
    """A framework's name as it writes itself."""
    return _TITLES.get(framework) or clean(framework, longest=_LONGEST_NAME) or "no framework"


def group_title(run: model.Run, group: Group) -> str:
    """`PyTorch 2.11.0: h2d, to the GPU`."""
    known = (w.version.value for w in run.workers if w.framework == group.framework and w.version.value)
    version = clean(next(known, ""), longest=_LONGEST_NAME)
    return f"{title(group.framework)}{' ' if version else ''}{version}: {group.direction}, {_WAYS[group.direction]}"


def place_text(run: model.Run, group: Group, nbytes: int) -> str:
    """A size in words; of image batches, the batch."""
    batch = batch_of(group, nbytes)
    return units.format_size(nbytes) if not is_image_batch(run) or batch is None else f"batch {batch}"


def batch_of(group: Group, nbytes: int) -> int | None:
    """How many images a size is."""
    measured = (row.at[nbytes].batch for row in group.rows if nbytes in row.at)
    return next((batch for batch in measured if batch is not None), None)


def is_image_batch(run: model.Run) -> bool:
    """Whether the run's places are batches of images and its rates MB/s."""
    return run.parameters.workload == "image-batch"


def rate_unit(run: model.Run) -> tuple[str, float]:
    """The unit that the run's rates are read in, and how many of it make one GB/s."""
    return ("MB/s", _MB) if is_image_batch(run) else ("GB/s", 1.0)


def _frameworks_of_workers(run: model.Run) -> dict[str | None, str]:
    homes: dict[str | None, str] = {worker.name: worker.framework for worker in run.workers}
    for m in run.measurements:
        if m.nature is not None and m.worker is not None:
            homes.setdefault(m.worker, m.nature.framework)
    return homes


def _framework(m: model.Measurement, homes: Mapping[str | None, str]) -> str:
    if m.nature is not None:
        return m.nature.framework
    return homes.get(m.worker, m.worker or "")


def _group(run: model.Run, marks: Sequence[str], key: tuple[str, str], indices: Sequence[Sequence[int]]) -> Group:
    rows = [_row(run, marks, of_row) for of_row in indices]
    routes = [row for row in rows if not row.raw]
    sizes = tuple(sorted({nbytes for row in rows for nbytes in row.at}))
    measured = [nbytes for nbytes in sizes if any(row.speed(nbytes) is not None for row in routes)]
    largest = max(measured, default=sizes[-1])
    raw = [row for row in rows if row.raw]
    here = next((row.any.worker for row in raw if row.any.worker not in _with_setting(run)), None)
    if here is None and raw:
        here = raw[0].any.worker

    def speed(row: Row) -> float:
        return row.speed(largest) or _NO_SPEED

    shown = sorted((row for row in raw if row.any.worker == here), key=speed, reverse=True)
    used = {row.any.worker for row in routes}
    elsewhere = tuple(row for row in raw if row.any.worker != here and row.any.worker in used)
    return Group(key[0], key[1], (*shown, *sorted(routes, key=speed, reverse=True)), elsewhere, sizes, largest)


def _row(run: model.Run, marks: Sequence[str], indices: Sequence[int]) -> Row:
    first = run.measurements[indices[0]]
    name = clean(first.route, longest=_LONGEST_NAME)
    name = f"{name} (fresh)" if first.variant == "fresh" else name
    at = {run.measurements[index].nbytes: run.measurements[index] for index in indices}
    return Row(name, at, {run.measurements[index].nbytes: marks[index] for index in indices})


def _is_right_and_timed(m: model.Measurement) -> bool:
    return m.verified.value is True and m.elapsed_s is not None


def _with_setting(run: model.Run) -> set[str | None]:
    """Workers that were started for routes which need a setting of their own."""
    return {worker.name for worker in run.workers if worker.setting}
