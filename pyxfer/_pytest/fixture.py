"""The fixture `xfer`: it times a function beside raw copies, once in a test."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import pytest

from pyxfer._ceiling.callables import UNRECORDED_CALLS, Beside, Call, measure_beside
from pyxfer._ceiling.session import ceiling
from pyxfer._ceiling.stages import circumstances
from pyxfer._document.runs import Fact, Measurement, Rate, Remark, Share, Summary, unknown
from pyxfer._document.sessions import Place
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._measure.exclusive import Presence, queue_for
from pyxfer.errors import UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import format_gbps

if TYPE_CHECKING:
    from pyxfer._document.runs import Device, Environment, Measurement
    from pyxfer._measure.bracket import StreamLike


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


# No copy over a link is this much quicker than raw copies of pinned memory; in host memory one that finds its bytes
# in the caches is.
FAR_OVER_A_LINK, FAR_IN_MEMORY = 1.25, 10.0
_PRECISION_FLAG = re.compile(r"--precision (\S+)")


@dataclass(frozen=True)
class Outcome:
    """What one use of `xfer` has found.

    `ceiling`: what raw copies of the size reached in the same rounds.
    """

    measurement: Measurement
    ceiling: Fact[Rate]

    @property
    def gbps(self) -> float | None:
        """1e9 bytes a second at the median, or None; then `reason` says why."""
        return self.measurement.gbps

    @property
    def reason(self) -> str | None:
        """Why there is no bandwidth."""
        return self.measurement.rate.reason

    @property
    def elapsed_s(self) -> float | None:
        """Median seconds of a call, between two CUDA events."""
        return self.measurement.elapsed_s

    @property
    def summary(self) -> Summary | None:
        """The seconds of all calls: median with its interval, quartiles, extremes."""
        return self.measurement.summary

    @property
    def of_ceiling(self) -> float | None:
        """The share of what raw copies reached in the same rounds."""
        return self.measurement.of_ceiling

    @property
    def share(self) -> Share | None:
        """The same with its interval."""
        return self.measurement.ceiling_share.value

    @property
    def ceiling_gbps(self) -> float | None:
        """What raw copies of the size reached in the same rounds."""
        return None if self.ceiling.value is None else self.ceiling.value.gbps

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known of it."""
        return tuple(remark.text for remark in self.measurement.remarks)


def believed(beside: Beside, value: object, others: list[Remark], *, fixed: bool) -> Outcome:
    """What of it may be said: no bandwidth that cannot be true; and what is to be known of the rest."""
    measurement = _without_what_cannot_be(beside)
    remarks = [_in_words_of_pytest(remark, fixed=fixed) for remark in measurement.remarks]
    remarks += [remark for remark in (_other_size(measurement.nbytes, value), _tracer()) if remark is not None]
    return Outcome(msgspec.structs.replace(measurement, remarks=(*remarks, *others)), beside.ceiling)


def _without_what_cannot_be(beside: Beside) -> Measurement:
    found, share = beside.measurement, beside.measurement.ceiling_share.value
    far = FAR_IN_MEMORY if beside.choice.runtime == "host" else FAR_OVER_A_LINK
    if share is None or found.gbps is None or share.value <= far:
        return found
    why = (
        f"{format_gbps(found.gbps)} would be {share.value:.3g} times what raw copies of this size reached in the same "
        "rounds, so these bytes did not all move: they were there already, or nbytes is too large"
    )
    return msgspec.structs.replace(found, rate=unknown(why), peak_share=unknown(why), ceiling_share=unknown(why))


def _in_words_of_pytest(remark: Remark, *, fixed: bool) -> Remark:
    """The options of the command line have other names here; rounds that are given bound what more time could do."""
    fix = remark.fix
    if fix is None:
        return remark
    if not fix.startswith("-"):
        more = "more rounds" if fixed else "a longer --xfer-budget"
        return msgspec.structs.replace(remark, fix=fix.replace("a longer --budget", more))
    if fixed:
        return msgspec.structs.replace(remark, fix="give it more rounds")
    fix = _PRECISION_FLAG.sub(r"precision='\1' in the marker", fix.replace("--budget ", "--xfer-budget="))
    return msgspec.structs.replace(remark, fix=fix if fix.startswith("-") else f"ask for less, with {fix}")


def _other_size(nbytes: int, value: object) -> Remark | None:
    """What moved and what came back should have one size."""
    size = getattr(value, "nbytes", None)
    if not isinstance(size, int) or size == nbytes:
        return None
    return Remark(
        "other-size",
        f"what the function returns has {size} bytes, and nbytes is {nbytes}",
        "give nbytes= as the bytes that cross the link in one call",
    )


def _tracer() -> Remark | None:
    if sys.gettrace() is None:
        return None
    return Remark(
        "traced",
        "a debugger or a measurement of coverage follows every line, which makes Python code slow",
        "measure without it",
    )


DISABLED = "nothing is measured: --xfer-disable"
# A median has an interval from six values on.
ROUNDS, WARMUP_ROUNDS = 10, 3


class Xfer:
    """`xfer(fn, nbytes=...)` times `fn` and gives what it returns; then `xfer.result` says what was found.

    `timing` is None where nothing is to be measured.
    """

    def __init__(self, timing: Timing | None) -> None:
        self._timing = timing
        self._used = False
        self.outcome: Outcome | None = None
        """The same as `result`, None where there is none."""

    @property
    def enabled(self) -> bool:
        """False with `--xfer-disable`: functions are called once, and there is no result."""
        return self._timing is not None

    @property
    def result(self) -> Outcome:
        """What was found.

        Raises:
            UsageError: nothing was measured, or not yet.

        """
        if self.outcome is None:
            why = "was not used yet in this test" if self.enabled else f"has no result ({DISABLED}): ask xfer.enabled"
            raise UsageError(f"xfer {why}.")
        return self.outcome

    def __call__(
        self,
        fn: Callable[[], T],
        *,
        nbytes: int,
        direction: str = "h2d",
        stream: StreamLike | None = None,
        sync: Callable[[], object] | None = None,
    ) -> T:
        """Time `fn()`, which moves `nbytes` in a direction (h2d, d2h, or both, then bytes each way).

        `stream` is what it queues its work on; without one the device is drained around every call. `sync` waits for
        a framework where the device's own end is not enough.

        Raises:
            UsageError: arguments that cannot be, or a second use in one test.
            Exception: whatever the function raises, unchanged.

        """
        self._use(fn, nbytes)
        if self._timing is None:
            return fn()
        self.outcome, value = self._timing.of(fn, _whole(nbytes), direction, stream, sync)
        return value

    def pedantic(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        rounds: int = ROUNDS,
        warmup_rounds: int = WARMUP_ROUNDS,
        *,
        nbytes: int,
        direction: str = "h2d",
        stream: StreamLike | None = None,
        sync: Callable[[], object] | None = None,
    ) -> T:
        """Time `fn(*args, **kwargs)` in exactly so many rounds, after some that do not count.

        `setup` is called before each of them, untimed; it may return the arguments, as `(args, kwargs)`.

        Raises:
            UsageError: arguments that cannot be, or a second use in one test.
            Exception: whatever the functions raise, unchanged.

        """
        self._use(fn, nbytes)
        counts = _count(rounds, "rounds", 1), _count(warmup_rounds, "warmup_rounds", 0)
        prepared = Prepared(fn, tuple(args), dict(kwargs or {}), setup)
        if self._timing is None:
            prepared.prepare()
            return prepared()
        self.outcome, value = self._timing.of(
            prepared, _whole(nbytes), direction, stream, sync, before=prepared.prepare, counts=counts
        )
        return value

    def ceiling(self, direction: str = "h2d", *, nbytes: int) -> Measurement:
        """Measure raw pinned copies of a size alone. It is no use of the fixture, and goes into no table.

        The ceiling of `xfer(...)` itself is in its result, from the same rounds.
        """
        if self._timing is None:
            pytest.skip(DISABLED)
        return self._timing.ceiling(direction, _whole(nbytes))

    def _use(self, fn: object, nbytes: int) -> None:
        if self._used:
            raise UsageError(
                "xfer was used in this test already, and one test has one result: parametrize the test, or write a "
                "second one."
            )
        if not callable(fn):
            raise UsageError(f"xfer times something that can be called; got {type(fn).__name__}.")
        _whole(nbytes)
        self._used = True


class Prepared(Generic[T]):
    """A function with its arguments, which a setup may give anew each time."""

    def __init__(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], setup: Callable[[], Any] | None
    ) -> None:
        self._fn = fn
        self._args, self._kwargs = args, kwargs
        self._given = bool(args or kwargs)
        self._setup = setup

    def __call__(self) -> T:
        """Call it."""
        return self._fn(*self._args, **self._kwargs)

    def prepare(self) -> None:
        """Before a call."""
        if self._setup is None:
            return
        if not self._given:
            self._args, self._kwargs = (), {}  # what the call before was given may go
        found = self._setup()
        if found is None:
            return
        if self._given:
            raise UsageError("setup returns arguments, and args or kwargs were given too: give them in one of the two.")
        try:
            args, kwargs = found
            self._args, self._kwargs = tuple(args), dict(kwargs)
        except (TypeError, ValueError) as error:
            raise UsageError(f"setup returns None or (args, kwargs); it returned {type(found).__name__}.") from error


def _whole(nbytes: int) -> int:
    """Bytes as an int, whatever kind of integer they came as."""
    try:
        number = -1 if isinstance(nbytes, bool) else operator.index(nbytes)
    except TypeError:
        number = -1
    if number <= 0:
        raise UsageError(f"nbytes is a whole number above zero, the bytes that one call moves; got {nbytes!r}.")
    return number


def _count(value: int, name: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is a whole number from {least} on; got {value!r}.")
    return value
