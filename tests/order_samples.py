"""A run of image-batch with orders of work: two frameworks, two forms and two batches; the larger one was traced."""

from __future__ import annotations

from typing import Any

import msgspec
from explain_samples import make_breakdown, make_dma
from framework_samples import (
    IMAGE_BYTES,
    make_image_batch_run,
    make_raw_rows,
    make_refused,
    make_route_row,
    make_worker,
)
from samples import make_parameters

from pyxfer._document import runs
from pyxfer._document.machines import Fact
from pyxfer._frameworks.orders import Order, with_forms
from pyxfer._frameworks.registry import load_framework

FORMS: tuple[runs.Form, ...] = ("nhwc-float32", "nchw-float32")
CASTS: tuple[runs.Place, ...] = ("host", "device")
BATCHES = (128, 512)
REFUSED = "out of memory"
# GB/s of the bytes of the images, by the name of an order.
_TORCH = {
    "convert-on-device": 11.8,
    "cast-on-host": 1.4,
    "permute-on-host": 2.6,
    "convert-on-host": 0.7,
    "upload-converted": 50.9,
}
_TF = {**_TORCH, "convert-on-device": 3.4, "permute-on-host": 3.41, "upload-converted": 48.1}
_GBPS = {"torch": _TORCH, "tensorflow": _TF}
_MS = 1e-3


def make_order_row(framework: str, order: Order, batch: int, gbps: float, **overrides: Any) -> runs.Measurement:
    """A row of one order, traced if its batch is the largest."""
    nbytes = batch * IMAGE_BYTES
    row = make_route_row(framework, order.name, "h2d", nbytes, (40e-6, gbps), batch=batch, variant=order.variant)
    if batch == BATCHES[-1]:
        seconds = row.elapsed_s or 0.0
        copy_s = nbytes * order.inflation / 55.6e9
        parts: tuple[tuple[runs.PartName, float], ...] = (
            ("preparing", max(0.0, 0.9 * (seconds - copy_s))),
            ("copying", min(copy_s, seconds)),
            ("kernels", max(0.0, 0.1 * (seconds - copy_s))),
        )
        dma = make_dma(copy_s, nbytes=round(nbytes * order.inflation), source=order.dma)
        row = msgspec.structs.replace(row, breakdown=Fact(make_breakdown(parts)), dma=Fact(dma))
    route_info = order.route_info(framework, "image-batch")
    return msgspec.structs.replace(row, route_info=route_info, **overrides)


def make_order_rows(framework: str, forms: tuple[runs.Form, ...] = FORMS) -> list[runs.Measurement]:
    """The rows of all orders of a framework; the last form of TensorFlow has no upload."""
    rows = []
    for order in with_forms(load_framework(framework).routes, forms, CASTS):
        gbps = _GBPS[framework].get(order.name.partition(".")[2])
        for batch in BATCHES if isinstance(order, Order) and gbps is not None else ():
            assert isinstance(order, Order)
            row = make_order_row(framework, order, batch, gbps or 0.0)
            if (framework, order.variant, order.code) == ("tensorflow", FORMS[-1], None):
                refused = make_refused(framework, order.name, row.nbytes, REFUSED)
                row = msgspec.structs.replace(
                    refused, batch=batch, variant=order.variant, route_info=row.route_info, memory="pageable"
                )
            rows.append(row)
    return rows


def make_orders_run(*, forms: tuple[runs.Form, ...] = FORMS, with_routes: bool = True, **overrides: Any) -> runs.Run:
    """The run; without the routes of image-batch it has the orders and the raw copies alone."""
    routes = make_image_batch_run(BATCHES)
    kept = routes.measurements if with_routes else _raw_rows()
    fields: dict[str, Any] = {
        "measurements": (*kept, *make_order_rows("torch", forms), *make_order_rows("tensorflow", forms)),
        "workers": (make_worker("torch"), make_worker("tensorflow")),
        "parameters": make_parameters(
            workload="image-batch",
            batches=BATCHES,
            sizes_bytes=tuple(batch * IMAGE_BYTES for batch in BATCHES),
            directions=("h2d",),
            frameworks=("torch", "tensorflow"),
            forms=forms,
            casts=CASTS,
        ),
        "published": routes.published,
    }
    return msgspec.structs.replace(routes, **{**fields, **overrides})


def _raw_rows() -> tuple[runs.Measurement, ...]:
    return tuple(
        msgspec.structs.replace(row, batch=batch)
        for worker in ("torch", "tensorflow")
        for batch in BATCHES
        for row in make_raw_rows(worker, "h2d", batch * IMAGE_BYTES)
    )
