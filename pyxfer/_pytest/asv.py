"""For airspeed velocity (asv): a class whose methods are benchmarks of one way to move bytes, with their units.

asv finds benchmarks by the names of methods, so it does not have to be there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from pyxfer.errors import CudaUnavailableError, MeasurementError

if TYPE_CHECKING:
    from pyxfer._measure.bracket import StreamLike
    from pyxfer._pytest.fixture import Outcome
    from pyxfer.native import Engine


Method = TypeVar("Method", bound=Callable[..., float])


def _in(unit: str) -> Callable[[Method], Method]:
    """Tell asv the unit of what a method tracks."""

    def noted(method: Method) -> Method:
        method.unit = unit  # type: ignore[attr-defined]
        return method

    return noted


class Transfers(ABC):
    """Derive from it and write `transfer`; asv then times it, and tracks its bandwidth and share of the ceiling.

    `params` are bytes. What has to be there before goes into `setup`, which calls this one first. Where no GPU is
    usable asv skips them, unless `device` is "host".
    """

    params: Sequence[int] = (1 << 20, 16 << 20, 256 << 20)
    param_names: Sequence[str] = ("nbytes",)
    direction: str = "h2d"
    device: int | str = 0
    stream: StreamLike | None = None
    budget_s: float = 2.0
    _engine: Engine | None = None
    _index = 0

    @abstractmethod
    def transfer(self, nbytes: int) -> object:
        """Move so many bytes; what it returns is let go of."""

    def setup(self, nbytes: int) -> None:
        """Find the device.

        Raises:
            NotImplementedError: no GPU is usable; asv takes that as skipped.

        """
        from pyxfer._machine.devices import find_device
        from pyxfer.native import HOST, choose

        try:
            self._engine = choose(self.device, require_gpu=self.device != HOST).engine
        except CudaUnavailableError as error:
            raise NotImplementedError(f"no usable GPU: {error.hint}") from error
        self._index = find_device(self._engine, 0 if self.device == HOST else self.device).index

    def time_transfer(self, nbytes: int) -> None:
        """Seconds until the bytes have arrived, by asv's clock."""
        self.transfer(nbytes)
        if self._engine is not None:
            self._engine.synchronize(self._index)

    @_in("GB/s")
    def track_bandwidth(self, nbytes: int) -> float:
        """1e9 bytes a second, by CUDA events."""
        outcome = self._measured(nbytes)
        return _known(outcome.gbps, outcome)

    @_in("share of the ceiling")
    def track_of_ceiling(self, nbytes: int) -> float:
        """The share of what raw copies reach in the same rounds."""
        outcome = self._measured(nbytes)
        return _known(outcome.of_ceiling, outcome)

    def _measured(self, nbytes: int) -> Outcome:
        from pyxfer._pytest.fixture import How, Timing

        timing = Timing(f"asv.{type(self).__name__}", How(self.device, self.budget_s))
        return timing.of(lambda: self.transfer(nbytes), nbytes, self.direction, self.stream, None)[0]


def _known(value: float | None, outcome: Outcome) -> float:
    """The figure, or its reason as an error, which asv shows."""
    if value is None:
        raise MeasurementError(outcome.reason or outcome.measurement.ceiling_share.reason or "")
    return value
