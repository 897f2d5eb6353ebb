"""What a route is: a line in a framework's table, and the transfer that it sets up for one size.

A framework's module imports the framework inside functions only; they run in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyxfer._document.runs import Direction, Fact, Memory, Nature, Returns, Workload
from pyxfer.errors import PyxferError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.place import Place
    from pyxfer._measure.bracket import StreamLike


@contextmanager
def importing(title: str, module: str, install: str) -> Iterator[None]:
    """Around an import: RefusedError where it is not installed, or is and does not work."""
    try:
        yield
    except (ImportError, OSError, RuntimeError) as error:  # jax and jaxlib that do not fit raise RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            raise RefusedError(f"{title} is not installed: {install}") from error
        # CuPy writes a page about its error, and raises it from the one that says which library is missing.
        why = first_line(error.__cause__ or error)
        raise RefusedError(f"{title} is installed and cannot be imported: {why}") from error


Where = Literal["gpu", "cpu"]
RouteBracket = Literal["stream", "drained", "host"]
# What the copy engine's read (or write) is expected to meet on the host.
Dma = Literal["pageable", "pinned", "none"]


class RefusedError(PyxferError):
    """A route, or a whole framework, is not to be had here; the text says why."""


class Transfer:
    """One route at one size, set up. What `run` does is timed, everything else is not."""

    copies = 1
    """How many transfers of the size one `run` makes; its time is divided by them."""

    waits = False
    """Whether `wait` has to be called for the result to be complete."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.result: Any = None

    @property
    def stream(self) -> StreamLike | None:
        """The stream that the framework queues its copies on, where it tells."""
        return None

    def write(self, data: NDArray[Any]) -> None:
        """Put these bytes where the next `run` takes them from; `place.source()` does it by itself."""

    def refresh(self) -> None:
        """Make the next `run` a first one: a new input object, no cache, no mirror."""

    def run(self) -> None:
        """The call; what it gives becomes `self.result`. In the workload image-batch it is called several times."""
        raise NotImplementedError

    def wait(self) -> None:
        """The framework's own way of waiting for the result."""

    def where(self) -> Where:
        """Where the result lies: a tensor that stayed on the CPU was not copied fast, it was not copied."""
        raise NotImplementedError

    def arrived(self) -> NDArray[Any]:
        """The result's contents as NumPy sees them, read by another way than `run`'s. Of `ingest`, no copy."""
        raise NotImplementedError

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        """What should arrive when these bytes were written; a cast or a change of layout says so here."""
        return data

    def release(self) -> None:
        """Let go of the result, so that routes do not hold the device's memory against each other."""
        self.result = None


Make = Callable[["Place"], Transfer]


@dataclass(frozen=True)
class Route:
    """One line of a framework's table.

    `copy` and `image_batch` set up a transfer for the workload of that name; they raise RefusedError where the route
    is not to be had: a version without the call, a size that does not divide.
    """

    name: str
    call: str
    direction: Direction
    memory: Memory
    host_copies: int
    dma: Dma
    returns: Returns
    bracket: RouteBracket
    copy: Make | None = None
    image_batch: Make | None = None
    usual: bool = False
    usual_for_images: bool | None = None
    """The same for the workload image-batch, where that differs."""
    setting: str = ""
    inflation: float = 1.0
    staged: bool = False
    """Whether threads fill, or empty, page-locked slots while the copy engine is at work on others."""

    @property
    def owner(self) -> str:
        """The word before the dot."""
        return self.name.partition(".")[0]

    @property
    def expected_place(self) -> Where:
        """Where its result has to lie."""
        return "gpu" if self.direction == "h2d" else "cpu"

    def make(self, workload: Workload) -> Make | None:
        """What sets up its transfer for a workload; None where it has no part in it."""
        return self.copy if workload == "copy" else self.image_batch

    def nature(self, framework: str, workload: Workload) -> Nature:
        """As the document keeps it."""
        usual = self.usual if workload == "copy" or self.usual_for_images is None else self.usual_for_images
        return Nature(
            framework=framework,
            call=self.call,
            host_copies=self.host_copies,
            dma=self.dma,
            returns=self.returns,
            usual=usual,
            setting=self.setting,
            inflation=self.inflation,
            staged=self.staged,
        )


@dataclass(frozen=True)
class Started:
    """A framework that has been imported and has chosen its device."""

    version: str
    cuda: Fact[str]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Framework:
    """A framework and its table.

    `environment` is set before the import, as far as the user has not set it. `start` imports the framework for a
    device (None: for ingest alone, without a GPU) under one of the settings that routes ask for; it raises RefusedError
    where the framework is not installed. Where its build or its drivers give it no GPU, `Started.cuda` says why.
    """

    name: str
    title: str
    owner: str
    distributions: tuple[str, ...]
    start: Callable[[int | None, str], Started]
    routes: tuple[Route, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_distributions: tuple[str, ...] = ()
    """Distributions of which one has to be installed for a GPU, where that is not the framework's own."""


# What is the same in every row of a table for what stays in host memory.
ingest_route = partial(Route, direction="ingest", dma="none", returns="done", bracket="host")
# And for what threads copy into page-locked slots of pyxfer's own ring, or out of them.
ring_route = partial(Route, memory="pageable", host_copies=1, dma="pinned", staged=True)


def installed_version(distributions: Sequence[str]) -> str | None:
    """The version of the first one that is installed, with its name where it is not the usual one."""
    for number, name in enumerate(distributions):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return version if number == 0 else f"{version} ({name})"
    return None


def first_line(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class HostCopy(Transfer):
    """`numpy.copyto` into memory that has been touched."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._target = np.zeros(place.nbytes, np.uint8)
        self._source = place.source()

    def refresh(self) -> None:
        """The next source."""
        self._source = self.place.source()

    def run(self) -> None:
        """One copy."""
        np.copyto(self._target, self._source)

    def where(self) -> Where:
        """NumPy knows nothing else."""
        return "cpu"

    def arrived(self) -> NDArray[Any]:
        """What was copied to."""
        return self._target


HOST_COPY = Route(
    name="raw.host-copy",
    call="np.copyto(target, x)",
    direction="ingest",
    memory="pageable",
    host_copies=1,
    dma="none",
    returns="done",
    bracket="host",
    copy=HostCopy,
    image_batch=HostCopy,
)
