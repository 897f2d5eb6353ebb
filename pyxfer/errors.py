"""The exceptions and warnings of pyxfer. Every exception is a `PyxferError`.

The compiled modules raise `CudaError` and its subclasses. Their messages end with what to do.
"""

from __future__ import annotations


class PyxferError(Exception):
    """Base class of all exceptions of pyxfer."""


class UsageError(PyxferError, ValueError):
    """An argument or option is invalid, or does not fit this machine; nothing was measured."""


class DocumentError(PyxferError, ValueError):
    """A file cannot be read, is not a document of pyxfer, is cut short, or was written by a later pyxfer."""


class ArrayFileError(PyxferError, ValueError):
    """A file of arrays cannot be read, is cut short, has changed, or has a format that pyxfer does not read."""

    unfilled: tuple[str, ...] = ()
    """Of `load_tensors_into`, the names of the targets that are not complete."""


class StoreError(PyxferError):
    """A store cannot be opened, read or written. The message says what to do."""


_CHARTS = "pip install altair nanoarrow vl-convert-python"
# How to install each library that pyxfer can use and does not require. pyxfer's extras would install the same, and are
# not named because pyxfer is on no package index.
INSTALL = {
    "altair": _CHARTS,
    "nanoarrow": _CHARTS,
    "vl_convert": _CHARTS,
    "sqlalchemy": "pip install sqlalchemy",
    "psycopg": "pip install 'psycopg[binary]'",
    "prometheus_client": "pip install prometheus-client",
    "ray": "pip install ray",
    "pandas": "pip install pandas",
    "pynvml": "pip install nvidia-ml-py",
    "ml_dtypes": "pip install ml_dtypes",
    "torch": "pip install torch",
    "tensorflow": "pip install 'tensorflow[and-cuda]'",
    "cupy": "pip install cupy-cuda12x, or cupy-cuda13x for CUDA 13",
    "jax": "pip install 'jax[cuda13]', or 'jax[cuda12]'",
}
STORE_NEEDS_SQLALCHEMY = f"Stores and baselines need SQLAlchemy, which is not installed: {INSTALL['sqlalchemy']}."


class MeasurementError(PyxferError, RuntimeError):
    """A measurement ran, but its result cannot be trusted."""


class DeviceTimeoutError(PyxferError, TimeoutError):
    """The device did not finish its work within the deadline."""


class CancelledError(PyxferError):
    """The operation was cancelled, by Ctrl-C or by another thread."""


class ForkedError(PyxferError, RuntimeError):
    """This process was forked from one that had used CUDA, so it cannot use CUDA."""


class CudaError(PyxferError, RuntimeError):
    """A CUDA call failed.

    Attributes:
        code: Number of the CUDA error.
        name: Name of the CUDA error, such as `cudaErrorMemoryAllocation`.
        call: The call that failed.
        where: Source file and line of the call.
        description: CUDA's description of the error.
        hint: What to do; may be empty.
    """

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
        # By default pickle would call the class with the message alone. Workers send their errors to the parent.
        arguments = (self.code, self.name, self.call, self.where, self.description, self.hint)
        return type(self), arguments


class CudaUnavailableError(CudaError):
    """No usable GPU: the driver is missing or too old, or it has no device."""

    def __str__(self) -> str:
        # CUDA has one code for an old driver and for none, and describes it as an old one. The hint knows which it is.
        return f"No usable GPU: {self.hint}" if self.hint else super().__str__()


class CudaMemoryError(CudaError, MemoryError):
    """An allocation of device memory or page-locked memory failed."""


class KernelsUnavailableError(CudaError):
    """The driver did not make kernels: its compiler is missing or disabled, or it refused their text."""


class DeviceLostError(CudaError):
    """The device is gone, or in an error state that lasts until the process ends."""


class TraceUnavailableError(PyxferError):
    """The device's activity records are not available; the message says why. Measurements continue without them."""


class CleanupWarning(ResourceWarning):
    """A resource could not be released. The program continues."""


class FallbackWarning(RuntimeWarning):
    """pyxfer fell back to a slower path. The message says why, and what to do."""


class RefusedError(PyxferError):
    """A route or a framework is not available here; the message says why."""
