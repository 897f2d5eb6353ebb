"""What several frameworks' transfers share: pinned memory that takes turns, and the row of the workload image-batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes.base import Transfer
from pyxfer.routes.place import IMAGE_SHAPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place

# Three pieces of page-locked memory take turns: more than two sizes, so that none waits in a cache for the DMA.
SLOTS = 3


class Slots:
    """A framework's own pieces of page-locked memory, which take turns."""

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
