"""What every run does around its measurements: how it ends, is saved, and releases what it holds."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pyxfer import errors
from pyxfer._document.machines import Remark
from pyxfer._document.runs import Ending as RunEnding
from pyxfer._measure.interruptible import Ending
from pyxfer.native import Engine

Document = TypeVar("Document")

STUCK = Remark(
    "stuck",
    "A large allocation, or a call to a device that does not answer, could not be ended in time. Its memory stays "
    "allocated until this process ends.",
    "if the device is the cause, look at nvidia-smi and for Xid in dmesg",
)


def cleanup(fault: str) -> Remark:
    return Remark("cleanup", f"Something could not be released: {fault}")


@contextmanager
def own_failure(note: Callable[[errors.CudaError | errors.MeasurementError], None]) -> Iterator[None]:
    """Note an error that concerns one row only; an error that ends the run passes."""
    try:
        yield
    except (errors.CudaUnavailableError, errors.DeviceLostError):
        raise
    except (errors.CudaError, errors.MeasurementError) as error:
        note(error)


class SaveNowAndThen:
    """Saves every few seconds, and seldom where saving takes long: a killed run loses little, trials lose no time."""

    EVERY_S = 2.0
    SHARE = 0.02

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._after_s = time.perf_counter() + self.EVERY_S

    def __call__(self) -> None:
        begun_s = time.perf_counter()
        if begun_s >= self._after_s:
            self._save()
            ended_s = time.perf_counter()
            self._after_s = ended_s + max(self.EVERY_S, (ended_s - begun_s) / self.SHARE)


class Resource(Protocol):
    def close(self) -> None: ...
    def abandon(self) -> None: ...


# Leaked on purpose: a thread that is stuck in the driver still uses these.
_LEAKED: list[Resource] = []


class Resources(ABC):
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @abstractmethod
    def _held(self) -> Sequence[Resource]:
        """In the order of release: memory last, after everything that uses it."""

    @abstractmethod
    def _forget(self) -> None: ...

    def close(self) -> list[str]:
        faults: list[str] = []
        for resource in self._held():
            try:
                resource.close()
            except errors.CudaError as error:
                faults.append(str(error))
            except errors.DeviceTimeoutError as error:  # the device may still write to the memory of all others
                faults.append(str(error))
                self.abandon()
                break
        self._forget()
        return list(dict.fromkeys([*faults, *self.engine.take_cleanup_failures()]))

    def abandon(self) -> None:
        """Leak everything until the process ends: the device does not answer, and may still write."""
        for resource in self._held():
            resource.abandon()
        self._forget()

    def leave(self) -> None:
        """Keep everything until the process ends, because a thread that is stuck in the driver still uses it."""
        _LEAKED.extend(self._held())
        self._forget()


@dataclass(eq=False)
class RunSession(ABC, Generic[Document]):
    """One run: measured until done, interrupted or failed, then saved and returned as a document."""

    _save_to: Callable[[Document], None]
    _resources: Resources = field(init=False)

    def __post_init__(self) -> None:
        self._remarks: list[Remark] = []

    @abstractmethod
    def _measure_all(self) -> None: ...

    @abstractmethod
    def _has_trials(self) -> bool: ...

    @abstractmethod
    def _document(self, ended: RunEnding, failure: str | None) -> Document: ...

    def _carry_out(self) -> Ending:
        self._work()
        return Ending.DONE

    def run(self) -> Document:
        """Measure until done, interrupted or failed. An error before the first trial is raised."""
        ended: RunEnding = "complete"
        failure: str | None = None
        try:
            how = self._carry_out()
            if how is not Ending.DONE:
                ended = "interrupted"
            if how is Ending.STUCK:
                self._remarks.append(STUCK)
        except KeyboardInterrupt:
            ended = "interrupted"
        except (errors.PyxferError, MemoryError) as error:
            if not self._has_trials():
                raise
            ended, failure = "failed", str(error)
        try:
            return self._finish(ended, failure)
        except KeyboardInterrupt:  # everything has been measured, so it is still saved and returned
            return self._finish("interrupted", failure)

    def _finish(self, ended: RunEnding, failure: str | None) -> Document:
        document = self._document(ended, failure)
        self._save_to(document)
        return document

    def _work(self) -> None:
        try:
            self._measure_all()
        except errors.DeviceTimeoutError:
            self._resources.abandon()
            self._remarks.append(STUCK)
            raise
        finally:
            self._release()

    def _release(self) -> None:
        for fault in self._resources.close():
            self._remarks.append(cleanup(fault))
            warnings.warn(fault, errors.CleanupWarning, stacklevel=2)
