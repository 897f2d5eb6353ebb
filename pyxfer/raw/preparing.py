"""The first copies of a way at a size: its window, and whether what arrives is what was sent; outside the trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError
from pyxfer.model import Fact
from pyxfer.raw.subjects import make_subject

if TYPE_CHECKING:
    from pyxfer.raw.assemble import Collected
    from pyxfer.raw.workshop import Workshop


def prepare(found: Collected, shop: Workshop, seed: int) -> None:
    """Give it a subject, or the reason why it has none."""
    try:
        subject = make_subject(
            shop.engine, found.way, found.nbytes, shop.arena, shop.copier(found.way.streams), shop.device
        )
        found.first_s = Fact(subject.calibrate())
        found.verified = subject.verify(seed)
    except (CudaUnavailableError, DeviceLostError):
        raise
    except CudaError as error:
        found.unavailable = str(error)
    else:
        found.subject = subject
