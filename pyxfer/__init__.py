"""Measure and improve transfers between host memory and a CUDA GPU.

Importing pyxfer makes no CUDA call. Each public name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyxfer._baseline.inputs import compare
    from pyxfer._baseline.store import Store, open_store
    from pyxfer._ceiling.callables import measure
    from pyxfer._ceiling.session import ceiling
    from pyxfer._doctor.session import doctor
    from pyxfer._document.baselines import Baseline, Comparison
    from pyxfer._document.examinations import Examination, Finding
    from pyxfer._document.fleets import Fleet, HostReport
    from pyxfer._document.links import Links
    from pyxfer._document.routes import RouteStatus
    from pyxfer._document.runs import Device, Link, Measurement, Remark, Run
    from pyxfer._document.sessions import XferSession
    from pyxfer._document.watches import Watched
    from pyxfer._frameworks.base import RefusedError, Route, Transfer
    from pyxfer._frameworks.explain import explain
    from pyxfer._frameworks.place import Place
    from pyxfer._frameworks.registry import list_routes, register_route, unregister_route
    from pyxfer._frameworks.session import frameworks
    from pyxfer._links.session import links
    from pyxfer._machine.api import devices, is_available, link
    from pyxfer._measure.bracket import Timer
    from pyxfer._pytest.fixture import Xfer
    from pyxfer._upload.api import download, empty_pinned, pin, prefetch, upload
    from pyxfer._upload.pending import Upload
    from pyxfer._upload.uploader import Uploader
    from pyxfer._watch.marks import mark
    from pyxfer._watch.watch import Watch, watch
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
        StoreError,
        UsageError,
    )

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
    "Fleet",
    "ForkedError",
    "HostReport",
    "Link",
    "Links",
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
    "StoreError",
    "Timer",
    "Transfer",
    "Upload",
    "Uploader",
    "UsageError",
    "Watch",
    "Watched",
    "Xfer",
    "XferSession",
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
    "links",
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
    "pyxfer._machine.api": ("devices", "is_available", "link"),
    "pyxfer._baseline.inputs": ("compare",),
    "pyxfer._baseline.store": ("Store", "open_store"),
    "pyxfer._doctor.session": ("doctor",),
    "pyxfer._document.runs": ("Device", "Link", "Measurement", "Remark", "Run"),
    "pyxfer._document.baselines": ("Baseline", "Comparison"),
    "pyxfer._document.examinations": ("Examination", "Finding"),
    "pyxfer._document.fleets": ("Fleet", "HostReport"),
    "pyxfer._document.links": ("Links",),
    "pyxfer._document.sessions": ("XferSession",),
    "pyxfer._pytest.fixture": ("Xfer",),
    "pyxfer._links.session": ("links",),
    "pyxfer._document.watches": ("Watched",),
    "pyxfer._ceiling.callables": ("measure",),
    "pyxfer._ceiling.session": ("ceiling",),
    "pyxfer._frameworks.base": ("RefusedError", "Route", "Transfer"),
    "pyxfer._frameworks.place": ("Place",),
    "pyxfer._document.routes": ("RouteStatus",),
    "pyxfer._frameworks.registry": ("list_routes", "register_route", "unregister_route"),
    "pyxfer._measure.bracket": ("Timer",),
    "pyxfer._upload.api": ("download", "empty_pinned", "pin", "prefetch", "upload"),
    "pyxfer._upload.uploader": ("Uploader",),
    "pyxfer._upload.pending": ("Upload",),
    "pyxfer._watch.marks": ("mark",),
    "pyxfer._watch.watch": ("Watch", "watch"),
    "pyxfer._frameworks.explain": ("explain",),
    "pyxfer._frameworks.session": ("frameworks",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("pyxfer")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(_HOME_OF.get(name, "pyxfer.errors")), name)
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        errors = import_module("pyxfer.errors")
        raise errors.StoreError(errors.STORE_NEEDS_SQLALCHEMY) from error
    globals()[name] = found  # later look-ups, e.g. of `mark` in a loop, do not come here
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
