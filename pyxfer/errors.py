"""What can go wrong, as types: every error of pyxfer is a `PyxferError`.

The compiled modules raise the CUDA ones; their text ends in what to do about it.
"""

from __future__ import annotations


class PyxferError(Exception):
    """Anything that pyxfer itself reports."""


class UsageError(PyxferError, ValueError):
    """What was asked for cannot be: a size, a device, a route, a direction, a file."""


class DocumentError(PyxferError, ValueError):
    """A file that is not a run, is cut short, or comes from a later pyxfer."""


class StoreError(PyxferError):
    """A store that cannot be used, or that has not taken what was to be stored; the text says what to do."""


class MeasurementError(PyxferError, RuntimeError):
    """The measurement ran and its result cannot be trusted."""


class DeviceTimeoutError(PyxferError, TimeoutError):
    """The device did not finish what it was given within the deadline."""


class CancelledError(PyxferError):
    """The operation was asked to end, by Ctrl-C or from another thread."""


class ForkedError(PyxferError, RuntimeError):
    """CUDA was used before `fork`, so this child process cannot use it."""


class CudaError(PyxferError, RuntimeError):
    """A CUDA call failed: which one, where, with which code, and what to do."""

    def __init__(self, code: int, name: str, call: str, where: str, description: str, hint: str) -> None:
        sentence = f"{call} failed with {name} ({code}): {description}."
        super().__init__(f"{sentence} {hint}" if hint else sentence)
        self.code = code
        self.name = name
        self.call = call
        self.where = where
        self.description = description
        self.hint = hint

    def __reduce__(self) -> tuple[type[CudaError], tuple[int, str, str, str, str, str]]:
        """Pickle whole, so that a worker process can hand its error on."""
        arguments = (self.code, self.name, self.call, self.where, self.description, self.hint)
        return type(self), arguments


class CudaUnavailableError(CudaError):
    """No usable GPU: no driver, a driver too old, or no device."""


class CudaMemoryError(CudaError, MemoryError):
    """Device or page-locked memory ran out."""


class DeviceLostError(CudaError):
    """The device is gone or in an error state that only a new process can leave."""


class TraceUnavailableError(PyxferError):
    """The device's records cannot be had here; the text says why, and everything else goes on without them."""


class CleanupWarning(ResourceWarning):
    """Something could not be released; the process goes on."""


class FallbackWarning(RuntimeWarning):
    """pyxfer fell back to a slower path; the text says why, and what to do about it."""
