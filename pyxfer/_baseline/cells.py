"""The machine of a run, and cells as text: `h2d:pinned:256MiB`, `both/sum:pinned:async:1MiB`, `torch.to:96MiB`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from pyxfer._document.baselines import Cell, Fingerprint
from pyxfer._document.runs import (
    Device,
    Direction,
    Environment,
    Fact,
    Link,
    LinkState,
    Measurement,
    Memory,
    Run,
    Side,
    Variant,
)
from pyxfer._machine.link import describe
from pyxfer.errors import UsageError
from pyxfer.units import format_size, parse_size

_KEY_VERSION = "f1"
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,6})")


def fingerprint_of(run: Run) -> Fingerprint:
    return make_fingerprint(run.environment, run.device, run.link)


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
    device's name counts only if it has no UUID, because drivers have renamed devices.
    """
    parts = (
        fingerprint.host,
        fingerprint.runtime,
        fingerprint.gpu.value or fingerprint.device,
        fingerprint.link_kind,
        bool(fingerprint.mig.value),
        bool(fingerprint.confidential.value),
        fingerprint.virtual_machine.value or "",
        fingerprint.cpu.value or "",
    )
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


RAW = "raw"
_EXAMPLE = (
    "write a cell such as h2d:pinned:256MiB, both/sum:pinned:async:1MiB, d2h:pageable:16MiB:fresh or torch.to:96MiB"
)
_LONGEST = 300
_NUMBER = re.compile(r"[.0-9]")
_BATCH = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_MODE = re.compile(r"memcpy|async|batch|staged")
_VARIANTS = get_args(Variant)
_SIDES: tuple[Side, ...] = ("h2d", "d2h", "sum")


@dataclass(frozen=True)
class CellPattern:
    """The fields that a cell must have; None matches any value. `owner` is the part of the route before the dot."""

    owner: str | None = None
    route: str | None = None
    direction: Direction | None = None
    side: Side | None = None
    memory: str | None = None
    mode: str | None = None
    variant: Variant | None = None
    nbytes: int | None = None
    batch: int | None = None

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
        return fits and self.owner in (None, cell.route.partition(".")[0])


def cell_of(measurement: Measurement) -> Cell:
    m = measurement
    return Cell(m.route, m.direction, m.side, m.memory, m.mode, m.variant, m.nbytes, m.batch)


def is_raw(cell: Cell) -> bool:
    """Whether it is a raw copy (by the driver or through a ring), and not a route of a framework."""
    return cell.route.startswith(f"{RAW}.")


def is_automatic(cell: Cell) -> bool:
    """Whether its mode is the one that `--mode auto` selects; a test compares this with `_ceiling.ways`."""
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
    direction, side = _way(parts[0])
    return _raw_pattern(direction, side, parts[1:], text) if direction else _route_pattern(parts, text)


def _raw_pattern(direction: Direction, side: Side | None, parts: list[str], text: str) -> CellPattern:
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


def _way(text: str) -> tuple[Direction | None, Side | None]:
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
