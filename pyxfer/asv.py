"""A base class for benchmarks of airspeed velocity (asv).

asv finds benchmarks by the names of methods, so this module does not import it.
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
    """Set the unit that asv shows for a method."""

    def with_unit(method: Method) -> Method:
        method.unit = unit  # type: ignore[attr-defined]
        return method

    return with_unit


class Transfers(ABC):
    """Base class: define `transfer`, and asv tracks its time, bandwidth and share of the ceiling.

    `params` are sizes in bytes. An own `setup` must call this one first. Without a usable GPU asv skips the benchmarks,
    unless `device` is "host".
    """

    params: Sequence[int] = (1 << 20, 16 << 20, 256 << 20)
    param_names: Sequence[str] = ("nbytes",)
    direction: str = "h2d"
    device: int | str = 0
    stream: StreamLike | None = None
    budget: float = 2.0
    _engine: Engine | None = None
    _index = 0

    @abstractmethod
    def transfer(self, nbytes: int) -> object:
        """Move `nbytes` bytes; the result is discarded."""

    def setup(self, nbytes: int) -> None:
        """Find the device.

        Raises:
            NotImplementedError: no GPU is usable; asv then skips the benchmark.
        """
        from pyxfer._machine.devices import find_device
        from pyxfer.native import choose, is_host_name

        try:
            self._engine = choose(self.device, require_gpu=not is_host_name(self.device)).engine
        except CudaUnavailableError as error:
            raise NotImplementedError(f"no usable GPU: {error.hint}") from error
        self._index = find_device(self._engine, self.device).index

    def time_transfer(self, nbytes: int) -> None:
        """Move the bytes and wait for the device; asv measures the time."""
        self.transfer(nbytes)
        if self._engine is not None:
            self._engine.synchronize(self._index)

    @_in("GB/s")
    def track_bandwidth(self, nbytes: int) -> float:
        """Bandwidth by CUDA events, in 1e9 bytes per second."""
        outcome = self._measured(nbytes)
        return _known(outcome.gbps, outcome)

    @_in("share of the ceiling")
    def track_of_ceiling(self, nbytes: int) -> float:
        """Bandwidth as a share of raw copies in the same rounds."""
        outcome = self._measured(nbytes)
        return _known(outcome.of_ceiling, outcome)

    def _measured(self, nbytes: int) -> Outcome:
        from pyxfer._pytest.fixture import How, Prepared, Timing

        timing = Timing(f"asv.{type(self).__name__}", How(self.device, self.budget))
        return timing.of(Prepared(self.transfer, (nbytes,)), nbytes, self.direction, self.stream, None)


def _known(value: float | None, outcome: Outcome) -> float:
    """The value; without one an error with the reason, which asv shows."""
    if value is None:
        raise MeasurementError(outcome.reason or outcome.measurement.ceiling_share.reason or "")
    return value
