"""The fixture `xfer`: it times a function beside raw copies, once in a test."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer.benching.outcome import Outcome
    from pyxfer.benching.timing import Timing
    from pyxfer.model import Measurement
    from pyxfer.sampling.streams import StreamLike

T = TypeVar("T")

__tracebackhide__ = True  # what a function raises is no matter of ours, and pytest leaves our frames out

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
