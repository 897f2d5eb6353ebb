"""The first copies of a way at a size: its window, and whether what arrives is what was sent; outside the trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError
from pyxfer.model import Fact
from pyxfer.raw.staged import StagedCopies
from pyxfer.raw.subjects import make_subject

if TYPE_CHECKING:
    from pyxfer.raw.assemble import Collected
    from pyxfer.raw.subjects import RawSubject
    from pyxfer.raw.workshop import Workshop


def prepare(found: Collected, shop: Workshop, seed: int) -> None:
    """Give it a subject, or the reason why it has none."""
    try:
        subject = _subject(found, shop)
        found.first_s = Fact(subject.calibrate())
        found.verified = subject.verify(seed)
    except (CudaUnavailableError, DeviceLostError):
        raise
    except (CudaError, MeasurementError) as error:
        found.unavailable = str(error)
    else:
        found.subject = subject


def _subject(found: Collected, shop: Workshop) -> RawSubject | StagedCopies:
    way, nbytes = found.way, found.nbytes
    if way.staged:
        return StagedCopies(shop.engine, way, nbytes, shop.arena, shop.stager(), shop.device)
    return make_subject(shop.engine, way, nbytes, shop.arena, shop.copier(way.streams), shop.device)
