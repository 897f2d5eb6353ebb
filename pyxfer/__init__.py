"""How fast bytes can cross the link between host memory and a CUDA GPU, and how fast they do.

Importing pyxfer makes no CUDA call.
"""

from pyxfer.api import devices, is_available, link
from pyxfer.errors import (
    CancelledError,
    CleanupWarning,
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DeviceTimeoutError,
    DocumentError,
    ForkedError,
    MeasurementError,
    PyxferError,
    UsageError,
)
from pyxfer.model import Device, Link, Measurement, Remark, Run
from pyxfer.raw import ceiling, measure
from pyxfer.sampling.bracket import Timer

__all__ = [
    "CancelledError",
    "CleanupWarning",
    "CudaError",
    "CudaMemoryError",
    "CudaUnavailableError",
    "Device",
    "DeviceLostError",
    "DeviceTimeoutError",
    "DocumentError",
    "ForkedError",
    "Link",
    "Measurement",
    "MeasurementError",
    "PyxferError",
    "Remark",
    "Run",
    "Timer",
    "UsageError",
    "ceiling",
    "devices",
    "is_available",
    "link",
    "measure",
]
