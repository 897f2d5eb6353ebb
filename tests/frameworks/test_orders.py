"""Orders of work: which of them a form has, and that each brings the right images to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from route_checks import HostPlace, a_place, import_or_skip, verify

from pyxfer._document.runs import FORMS, Form
from pyxfer._frameworks import base, orders
from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks import tensorflow as tf_transfers
from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.orders import Conversion, Order, with_forms
from pyxfer._frameworks.registry import FRAMEWORKS, load_framework
from pyxfer.errors import MeasurementError
from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
BOTH: Any = ("host", "device")
BATCH = 2


def orders_of(framework: str, form: Form, casts: Any = BOTH) -> dict[str, Order]:
    found = with_forms(load_framework(framework).routes, (form,), casts)
    return {route.name.partition(".")[2]: route for route in found if isinstance(route, Order)}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("form", "casts", "names"),
    [
        ("nhwc-uint8", BOTH, {"convert-on-device"}),
        ("nhwc-float32", BOTH, {"convert-on-device", "cast-on-host"}),
        ("nhwc-float16", ("host",), {"convert-on-device", "cast-on-host"}),
        ("nchw-uint8", ("host",), {"convert-on-device", "permute-on-host"}),
        ("nchw-float32", ("device",), {"convert-on-device", "permute-on-host"}),
        ("nchw-float32", ("host",), {"convert-on-device", "cast-on-host", "convert-on-host"}),
        ("nchw-float32", BOTH, {"convert-on-device", "cast-on-host", "permute-on-host", "convert-on-host"}),
    ],
)
def test_a_form_has_each_order_that_does_something_else(
    framework: str, form: Form, casts: Any, names: set[str]
) -> None:
    assert set(orders_of(framework, form, casts)) == {*names, "upload-converted"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("casts", [("host",), ("device",), BOTH])
def test_the_usual_code_is_measured_wherever_the_others_cast(form: Form, casts: Any) -> None:
    usual = [order for order in orders_of("torch", form, casts).values() if order.usual]
    assert [order.name for order in usual] == ["torch.convert-on-device"]


def test_an_order_names_its_code_its_form_and_the_bytes_that_cross() -> None:
    found = orders_of("torch", "nchw-float32")
    assert {name: order.call for name, order in found.items()} == {
        "convert-on-device": 'torch.from_numpy(x).to("cuda").permute(0, 3, 1, 2).contiguous().to(torch.float32)',
        "cast-on-host": 'torch.from_numpy(x.astype("float32")).to("cuda").permute(0, 3, 1, 2).contiguous()',
        "permute-on-host": (
            'torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).to("cuda").to(torch.float32)'
        ),
        "convert-on-host": 'torch.from_numpy(x.transpose(0, 3, 1, 2).astype("float32", order="C")).to("cuda")',
        "upload-converted": 'pyxfer.upload(x, to="torch", dtype="float32", layout="NHWC->NCHW")',
    }
    assert [order.inflation for order in found.values()] == [1, 4, 1, 4, 1]
    assert [order.host_copies for order in found.values()] == [0, 1, 1, 1, 1]
    assert {order.variant for order in found.values()} == {"nchw-float32"}
    assert [name for name, order in found.items() if order.route_info("torch", "image-batch").usual] == [
        "convert-on-device"
    ]
    assert orders_of("torch", "nhwc-float16")["cast-on-host"].inflation == 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_order_takes_part_in_image_batch_alone_and_only_in_a_form(framework: str) -> None:
    for route in load_framework(framework).routes:
        if isinstance(route, Order):
            assert route.make("copy") is route.make("image-batch") is None
            assert route.call
    assert all(order.make("image-batch") for order in orders_of(framework, "nchw-float16").values())


@pytest.fixture
def images(engine: Engine) -> Iterator[RouteContext]:
    with a_place(engine, BATCH * base.IMAGE_BYTES, HostPlace) as made:
        yield made


@pytest.fixture(params=["torch", "jax", "tensorflow"])
def on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A framework whose CPU is in the place of the GPU."""
    framework: str = request.param
    library = import_or_skip(framework)
    if framework == "torch":
        monkeypatch.setattr(torch_transfers, "device_of", lambda torch, _: torch.device("cpu"))
    elif framework == "jax":
        device = library.local_devices(backend="cpu")[0]
        monkeypatch.setattr(jax_transfers, "find_gpu", lambda *_: device)
    else:
        monkeypatch.setattr(tf_transfers, "GPU", tf_transfers.CPU)
        monkeypatch.setattr(tf_transfers, "KDL_CUDA", 1)
        monkeypatch.setattr(tf_transfers.OntoGpu, "needs_gpu", False)
    return framework


@pytest.mark.parametrize("form", FORMS)
def test_every_order_brings_the_images_in_its_form(
    on_the_cpu: str, form: Form, images: RouteContext, engine: Engine
) -> None:
    for order in orders_of(on_the_cpu, form).values():
        make = order.make("image-batch")
        assert make is not None
        transfer = make(images)
        for seed in (1, 2):
            seen = verify(transfer, images, engine, seed)
            assert seen.right, order.name


class Sent(orders.Converting):
    """Arrives as it was sent."""

    def send(self, images: Any) -> Any:
        return images

    def on_device(self, images: Any) -> Any:
        return images


def test_images_in_another_form_are_an_error(images: RouteContext) -> None:
    transfer = Sent(images, Conversion("float32", "device", "device"))
    transfer.refresh()
    transfer.run()
    with pytest.raises(
        MeasurementError, match=r"^the images arrived as uint8 of the shape \(2, 256, 256, 3\), not float32"
    ):
        transfer.arrived()
    converted = Sent(images, Conversion("float16", "host", "host"))
    converted.refresh()
    converted.run()
    assert converted.result.dtype == np.float16
    assert converted.result.shape == (2, 3, 256, 256)


def test_an_upload_that_converts_nothing_needs_no_keyword(images: RouteContext) -> None:
    class Plain(orders.ConvertingUpload):
        framework = "torch"

    assert Plain(images, Conversion("uint8", None, None))._asked == {}
