"""Measure and improve transfers between host memory and a CUDA GPU.

Importing pyxfer makes no CUDA call. Each public name is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "pyxfer._baseline.inputs": "compare",
    "pyxfer._baseline.store": "Store open_store",
    "pyxfer._blocks.api": "copy_blocks",
    "pyxfer._blocks.layouts": "kv_layout",
    "pyxfer._blocks.offload": "plan_offload",
    "pyxfer._blocks.pools": "BlockPool",
    "pyxfer._blocks.session": "blocks",
    "pyxfer._ceiling.callables": "measure",
    "pyxfer._ceiling.session": "ceiling",
    "pyxfer._doctor.session": "doctor",
    "pyxfer._document.baselines": "Baseline Comparison",
    "pyxfer._document.codec": "load",
    "pyxfer._document.examinations": "Examination Finding",
    "pyxfer._document.fleets": "Fleet HostReport",
    "pyxfer._document.links": "Links",
    "pyxfer._document.machines": "Device Link Remark",
    "pyxfer._document.offloads": "KvLayout OffloadPlan",
    "pyxfer._document.routes": "RouteStatus",
    "pyxfer._document.runs": "Measurement Run",
    "pyxfer._document.sessions": "XferSession",
    "pyxfer._document.watches": "Watched",
    "pyxfer._files.load": "load_tensors load_tensors_into stream_tensors",
    "pyxfer._frameworks.base": "Route Transfer",
    "pyxfer._frameworks.explain": "explain",
    "pyxfer._frameworks.context": "RouteContext",
    "pyxfer._frameworks.registry": "list_routes register_route unregister_route",
    "pyxfer._frameworks.session": "frameworks",
    "pyxfer._links.session": "links",
    "pyxfer._loaders.loaders": "Loader register_loader unregister_loader",
    "pyxfer._loaders.session": "files",
    "pyxfer._machine.devices": "devices is_available",
    "pyxfer._machine.link": "link",
    "pyxfer._measure.bracket": "Timer",
    "pyxfer._pytest.fixture": "Xfer",
    "pyxfer._upload.api": "download empty_pinned pin prefetch upload",
    "pyxfer._upload.pending": "Upload",
    "pyxfer._upload.uploader": "Uploader",
    "pyxfer._watch.marks": "mark",
    "pyxfer._watch.watch": "Watch watch",
    "pyxfer.errors": (
        "ArrayFileError CancelledError CleanupWarning CudaError CudaMemoryError CudaUnavailableError DeviceLostError "
        "DeviceTimeoutError DocumentError FallbackWarning ForkedError MeasurementError PyxferError RefusedError "
        "StoreError UsageError"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("pyxfer")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(_HOME_OF[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        errors = import_module("pyxfer.errors")
        raise errors.StoreError(errors.STORE_NEEDS_SQLALCHEMY) from error
    globals()[name] = found  # later look-ups, e.g. of `mark` in a loop, do not come here
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
