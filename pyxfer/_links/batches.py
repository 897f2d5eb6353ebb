"""Many small copies between host and GPU: in one call, and in one call each; by the device's and the caller's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from pyxfer._ceiling.arena import PLACE_BYTES
from pyxfer._document.runs import Fact, Side, Trial, unknown
from pyxfer._links.traffic import NOT_PREPARED, WRONG
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

if TYPE_CHECKING:
    from pyxfer._links.resources import LinkResources
    from pyxfer.native._cuda import Lane

SIZES = (4 << 10, 64 << 10, 1 << 20)
WINDOW_BYTES = 32 << 20
# A gate holds only few calls: see docs/measuring.md.
MOST_QUEUED = 18
MOST_IN_BATCH = 256
BATCH_CALL, BATCH_API = "cuMemcpyBatchAsync", 12080
NO_BATCH = "cudaMemcpyBatchAsync needs CUDA 12.8 and a driver that has it"


class SmallSubject:
    anchor: str | None = None
    ceiling_of: str | None = None

    def __init__(
        self,
        device: int,
        direction: Literal["h2d", "d2h"],
        way: Literal["batch", "queue"],
        nbytes: int,
        resources: LinkResources,
    ) -> None:
        self.device = device
        self.direction: Literal["h2d", "d2h"] = direction
        self.way: Literal["batch", "queue"] = way
        self.nbytes = nbytes
        # No driver can merge copies with gaps between them into one large copy.
        self._stride = nbytes + PLACE_BYTES
        self._slots = WINDOW_BYTES // self._stride
        self.caller_copies = min(MOST_IN_BATCH, self._slots)
        self.copies = min(MOST_QUEUED, self.caller_copies) if way == "queue" else self.caller_copies
        self.unavailable: str | None = None
        self.verified: Fact[bool] = unknown(NOT_PREPARED)
        self.seconds: list[float] = []
        self.caller_seconds: list[float] = []
        self._resources = resources
        self._lane: Lane | None = None

    @property
    def key(self) -> str:
        return f"small {self.device} {self.direction} {self.way} {self.nbytes}"

    @property
    def is_ready(self) -> bool:
        return self._lane is not None

    def prepare(self, seed: int) -> None:
        engine = self._resources.engine
        if self.way == "batch" and not engine.driver_has(BATCH_CALL, BATCH_API):
            self.unavailable = NO_BATCH
            return
        try:
            host, device, scratch = self._resources.memory.small(self.device, WINDOW_BYTES)
            addresses = host.address, device.address
            lane = engine.Lane(self.direction, *addresses, self.nbytes, self._stride, self._slots)
            self.verified = Fact(self._arrives(lane, seed, (scratch.address, scratch.nbytes)))
        except (CudaUnavailableError, DeviceLostError):
            raise
        except (CudaError, MeasurementError) as error:
            self.unavailable = str(error)
            return
        if not self.verified.value:
            self.unavailable = WRONG
            return
        self._lane = lane

    def _arrives(self, lane: Lane, seed: int, scratch: tuple[int, int]) -> bool:
        """Whether the first and the last copy of a window arrive, behind a gate and without one."""
        engine, copier = self._resources.engine, self._resources.copier(self.device)
        windows: tuple[tuple[int, Callable[[], object]], ...] = (
            (self.copies, lambda: copier.gated(self._mode, lane, self.copies, 0, 0)),
            (self.caller_copies, lambda: copier.on_stream(self._mode, lane, 0, self.caller_copies)),
        )
        for copies, run in windows:
            for slot in (0, copies - 1):
                engine.prepare_check(self.device, lane, slot, seed, scratch)
                run()
                if engine.first_wrong(self.device, lane, slot, seed, scratch, False) is not None:
                    return False
        return True

    @property
    def _mode(self) -> str:
        return "batch" if self.way == "batch" else "async"

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        if self._lane is None:
            raise MeasurementError(NOT_PREPARED)
        copier = self._resources.copier(self.device)
        sample = copier.gated(self._mode, self._lane, self.copies, 1, 0)
        issued = copier.on_stream(self._mode, self._lane, 0, self.caller_copies)
        invalid = sample.invalid or None
        if invalid is None:
            self.seconds.append(sample.elapsed_s)
        if issued.wall_s is not None:
            self.caller_seconds.append(issued.wall_s)
        return {self.direction: Trial(round_index, sample.elapsed_s, wall_s=issued.wall_s, invalid=invalid)}
