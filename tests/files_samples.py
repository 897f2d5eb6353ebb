"""Runs of `pyxfer files` with figures like those of an H200 host."""

from __future__ import annotations

from typing import Any

import msgspec
from framework_samples import make_worker
from samples import MIB, make_measurement, make_parameters, make_run

from pyxfer._ceiling.derived import derived_row
from pyxfer._document import runs
from pyxfer._document.machines import Fact, unknown
from pyxfer._loaders.session import with_limits

NBYTES = 3072 * MIB
NOT_EVICTED = "the files are in memory (tmpfs), and on no disk"
_READS = {("disk", 1): 1.1, ("disk", 4): 2.7, ("disk", 16): 2.4, ("cache", 1): 9.1, ("cache", 16): 77.0}
_LOADERS = {
    "pyxfer.load-tensors": (47.1, 2.61, 14.0, 0.06),
    "safetensors.load-file": (5.0, 1.58, 4.5, 3.3),
    "runai.stream": (1.8, 1.2, 1.7, 4.6),
}


def make_row(route: str, nbytes: int, gbps: float, **fields: Any) -> runs.Measurement:
    """Six trials at about this rate."""
    seconds = [nbytes / gbps / 1e9 * (1 + 1e-3 * step) for step in (-2, 1, -1, 2, 0, 0)]
    row = msgspec.structs.replace(
        make_measurement(),
        route=route,
        nbytes=nbytes,
        moved_bytes=nbytes,
        trials=tuple(runs.Trial(number, time_s) for number, time_s in enumerate(seconds)),
        ceiling_share=unknown("no ceiling"),
        peak_share=unknown("no peak"),
        **fields,
    )
    return derived_row(row, make_run().link, ())


def make_read(place: str, threads: int, gbps: float) -> runs.Measurement:
    call = "1 thread" if threads == 1 else f"{threads} threads"
    return make_row(
        f"files.{place}-{threads}",
        512 * MIB,
        gbps,
        direction="ingest",
        side="ingest",
        memory="file",
        mode="read",
        bracket="host",
        variant="cold" if place == "disk" else "warm",
        verified=unknown("its bytes go nowhere"),
        first_s=unknown("it has no first call"),
        route_info=runs.RouteInfo("files", call, 0, "", "done"),
    )


def make_load(name: str, variant: runs.Variant, gbps: float, first_gbps: float, **fields: Any) -> runs.Measurement:
    first = Fact(NBYTES / first_gbps / 1e9) if variant == "warm" else unknown("the first load was a warm one")
    row = make_row(
        name,
        NBYTES,
        gbps,
        memory="file",
        mode="loader",
        bracket="host",
        variant=variant,
        first_s=first,
        worker=name,
        route_info=runs.RouteInfo("torch", f"{name}(paths)", 0, "", "done"),
    )
    return msgspec.structs.replace(row, **fields)


def make_loads(**overrides: Any) -> tuple[runs.Measurement, ...]:
    """The rows of the loaders; `overrides` are those of the cold ones."""
    return tuple(
        make_load(name, variant, cold if variant == "cold" else warm, first, **overrides if variant == "cold" else {})
        for name, (warm, cold, first, _) in _LOADERS.items()
        for variant in ("warm", "cold")
    )


def make_files_run(loads: tuple[runs.Measurement, ...] | None = None, **overrides: Any) -> runs.Run:
    """Three loaders, warm and cold."""
    reads = tuple(make_read(place, threads, gbps) for (place, threads), gbps in _READS.items())
    link = make_row("raw.pinned-async", 64 * MIB, 55.2)
    worker = make_worker("torch")
    workers = tuple(
        msgspec.structs.replace(
            worker, name=name, host_peak_bytes=Fact(int(host * 1e9)), device_peak_bytes=Fact(NBYTES)
        )
        for name, (*_, host) in _LOADERS.items()
    )
    fields: dict[str, Any] = {
        "kind": "files",
        "parameters": make_parameters(directions=("h2d", "ingest"), sizes_bytes=(NBYTES,)),
        "measurements": with_limits((link, *reads, *(make_loads() if loads is None else loads))),
        "workers": workers,
        "files": runs.LoadedFiles(("/models/model.safetensors",), NBYTES, 144, Fact("ext4")),
        **overrides,
    }
    return make_run(**fields)


def make_warm_run() -> runs.Run:
    """Loads of files on tmpfs, which cannot be cold."""
    none: dict[str, Any] = dict.fromkeys(("rate", "verified", "first_s", "ceiling_share"), unknown(NOT_EVICTED))
    return make_files_run(make_loads(**none, trials=(), summary=None))
