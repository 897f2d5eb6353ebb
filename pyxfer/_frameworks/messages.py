"""What a run and its worker processes tell each other: msgspec over a pipe, and no document."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import msgspec

from pyxfer._document.runs import Fact, Link, Measurement, Placement, Remark, Tracing, Workload

_BYTES = 256


@dataclass(frozen=True)
class Mark:
    """A route at a size, and whether it was being set up, verified or timed."""

    route: str
    nbytes: int
    phase: str


class Marker:
    """Both processes hold the same file, which has no name."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = os.memfd_create("pyxfer-marker", 0) if handle is None else handle

    def set(self, route: str, nbytes: int, phase: str) -> None:
        """Right before the step."""
        os.pwrite(self.handle, f"{route}\t{nbytes}\t{phase}".encode()[:_BYTES].ljust(_BYTES, b"\0"), 0)

    def clear(self) -> None:
        """Right after it."""
        os.pwrite(self.handle, b"\0", 0)

    def read(self) -> Mark | None:
        """The step that was under way; None between steps."""
        text = os.pread(self.handle, _BYTES, 0).split(b"\0", 1)[0].decode(errors="replace")
        parts = text.split("\t")
        if len(parts) != 3 or not parts[1].isdigit():  # noqa: PLR2004 - as `set` writes it
            return None
        return Mark(parts[0], int(parts[1]), parts[2])

    def close(self) -> None:
        """Give the file back."""
        os.close(self.handle)


class OwnRoute(msgspec.Struct, frozen=True):
    """A registered route: its words, and where the functions are that set it up."""

    words: dict[str, Any]
    copy: tuple[str, str, bytes | None] | None
    image_batch: tuple[str, str, bytes | None] | None


class Task(msgspec.Struct, frozen=True, tag=True):
    """All that a worker has to know."""

    worker: str
    framework: str
    setting: str
    routes: tuple[str, ...]
    own: tuple[OwnRoute, ...]
    device: str
    workload: Workload
    sizes: tuple[int, ...]
    precision: float
    budget_s: float
    seed: int
    trace: bool = True
    explained: str = ""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End soon, and send what there is."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The framework has been started."""

    version: str
    cuda: Fact[str]
    settings: dict[str, str]
    start_s: float


class Awake(msgspec.Struct, frozen=True, tag=True):
    """The link has been woken: what it is under load, and where the worker's memory lies."""

    link: Link
    placement: Placement


class Doing(msgspec.Struct, frozen=True, tag=True):
    """A sign of life."""

    phase: str
    done: float
    text: str


class Tracer(msgspec.Struct, frozen=True, tag=True):
    """What the device's records come from, or why there are none."""

    tracing: Fact[Tracing]


class Rows(msgspec.Struct, frozen=True, tag=True):
    """The measurements so far, all of them."""

    measurements: tuple[Measurement, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The framework is not to be had here."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot go on; what it has measured was sent before."""

    reason: str


class Finished(msgspec.Struct, frozen=True, tag=True):
    """All is sent."""

    remarks: tuple[Remark, ...]


ToWorker = Task | Stop
FromWorker = Hello | Awake | Doing | Tracer | Rows | Refused | Failed | Finished

_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def pack(message: ToWorker | FromWorker) -> bytes:
    """As it goes through the pipe."""
    return _encoder.encode(message)


def unpack_order(data: bytes) -> ToWorker:
    """What the run tells a worker."""
    return _to_worker.decode(data)


def unpack_report(data: bytes) -> FromWorker:
    """What a worker tells the run."""
    return _from_worker.decode(data)
