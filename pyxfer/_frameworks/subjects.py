"""A framework's route as a subject of the sampler."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pyxfer._ceiling.plans import CopyPlan
from pyxfer._ceiling.rows import BOTH_CONTENTS_BYTES
from pyxfer._ceiling.subjects import traced_call
from pyxfer._document.machines import Fact, Side
from pyxfer._document.runs import Trial
from pyxfer._frameworks.base import HOST_COPY, Route, Transfer, first_line
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.messages import Marker
from pyxfer._measure.bracket import Bracket, HostClock
from pyxfer._measure.sampler import WAKE_BELOW_S
from pyxfer._trace.collector import Traced, TrialRecorder, Usage
from pyxfer.errors import CancelledError, CudaError, DeviceTimeoutError, ForkedError, MeasurementError, PyxferError
from pyxfer.native import Engine

ELIDED = (
    "elided: it took less time than the link needs for its bytes, so they did not all cross it, or the shown link is "
    "wrong"
)
# The first call may compile, and the second may still grow a memory pool.
WARM_CALLS = 2
# After a call that takes longer, the one whose content is verified is warm enough.
LONG_CALL_S = 0.05
# Errors that end the whole worker, or that the sampler sorts by type.
ENDS_ALL = (CancelledError, CudaError, DeviceTimeoutError, ForkedError)
# Calls in one trial of image-batch: as many as in the published benchmark, or as fit into this time.
MAX_CALLS, FEWEST_CALLS, ROW_S = 100, 2, 0.02


@dataclass(eq=False)
class RouteSubject:
    """With `repeats` a trial is the mean of several calls after an untimed one.

    `least_s` is the time in which the link can send these bytes; a shorter trial did not send all of them.
    """

    ceiling_of = None
    route: Route
    _transfer: Transfer
    _context: RouteContext
    _engine: Engine
    _marker: Marker
    repeats: bool = False
    least_s: float = 0.0

    def __post_init__(self) -> None:
        route, transfer = self.route, self._transfer
        self._side = cast("Side", route.direction)
        self._calls = 1
        self._last_s = 0.0
        self.key = route.name
        # The key of its ceiling: queued copies of pinned memory, or one NumPy copy for ingest.
        ingests = route.direction == "ingest"
        self.anchor: str | None = HOST_COPY.name if ingests else CopyPlan(route.direction, "pinned", "async").key
        if not isinstance(transfer, Transfer):
            raise MeasurementError(
                f"its function has to return a pyxfer.Transfer; it returned a {type(transfer).__name__}"
            )
        if not isinstance(transfer.copies, int) or transfer.copies < 1:
            raise MeasurementError(f"copies has to be a whole number of 1 or more; it is {transfer.copies!r}")
        self._waits = transfer.wait if transfer.waits else None
        stream = transfer.stream if route.bracket == "stream" else None
        self._bracket = HostClock() if route.bracket == "host" else Bracket(self._engine, self._context.device, stream)

    def trial(self, round_index: int) -> Mapping[Side, Trial]:
        """One timed run. Every exception, even `SystemExit`, ends only this route."""
        with self._step("timed"):
            if self.repeats or self._last_s < WAKE_BELOW_S:
                self._untimed()
            trial, _ = self._once(round_index, self._calls)
        self._last_s = trial.elapsed_s * trial.copies
        return {self._side: trial}

    def traced(self, taking: TrialRecorder, seed: int | None) -> tuple[Mapping[Side, Traced], bool]:
        """One call and its records. With a seed it sends fresh content; returns whether that arrived intact.

        It is one call in every workload, because the time between two calls would be part of a trial of several.
        """
        with self._step("traced"):
            data = None if seed is None else self._random(seed)
            if self._last_s < (WAKE_BELOW_S if data is None else LONG_CALL_S):
                self._untimed()  # also because the fresh content may use memory of former results
            if data is None:
                return {self._side: self._recorded(taking)}, True
            with self._context.holding(data):
                self._transfer.write(data)
                recorded = {self._side: self._recorded(taking)}
                return recorded, _same(self._transfer.arrived(), self._transfer.expected(data))

    @contextlib.contextmanager
    def _step(self, phase: str) -> Iterator[None]:
        self._marker.set(self.route.name, self._context.nbytes, phase)
        try:
            yield
            self._transfer.release()
        except ENDS_ALL:
            raise
        except BaseException as error:
            raise MeasurementError(describe_error(error)) from error
        finally:
            self._transfer.result = None
            self._marker.clear()

    def _recorded(self, taking: TrialRecorder) -> Traced:
        self._transfer.refresh()
        self._engine.synchronize(self._context.device)
        taking.begin()
        trial, usage = self._timed(0, 1)
        return traced_call(self._side, self._bracket, trial.copies, usage, taking.take(), staged=self.route.staged)

    def _once(self, round_index: int, calls: int = 1) -> tuple[Trial, Usage]:
        self._transfer.refresh()
        return self._timed(round_index, calls)

    def _timed(self, round_index: int, calls: int) -> tuple[Trial, Usage]:
        transfer, bracket = self._transfer, self._bracket
        before = Usage.so_far()
        bracket.begin()
        for _ in range(calls):
            transfer.run()
        bracket.returned()
        bracket.end(self._waits)
        usage = Usage.so_far().since(before)
        self._check_place()
        copies = transfer.copies * calls
        elapsed_s = bracket.elapsed_s / copies
        trial = Trial(
            round=round_index,
            elapsed_s=elapsed_s,
            dispatch_s=bracket.dispatch_s / copies,
            wall_s=bracket.wall_s / copies,
            copies=copies,
            invalid=ELIDED if elapsed_s < self.least_s else bracket.fault,
            faults=usage.faults / copies,
        )
        return trial, usage

    def _untimed(self) -> None:
        self._run_and_wait()
        self._transfer.release()

    def _run_and_wait(self) -> None:
        self._transfer.refresh()
        self._transfer.run()
        if self._waits is not None:
            self._waits()
        self._engine.synchronize(self._context.device)

    def warm(self) -> float:
        """Make the first calls, and choose the number of calls in a trial; returns the seconds of the first call."""
        self._marker.set(self.route.name, self._context.nbytes, "first call")
        first = self._once(0)[0].elapsed_s
        self._transfer.release()
        for _ in range(WARM_CALLS if first < LONG_CALL_S else 0):
            self._untimed()
        if self.repeats:
            once_s = max(self._once(0)[0].elapsed_s, 1e-9)
            self._calls = max(FEWEST_CALLS, min(MAX_CALLS, math.ceil(ROW_S / once_s)))
            self._transfer.release()
        self._marker.clear()
        return first

    def verify(self, seed: int) -> tuple[Fact[bool], bool]:
        """Send other contents than the first calls, so that a cache shows; also returns whether nothing was copied.

        Two contents while these are quick: the first may have been sent from a cache that knows the memory alone.
        """
        self._marker.set(self.route.name, self._context.nbytes, "verified")
        aliased = False
        for content in (seed, seed + 1)[: 1 if self._context.nbytes > BOTH_CONTENTS_BYTES else 2]:
            data = self._random(content)
            with self._context.holding(data):
                self._transfer.write(data)
                intact, aliased = self._run_and_compare(data)
            self._transfer.release()
            if not intact:
                return Fact(False), aliased
        self._marker.clear()
        if aliased:  # it has no bandwidth, so the ceiling need not run in its rounds
            self.anchor = None
        return Fact(True), aliased

    def _run_and_compare(self, data: NDArray[np.uint8]) -> tuple[bool, bool]:
        transfer = self._transfer
        self._run_and_wait()
        self._check_place()
        arrived, expected = transfer.arrived(), transfer.expected(data)
        aliased = self.route.direction == "ingest" and self._context.lent(arrived)
        return _same(arrived, expected), aliased

    def _check_place(self) -> None:
        where, wanted = self._transfer.where(), self.route.expected_place
        if where not in ("gpu", "cpu"):
            raise MeasurementError(f"where() has to return gpu or cpu; it returned {where!r}")
        if where != wanted:
            raise MeasurementError(f"the result is on the {where} and not on the {wanted}, so nothing was copied")

    def _random(self, seed: int) -> NDArray[np.uint8]:
        data = self._context.scratch()
        self._engine.fill(data.ctypes.data, data.size, seed)
        return data

    def close(self) -> None:
        self._bracket.close()


def describe_error(error: BaseException) -> str:
    """An exception in one line: type and first line of the message."""
    if isinstance(error, PyxferError):
        return str(error)
    kind, first = type(error).__name__, first_line(error)
    return kind if first == kind else f"{kind}: {first}"


def _same(arrived: NDArray[Any], expected: NDArray[Any]) -> bool:
    if not isinstance(arrived, np.ndarray):
        raise MeasurementError(f"arrived() has to return a NumPy array; it returned a {type(arrived).__name__}")
    if arrived.dtype != expected.dtype:
        raise MeasurementError(f"arrived() returned {arrived.dtype}, but {expected.dtype} was expected")
    return np.array_equal(_in_words(arrived), _in_words(expected))


def _in_words(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory in eight-byte words if it has whole ones, which are compared in a fifth of the time."""
    flat = array.reshape(-1)
    is_whole = flat.dtype == np.uint8 and flat.flags.c_contiguous and flat.size % 8 == 0
    return flat.view(np.uint64) if is_whole else flat
