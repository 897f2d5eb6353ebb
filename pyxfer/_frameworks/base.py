"""Frameworks, their routes, and transfers: routes that are set up for one size.

A framework's module imports the framework only inside functions, which run in a worker process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyxfer._document.machines import Fact
from pyxfer._document.printing import ShortRepr
from pyxfer._document.runs import Direction, Memory, Returns, RouteInfo, Variant, Workload
from pyxfer.errors import INSTALL, RefusedError
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._document.runs import FrameworkName
    from pyxfer._frameworks.context import RouteContext
    from pyxfer._measure.bracket import StreamLike


@contextmanager
def importing(title: str, module: str) -> Iterator[None]:
    """Turn the errors of an import into a RefusedError that says how to install the framework."""
    try:
        yield
    except (ImportError, OSError, RuntimeError) as error:  # mismatched jax and jaxlib raise RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            raise RefusedError(f"{title} is not installed: {INSTALL[module]}") from error
        # CuPy raises a page of text from the error that names the missing library.
        why = first_line(error.__cause__ or error)
        raise RefusedError(f"{title} is installed and cannot be imported: {why}") from error


IMAGE_SHAPE = (256, 256, 3)
IMAGE_BYTES = 256 * 256 * 3
# More pieces than two, so that the next one is not still in a cache.
SLOTS = 3

SourceKind = Literal["pageable", "aligned", "pinned"]
"""`pageable` starts 16 bytes after a page boundary, as large arrays from malloc do; `aligned` at a multiple of 64."""
Where = Literal["gpu", "cpu"]
RouteBracket = Literal["stream", "drained", "host"]
# The host memory that the copy engine is expected to access.
Dma = Literal["pageable", "pinned", "none"]


class Transfer(ShortRepr):
    """One route, set up for one size. Only `run` is timed."""

    copies = 1
    """Number of transfers of the size in one `run`; its time is divided by it."""

    waits = False
    """Whether the result is complete only after `wait`."""

    def __init__(self, context: RouteContext) -> None:
        self.context = context
        self.result: Any = None

    def _summary(self) -> str:
        return f"of {format_size(self.context.nbytes)}"

    @property
    def stream(self) -> StreamLike | None:
        """The stream on which the framework queues its copies, or None if it is unknown."""
        return None

    def write(self, data: NDArray[Any]) -> None:
        """Write `data` into the source of the next `run`. Sources from `context.source()` already have it."""

    def refresh(self) -> None:
        """Prepare the next `run` so that no cache can serve it, for example with a new source."""

    def run(self) -> None:
        """Make the transfer and set `self.result`. A trial of the workload image-batch calls it several times."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until `self.result` is complete, as the framework does it."""

    def where(self) -> Where:
        """Where the result is. It shows a tensor that has stayed on the CPU, and so was not copied."""
        raise NotImplementedError

    def arrived(self) -> NDArray[Any]:
        """The result's contents as a NumPy array, read by another path than `run`. For `ingest` without a copy."""
        raise NotImplementedError

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        """The contents that should arrive after `write(data)`, such as cast or reordered data."""
        return data

    def release(self) -> None:
        """Drop the result, so that other routes can use the device's memory."""
        self.result = None


Make = Callable[["RouteContext"], Transfer]


@dataclass(frozen=True, repr=False)
class Route(ShortRepr):
    """A way in which a framework, or your code, moves bytes.

    `copy` and `image_batch` set up a transfer for the workload of that name. They raise a RefusedError if the route is
    not available, such as in a version without the call or for a size that it cannot send.

    `name`: its owner, a dot, and its own name. `call`: the code that a user writes. `direction`, `memory`: where the
    bytes go, and the host memory that they come from or go to. `host_copies`: how often the processor copies them.
    `dma`: the memory that the copy engine uses. `returns`: what is true when the call returns. `bracket`: how it is
    timed. `usual`: whether most users write it. `setting`: the setting of the framework that it needs. `inflation`:
    bytes that cross the link for each byte of the size.
    """

    name: str
    call: str
    copy: Make | None = None
    image_batch: Make | None = None
    _: KW_ONLY
    direction: Direction
    memory: Memory
    host_copies: int
    dma: Dma
    returns: Returns
    bracket: RouteBracket
    usual: bool = False
    usual_for_images: bool | None = None
    """`usual` for the workload image-batch, if it differs."""
    setting: str = ""
    inflation: float = 1.0
    staged: bool = False
    """Whether threads fill or empty page-locked slots while the copy engine uses other slots."""

    def _summary(self) -> str:
        return f"{self.name}, {self.direction}: {self.call}"

    @property
    def owner(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def expected_place(self) -> Where:
        """Where its result must be."""
        return "gpu" if self.direction == "h2d" else "cpu"

    @property
    def variant(self) -> Variant:
        """The form in which an order of work brings images; of every other route `warm`."""
        return "warm"

    def make(self, workload: Workload) -> Make | None:
        """The function that sets up its transfer for a workload, or None."""
        return self.copy if workload == "copy" else self.image_batch

    def route_info(self, framework: str, workload: Workload) -> RouteInfo:
        """Its description as the document stores it."""
        usual = self.usual if workload == "copy" or self.usual_for_images is None else self.usual_for_images
        same = ("call", "host_copies", "dma", "returns", "setting", "inflation", "staged")
        return RouteInfo(framework=framework, usual=usual, **{name: getattr(self, name) for name in same})


@dataclass(frozen=True)
class Started:
    """The state of a framework after its import."""

    version: str
    cuda: Fact[str]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Framework:
    """A framework and its routes.

    `environment` holds variables that are set before the import unless the user has set them. `start` imports the
    framework under a setting of its routes and chooses a device (None for ingest without a GPU). It raises a
    RefusedError if the framework is not installed; if the framework has no GPU, `Started.cuda` says why.
    """

    name: str
    title: str
    owner: str
    distributions: tuple[str, ...]
    start: Callable[[int | None, str], Started]
    routes: tuple[Route, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_distributions: tuple[str, ...] = ()
    """Distributions of which one is needed for a GPU, if the framework alone is not enough."""


# Pageable memory, which the driver stages; page-locked memory, that of the framework or the user's; the ring of
# `pyxfer.upload`; host memory alone.
onto_gpu = partial(
    Route, direction="h2d", memory="pageable", dma="pageable", host_copies=0, returns="done", bracket="drained"
)
off_gpu = partial(onto_gpu, direction="d2h")
through_pinned = partial(onto_gpu, host_copies=1, dma="pinned", returns="queued")
from_pinned = partial(through_pinned, memory="pinned", host_copies=0)
into_pinned = partial(from_pinned, direction="d2h")
ring_upload = partial(onto_gpu, dma="pinned", host_copies=1, staged=True)
ring_download = partial(ring_upload, direction="d2h")
ingest_route = partial(onto_gpu, direction="ingest", dma="none", bracket="host")


def on_stream(*routes: Route) -> tuple[Route, ...]:
    """The routes, timed on the stream on which the framework queues their copies."""
    return tuple(replace(route, bracket="stream") for route in routes)


def installed_version(distributions: Sequence[str]) -> str | None:
    """The version of the first distribution that is installed, with its name if it is not the usual one."""
    for number, name in enumerate(distributions):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return version if number == 0 else f"{version} ({name})"
    return None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type's name if there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


# --- base classes of the transfers of several frameworks -------------------------------------------------------------


class ArrayTransfer(Transfer):
    """A transfer whose results and arrays on the GPU are those of a framework."""

    def place_of(self, array: Any) -> Where:
        raise NotImplementedError

    def address_of(self, array: Any) -> int:
        raise NotImplementedError

    def where(self) -> Where:
        return self.place_of(self.result)


class FromHost(Transfer):
    """From an array in host memory, a new one in each trial."""

    kind: SourceKind = "pageable"

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context)
        self.shape = shape
        self.source: Any = None

    def refresh(self) -> None:
        self.source = self.context.source(self.kind).reshape(self.shape)


class HostUpload(FromHost, ArrayTransfer):
    """From host memory to the GPU, by the method `upload` of a subclass."""

    def arrived(self) -> NDArray[Any]:
        return self.context.fetch(self.address_of(self.result), self.result.nbytes)

    def run(self) -> None:
        self.result = self.upload()

    def upload(self) -> Any:
        raise NotImplementedError


class Slots:
    def __init__(self, make: Callable[[], Any]) -> None:
        self._pieces = [make() for _ in range(SLOTS)]
        self._turns = itertools.cycle(self._pieces)

    def take(self) -> Any:
        return next(self._turns)

    def fill(self, data: NDArray[Any]) -> None:
        for piece in self._pieces:
            np.asarray(piece)[:] = data


class SlotsUpload(HostUpload):
    """From page-locked arrays of the framework, in turn."""

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context, shape)
        self._slots = self.slots()

    def slots(self) -> Slots:
        raise NotImplementedError

    def write(self, data: NDArray[Any]) -> None:
        self._slots.fill(data)

    def refresh(self) -> None:
        self.source = self._slots.take().reshape(self.shape)


class RingUpload(HostUpload):
    """`pyxfer.upload`: several threads copy into page-locked slots while the copy engine reads other slots."""

    framework: FrameworkName

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context, shape)
        self._uploader = context.uploader()

    def upload(self) -> Any:
        return self._uploader.upload(self.source, self.framework)


class IntoHost(Transfer):
    """Into an array of the framework in host memory, which NumPy reads in place."""

    def arrived(self) -> NDArray[Any]:
        return np.asarray(self.result)


class IntoNumpy(IntoHost):
    def where(self) -> Where:
        return "cpu" if isinstance(self.result, np.ndarray) else "gpu"


class FromArray(ArrayTransfer):
    array: Any

    def write(self, data: NDArray[Any]) -> None:
        self.context.store(self.address_of(self.array), data)


class RingDownload(IntoNumpy):
    """`pyxfer.download`: several threads empty page-locked slots that the copy engine fills.

    Without `into` they write to a new array, whose memory is used again after the next trial. With `into` three touched
    arrays take turns.
    """

    array: Any

    def __init__(self, context: RouteContext, *, into: bool = False) -> None:
        super().__init__(context)
        self._uploader = context.uploader()
        self._targets = Slots(lambda: np.ones(context.nbytes, np.uint8)) if into else None
        self._target: NDArray[np.uint8] | None = None

    def refresh(self) -> None:
        super().refresh()
        if self._targets is not None:
            self._target = self._targets.take()

    def run(self) -> None:
        self.result = self._uploader.download(self.array, self._target)


class ImageRow(IntoHost, ArrayTransfer):
    """A batch of images, sent and cast on the GPU; then one row of pixels is read back."""

    def __init__(self, context: RouteContext) -> None:
        context.check_images()
        super().__init__(context)
        self.row: Any = None
        """The row on the GPU, which shows that the cast ran there; `result` is its copy on the host."""

    def where(self) -> Where:
        return self.place_of(self.row)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        _, width, channels = IMAGE_SHAPE
        return data[: width * channels].astype(np.float32).reshape(width, channels)

    def release(self) -> None:
        super().release()
        self.row = None  # it may be a view of the batch


class ImageBatch(ImageRow):
    """The same, sent as the transfer `sending` sends an array."""

    def __init__(self, context: RouteContext, sending: Callable[..., HostUpload]) -> None:
        super().__init__(context)
        self.sending = sending(context, (context.batch, *IMAGE_SHAPE))

    def write(self, data: NDArray[Any]) -> None:
        self.sending.write(data)

    def refresh(self) -> None:
        self.sending.refresh()


def both(images: Callable[..., ImageBatch], sending: Callable[..., HostUpload]) -> tuple[Make, Make]:
    """A transfer of an array, and one of a batch of images that sends as the former does."""
    return sending, partial(images, sending=sending)


class HostCopy(FromHost):
    """`numpy.copyto` into memory that has been touched."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._target = np.zeros(context.nbytes, np.uint8)

    def run(self) -> None:
        np.copyto(self._target, self.source)

    def where(self) -> Where:
        return "cpu"

    def arrived(self) -> NDArray[Any]:
        return self._target


HOST_COPY = ingest_route("raw.host-copy", "np.copyto(target, x)", HostCopy, HostCopy, host_copies=1)
