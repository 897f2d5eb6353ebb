"""What several frameworks' transfers share: memory that takes turns, pyxfer's own download, the row of image-batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes.base import Transfer, Where
from pyxfer.routes.place import IMAGE_SHAPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place

# Three pieces of memory take turns: more than two sizes, so that none waits in a cache for the DMA.
SLOTS = 3


class Slots:
    """Pieces of memory of a route's own, page-locked or ordinary, which take turns."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._pieces = [make() for _ in range(SLOTS)]
        self._turns = itertools.cycle(self._pieces)

    def take(self) -> Any:
        """The one whose turn it is."""
        return next(self._turns)

    def fill(self, data: NDArray[Any]) -> None:
        """All of them, through NumPy's view of their memory."""
        for piece in self._pieces:
            np.asarray(piece)[:] = data


class ImageRow(Transfer):
    """A batch of images to the GPU, cast there, and one row of pixels read back; a framework says how."""

    def __init__(self, place: Place) -> None:
        place.check_images()
        super().__init__(place)
        self.row: Any = None
        """Where it lies says whether the work was done on the GPU; `result` is what was read back of it."""

    def arrived(self) -> NDArray[Any]:
        """The row."""
        return np.asarray(self.result)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        """The first row of pixels of the first image."""
        _, width, channels = IMAGE_SHAPE
        return data[: width * channels].astype(np.float32).reshape(width, channels)

    def release(self) -> None:
        """The row may be a view, and would keep the batch."""
        super().release()
        self.row = None


class RingDownload(Transfer):
    """`pyxfer.download` of what a framework has on the GPU; several threads empty slots that the copy engine fills.

    A new array is touched for the first time on the way, by those threads. With `into` it goes into arrays that have
    been touched, three of them in turn.
    """

    def __init__(self, place: Place, *, into: bool = False) -> None:
        super().__init__(place)
        self._uploader = place.uploader()
        self._targets = Slots(lambda: np.ones(place.nbytes, np.uint8)) if into else None
        self._target: NDArray[np.uint8] | None = None

    @property
    def on_device(self) -> Any:
        """The framework's array."""
        raise NotImplementedError

    def refresh(self) -> None:
        """As the framework has it, and the next array to copy to."""
        super().refresh()
        if self._targets is not None:
            self._target = self._targets.take()

    def run(self) -> None:
        """One copy on the host, out of the slots."""
        self.result = self._uploader.download(self.on_device, self._target)

    def where(self) -> Where:
        """Where NumPy's arrays lie."""
        return "cpu" if isinstance(self.result, np.ndarray) else "gpu"

    def arrived(self) -> NDArray[Any]:
        """The array."""
        found: NDArray[Any] = self.result
        return found
