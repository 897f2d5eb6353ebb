"""A small frameworks run with figures like those of an H200 host, a refused route and a crashed worker."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from samples import KIB, make_environment, make_link, make_measurement, make_missing, make_parameters, make_run

from pyxfer._document import runs
from pyxfer._document.machines import Fact, unknown
from pyxfer._frameworks.registry import FRAMEWORKS, known_route
from pyxfer._measure import stats

SIZES = tuple(4 * KIB * 4**step for step in range(9))
IMAGE_BYTES = 196_608
BATCHES = tuple(2**step for step in range(10))
ALIASED = "no bytes were moved: the result uses the memory of the array that it was made from"
REFUSED = "not available in TensorFlow 2.21: its EagerTensor has no _copy_to_device"

_CEILING = (2.3e-6, 55.6)
_HOST_COPY = (0.3e-6, 11.0)
_Figures = dict[str, tuple[float, float]]
# Fixed seconds and GB/s of each route: the time of n bytes is their sum.
_H2D: dict[str, _Figures] = {
    "torch": {
        "torch.to": (9.1e-6, 17.9),
        "torch.to-nonblocking": (8.8e-6, 17.8),
        "torch.pin-to": (31e-6, 35.3),
        "torch.pinned-nonblocking": (5.9e-6, 55.2),
        "torch.cast-blocking": (40e-6, 2.1),
        "torch.cast-nonblocking": (18e-6, 17.3),
        "torch.noncontiguous": (22e-6, 3.6),
        "torch.channels-last": (25e-6, 14.0),
        "torch.loader-pinned": (210e-6, 6.2),
    },
    "tensorflow": {
        "tf.constant": (95e-6, 3.42),
        "tf.function": (140e-6, 3.43),
        "tf.function-jit": (130e-6, 3.27),
        "tf.cast-eager": (120e-6, 3.3),
        "tf.rawop": (80e-6, 11.5),
        "tf.cpu-op": (90e-6, 9.8),
        "tf.dlpack-pageable": (60e-6, 11.9),
        "tf.dlpack-pinned": (58e-6, 54.1),
        "tf.data-prefetch": (420e-6, 4.9),
    },
    "tensorflow force-gpu-compatible": {"tf.data-prefetch-compatible": (430e-6, 8.4)},
    "jax": {
        "jax.device-put": (130e-6, 6.3),
        "jax.device-put-pinned": (128e-6, 47.3),
        "jax.pinned-host-to-device": (90e-6, 53.8),
    },
}
_D2H: dict[str, _Figures] = {
    "torch": {"torch.cpu": (14e-6, 4.4), "torch.copy-to-pinned": (6.1e-6, 54.9)},
    "tensorflow": {"tf.numpy": (51e-6, 3.9), "tf.array-view": (49e-6, 5.1)},
    "jax": {"jax.asarray": (60e-6, 1.8), "jax.to-pinned-host": (70e-6, 52.1)},
}
_INGEST: dict[str, _Figures] = {"tensorflow": {"tf.ingest": (12e-6, 5.8)}}
_BATCHES: dict[str, _Figures] = {
    "torch": {
        "torch.to": (60e-6, 17.7),
        "torch.pin-to": (80e-6, 35.1),
        "torch.pinned-nonblocking": (55e-6, 53.1),
        "torch.cast-nonblocking": (60e-6, 17.6),
    },
    "tensorflow": {
        "tf.function": (700e-6, 3.43),
        "tf.function-jit": (650e-6, 3.27),
        "tf.constant": (400e-6, 3.42),
        "tf.dlpack-pageable": (200e-6, 11.9),
        "tf.dlpack-pinned": (190e-6, 33.1),
    },
}
_TF_2080 = (364.0, 874.0, 1223.0, 2807.0, 2376.0, 2792.0, 3555.0, 4112.0, 2089.0, 2189.0)
_TORCH_2080 = (2540.0, 4013.0, 4594.0, 6283.0, 8537.0, 9351.0, 8548.0, 9048.0, 9320.0, 9352.0)
_USUAL = {
    "torch.to",
    "tf.constant",
    "jax.device-put",
    "torch.cpu",
    "tf.numpy",
    "jax.asarray",
    "torch.ingest",
    "tf.ingest",
}
_CALLS = {"torch.to": 'torch.from_numpy(x).to("cuda")', "tf.constant": "tf.constant(x)"}
_VERSIONS = {"torch": "2.11.0+cu130", "tensorflow": "2.21.0", "jax": "0.11.2"}


def framework_of(route: str) -> str:
    owner = route.partition(".")[0]
    return "tensorflow" if owner == "tf" else owner


def make_route_info(route: str, **overrides: Any) -> runs.RouteInfo:
    pinned = "pinned" in route
    copies = 2 if route in {"tf.constant", "tf.function", "tf.function-jit", "tf.cast-eager", "tf.ingest"} else 0
    route_info = runs.RouteInfo(
        framework=framework_of(route),
        call=_CALLS.get(route, f"{route}(x)"),
        host_copies=1 if "pin-to" in route else copies,
        dma="pinned" if pinned else "pageable",
        returns="queued" if pinned else "done",
        usual=route in _USUAL,
    )
    return msgspec.structs.replace(route_info, **overrides)


def make_worker(name: str, **overrides: Any) -> runs.Worker:
    """A complete worker."""
    framework, _, setting = name.partition(" ")
    worker = runs.Worker(
        name=name,
        framework=framework,
        setting=setting,
        version=Fact(_VERSIONS.get(framework, "1.0")),
        cuda=Fact("13.0" if framework == "torch" else "12.9"),
        settings={},
        ended="complete",
        reason=None,
        log=(),
        start_s=Fact(3.21),
        duration_s=41.5,
    )
    return msgspec.structs.replace(worker, **overrides)


def _memory(route: str) -> str:
    """The memory that the tables of routes say, or else the name."""
    known = next((found for name in FRAMEWORKS if (found := known_route(name, route)) is not None), None)
    return known.memory if known is not None else "pinned" if "pinned" in route else "pageable"


def make_route_row(
    worker: str, route: str, direction: Any, nbytes: int, figures: tuple[float, float], **overrides: Any
) -> runs.Measurement:
    """Eight trials of one route, or of the raw copy, at one size."""
    seconds = figures[0] + nbytes / figures[1] / 1e9
    times = [seconds * (1.0035 + 1e-4 * step) for step in (-3.5, 2.5, -1.5, 0.5, -0.5, 1.5, -2.5, 3.5)]
    dispatch_s = 8e-6 if "pinned" in route else seconds * 0.99
    summary = stats.summarise(times)
    fixed_s, gbps = _HOST_COPY if direction == "ingest" else _CEILING
    ceiling_s = fixed_s + nbytes / gbps / 1e9
    share = ceiling_s / seconds
    raw = route.startswith("raw.")
    peak = make_link().peak_gbps(direction)
    rate = stats.rate(nbytes, summary)
    row = msgspec.structs.replace(
        make_measurement(),
        route=route,
        direction=direction,
        side=direction,
        memory=_memory(route),
        mode=route.partition("-")[2] if raw else "framework",
        bracket="gated" if route == "raw.pinned-async" else "drained" if raw else "stream",
        nbytes=nbytes,
        moved_bytes=nbytes,
        rate=Fact(rate),
        peak_share=unknown(peak.reason or "") if peak.value is None else Fact(rate.gbps / peak.value),
        ceiling_share=Fact(runs.Share(share, share, share)),
        summary=summary,
        dispatch=stats.summarise([dispatch_s] * 8),
        trials=tuple(runs.Trial(i, time_s, dispatch_s) for i, time_s in enumerate(times)),
        worker=worker,
        route_info=None if raw else make_route_info(route),
    )
    return msgspec.structs.replace(row, **overrides)


def make_aliased(worker: str, route: str, nbytes: int) -> runs.Measurement:
    """An ingest route that copies nothing, so it has a time but no bandwidth."""
    row = make_route_row(worker, route, "ingest", nbytes, (0.42e-6, 1e9))
    nothing: Any = unknown(ALIASED)
    return msgspec.structs.replace(row, rate=nothing, peak_share=nothing, ceiling_share=nothing)


def make_refused(worker: str, route: str, nbytes: int, reason: str = REFUSED) -> runs.Measurement:
    """A route that was not available."""
    labels: dict[str, Any] = {
        "route": route,
        "nbytes": nbytes,
        "moved_bytes": nbytes,
        "memory": "pageable",
        "mode": "framework",
        "bracket": "stream",
    }
    return msgspec.structs.replace(make_missing(reason), worker=worker, route_info=make_route_info(route), **labels)


def make_raw_rows(worker: str, direction: Any, nbytes: int) -> tuple[runs.Measurement, ...]:
    """The raw rows of one worker."""
    if direction == "ingest":
        return (make_route_row(worker, "raw.host-copy", direction, nbytes, _HOST_COPY),)
    return (
        make_route_row(worker, "raw.pinned-async", direction, nbytes, _CEILING),
        make_route_row(worker, "raw.pageable-memcpy", direction, nbytes, (6e-6, 11.2)),
    )


def make_frameworks_run(sizes: tuple[int, ...] = SIZES, **overrides: Any) -> runs.Run:
    """Three frameworks in all directions, one that is not installed, and a crashed worker."""
    log = ("F0000 check failed: misaligned pointer", "*** Check failure stack trace: ***", "Aborted (core dumped)")
    workers = (
        *(make_worker(name) for name in _H2D),
        make_worker("cupy", version=unknown("not installed"), ended="unavailable", reason="CuPy is not installed"),
        make_worker("jax nostage", ended="crashed", reason="the worker was ended by SIGABRT", log=log),
    )
    fields = {
        "workers": workers,
        "parameters": make_parameters(directions=("h2d", "d2h", "ingest"), sizes_bytes=sizes),
        **overrides,
    }
    return _frameworks_run(**fields if "measurements" in fields else {**fields, "measurements": _rows(sizes)})


def make_image_batch_run(batches: tuple[int, ...] = BATCHES, **overrides: Any) -> runs.Run:
    """The workload image-batch, with published figures."""
    fields = {
        "measurements": _batch_rows(batches),
        "workers": tuple(make_worker(name) for name in _BATCHES),
        "parameters": make_parameters(workload="image-batch", batches=batches, directions=("h2d",)),
        "published": (
            make_published("TensorFlow 2.4", "tf.function", "RTX 2080 Ti", _TF_2080),
            make_published("PyTorch", "torch.to", "RTX 2080 Ti", _TORCH_2080),
            runs.Published("TensorFlow 2.6 jit", "tf.function-jit", "GTX 1060", {1: 317.0, 512: 1776.0}, "a forum"),
        ),
    }
    return _frameworks_run(**{**fields, **overrides})


def make_published(label: str, route: str, gpu: str, mbps: tuple[float, ...]) -> runs.Published:
    return runs.Published(label, route, gpu, dict(zip(BATCHES, mbps, strict=True)), "a forum")


@functools.cache
def _rows(sizes: tuple[int, ...]) -> tuple[runs.Measurement, ...]:
    rows: list[runs.Measurement] = []
    for direction, table in (("h2d", _H2D), ("d2h", _D2H), ("ingest", _INGEST)):
        for worker, figures in table.items():
            for nbytes in sizes:
                rows += make_raw_rows(worker, direction, nbytes)
                rows += [make_route_row(worker, name, direction, nbytes, costs) for name, costs in figures.items()]
    rows += [make_refused("tensorflow", "tf.rawop-unaligned", nbytes) for nbytes in sizes]
    for nbytes in sizes:
        rows += [*make_raw_rows("torch", "ingest", nbytes), make_aliased("torch", "torch.ingest", nbytes)]
    return tuple(rows)


@functools.cache
def _batch_rows(batches: tuple[int, ...]) -> tuple[runs.Measurement, ...]:
    rows: list[runs.Measurement] = []
    for worker, figures in _BATCHES.items():
        for batch in batches:
            nbytes = batch * IMAGE_BYTES
            rows += (msgspec.structs.replace(row, batch=batch) for row in make_raw_rows(worker, "h2d", nbytes))
            rows += [make_route_row(worker, name, "h2d", nbytes, costs, batch=batch) for name, costs in figures.items()]
    return tuple(rows)


def _frameworks_run(**overrides: Any) -> runs.Run:
    fields: dict[str, Any] = {
        "kind": "frameworks",
        "curves": (),
        "locking": (),
        "remarks": (),
        "environment": make_environment(),
    }
    return make_run(**{**fields, **overrides})
