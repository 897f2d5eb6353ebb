"""How a test is measured: one process at a time, by the bracket and in the rounds of raw copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pyxfer.benching.outcome import Outcome, believed
from pyxfer.machine.devices import find_device
from pyxfer.machine.environment import read_environment
from pyxfer.model import Measurement
from pyxfer.model_xfer import Place
from pyxfer.native import HOST, Choice, choose
from pyxfer.raw import ceiling
from pyxfer.raw.callables import UNRECORDED_CALLS, Call
from pyxfer.raw.circumstances import circumstances
from pyxfer.raw.measuring import measure_beside
from pyxfer.sampling.exclusive import Presence, queue_for

if TYPE_CHECKING:
    from pyxfer.model import Device, Environment
    from pyxfer.sampling.streams import StreamLike

T = TypeVar("T")

__tracebackhide__ = True  # what a function raises is no matter of ours, and pytest leaves our frames out

DEFAULT_BUDGET_S = 2.0
DEFAULT_PRECISION = 0.005
# The budget of a ceiling run covers its preparation too.
LEAST_CEILING_S = 0.5
_NO_VALUE = cast("object", None)


@dataclass(frozen=True)
class How:
    """Which device, and how long."""

    device: int | str = 0
    budget_s: float = DEFAULT_BUDGET_S
    precision: float = DEFAULT_PRECISION


class Timing:
    """Measures for one test."""

    def __init__(self, test: str, how: How) -> None:
        """Choose the device.

        Raises:
            CudaUnavailableError: no GPU is usable, and host memory was not asked for.
            UsageError: there is no such device.

        """
        self.how = how
        self._test = test
        self._choice: Choice = choose(how.device, require_gpu=how.device != HOST)
        self._device: Device = find_device(self._choice.engine, 0 if how.device == HOST else how.device)
        self.place: Place | None = None
        """Where it was, when it has been measured."""

    def of(
        self,
        fn: Callable[[], T],
        nbytes: int,
        direction: str,
        stream: StreamLike | None,
        sync: Callable[[], object] | None,
        *,
        before: Callable[[], object] | None = None,
        counts: tuple[int, int] | None = None,
    ) -> tuple[Outcome, T]:
        """Measure a function; `counts` are rounds and rounds before them, where they are given. And its last value."""
        kept = _Keeping(fn, before)
        rounds, unrecorded = counts or (None, UNRECORDED_CALLS)
        call = Call(kept.run, self._test, kept.before, sync, unrecorded, rounds)
        with queue_for(self._key), Presence(self._key) as presence:
            environment = self._environment()
            beside = measure_beside(
                call,
                nbytes=nbytes,
                direction=direction,
                stream=stream,
                device=self.how.device,
                precision=self.how.precision,
                budget_s=self.how.budget_s,
            )
            presence.look()
            others = circumstances(presence.met, environment, self._environment())
        runtime = self._choice.runtime
        self.place = Place(runtime, self._choice.reason, beside.device, beside.link, environment)
        return believed(beside, kept.value, others, fixed=counts is not None), kept.value

    def ceiling(self, direction: str, nbytes: int) -> Measurement:
        """Raw pinned copies of that size alone."""
        with queue_for(self._key):
            run = ceiling(
                self.how.device,
                directions=[direction],
                memories=["pinned"],
                sizes=[nbytes],
                precision=self.how.precision,
                budget_s=max(self.how.budget_s, LEAST_CEILING_S),
                seed=0,
                trace=False,
            )
        if run.ended == "interrupted":
            raise KeyboardInterrupt
        side = "sum" if direction == "both" else direction
        return next(row for row in run.measurements if row.side == side)

    @property
    def _key(self) -> str:
        return self._device.uuid.value or self._device.name

    def _environment(self) -> Environment:
        return read_environment(self._choice.engine, self._device)


class _Keeping(Generic[T]):
    """A function whose last value is kept, and let go of before the next call: untimed, and no two at a time."""

    def __init__(self, fn: Callable[[], T], before: Callable[[], object] | None) -> None:
        self.value: T = cast("T", _NO_VALUE)
        self._fn = fn
        self._before = before

    def before(self) -> None:
        self.value = None  # type: ignore[assignment]
        if self._before is not None:
            self._before()

    def run(self) -> None:
        self.value = self._fn()
