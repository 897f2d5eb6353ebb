"""The fixture `xfer`: times a function beside raw copies, once in a test."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from pyxfer._ceiling.callables import Beside, Call, check_callable, measure_beside
from pyxfer._ceiling.stages import circumstances
from pyxfer._document.machines import Fact, Remark
from pyxfer._document.runs import Measurement, Share
from pyxfer._document.sessions import TestMachine
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._measure.exclusive import Presence, queue_for
from pyxfer.errors import UsageError
from pyxfer.native import Choice, choose, is_host_name
from pyxfer.units import format_percent, size_of

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    from pyxfer._document.machines import Device, Environment
    from pyxfer._measure.bracket import StreamLike

    Args = TypeVarTuple("Args")

T = TypeVar("T")

__tracebackhide__ = True  # a traceback of the tested function does not need these frames

DEFAULT_BUDGET_S = 2.0
DEFAULT_PRECISION = 0.005
_NO_VALUE = cast("object", None)


@dataclass(frozen=True)
class How:
    device: int | str = 0
    budget: float = DEFAULT_BUDGET_S
    precision: float = DEFAULT_PRECISION


class Timing:
    def __init__(self, test: str, how: How) -> None:
        self.how = how
        self._test = test
        self._choice: Choice = choose(how.device, require_gpu=not is_host_name(how.device))
        self._device: Device = find_device(self._choice.engine, how.device)
        self._key = self._device.uuid.value or self._device.name
        self.place: TestMachine | None = None
        """The machine and its state, after a measurement."""

    def of(
        self,
        prepared: Prepared[Any],
        nbytes: int,
        direction: str,
        stream: StreamLike | None,
        sync: Callable[[], object] | None,
    ) -> Outcome:
        call = Call(prepared.run, self._test, prepared.release, sync)
        with queue_for(self._key), Presence(self._key) as presence:
            environment = self._environment()
            beside = measure_beside(
                call,
                nbytes=nbytes,
                direction=direction,
                stream=stream,
                device=self.how.device,
                precision=self.how.precision,
                budget=self.how.budget,
            )
            presence.look()
            others = circumstances(presence.other_processes, environment, self._environment())
        runtime = self._choice.runtime
        self.place = TestMachine(runtime, self._choice.reason, beside.device, beside.link, environment)
        return believed(beside, prepared.value, others)

    def _environment(self) -> Environment:
        return read_environment(self._choice.engine, self._device)


class Prepared(Generic[T]):
    """A function with its arguments, and the value of its last call."""

    def __init__(self, fn: Callable[..., T], args: Sequence[Any]) -> None:
        self.value: T = cast("T", _NO_VALUE)
        self._fn = fn
        self._args = tuple(args)

    def run(self) -> T:
        self.value = self._fn(*self._args)
        return self.value

    def release(self) -> None:
        """Drop the value of the call before, which may hold much memory."""
        self.value = cast("T", _NO_VALUE)

    def packages(self) -> tuple[str, ...]:
        """The packages of the types of the function's object, its arguments and its value."""
        values = (getattr(self._fn, "__self__", None), *self._args, self.value)
        return tuple(dict.fromkeys(type(value).__module__.partition(".")[0] for value in values))


@dataclass(frozen=True)
class Outcome:
    """The result of one use of `xfer`; `ceiling`: the raw copies of that size in the same rounds."""

    measurement: Measurement
    ceiling: Fact[Measurement]

    @property
    def gbps(self) -> float | None:
        """Bandwidth at the median in 1e9 bytes per second; None if it is not known; see `reason`."""
        return self.measurement.gbps

    @property
    def reason(self) -> str | None:
        """Why the bandwidth is not known, or None."""
        return self.measurement.rate.reason

    @property
    def elapsed_s(self) -> float | None:
        """Median seconds of a call, between two CUDA events."""
        return self.measurement.elapsed_s

    @property
    def of_ceiling(self) -> float | None:
        """The bandwidth as a share of raw copies in the same rounds."""
        return self.measurement.of_ceiling

    @property
    def ceiling_gbps(self) -> float | None:
        """The bandwidth of raw copies of this size in the same rounds."""
        return None if self.ceiling.value is None else self.ceiling.value.gbps


def believed(beside: Beside, value: object, others: list[Remark]) -> Outcome:
    measurement = beside.measurement
    remarks = list(measurement.remarks)
    size = getattr(value, "nbytes", None)
    if isinstance(size, int) and size != measurement.nbytes:
        text = f"the function's result has {size} bytes, but nbytes is {measurement.nbytes}"
        remarks.append(Remark("other-size", text, "give nbytes= as the bytes that cross the link in one call"))
    if sys.gettrace() is not None:
        text = "a debugger or coverage tool traces every line, which slows Python code"
        remarks.append(Remark("debugger", text, "measure without it"))
    share = measurement.ceiling_share.value
    if share is not None and share.value > 1:
        remarks = [*(remark for remark in remarks if remark.code != "above-ceiling"), _above_ceiling(share)]
    return Outcome(msgspec.structs.replace(measurement, remarks=(*remarks, *others)), beside.ceiling)


def _above_ceiling(share: Share) -> Remark:
    """Also of a share that is not certainly above 100 %: the table shows it as such."""
    if share.low is not None and share.high is not None and share.low <= 1:
        between = f"{format_percent(share.low)} to {format_percent(share.high)}"
        return Remark("above-ceiling", f"possibly faster than its ceiling: {between} of it")
    return Remark("above-ceiling", f"faster than its ceiling: {format_percent(share.value)} of it")


@dataclass(frozen=True)
class Called:
    """The call of the fixture in a test, and the packages of what the function works on."""

    path: Path
    line: int
    packages: tuple[str, ...]

    @property
    def source(self) -> str:
        return linecache.getline(str(self.path), self.line).strip()


DISABLED = "nothing is measured: --xfer-disable"


class Xfer:
    """The fixture `xfer`, once in a test: `xfer(fn, *args, nbytes=...)` times `fn(*args)` and returns its value.

    `xfer.result` then has the outcome.
    """

    def __init__(self, timing: Timing | None) -> None:
        self._timing = timing
        self._used = False
        self.outcome: Outcome | None = None
        """The same as `result`, or None before a measurement."""
        self.called: Called | None = None

    @property
    def enabled(self) -> bool:
        """False with `--xfer-disable`: functions are called once and not measured."""
        return self._timing is not None

    @property
    def result(self) -> Outcome:
        """The outcome of the measurement.

        Raises:
            UsageError: nothing was measured yet, or measuring is disabled.
        """
        if self.outcome is None:
            why = "was not used yet in this test" if self.enabled else f"has no result ({DISABLED}): check xfer.enabled"
            raise UsageError(f"xfer {why}.")
        return self.outcome

    def __call__(
        self,
        fn: Callable[[Unpack[Args]], T],
        *args: Unpack[Args],
        nbytes: str | int,
        direction: str = "h2d",
        stream: StreamLike | None = None,
        sync: Callable[[], object] | None = None,
    ) -> T:
        """Time `fn(*args)` and return its last value.

        Args:
            fn: the function; it moves `nbytes` bytes in every call.
            args: its arguments. All named arguments are those of `xfer`: use a lambda to give some to `fn`.
            nbytes: bytes per call, a number or text such as "64MiB"; with direction "both", bytes each way.
            direction: "h2d", "d2h" or "both".
            stream: the stream that `fn` queues its work on; without one the device is drained around every call.
            sync: waits for a framework, if draining the device is not enough.

        Raises:
            UsageError: an argument is invalid, or xfer was already used in this test.
            Exception: any exception of `fn`, unchanged.
        """
        if self._used:
            raise UsageError(
                "xfer was already used in this test, and a test has one result: parametrize the test, or write a "
                "second one."
            )
        check_callable(fn, "xfer")
        size = size_of(nbytes, "nbytes")
        self._used = True
        prepared = Prepared(fn, args)
        if self._timing is None:
            return prepared.run()
        self.outcome = self._timing.of(prepared, size, direction, stream, sync)
        frame = sys._getframe(1)  # of the caller of xfer
        self.called = Called(Path(frame.f_code.co_filename), frame.f_lineno, prepared.packages())
        return prepared.value
