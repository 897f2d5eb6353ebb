"""Cells: what is measured again and again, on one host or on many, and their text.

A text has the parts of a cell, joined by colons:

    h2d:pinned:256MiB                       a raw copy; both/sum:pinned:async:1MiB, d2h:pageable:16MiB:fresh
    h2d:gpu0:pinned:256MiB                  the same of one GPU of several
    torch.to:96MiB                          a framework's route; torch.to:512 is a batch
    torch.cast-on-host:512:nchw-float32     an order of work, which brings images in this form
    blocks.kernel:h2d:pinned:16KiBx64:runs  64 blocks of 16 KiB; in random places without the last part
    links.pairs.write.ce:gpu0-gpu1:512MiB   a copy of `pyxfer links`: group, case, engine, ends
    links.latency.idle:host-gpu0:2MiB       a latency
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

import msgspec

from pyxfer._document.links import COPY_ENGINES, GROUPS, HOST_END, FlowPlan, Latency, SmallCopies, TrafficPlan
from pyxfer._document.runs import BLOCKS, BlockOrder, Direction, Measurement, Memory, Variant
from pyxfer.errors import UsageError
from pyxfer.units import format_size, parse_size

CellGroup = Literal["raw", "route", "blocks", "host", "together", "pairs", "local", "latency", "numa", "small"]
# Those of runs, and three of links: between GPUs, inside one, and dependent loads.
CellDirection = Literal["h2d", "d2h", "both", "ingest", "peer", "local", "latency"]
CellSide = Literal["h2d", "d2h", "sum", "ingest", "peer", "local", "latency"]
Ends = tuple[int, ...]
"""Numbers of GPUs, or `HOST_END`, `ALL_GPUS` or, of a family, `ANY_GPU`."""
ALL_GPUS, ANY_GPU = -2, -3

LINKS = "links"
IDLE = "idle"
"""The case of a latency without a load on the link."""
_MAX_NAMED = 2
USUAL_ORDER = "random"


class Cell(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """One copy or latency, as it is measured again and again.

    `group`: "raw" for raw copies, "blocks", "route" for other routes, or the group of links. `case`: the name of the
    route, or the case of links. `engine`: of copies of links. `source` and `destination`: numbers of GPUs, -1 for the
    host, -2 for all GPUs; a total of both directions has its GPUs as the source, and no destination. Runs of one device
    have no ends. `node`: the NUMA node of the host memory, if chosen.
    """

    group: CellGroup
    case: str
    direction: CellDirection
    side: CellSide
    memory: str
    nbytes: Annotated[int, msgspec.Meta(gt=0)]
    mode: str = ""
    variant: Variant = "warm"
    batch: int | None = None
    engine: str = ""
    source: Ends = ()
    destination: Ends = ()
    node: int | None = None

    @property
    def is_latency(self) -> bool:
        """Whether its times are those of one load, which are shown in nanoseconds."""
        return self.direction == "latency"

    @property
    def text(self) -> str:
        """The text, which `parse_cell` reads. A mode that `--mode auto` selects is left out."""
        size = [_size_text(self.nbytes) if self.batch is None else str(self.batch)]
        variant = [] if self.variant == "warm" else [self.variant]
        if self.group == BLOCKS:
            block = self.nbytes // (self.batch or 1)
            order = [] if self.variant == USUAL_ORDER else [self.variant]
            return ":".join(
                [f"{BLOCKS}.{self.mode}", self._way, self.memory, f"{_size_text(block)}x{self.batch}", *order]
            )
        if self.group == "route":
            return ":".join([self.case, *size, *variant])
        if self.group == "raw":
            gpus = [_end_text(end) for end in (self.source, self.destination) if end not in ((), (HOST_END,))]
            return ":".join(
                [self._way, *gpus, self.memory, *([] if self.is_automatic else [self.mode]), *size, *variant]
            )
        head = ".".join(filter(None, (LINKS, self.group, self.case, self.engine)))
        ends = "-".join(_end_text(end, self.node) for end in (self.source, self.destination) if end)
        return ":".join([head, ends, *size])

    @property
    def _way(self) -> str:
        return f"{self.direction}/{self.side}" if self.direction == "both" else self.direction

    @property
    def is_automatic(self) -> bool:
        """Whether its mode is the one that `--mode auto` selects; a test compares this with `_ceiling.plans`."""
        return self.mode == ("memcpy" if self.memory == "pageable" and self.direction != "both" else "async")

    @property
    def is_of_links(self) -> bool:
        return self.group in GROUPS

    @property
    def is_alone(self) -> bool:
        """Whether it is a copy between the host and one GPU, in one direction, without other traffic."""
        return self.group in ("raw", "host") and self.side == self.direction and self.side in ("h2d", "d2h")

    @property
    def gpus(self) -> Ends:
        """The GPUs that it names; none for those of all."""
        return tuple(dict.fromkeys(number for number in (*self.source, *self.destination) if number >= 0))

    @property
    def family(self) -> Cell:
        """The same for cells that differ only in the numbers of their GPUs; its text has `gpu` for each of them."""
        source, destination = (
            tuple(ANY_GPU if number >= 0 else number for number in end) for end in (self.source, self.destination)
        )
        return msgspec.structs.replace(self, source=source, destination=destination)

    @property
    def order(self) -> tuple[Any, ...]:
        return tuple(-1 if value is None else value for value in msgspec.structs.astuple(self))


_DIRECTIONS: Mapping[str, tuple[CellDirection, ...]] = {
    **dict.fromkeys(("raw", "route"), ("h2d", "d2h")),
    **{name: (name,) for name in ("local", "latency")},
    "pairs": ("peer",),
}
_AT_HOST = {"h2d": (True, False), "d2h": (False, True)}


@lru_cache(maxsize=4096)
def is_of_host(cell: Cell) -> bool:
    """Whether it can be a figure of a host with several GPUs: its parts fit together."""
    way = cell.direction if cell.side == "sum" else cell.side
    at_host = cell.source == (HOST_END,), cell.destination == (HOST_END,)
    return (
        cell.variant == "warm"
        and cell.direction in _DIRECTIONS.get(cell.group, ("h2d", "d2h", "both"))
        and cell.direction in (way, "both")
        and (cell.group == "raw") == cell.case.startswith("raw.")
        and bool(cell.mode) == (not cell.is_of_links)
        and min((*cell.source, *cell.destination), default=ANY_GPU) >= ALL_GPUS
        and (at_host == _AT_HOST.get(way, (False, False)) or (way == "latency" and not at_host[1]))
    )


def _end_text(end: Ends, node: int | None = None) -> str:
    names = {HOST_END: "host" if node is None else f"node{node}", ALL_GPUS: "all", ANY_GPU: "gpu"}
    return "+".join(names.get(number) or f"gpu{number}" for number in end)


def _size_text(nbytes: int) -> str:
    """The shortest exact text."""
    text = format_size(nbytes).replace(" ", "")
    return text if parse_size(text) == nbytes else f"{nbytes}B"


# --- the cells of rows -----------------------------------------------------------------------------------------------


def cell_of(row: Measurement, gpu: int | None = None) -> Cell:
    """The cell of a row of a run; with the number of its GPU if it is one of several."""
    group: CellGroup = "raw" if row.is_raw else "route" if row.block_bytes is None else BLOCKS
    cell = Cell(group, row.route, row.direction, row.side, row.memory, row.nbytes, row.mode, row.variant, row.batch)
    return cell if gpu is None else msgspec.structs.replace(cell, **_ends_of_gpu(cell.direction, gpu))


def _ends_of_gpu(direction: str, gpu: int) -> dict[str, Any]:
    if direction == "both":
        return {"source": (gpu,)}
    names = ("source", "destination") if direction == "h2d" else ("destination", "source")
    return dict(zip(names, ((HOST_END,), (gpu,)), strict=True))


def cell_of_flow(traffic: TrafficPlan, flow: FlowPlan) -> Cell:
    return _traffic_cell(traffic, flow.side, (flow.source,), (flow.destination,))


def cell_of_total(traffic: TrafficPlan) -> Cell:
    """The cell of all streams together; of a single one, its own."""
    if len(traffic.flows) == 1:
        return cell_of_flow(traffic, traffic.flows[0])
    sources, destinations = ({getattr(flow, name) for flow in traffic.flows} for name in ("source", "destination"))
    if sources == destinations:
        return _traffic_cell(traffic, "sum", _named(sources - {HOST_END}), ())
    return _traffic_cell(traffic, "sum", _named(sources), _named(destinations))


def _named(ends: Iterable[int]) -> Ends:
    known = sorted(ends)
    return (ALL_GPUS,) if len(known) > _MAX_NAMED else tuple(known)


def _traffic_cell(traffic: TrafficPlan, side: CellSide, source: Ends, destination: Ends) -> Cell:
    found = {flow.side for flow in traffic.flows}
    direction = "both" if len(found) > 1 else found.pop()
    memory = "device" if direction in ("peer", "local") else "pinned"
    what = (traffic.group, traffic.case, direction, side, memory, traffic.nbytes)
    return Cell(*what, engine=traffic.engine, source=source, destination=destination, node=traffic.node)


def cell_of_latency(row: Latency) -> Cell:
    case, memory = f"load-{row.load * 100:.0f}" if row.load else IDLE, "pinned" if row.target == HOST_END else "device"
    ends: dict[str, Any] = {"source": (row.target,), "destination": (row.device,)}
    return Cell("latency", case, "latency", "latency", memory, row.footprint_bytes, node=row.node, **ends)


def cell_of_small(row: SmallCopies) -> Cell:
    ends = _ends_of_gpu(row.direction, row.device)
    return Cell("small", row.mode, row.direction, row.direction, "pinned", row.nbytes, **ends)


# --- patterns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellPattern:
    """The groups that a cell may be of, and the fields that it must have."""

    groups: tuple[str, ...]
    fields: Mapping[str, object]

    def matches(self, cell: Cell) -> bool:
        return cell.group in self.groups and all(getattr(cell, name) == value for name, value in self.fields.items())


_EXAMPLE = (
    "write a cell such as h2d:pinned:256MiB, both/sum:pinned:async:1MiB, d2h:pageable:16MiB:fresh, torch.to:96MiB or "
    "links.pairs.write.ce:gpu0-gpu1:512MiB."
)
_MAX_LENGTH = 300
_NUMBER = re.compile(r"[.0-9]")
_BATCH = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_END = re.compile(r"(host|all)|(gpu|node)([0-9]{1,6})", re.ASCII)


def _part(name: str, words: str) -> str:
    """A pattern of a part that may be left out."""
    return rf"(?::(?P<{name}>{words})(?![^:]))?"


_SIZE_AND_VARIANT = _part("nbytes", "[.0-9][^:]*") + _part("variant", "|".join(get_args(Variant)))
_RAW = re.compile(
    rf"(?P<direction>{'|'.join(get_args(Direction))})(?:(?<=both)/(?P<side>h2d|d2h|sum))?(?![^:])"
    + _part("gpu", "gpu[0-9]{1,6}")
    + _part("memory", "|".join(get_args(Memory)))
    + _part("mode", "memcpy|async|batch|staged|streams(?::[^:]+)?")
    + _SIZE_AND_VARIANT,
    re.ASCII,
)
_BLOCKS = re.compile(
    rf"{BLOCKS}(?:\.(?P<mode>[a-z]+))?"
    + _part("direction", f"(?:{'|'.join(get_args(Direction))})(?:(?<=both)/(?P<side>h2d|d2h|sum))?")
    + _part("memory", "|".join(get_args(Memory)))
    + _part("block", "[.0-9][^:x]*x(?P<batch>[1-9][0-9]{0,8})")
    + _part("variant", "|".join(get_args(BlockOrder))),
    re.ASCII,
)
_ROUTE = re.compile(rf"(?P<case>.+?){_SIZE_AND_VARIANT}", re.DOTALL)


def parse_cell(text: str) -> CellPattern:
    """A pattern of cells from text; a part that the text leaves out matches any value."""
    parts = [part.strip() for part in text.split(":")]
    if len(text) > _MAX_LENGTH or not all(parts):
        raise UsageError(f"{text[:_MAX_LENGTH]!r} is not a cell, because a part of it is empty or too long: {_EXAMPLE}")
    head = parts[0].split(".")
    if head[0] == LINKS:
        return _links_pattern(head[1:], parts[1:], text)
    if head[0] == BLOCKS:
        return _blocks_pattern(_BLOCKS.fullmatch(":".join(parts)), text)
    raw, route = _RAW.match(":".join(parts)), _ROUTE.fullmatch(":".join(parts))
    if raw is not None:
        return _raw_pattern(_known(raw), raw.string[raw.end() :], text)
    return _route_pattern({} if route is None else _known(route), text)


def _blocks_pattern(found: re.Match[str] | None, text: str) -> CellPattern:
    if found is None:
        raise UsageError(
            f"{text!r} is not a cell of blocks: write one such as blocks.kernel:h2d:pinned:16KiBx64 or "
            "blocks.batch:both/sum:pinned:4KiBx1024:runs."
        )
    fields: dict[str, Any] = _known(found)
    if "direction" in fields:
        fields["direction"] = fields["direction"].partition("/")[0]
    if block := fields.pop("block", None):
        fields["batch"] = int(fields["batch"])
        fields["nbytes"] = parse_size(block.rpartition("x")[0]) * fields["batch"]
        fields.setdefault("variant", USUAL_ORDER)
    return CellPattern((BLOCKS,), fields)


def _links_pattern(head: list[str], rest: list[str], text: str) -> CellPattern:
    fields: dict[str, Any] = dict(zip(("group", "case", "engine"), head, strict=False))
    if len(head) > 3 or fields.get("group", GROUPS[0]) not in GROUPS or fields.get("engine", "ce") not in COPY_ENGINES:  # noqa: PLR2004
        raise UsageError(
            f"{'.'.join(head)!r} in the cell {text!r} is not a group, case and engine of links: {_EXAMPLE}"
        )
    ends = None if not rest else _ends(rest[0])
    if ends is not None:
        fields |= ends
        del rest[0]
    if rest and _NUMBER.match(rest[0]):
        fields["nbytes"] = parse_size(rest.pop(0))
    if rest:
        raise UsageError(f"{rest[0]!r} in the cell {text!r} is not a size, or is in the wrong place: {_EXAMPLE}")
    return CellPattern(GROUPS, fields)


def _ends(text: str) -> dict[str, Any] | None:
    source, dash, destination = text.partition("-")
    parts = [
        [_END.fullmatch(word) for word in part.split("+")] for part in ((source, destination) if dash else (source,))
    ]
    words = [word for part in parts for word in part if word is not None]
    if len(words) < sum(map(len, parts)):
        return None
    ends = [tuple(_end_number(word) for word in part if word is not None) for part in parts]
    node = next((int(word[3]) for word in words if word[2] == "node"), None)
    return {"source": ends[0], "destination": ends[1] if len(ends) > 1 else (), "node": node}


def _end_number(word: re.Match[str]) -> int:
    return int(word[3]) if word[2] == "gpu" else ALL_GPUS if word[1] == "all" else HOST_END


def _raw_pattern(fields: dict[str, Any], rest: str, text: str) -> CellPattern:
    if rest:
        raise UsageError(
            f"{rest.split(':')[1]!r} in the cell {text!r} is not a GPU, memory, mode, size or variant, or is in the "
            f"wrong place: {_EXAMPLE}"
        )
    if "nbytes" in fields:
        fields["nbytes"] = parse_size(fields["nbytes"])
    if gpu := fields.pop("gpu", None):
        fields |= _ends_of_gpu(fields["direction"], int(gpu.removeprefix("gpu")))
    return CellPattern(("raw", "route") if fields["direction"] == "ingest" else ("raw",), fields)


def _route_pattern(fields: dict[str, Any], text: str) -> CellPattern:
    if "." not in fields.get("case", ""):
        raise UsageError(
            f"{text!r} is not a cell, because {fields.get('case')!r} is not a direction or a route such as torch.to: "
            f"{_EXAMPLE}"
        )
    if size := fields.pop("nbytes", None):
        fields |= {"batch": int(size)} if _BATCH.fullmatch(size) else {"nbytes": parse_size(size)}
    return CellPattern(("raw", "route"), fields)


def _known(found: re.Match[str]) -> dict[str, Any]:
    return {name: value for name, value in found.groupdict().items() if value is not None}
