"""The machine of a run, and cells as text.

Such as `h2d:pinned:256MiB`, `both/sum:pinned:async:1MiB`, `torch.to:96MiB`, `links.pairs.write.ce:0>1:512MiB`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec

from pyxfer._document.baselines import AnyRun, Baseline, Cell, CellDirection, CellSide, Fingerprint
from pyxfer._document.derivations import derived
from pyxfer._document.links import Links
from pyxfer._document.runs import (
    Device,
    Direction,
    Environment,
    Fact,
    Link,
    LinkState,
    Measurement,
    Memory,
    Variant,
    unknown,
)
from pyxfer._machine.link import describe
from pyxfer.errors import UsageError
from pyxfer.units import format_size, parse_size

_KEY_VERSION = "f1"
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,6})")


def fingerprint_of(run: AnyRun) -> Fingerprint:
    if isinstance(run, Links):
        return fingerprint_of_links(run.environment, devices_of(run))
    return make_fingerprint(run.environment, run.device, run.link)


def derive_baseline(baseline: Baseline) -> Baseline:
    """The baseline with what follows within each of its runs, and the fingerprint of one of them."""
    stated, found = baseline.fingerprint, [fingerprint_of(run) for run in baseline.processes]
    return msgspec.structs.replace(
        baseline,
        fingerprint=stated if stated in found else found[0],
        runs=tuple(derived("run", run) for run in baseline.runs),
        links=tuple(derived("links", run) for run in baseline.links),
    )


def devices_of(run: AnyRun) -> list[tuple[Device, Link]]:
    """The measured devices with their links to the host, by number."""
    if isinstance(run, Links):
        return sorted(((each.device, each.link) for each in run.devices), key=lambda pair: pair[0].index)
    return [(run.device, run.link)]


def fingerprint_of_links(environment: Environment, devices: Sequence[tuple[Device, Link]]) -> Fingerprint:
    """The fingerprint of several devices, which are in order of their numbers."""
    each = [make_fingerprint(environment, device, link) for device, link in devices]
    known = [one.gpu.value for one in each if one.gpu.value is not None]
    states = _joined([one.link_now.value for one in each if one.link_now.value is not None])
    return msgspec.structs.replace(
        each[0],
        gpu=Fact(", ".join(known)) if len(known) == len(each) else unknown("a GPU has no UUID"),
        device=devices_text([one.device for one in each]),
        link_kind=_joined([one.link_kind for one in each]),
        mig=next((one.mig for one in each if one.mig.value), each[0].mig),
        confidential=next((one.confidential for one in each if one.confidential.value), each[0].confidential),
        link_now=Fact(states) if states else each[0].link_now,
        gpus={device.index: device.uuid.value or device.name for device, _ in devices},
    )


def devices_text(names: Sequence[str]) -> str:
    """`NVIDIA H200`, or `8 x NVIDIA H200`."""
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def make_fingerprint(environment: Environment, device: Device, link: Link) -> Fingerprint:
    state = link_state(link)
    return Fingerprint(
        host=environment.host,
        runtime=device.runtime,
        gpu=device.uuid,
        device=device.name,
        link_kind=link.kind,
        mig=device.mig,
        confidential=device.confidential,
        virtual_machine=environment.virtual_machine,
        cpu=environment.cpu_model,
        link_now=Fact(reason=state.reason) if state.value is None else Fact(describe(state.value)),
        driver_major=_major(environment.driver, "the driver's version"),
        runtime_major=_major(Fact(environment.cuda_runtime), "the CUDA runtime's version"),
    )


def identity(fingerprint: Fingerprint) -> str:
    """A short key of the machine; a change of the link's state, the driver or the CUDA runtime does not change it.

    A value that could not be read counts as absent, so that a machine keeps its key while NVML is not available. The
    device's name counts only if it has no UUID, because drivers have renamed devices. Links also count the numbers of
    their GPUs, which are in the names of their cells.
    """
    parts: tuple[object, ...] = (
        fingerprint.host,
        fingerprint.runtime,
        fingerprint.gpu.value or fingerprint.device,
        fingerprint.link_kind,
        bool(fingerprint.mig.value),
        bool(fingerprint.confidential.value),
        fingerprint.virtual_machine.value or "",
        fingerprint.cpu.value or "",
    )
    if fingerprint.gpus:
        parts = (*parts, "links", sorted(fingerprint.gpus.items()))
    digest = hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()
    return f"{_KEY_VERSION}-{digest[:32]}"


def link_state(link: Link) -> Fact[LinkState]:
    """The state of the link under load, or if it is not known, before the load."""
    return link.under_load if link.under_load.value is not None else link.now


def _major(version: Fact[str], what: str) -> Fact[int]:
    if version.value is None:
        return Fact(reason=version.reason)
    number = _LEADING_NUMBER.match(version.value)
    return Fact(int(number[1])) if number else Fact(reason=f"{what} does not begin with a number")


RAW, LINKS = "raw", "links"
_EXAMPLE = (
    "write a cell such as h2d:pinned:256MiB, both/sum:pinned:async:1MiB, d2h:pageable:16MiB:fresh, torch.to:96MiB or "
    "links.pairs.write.ce:0>1:512MiB"
)
_LONGEST = 300
_NUMBER = re.compile(r"[.0-9]")
_BATCH = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_MODE = re.compile(r"memcpy|async|batch|staged")
_VARIANTS = get_args(Variant)
_SIDES: tuple[CellSide, ...] = ("h2d", "d2h", "sum")
# The ends of a link may be numbers as well, without a unit.
_SIZE_OF_LINK = re.compile(r"[.0-9]+ ?[A-Za-z]+")


@dataclass(frozen=True)
class CellPattern:
    """The fields that a cell must have; None matches any value. `owner` is the part of the route before the dot.

    `links` and `ends` are of the route of links: how it begins, such as `links.pairs`, and how it ends.
    """

    owner: str | None = None
    route: str | None = None
    direction: CellDirection | None = None
    side: CellSide | None = None
    memory: str | None = None
    mode: str | None = None
    variant: Variant | None = None
    nbytes: int | None = None
    batch: int | None = None
    links: str | None = None
    ends: str | None = None

    def matches(self, cell: Cell) -> bool:
        required = {
            "route": self.route,
            "direction": self.direction,
            "side": self.side,
            "memory": self.memory,
            "mode": self.mode,
            "variant": self.variant,
            "nbytes": self.nbytes,
            "batch": self.batch,
        }
        fits = all(value is None or getattr(cell, name) == value for name, value in required.items())
        return fits and self.owner in (None, cell.route.partition(".")[0]) and self._fits_links(cell)

    def _fits_links(self, cell: Cell) -> bool:
        head, _, ends = cell.route.partition(":")
        return (self.links is None or f"{head}.".startswith(f"{self.links}.")) and self.ends in (None, ends)


def cell_of(measurement: Measurement) -> Cell:
    m = measurement
    return Cell(m.route, m.direction, m.side, m.memory, m.mode, m.variant, m.nbytes, m.batch)


def is_raw(cell: Cell) -> bool:
    """Whether it is a raw copy (by the driver or through a ring), and not a route of a framework."""
    return cell.route.startswith(f"{RAW}.")


def is_of_links(cell: Cell) -> bool:
    return cell.route.startswith(f"{LINKS}.")


def is_automatic(cell: Cell) -> bool:
    """Whether its mode is the one that `--modes auto` selects; a test compares this with `_ceiling.ways`."""
    return cell.mode == ("memcpy" if cell.memory == "pageable" and cell.direction != "both" else "async")


def cell_text(cell: Cell, *, full: bool = False) -> str:
    """The text of a cell, which `parse_cell` reads. Without `full` a mode that `auto` selects is left out."""
    fresh = ["fresh"] if cell.variant == "fresh" else []
    if not is_raw(cell):
        return ":".join([cell.route, _size_text(cell.nbytes) if cell.batch is None else str(cell.batch), *fresh])
    way = f"{cell.direction}/{cell.side}" if cell.direction == "both" else cell.direction
    mode = [cell.mode] if full or not is_automatic(cell) else []
    return ":".join([way, cell.memory, *mode, _size_text(cell.nbytes), *fresh])


def parse_cell(text: str) -> CellPattern:
    """A pattern of cells from text; a part that the text leaves out matches any value.

    Raises:
        UsageError: the text is not a cell; the error has an example.

    """
    parts = [part.strip() for part in text.split(":")]
    if len(text) > _LONGEST or not all(parts):
        raise UsageError(f"{text[:_LONGEST]!r} is not a cell: a part of it is empty or too long; {_EXAMPLE}")
    if parts[0] == LINKS or parts[0].startswith(f"{LINKS}."):
        return _links_pattern(parts, text)
    direction, side = _way(parts[0])
    return _raw_pattern(direction, side, parts[1:], text) if direction else _route_pattern(parts, text)


def _links_pattern(parts: list[str], text: str) -> CellPattern:
    head, *rest = parts
    ends = _taken(rest, lambda part: not _SIZE_OF_LINK.fullmatch(part))
    size = _taken(rest, lambda part: bool(_SIZE_OF_LINK.fullmatch(part)))
    if rest:
        raise UsageError(f"{rest[0]!r} in the cell {text!r} is not a size, or is in the wrong place; {_EXAMPLE}")
    return CellPattern(links=head, ends=ends, nbytes=None if size is None else parse_size(size))


def _raw_pattern(direction: CellDirection, side: CellSide | None, parts: list[str], text: str) -> CellPattern:
    rest = list(parts)
    memory = _taken(rest, lambda part: part in get_args(Memory))
    mode = _taken(rest, lambda part: bool(_MODE.fullmatch(part)))
    if rest[:1] == ["streams"]:
        mode = ":".join(rest[:2])
        del rest[:2]
    size = _taken(rest, lambda part: bool(_NUMBER.match(part)))
    variant = _taken_variant(rest)
    if rest:
        raise UsageError(
            f"{rest[0]!r} in the cell {text!r} is not a memory, mode, size or variant, or is in the wrong place; "
            f"{_EXAMPLE}"
        )
    nbytes = None if size is None else parse_size(size)
    owner = None if direction == "ingest" else RAW
    return CellPattern(owner, None, direction, side, memory, mode, variant, nbytes)


def _route_pattern(parts: list[str], text: str) -> CellPattern:
    rest = parts[::-1]  # from the end, because the route may contain colons
    variant = _taken_variant(rest)
    size = _taken(rest, lambda part: bool(_NUMBER.match(part))) if len(rest) > 1 else None
    route = ":".join(rest[::-1])
    if "." not in route:
        raise UsageError(
            f"{text!r} is not a cell: {route!r} is not a direction or a route such as torch.to; {_EXAMPLE}"
        )
    batch = int(size) if size is not None and _BATCH.fullmatch(size) else None
    nbytes = parse_size(size) if size is not None and batch is None else None
    return CellPattern(route=route, variant=variant, nbytes=nbytes, batch=batch)


def _way(text: str) -> tuple[CellDirection | None, CellSide | None]:
    name, slash, side_text = text.partition("/")
    direction = next((direction for direction in get_args(Direction) if direction == name), None)
    side = next((side for side in _SIDES if side == side_text), None)
    if slash and (direction != "both" or side is None):
        return None, None
    return direction, side


def _taken(parts: list[str], fits: Callable[[str], bool]) -> str | None:
    return parts.pop(0) if parts and fits(parts[0]) else None


def _taken_variant(parts: list[str]) -> Variant | None:
    text = _taken(parts, lambda part: part in _VARIANTS)
    return next((variant for variant in _VARIANTS if variant == text), None)


def _size_text(nbytes: int) -> str:
    """The shortest exact text."""
    text = format_size(nbytes).replace(" ", "")
    return text if parse_size(text) == nbytes else f"{nbytes}B"
