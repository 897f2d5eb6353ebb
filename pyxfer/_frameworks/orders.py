"""Orders of work: images are cast and permuted on their way to the GPU, on the host before the copy or on the device.

A form is the layout and the dtype that they have on the GPU. They are uint8 in the layout NHWC, in ordinary memory.
Every framework has the same orders, of which `convert-on-device` is the usual code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._document.runs import FORMS, Form, FrameworkName, Place, Variant, Workload
from pyxfer._frameworks.base import IMAGE_SHAPE, Dma, HostUpload, Make, RingUpload, Route, Transfer
from pyxfer.errors import MeasurementError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._document.runs import Returns
    from pyxfer._frameworks.context import RouteContext

NCHW_AXES = (0, 3, 1, 2)
_SENT = "nhwc-uint8"
_MAX_WORK: Form = "nchw-float32"
"""The form whose code describes an order where no form is named."""


@dataclass(frozen=True)
class Conversion:
    """Where an order casts and permutes; None if its form needs no cast or no permutation."""

    dtype: str
    cast: Place | None
    permute: Place | None

    def does(self, place: Place) -> tuple[bool, bool]:
        """Whether it permutes and whether it casts there."""
        return self.permute == place, self.cast == place

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image on the GPU."""
        height, width, channels = IMAGE_SHAPE
        return IMAGE_SHAPE if self.permute is None else (channels, height, width)


Convert = Callable[["RouteContext", Conversion], Transfer]


@dataclass(frozen=True)
class Code:
    """A framework's code, with {} for what it works on. `alone`: what it does to an array that it does not convert."""

    send: str
    permute: str
    cast: str
    both: str
    alone: str = "{}"

    def at(self, place: Place, text: str, conversion: Conversion) -> str:
        words = {(True, True): self.both, (True, False): self.permute, (False, True): self.cast}
        return words.get(conversion.does(place), self.alone).format(text, dtype=conversion.dtype)


_NUMPY = Code(
    send="",
    permute="np.ascontiguousarray({}.transpose(0, 3, 1, 2))",
    cast='{}.astype("{dtype}")',
    both='{}.transpose(0, 3, 1, 2).astype("{dtype}", order="C")',
)


@dataclass(frozen=True, repr=False, kw_only=True)
class Order(Route):
    """An order of work, which a run measures for each form. `code`: None if `pyxfer.upload` chooses the places."""

    convert: Convert
    code: Code | None
    cast: Place = "device"
    permute: Place = "device"
    form: Form | None = None

    @property
    def variant(self) -> Variant:
        return self.form or super().variant

    def make(self, workload: Workload) -> Make | None:
        if self.form is None or workload != "image-batch":
            return None
        conversion = self._conversion(self.form)
        return lambda context: self.convert(context, conversion)

    def for_form(self, form: Form, casts: Sequence[Place]) -> Order | None:
        """The order for this form. None if another order does the same, or if it casts where that was not asked for.

        The usual code is always kept: the others are compared with it.
        """
        found = self._conversion(form)
        if self.code is not None and not self.usual_for_images:
            needless = {self.cast if found.cast is None else None, self.permute if found.permute is None else None}
            if "host" in needless or (found.cast is not None and found.cast not in casts):
                return None
        return replace(
            self,
            form=form,
            call=self._call(found),
            usual=bool(self.usual_for_images),
            inflation=float(np.dtype(found.dtype).itemsize) if found.cast == "host" else 1.0,
        )

    def _conversion(self, form: Form) -> Conversion:
        (old_layout, old_dtype), (layout, dtype) = _SENT.split("-"), form.split("-")
        return Conversion(
            dtype, None if dtype == old_dtype else self.cast, None if layout == old_layout else self.permute
        )

    def _call(self, found: Conversion) -> str:
        if self.code is not None:
            return self.code.at("device", self.code.send.format(_NUMPY.at("host", "x", found)), found)
        dtype = f', dtype="{found.dtype}"' if found.cast else ""
        layout = ', layout="NHWC->NCHW"' if found.permute else ""
        return f"{self.call.removesuffix(')')}{dtype}{layout})"


def make_orders(
    owner: str,
    framework: FrameworkName,
    code: Code,
    convert: Convert,
    upload: Convert,
    *,
    dma: Dma,
    host_copies: int,
    returns: Returns,
    upload_returns: Returns,
) -> tuple[Order, ...]:
    """The orders of a framework. The arguments say how its usual call sends an array, as those of a route do."""
    places: tuple[tuple[str, Place, Place], ...] = (
        ("convert-on-device", "device", "device"),
        ("cast-on-host", "host", "device"),
        ("permute-on-host", "device", "host"),
        ("convert-on-host", "host", "host"),
    )
    make = partial(Order, direction="h2d", memory="pageable", bracket="drained")
    own = [
        make(
            name=f"{owner}.{name}",
            call="",
            convert=convert,
            code=code,
            cast=cast,
            permute=permute,
            dma=dma,
            host_copies=host_copies + ("host" in (cast, permute)),
            returns=returns,
            usual_for_images=name == places[0][0],
        )
        for name, cast, permute in places
    ]
    through_ring = make(
        name=f"{owner}.upload-converted",
        call=f'pyxfer.upload(x, to="{framework}")',
        convert=upload,
        code=None,
        dma="pinned",
        host_copies=1,
        returns=upload_returns,
        staged=True,
    )
    return tuple(
        replace(order, call=order._call(order._conversion(_MAX_WORK)) if order.code else order.call)
        for order in (*own, through_ring)
    )


def with_forms(routes: Iterable[Route], forms: Sequence[Form], casts: Sequence[Place]) -> tuple[Route, ...]:
    """The routes, with each order of work in all of these forms in place of the order itself."""
    known = list(routes)
    orders = [route for route in known if isinstance(route, Order) and route.form is None]
    made = [found for form in forms for order in orders if (found := order.for_form(form, casts)) is not None]
    return (*(route for route in known if route not in orders), *made)


def forms_of(layouts: Sequence[str], dtypes: Sequence[str]) -> tuple[Form, ...]:
    return tuple(form for layout in layouts for dtype in dtypes for form in FORMS if form == f"{layout}-{dtype}")


# --- transfers -------------------------------------------------------------------------------------------------------


class Converting(HostUpload):
    """A batch of images, which arrives in the form of an order. The whole batch is verified, bit by bit."""

    def __init__(self, context: RouteContext, conversion: Conversion) -> None:
        context.check_images()
        super().__init__(context, (context.batch, *IMAGE_SHAPE))
        self.conversion = conversion

    def upload(self) -> Any:
        return self.on_device(self.send(self.on_host(self.source)))

    def on_host(self, images: NDArray[Any]) -> NDArray[Any]:
        permutes, casts = self.conversion.does("host")
        x = images.transpose(NCHW_AXES) if permutes else images
        return x.astype(self.conversion.dtype, order="C") if casts else np.ascontiguousarray(x)

    def send(self, images: NDArray[Any]) -> Any:
        raise NotImplementedError

    def on_device(self, images: Any) -> Any:
        raise NotImplementedError

    def arrived(self) -> NDArray[Any]:
        kind = self.result.dtype
        found = tuple(self.result.shape), str(getattr(kind, "name", kind)).removeprefix("torch.")
        wanted = (self.context.batch, *self.conversion.shape), self.conversion.dtype
        if found != wanted:
            raise MeasurementError(
                f"the images arrived as {found[1]} of the shape {found[0]}, not {wanted[1]} of {wanted[0]}"
            )
        return super().arrived().view(np.uint8)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        images = data.reshape(self.shape)
        if self.conversion.permute is not None:
            images = np.ascontiguousarray(images.transpose(NCHW_AXES))
        converted: NDArray[np.uint8] = images.astype(self.conversion.dtype).reshape(-1).view(np.uint8)
        return converted


class ConvertingUpload(Converting, RingUpload):
    """`pyxfer.upload` with a dtype and a layout, which casts and permutes where that is fastest."""

    def __init__(self, context: RouteContext, conversion: Conversion) -> None:
        super().__init__(context, conversion)
        self._upload: Any = self._uploader.upload
        self._asked: dict[str, str] = {}
        if conversion.cast is not None:
            self._asked["dtype"] = conversion.dtype
        if conversion.permute is not None:
            self._asked["layout"] = "NHWC->NCHW"

    def upload(self) -> Any:
        return self._upload(self.source, self.framework, **self._asked)
