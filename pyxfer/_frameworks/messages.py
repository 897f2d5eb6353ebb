"""The messages between a run and its worker processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import msgspec

from pyxfer._ceiling.plans import Limits
from pyxfer._document.machines import Fact, Link, Placement, Remark
from pyxfer._document.runs import Form, Measurement, Place, Tracing, Workload
from pyxfer._measure.sampler import Progress

_BYTES = 256


@dataclass(frozen=True)
class Mark:
    """The step of a worker: a route, its size, and a phase such as `verified` or `timed`."""

    route: str
    nbytes: int
    phase: str


class Marker:
    """The worker's current step, in an anonymous file that both processes have open."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = os.memfd_create("pyxfer-marker", 0) if handle is None else handle

    def set(self, route: str, nbytes: int, phase: str) -> None:
        os.pwrite(self.handle, f"{route}\t{nbytes}\t{phase}".encode()[:_BYTES].ljust(_BYTES, b"\0"), 0)

    def clear(self) -> None:
        os.pwrite(self.handle, b"\0", 0)

    def read(self) -> Mark | None:
        """The step under way, or None between steps."""
        text = os.pread(self.handle, _BYTES, 0).split(b"\0", 1)[0].decode(errors="replace")
        parts = text.split("\t")
        if len(parts) != 3 or not parts[1].isdigit():  # noqa: PLR2004 - as `set` writes it
            return None
        return Mark(parts[0], int(parts[1]), parts[2])

    def close(self) -> None:
        os.close(self.handle)


class Reference(msgspec.Struct, frozen=True):
    """Where a function is: its module, its name in it, and the script's path if that is the main module."""

    module: str
    name: str
    script: str | None = None


class OwnRoute(msgspec.Struct, frozen=True):
    """A registered route: its plain fields, and where its functions are."""

    fields: dict[str, Any]
    copy: Reference | None
    image_batch: Reference | None


class Task(msgspec.Struct, frozen=True, tag=True):
    """The order to measure."""

    worker: str
    framework: str
    setting: str
    routes: tuple[str, ...]
    own: tuple[OwnRoute, ...]
    device: str
    workload: Workload
    sizes: tuple[int, ...]
    limits: Limits
    traces_all_sizes: bool = False
    forms: tuple[Form, ...] = ()
    casts: tuple[Place, ...] = ()


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The order to measure once everything is prepared: no other worker measures now."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """The order to end soon and to send the results so far."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The framework has started."""

    version: str
    cuda: Fact[str]
    settings: dict[str, str]
    start_s: float


class Awake(msgspec.Struct, frozen=True, tag=True):
    """The link is awake: its state under load, and the placement of the worker's memory."""

    link: Link
    placement: Placement


class Doing(msgspec.Struct, frozen=True, tag=True):
    """Progress, which also shows that the worker is alive."""

    now: Progress


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Everything is prepared, and the worker waits for the order to begin."""


class Tracer(msgspec.Struct, frozen=True, tag=True):
    """The source of the device's records, or why there are none."""

    tracing: Fact[Tracing]


class Rows(msgspec.Struct, frozen=True, tag=True):
    """All measurements so far."""

    measurements: tuple[Measurement, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The framework is not available here."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot continue. Its measurements were sent before."""

    reason: str


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The worker has sent everything."""

    remarks: tuple[Remark, ...]


ToWorker = Task | Begin | Stop
FromWorker = Hello | Awake | Doing | Ready | Tracer | Rows | Refused | Failed | Finished

pack = msgspec.msgpack.Encoder().encode
unpack_order = msgspec.msgpack.Decoder[ToWorker](ToWorker).decode
unpack_report = msgspec.msgpack.Decoder[FromWorker](FromWorker).decode
