"""`measure`: any callable, timed with the same events as raw copies and in the same rounds."""

from __future__ import annotations

import contextlib
import inspect
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pyxfer._ceiling.arena import check_memory
from pyxfer._ceiling.plans import DEFAULT_PRECISION, DIRECTIONS, CopyPlan, seed_of
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import Assembler, Head, Item, raw_head
from pyxfer._ceiling.stages import make_group
from pyxfer._ceiling.subjects import RawCopies, make_subject
from pyxfer._document.machines import Device, Fact, Link, Remark, Side, unknown
from pyxfer._document.runs import NOT_TRACED, LinkDirection, Measurement, Trial
from pyxfer._machine.devices import find_device
from pyxfer._machine.host import last_level_bytes
from pyxfer._machine.link import read_link
from pyxfer._machine.numa import bind, device_node
from pyxfer._measure.bracket import Bracket, StreamLike
from pyxfer._measure.exclusive import turn
from pyxfer._measure.interruptible import GRACE_S, Ending, run_at_most, run_interruptible
from pyxfer._measure.sampler import Sampler
from pyxfer.errors import CleanupWarning, CudaError, UsageError
from pyxfer.native import Choice, choose, is_host_name
from pyxfer.units import format_gbps, format_seconds, seconds_of, share_of, size_of, word_of

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Args = TypeVarTuple("Args")

Sync = Callable[[], object]
Result = TypeVar("Result")
# The first calls may compile, and may still grow a memory pool.
WARM_CALLS = 2


@dataclass(frozen=True)
class Call:
    run: Callable[[], object]
    route: str
    before: Callable[[], object] = lambda: None
    """Called before each `run`, untimed."""
    sync: Sync | None = None
    """Called after each `run` to wait for a framework."""


class CallableError(Exception):
    """Carries a CUDA error of the callable past the sampler, which would take it for the failure of one route."""

    def __init__(self, error: CudaError) -> None:
        super().__init__(error)
        self.error = error


class CallableSubject:
    key = "callable"
    ceiling_of = None

    def __init__(self, call: Call, bracket: Bracket, side: Side, anchor: str | None) -> None:
        self.anchor = anchor
        self._call = call
        self._bracket = bracket
        self._side = side

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        try:
            return {self._side: self.call_once(round_index)}
        except CudaError as error:
            raise CallableError(error) from error

    def call_once(self, round_index: int) -> Trial:
        bracket = self._bracket
        self._call.before()
        bracket.begin()
        self._call.run()
        bracket.returned()
        bracket.end(self._call.sync)
        return Trial(round_index, bracket.elapsed_s, bracket.dispatch_s, bracket.wall_s, invalid=bracket.fault)


class ReferenceSubject:
    """The raw copy beside a callable. It runs in a separate thread, so that Ctrl-C reaches the calling one."""

    anchor = None
    ceiling_of = None

    def __init__(self, subject: RawCopies, resources: RunResources) -> None:
        self.key = subject.key
        self._subject = subject
        self._resources = resources

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        return run_in_thread(self._resources, lambda: self._subject.trial(round_index))


def run_in_thread(resources: RunResources, work: Callable[[], Result]) -> Result:
    """Run the work in a separate thread. On Ctrl-C a device that does not answer is left to that thread."""
    done: list[Result] = []
    ending = run_interruptible(lambda: done.append(work()), resources.cancel)
    if ending is Ending.STUCK:
        resources.leave()
    if ending is not Ending.DONE:
        raise KeyboardInterrupt
    return done[0]


def release(resources: RunResources) -> None:
    """Release the resources in a separate thread; after Ctrl-C, do not wait for a device that does not answer."""
    faults: list[str] = []
    run_at_most(lambda: faults.extend(resources.close()), GRACE_S if resources.cancelled() else None)
    for fault in faults:
        warnings.warn(fault, CleanupWarning, stacklevel=2)


NO_BYTES = "no nbytes were given"
NOT_VERIFIED = "pyxfer does not know what the callable moves"
# The event clock ticks in half microseconds, and the device records an event some microseconds after the call.
CLOCK_TOLERANCE_S = 10e-6
CLOCK_TOLERANCE = 0.02
# A copy over a link cannot be this many times faster than raw copies; in host memory caches make copies faster.
FAR_OVER_A_LINK, FAR_IN_MEMORY = 1.25, 10.0


@dataclass(frozen=True)
class Beside:
    measurement: Measurement
    ceiling: Fact[Measurement]
    choice: Choice
    device: Device
    link: Link


def measure(
    fn: Callable[[Unpack[Args]], object],
    *args: Unpack[Args],
    nbytes: str | int | None = None,
    direction: LinkDirection | None = None,
    stream: StreamLike | None = None,
    sync: Sync | None = None,
    device: int | str = 0,
    precision: str | float = DEFAULT_PRECISION,
    budget: str | float = 2.0,
    seed: int = 0,
) -> Measurement:
    """Time `fn(*args)` with two CUDA events and the host's clock.

    `nbytes` and `direction` together add a bandwidth, and its share of the ceiling: pinned copies of that size in the
    same rounds. The callable runs in the calling thread, the first few times unrecorded.

    Args:
        fn: The callable.
        args: Its positional arguments.
        nbytes: Bytes that a call moves, a number or text such as "64MiB"; with direction "both", bytes each way.
        direction: "h2d", "d2h" or "both".
        stream: Stream on which the callable queues its work: an integer handle, an object with `__cuda_stream__`, a
            torch.cuda.Stream or a cupy.cuda.Stream. Without one the device is drained around every call.
        sync: Called to wait for a framework whose work is not complete when the device is idle.
        device: Index, UUID or PCI address of the GPU, or "host".
        precision: Target precision of the median, such as "1%".
        budget: Time limit for measuring.
        seed: Seed of the order of trials.

    Raises:
        UsageError: an argument is invalid.
        Exception: an exception of the callable, unchanged.
    """
    check_callable(fn, "measure")
    call = Call(partial(fn, *args), f"user.{getattr(fn, '__name__', type(fn).__name__)}", sync=sync)
    return measure_beside(call, nbytes, direction, stream, device, precision, budget, seed).measurement


def measure_beside(
    call: Call,
    nbytes: str | int | None,
    direction: str | None,
    stream: StreamLike | None = None,
    device: int | str = 0,
    precision: str | float = DEFAULT_PRECISION,
    budget: str | float = 2.0,
    seed: int = 0,
) -> Beside:
    """Time a call as `measure` does; also returns the ceiling and where it was measured."""
    if (nbytes is None) != (direction is None):
        raise UsageError("nbytes and direction go together: the ceiling depends on both. Give both or neither.")
    way = None if direction is None else word_of(direction, DIRECTIONS, "direction")
    plan = None if way is None else CopyPlan(way, "pinned", "async")
    nbytes = None if nbytes is None else size_of(nbytes, "nbytes")
    precision, budget_s, seed = share_of(precision, "precision"), seconds_of(budget, "budget"), seed_of(seed)
    choice = choose(device)
    found = find_device(choice.engine, 0 if is_host_name(device) else device)
    with turn(found.uuid.value or found.name):
        bracket = Bracket(choice.engine, found.index, stream)
        try:
            with _reference(choice, found, plan, nbytes) as (reference, link):
                head = Head(call, call.route, plan.direction if plan else "h2d", "unknown", "callable", bracket.word)
                subject = CallableSubject(call, bracket, head.sides[-1], reference.subject.key if reference else None)
                no_rate = None if nbytes else NO_BYTES
                item = Item(head, nbytes or 0, no_rate=no_rate, subject=subject, verified=unknown(NOT_VERIFIED))
                item.untraced(NOT_TRACED, failed=False)
                _time(item, reference, precision, budget_s, seed)
        finally:
            bracket.close()
    assembler = Assembler(link, precision, budget_s)
    ceiling: Fact[Measurement] = unknown(NO_BYTES)
    if reference is not None:
        ceiling = Fact(assembler.row(reference, reference.head.sides[-1], None))
    far = FAR_IN_MEMORY if choice.runtime == "host" else FAR_OVER_A_LINK
    measurement = _without_impossible_rate(_measurement(item, reference, assembler), far)
    return Beside(measurement, ceiling, choice, found, link)


def check_callable(fn: object, taker: str) -> None:
    """Refuse what `taker` cannot time."""
    if not callable(fn):
        raise UsageError(f"{taker} needs a callable; got {type(fn).__name__}.")
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise UsageError(
            f"{taker} would not time the work of an async or generator function, because a call of it returns before "
            "that begins: give a function that runs it, such as lambda: asyncio.run(copy())."
        )


@contextlib.contextmanager
def _reference(
    choice: Choice, device: Device, plan: CopyPlan | None, nbytes: int | None
) -> Iterator[tuple[Item[CopyPlan] | None, Link]]:
    link = read_link(choice.engine, device)
    if plan is None or nbytes is None:
        yield None, link
        return
    cache = last_level_bytes()
    check_memory(choice.engine, device.index, [plan.memory], nbytes, cache)
    resources = RunResources(choice.engine, device.index, patience_s=30.0)
    try:
        with bind(choice.engine, device_node(device)):
            arena = resources.allocate([plan.memory], nbytes, cache)
        link = run_in_thread(resources, lambda: resources.wake_link(device, link, plan.memory, nbytes))
        subject = make_subject(choice.engine, plan, nbytes, arena, resources.copier(plan.streams), device.index)
        run_in_thread(resources, subject.calibrate)
        yield Item(raw_head(plan), nbytes, subject=ReferenceSubject(subject, resources)), link
    finally:
        release(resources)


def _time(item: Item[Call], reference: Item[CopyPlan] | None, precision: float, budget_s: float, seed: int) -> None:
    first, *_ = [item.subject.call_once(0) for _ in range(1 + WARM_CALLS)]
    group = make_group([item, reference] if reference else [item])
    # Only one round is required, because a single call may take minutes.
    sampler = Sampler([group], precision, time.perf_counter() + budget_s, seed, fewest_rounds=1)
    raised: CudaError | None = None
    try:
        sampler.run()
    except CallableError as error:
        raised = error.error
    if raised is not None:  # outside of the block, so that it has no context
        raise raised
    item.first_s = Fact(first.elapsed_s)


def _measurement(item: Item[Call], reference: Item[CopyPlan] | None, assembler: Assembler) -> Measurement:
    side = item.head.sides[-1]
    failure = reference.series.failure if reference and reference.series else None
    no_ceiling = f"the ceiling could not be measured: {failure}" if failure else None
    row = assembler.row(item, side, reference.trials(side) if reference else None, no_ceiling)
    if item.head.bracket != "drained" or row.elapsed_s is None or row.wall_s is None:
        return row
    return msgspec.structs.replace(row, remarks=(*row.remarks, *_clock_remark(row.elapsed_s, row.wall_s)))


def _without_impossible_rate(found: Measurement, far: float) -> Measurement:
    share = found.ceiling_share.value
    if share is None or found.gbps is None or share.value <= far:
        return found
    why = (
        f"{format_gbps(found.gbps)} would be {share.value:.3g} times what raw copies of this size reached in the same "
        "rounds, so not all bytes moved: the data was already there, or nbytes is too large"
    )
    kept = tuple(remark for remark in found.remarks if remark.code not in ("share", "above-ceiling"))
    none: Fact[Any] = unknown(why)
    return msgspec.structs.replace(found, rate=none, peak_share=none, ceiling_share=none, remarks=kept)


def _clock_remark(elapsed_s: float, wall_s: float) -> tuple[Remark, ...]:
    if abs(elapsed_s - wall_s) <= CLOCK_TOLERANCE_S + CLOCK_TOLERANCE * wall_s:
        return ()
    clocks = f"the GPU's clock says {format_seconds(elapsed_s)} and the host's {format_seconds(wall_s)}"
    fix = "a busy host can cause this: measure again with other work stopped"
    return (Remark("clock-disagreement", f"{clocks} for the same span", fix),)
