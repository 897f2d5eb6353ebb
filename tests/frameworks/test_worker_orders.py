"""Orders of work in a worker over the host runtime, whose records count the bytes that cross."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from samples import make_parameters, make_run

from pyxfer._ceiling.plans import Limits
from pyxfer._document.runs import Form, Measurement
from pyxfer._frameworks import orders
from pyxfer._frameworks.base import IMAGE_BYTES, HostUpload
from pyxfer._frameworks.bench import Bench
from pyxfer._frameworks.messages import FromWorker, Marker, Rows, Task
from pyxfer._frameworks.orders import Code, Order, make_orders, with_forms
from pyxfer._frameworks.registry import derive_run
from pyxfer._machine.devices import find_device
from pyxfer.errors import RefusedError
from pyxfer.native import Choice, Engine, load

NBYTES = 2 * IMAGE_BYTES
CASTS: Any = ("host", "device")


class OnHost(HostUpload):
    """Whose results are arrays of NumPy."""

    def arrived(self) -> Any:
        return np.ascontiguousarray(self.result).reshape(-1)


class Stored(orders.Converting, OnHost):
    """One copy to the device; the result is converted by NumPy, before or after it."""

    def __init__(self, context: Any, conversion: orders.Conversion) -> None:
        super().__init__(context, conversion)
        self.buffer = load("host").DeviceBuffer(8 * context.nbytes)

    def send(self, images: Any) -> Any:
        self.context.store(self.buffer.address, images)
        return images

    def on_device(self, images: Any) -> Any:
        permutes, casts = self.conversion.does("device")
        y = images.transpose(orders.NCHW_AXES) if permutes else images
        return y.astype(self.conversion.dtype, order="C") if casts else np.ascontiguousarray(y)

    def where(self) -> Any:
        return "gpu"


class Swapped(Stored):
    """Forgets the permutation."""

    def on_device(self, images: Any) -> Any:
        return super().on_device(images).reshape(-1, *self.conversion.shape)

    def on_host(self, images: Any) -> Any:
        return images


def unavailable(*_: Any) -> Any:
    raise RefusedError("no uploader here")


def orders_of(convert: Any) -> tuple[Order, ...]:
    code = Code("send({})", "permute({})", "cast({}, {dtype})", "both({}, {dtype})")
    sends: dict[str, Any] = {"dma": "pageable", "host_copies": 0, "returns": "done", "upload_returns": "done"}
    return make_orders("mine", "torch", code, convert, unavailable, **sends)


def rows_of(engine: Engine, forms: tuple[Form, ...], convert: Any = Stored) -> list[Measurement]:
    routes = with_forms(orders_of(convert), forms, CASTS)
    names = tuple(dict.fromkeys(route.name for route in routes))
    limits = Limits(0.05, 0.3, 1, True)
    task = Task("mine", "mine", "", names, (), "host", "image-batch", (NBYTES,), limits, True, forms, CASTS)
    bench = Bench(task, routes, Choice(engine, "host", ""), find_device(engine, 0), None)
    sent: list[FromWorker] = []
    marker = Marker()
    bench.run(sent.append, marker, lambda: None)
    marker.close()
    last = [each for each in sent if isinstance(each, Rows)][-1]
    return [row for row in last.measurements if row.form is not None]


def test_every_order_has_a_row_for_each_form_with_the_bytes_that_crossed(engine: Engine) -> None:
    rows = rows_of(engine, ("nhwc-float16", "nchw-float32"))
    crossed = {
        (row.route.partition(".")[2], row.form): row.dma.value.nbytes / NBYTES
        for row in rows
        if row.dma.value is not None
    }
    assert crossed == {
        ("convert-on-device", "nhwc-float16"): 1,
        ("cast-on-host", "nhwc-float16"): 2,
        ("convert-on-device", "nchw-float32"): 1,
        ("cast-on-host", "nchw-float32"): 4,
        ("permute-on-host", "nchw-float32"): 1,
        ("convert-on-host", "nchw-float32"): 4,
    }
    refused = [row for row in rows if row.route == "mine.upload-converted"]
    assert [row.rate.reason for row in refused] == ["no uploader here"] * 2
    for row in rows:
        assert row.batch == 2
        if row not in refused:
            assert row.verified.value is True
            assert row.gbps is not None
            assert row.breakdown.value is not None
    run = make_run(kind="frameworks", measurements=tuple(rows), parameters=make_parameters(frameworks=("torch",)))
    assert [row.variant for row in derive_run(run).measurements] == [row.variant for row in rows]


def test_an_order_that_forgets_to_permute_has_no_bandwidth(engine: Engine) -> None:
    found = {row.route: row for row in rows_of(engine, ("nchw-uint8",), Swapped)}
    wrong = found["mine.permute-on-host"]
    assert wrong.verified.value is False
    assert wrong.gbps is None


def test_a_form_of_a_route_that_has_none_is_not_kept() -> None:
    (row,) = make_run().measurements[:1]
    run = make_run(measurements=(msgspec.structs.replace(row, route="torch.to", variant="nchw-uint8", batch=None),))
    assert derive_run(run).measurements[0].variant == "warm"
