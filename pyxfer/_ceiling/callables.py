"""Any callable, timed through the same events as the raw copies, and in the same rounds."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyxfer._ceiling.arena import WAKE_BYTES, check_room, wake_link
from pyxfer._ceiling.rows import Assembler, Head, Item, way_head
from pyxfer._ceiling.subjects import RawSubject, make_subject
from pyxfer._ceiling.ways import DEFAULT_PRECISION, DIRECTIONS, Way, between, known_word
from pyxfer._ceiling.workshop import Workshop
from pyxfer._document.runs import (
    NOT_TRACED,
    Device,
    Fact,
    Link,
    Measurement,
    Rate,
    Remark,
    Side,
    Trial,
    unknown,
)
from pyxfer._machine.devices import find_device
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.link import link_under_load, read_link, with_load
from pyxfer._machine.numa import bind, device_node
from pyxfer._measure.bracket import Bracket, StreamLike
from pyxfer._measure.exclusive import turn
from pyxfer._measure.interruptible import GRACE_S, Ending, run_at_most, run_interruptible
from pyxfer._measure.sampler import Group, Sampler
from pyxfer.errors import CleanupWarning, CudaError, UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._measure.sampler import Series, Subject


Sync = Callable[[], object]
Result = TypeVar("Result")
# The first calls may compile, and may still grow a pool.
WARM_CALLS = 2
UNRECORDED_CALLS = 1 + WARM_CALLS


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Call:
    """What is timed: `run`. `before` comes before each of its calls, untimed; `sync` waits for a framework after it.

    Of its calls the first `unrecorded` are no trials. With `rounds` there are so many trials, whatever they cost.
    """

    run: Callable[[], object]
    route: str
    before: Callable[[], object] = _nothing
    sync: Sync | None = None
    unrecorded: int = UNRECORDED_CALLS
    rounds: int | None = None


class OwnError(Exception):
    """Holds what the callable raised."""

    def __init__(self, error: CudaError) -> None:
        super().__init__(error)
        self.error = error


class CallableSubject:
    """Somebody's callable as a subject."""

    key = "callable"

    def __init__(self, call: Call, bracket: Bracket, side: Side, anchor: str | None) -> None:
        self.anchor = anchor
        self._call = call
        self._bracket = bracket
        self._side = side

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One call; its error ends the sampling, which would else take a CUDA error for one route's own."""
        try:
            return self.once(round_index)
        except CudaError as error:
            raise OwnError(error) from error

    def once(self, round_index: int) -> Mapping[Side, Trial]:
        """One call."""
        bracket, run = self._bracket, self._call.run
        self._call.before()
        bracket.begin()
        run()
        bracket.returned()
        bracket.end(self._call.sync)
        trial = Trial(round_index, bracket.elapsed_s, bracket.dispatch_s, bracket.wall_s, invalid=bracket.fault)
        return {self._side: trial}


class ReferenceSubject:
    """The raw copy that a callable is set against. It runs apart from the thread that Ctrl-C has to reach."""

    anchor = None

    def __init__(self, subject: RawSubject, shop: Workshop) -> None:
        self.key = subject.key
        self.side: Side = way_head(subject.way).sides[-1]
        self._subject = subject
        self._shop = shop

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One window of copies."""
        return apart(self._shop, lambda: self._subject.trial(round_index))


def apart(shop: Workshop, work: Callable[[], Result]) -> Result:
    """Do it in a thread of its own; on Ctrl-C a device that does not answer is left to that thread."""
    done: list[Result] = []
    ending = run_interruptible(lambda: done.append(work()), shop.cancel)
    if ending is Ending.STUCK:
        shop.leave()
    if ending is not Ending.DONE:
        raise KeyboardInterrupt
    return done[0]


def release(shop: Workshop) -> None:
    """Release it in a thread of its own, and after Ctrl-C wait for no device that does not answer."""
    faults: list[str] = []
    run_at_most(lambda: faults.extend(shop.close()), GRACE_S if shop.cancelled() else None)
    for fault in faults:
        warnings.warn(fault, CleanupWarning, stacklevel=2)


NO_BYTES = "no nbytes were given"
NOT_VERIFIED = "pyxfer does not know what the callable moves"
# The event clock ticks in half microseconds, and an event is recorded a few after it was asked for.
CLOCK_TOLERANCE_S = 10e-6
CLOCK_TOLERANCE = 0.02


@dataclass(frozen=True)
class Beside:
    """What a callable did, what the ceiling's copies did in the same rounds, and where."""

    measurement: Measurement
    ceiling: Fact[Rate]
    choice: Choice
    device: Device
    link: Link


def measure(
    fn: Callable[[], object],
    *,
    nbytes: int | None = None,
    direction: str | None = None,
    stream: StreamLike | None = None,
    sync: Sync | None = None,
    device: int | str = 0,
    precision: float = DEFAULT_PRECISION,
    budget_s: float = 2.0,
    seed: int = 0,
) -> Measurement:
    """Time a callable with two CUDA events and the host's clock.

    With `nbytes` and `direction` (h2d, d2h, or both, then bytes each way) the result has a bandwidth, and its share of
    the ceiling: pinned copies of that size, made in the same rounds. `stream` is what the callable queues its
    work on; without one the device is drained around every call. `sync` is called to wait for the framework where the
    device's own end is not enough. The callable runs in the calling thread, a few times unrecorded first.

    Raises:
        UsageError: arguments that cannot be.
        Exception: whatever the callable raises, unchanged.

    """
    call = Call(fn, f"user.{getattr(fn, '__name__', type(fn).__name__)}", sync=sync)
    beside = measure_beside(
        call,
        nbytes=nbytes,
        direction=direction,
        stream=stream,
        device=device,
        precision=precision,
        budget_s=budget_s,
        seed=seed,
    )
    return beside.measurement


def measure_beside(
    call: Call,
    *,
    nbytes: int | None,
    direction: str | None,
    stream: StreamLike | None = None,
    device: int | str = 0,
    precision: float = DEFAULT_PRECISION,
    budget_s: float = 2.0,
    seed: int = 0,
) -> Beside:
    """Time a call as `measure` does, and tell of the ceiling and the place too."""
    way = _checked_way(call.run, nbytes, direction)
    between(precision, "precision", 1.0, "0.005 (0.5 %)")
    between(budget_s, "budget", 86400.0, "30 (seconds)")
    choice = choose(device)
    found = find_device(choice.engine, 0 if device == HOST else device)
    with turn(found.uuid.value or found.name):
        bracket = Bracket(choice.engine, found.index, stream)
        try:
            with _reference(choice, found, way, nbytes) as (reference, link):
                series, ceiling, first_s = _sample(call, bracket, reference, precision, budget_s, seed)
        finally:
            bracket.close()
    assembler = Assembler(link, precision, budget_s)
    measurement = _result(call, way, nbytes, bracket, series, ceiling, first_s, assembler)
    return Beside(measurement, _ceiling_rate(measurement, way, ceiling, assembler), choice, found, link)


def _checked_way(fn: object, nbytes: int | None, direction: str | None) -> Way | None:
    if not callable(fn):
        raise UsageError(f"measure() times something that can be called; got {type(fn).__name__}.")
    if (nbytes is None) != (direction is None):
        raise UsageError("nbytes and direction go together: bytes need a direction for a ceiling to set them against.")
    if nbytes is None or direction is None:
        return None
    if not isinstance(nbytes, int) or isinstance(nbytes, bool) or nbytes <= 0:
        raise UsageError(
            f"nbytes is a whole number of bytes above zero, the bytes that one call moves; got {nbytes!r}."
        )
    return Way(known_word(direction, DIRECTIONS, "direction"), "pinned", "async")


@contextlib.contextmanager
def _reference(
    choice: Choice, device: Device, way: Way | None, nbytes: int | None
) -> Iterator[tuple[ReferenceSubject | None, Link]]:
    """The raw copy that the callable is set against, on an awake link."""
    link = read_link(choice.engine, device)
    if way is None or nbytes is None:
        yield None, link
        return
    cache = last_level_bytes().value or 0
    check_room(choice.engine, device.index, [way.memory], nbytes, cache)
    shop = Workshop(choice.engine, device.index, patience_s=30.0)
    try:
        with bind(choice.engine, device_node(device)):
            arena = shop.allocate([way.memory], nbytes, cache)
        lane = arena.lane("h2d", way.memory, min(WAKE_BYTES, nbytes))
        copier = shop.copier(1)
        state = apart(
            shop, lambda: wake_link(copier, lane, lambda: link_under_load(device), shop.cancelled, gated=True)
        )
        subject = make_subject(choice.engine, way, nbytes, arena, shop.copier(way.streams), device.index)
        apart(shop, subject.calibrate)
        yield ReferenceSubject(subject, shop), with_load(link, state)
    finally:
        release(shop)


def _sample(
    call: Call,
    bracket: Bracket,
    reference: ReferenceSubject | None,
    precision: float,
    budget_s: float,
    seed: int,
) -> tuple[Series, Series | None, float | None]:
    side: Side = "h2d" if reference is None else reference.side
    subject = CallableSubject(call, bracket, side, reference.key if reference else None)
    before = [subject.once(0)[side].elapsed_s for _ in range(call.unrecorded)]
    members: list[Subject] = [subject, *([reference] if reference else [])]
    group = Group.of("measure", members)
    # One round at least: a callable may take minutes, and its caller has said how long to measure it.
    sampler = Sampler([group], precision, time.perf_counter() + budget_s, seed, fewest_rounds=1)
    raised: CudaError | None = None
    try:
        sampler.run() if call.rounds is None else sampler.run_rounds(call.rounds)
    except OwnError as own:
        raised = own.error
    if raised is not None:
        raise raised
    return group.series[0], group.series[1] if reference else None, before[0] if before else None


def _result(
    call: Call,
    way: Way | None,
    nbytes: int | None,
    bracket: Bracket,
    series: Series,
    ceiling: Series | None,
    first_s: float | None,
    assembler: Assembler,
) -> Measurement:
    head = Head(call, call.route, way.direction if way else "h2d", "unknown", "callable", bracket.word)
    side = head.sides[-1]
    item = Item(head, nbytes or 0, no_rate=None if nbytes else NO_BYTES, series=series, verified=unknown(NOT_VERIFIED))
    item.first_s = Fact(item.trials(side)[0].elapsed_s if first_s is None else first_s)
    item.untraced(NOT_TRACED, failed=False)
    above = ceiling.trials.get(side, ()) if ceiling else None
    no_ceiling = f"the ceiling could not be measured: {ceiling.failure}" if ceiling and ceiling.failure else None
    row = assembler.row(item, side, above, no_ceiling)
    if bracket.word == "drained" and row.summary is not None and row.wall is not None:
        doubt = _clock_remark(row.summary.median_s, row.wall.median_s)
        if doubt is not None:
            return msgspec.structs.replace(row, remarks=(*row.remarks, doubt))
    return row


def _ceiling_rate(found: Measurement, way: Way | None, ceiling: Series | None, assembler: Assembler) -> Fact[Rate]:
    """The bandwidth of the raw copies in the same rounds."""
    if way is None or ceiling is None:
        return unknown(NO_BYTES)
    return assembler.row(Item(way_head(way), found.nbytes, series=ceiling), found.side, None).rate


def _clock_remark(elapsed_s: float, wall_s: float) -> Remark | None:
    """Both clocks cover one span here; where they differ, neither is to be believed without a look."""
    if abs(elapsed_s - wall_s) <= CLOCK_TOLERANCE_S + CLOCK_TOLERANCE * wall_s:
        return None
    return Remark(
        "clock-disagreement",
        f"the GPU's clock says {format_seconds(elapsed_s)} and the host's {format_seconds(wall_s)} for the same span",
        "a busy host explains it: measure again with other work stopped",
    )
