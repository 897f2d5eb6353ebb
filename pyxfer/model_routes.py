"""The part of the document that describes frameworks; `pyxfer.model` has the rest, and offers this too."""

from __future__ import annotations

from typing import Literal

import msgspec

from pyxfer.model_machine import Fact, Remark, unknown
from pyxfer.model_trace import NOT_TRACED, Tracing

Workload = Literal["copy", "image-batch"]
# When a call returns: when the bytes have arrived, when they have been copied to staging memory, or at once.
Returns = Literal["done", "staged", "queued"]
WorkerEnding = Literal["complete", "interrupted", "unavailable", "crashed", "hung", "failed"]


class Nature(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a framework's route says of itself; `staged`: threads fill or empty page-locked slots while it copies."""

    framework: str
    call: str
    host_copies: int
    dma: str
    returns: Returns
    usual: bool = False
    setting: str = ""
    inflation: float = 1.0
    staged: bool = False


class Worker(msgspec.Struct, frozen=True):
    """The process in which one framework was measured, and how it ended."""

    name: str
    framework: str
    setting: str
    version: Fact[str]
    cuda: Fact[str]
    settings: dict[str, str]
    ended: WorkerEnding
    reason: str | None
    log: tuple[str, ...]
    start_s: Fact[float]
    duration_s: float
    remarks: tuple[Remark, ...] = ()
    tracing: Fact[Tracing] = unknown(NOT_TRACED)


class Published(msgspec.Struct, frozen=True):
    """Figures that somebody else has published for a workload, in MB/s (1e6 bytes) by batch."""

    label: str
    route: str
    gpu: str
    mbps: dict[int, float]
    source: str
