"""How fast bytes can cross the link between host memory and a CUDA GPU, and how fast they do.

Importing pyxfer makes no CUDA call, and loads nothing before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyxfer.api import devices, is_available, link
    from pyxfer.baselines.inputs import compare
    from pyxfer.baselines.store import Store, open_store
    from pyxfer.errors import (
        CancelledError,
        CleanupWarning,
        CudaError,
        CudaMemoryError,
        CudaUnavailableError,
        DeviceLostError,
        DeviceTimeoutError,
        DocumentError,
        FallbackWarning,
        ForkedError,
        MeasurementError,
        PyxferError,
        StoreDoubtError,
        StoreError,
        UsageError,
    )
    from pyxfer.examining.session import doctor
    from pyxfer.model import Device, Link, Measurement, Remark, Run
    from pyxfer.model_baselines import Baseline, Comparison
    from pyxfer.model_findings import Examination, Finding
    from pyxfer.model_watch import Watched
    from pyxfer.raw import ceiling, measure
    from pyxfer.routes.base import RefusedError, Route, Transfer
    from pyxfer.routes.listing import RouteStatus, list_routes
    from pyxfer.routes.place import Place
    from pyxfer.routes.registry import register_route, unregister_route
    from pyxfer.sampling.bracket import Timer
    from pyxfer.staging.shared import download, empty_pinned, pin, prefetch, upload
    from pyxfer.staging.uploader import Uploader
    from pyxfer.staging.uploads import Upload
    from pyxfer.watching.marks import mark
    from pyxfer.watching.watch import Watch, watch
    from pyxfer.workers import explain, frameworks

    __version__: str

__all__ = [
    "Baseline",
    "CancelledError",
    "CleanupWarning",
    "Comparison",
    "CudaError",
    "CudaMemoryError",
    "CudaUnavailableError",
    "Device",
    "DeviceLostError",
    "DeviceTimeoutError",
    "DocumentError",
    "Examination",
    "FallbackWarning",
    "Finding",
    "ForkedError",
    "Link",
    "Measurement",
    "MeasurementError",
    "Place",
    "PyxferError",
    "RefusedError",
    "Remark",
    "Route",
    "RouteStatus",
    "Run",
    "Store",
    "StoreDoubtError",
    "StoreError",
    "Timer",
    "Transfer",
    "Upload",
    "Uploader",
    "UsageError",
    "Watch",
    "Watched",
    "ceiling",
    "compare",
    "devices",
    "doctor",
    "download",
    "empty_pinned",
    "explain",
    "frameworks",
    "is_available",
    "link",
    "list_routes",
    "mark",
    "measure",
    "open_store",
    "pin",
    "prefetch",
    "register_route",
    "unregister_route",
    "upload",
    "watch",
]

_HOMES = {
    "pyxfer.api": ("devices", "is_available", "link"),
    "pyxfer.baselines.inputs": ("compare",),
    "pyxfer.baselines.store": ("Store", "open_store"),
    "pyxfer.examining.session": ("doctor",),
    "pyxfer.model": ("Device", "Link", "Measurement", "Remark", "Run"),
    "pyxfer.model_baselines": ("Baseline", "Comparison"),
    "pyxfer.model_findings": ("Examination", "Finding"),
    "pyxfer.model_watch": ("Watched",),
    "pyxfer.raw": ("ceiling", "measure"),
    "pyxfer.routes.base": ("RefusedError", "Route", "Transfer"),
    "pyxfer.routes.listing": ("RouteStatus", "list_routes"),
    "pyxfer.routes.place": ("Place",),
    "pyxfer.routes.registry": ("register_route", "unregister_route"),
    "pyxfer.sampling.bracket": ("Timer",),
    "pyxfer.staging.shared": ("download", "empty_pinned", "pin", "prefetch", "upload"),
    "pyxfer.staging.uploader": ("Uploader",),
    "pyxfer.staging.uploads": ("Upload",),
    "pyxfer.watching.marks": ("mark",),
    "pyxfer.watching.watch": ("Watch", "watch"),
    "pyxfer.workers": ("explain", "frameworks"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("pyxfer")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOME_OF.get(name, "pyxfer.errors")), name)
    globals()[name] = found  # a mark must not be looked up anew each time
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
