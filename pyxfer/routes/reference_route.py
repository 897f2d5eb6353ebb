"""What `ingest` is set against: one NumPy copy from one piece of host memory to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes.base import Route, Transfer, Where

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place


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
