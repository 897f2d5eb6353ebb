"""JAX's ways between host and device, and from NumPy."""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from typing import Any

from pyxfer.model import Fact, unknown
from pyxfer.routes import jax_host_transfers as home
from pyxfer.routes import jax_transfers as ways
from pyxfer.routes.base import Framework, RefusedError, Route, Started, ingest_route, installed_version, ring_route
from pyxfer.routes.importing import importing

NOSTAGE = "nostage"
_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_VARIABLES = (
    "JAX_PLATFORMS",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB",
    "XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE",
)


def _start(device: int | None, setting: str) -> Started:
    with importing("JAX", "jax", "pip install 'jax[cuda13]', or 'jax[cuda12]'"):
        import jax
    if setting == NOSTAGE:
        _leave_staging_out(jax)
    _narrow(jax, device)
    cuda = _choose_device(jax, device)
    settings = {name: os.environ.get(name, "not set") for name in _VARIABLES}
    settings[ways.OPTIONS] = str(getattr(jax.config, ways.OPTIONS, None) or "not set")
    return Started(str(jax.__version__), cuda, settings)


def _leave_staging_out(jax: Any) -> None:
    """Tell the backend, which takes it when it starts and at no other time.

    A backend that does not know the option, or not as a boolean, does not start: one that runs has taken it.
    """
    if _has_started():
        raise RefusedError("JAX has started already, and its staging can only be left out before: use a new process")
    given = getattr(jax.config, ways.OPTIONS, None)
    if given:
        raise RefusedError(f"{ways.OPTIONS.upper()} is set, and would be overwritten ({given}): unset it")
    try:
        jax.config.update(ways.OPTIONS, dict(ways.UNSTAGED))
    except (AttributeError, TypeError, ValueError) as error:
        raise RefusedError(f"not available in JAX {jax.__version__}: {error}") from error


def _has_started() -> bool:
    try:
        from jax._src import xla_bridge
    except ImportError as error:
        raise RefusedError("not available in this JAX: it does not tell whether it has started") from error
    started: bool = xla_bridge.backends_are_initialized()
    return started


def _narrow(jax: Any, device: int | None) -> None:
    """Keep JAX from taking memory on GPUs that are not measured."""
    if _has_started():
        return
    if device is None:
        jax.config.update("jax_platforms", "cpu")
    elif "JAX_CUDA_VISIBLE_DEVICES" not in os.environ:
        with contextlib.suppress(AttributeError):  # before JAX 0.4.14
            jax.config.update("jax_cuda_visible_devices", str(device))


def _choose_device(jax: Any, device: int | None) -> Fact[str]:
    if device is None:
        return unknown("no GPU was asked for")
    if installed_version(_PLUGINS) is None:
        return unknown(f"jax {jax.__version__} is installed without its CUDA plugin: pip install 'jax[cuda13]'")
    try:
        found = ways.find_gpu(jax, device)
    except RefusedError as error:
        return unknown(str(error))
    version = str(found.client.platform_version)
    number = re.search(r"cuda (\d+)", version)
    if number is None:
        return unknown(f"JAX's GPU backend is not CUDA's: {version}")
    return Fact(f"{int(number[1]) // 1000}.{int(number[1]) % 1000 // 10}")


_onto_gpu = partial(Route, direction="h2d", bracket="drained")
_off_gpu = partial(Route, direction="d2h", bracket="drained")
_through_ring = partial(ring_route, returns="done", bracket="drained")

_H2D = (
    _onto_gpu(
        name="jax.device-put",
        call="jax.device_put(x)",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="queued",
        copy=ways.DevicePut,
        image_batch=ways.ImageBatch,
        usual=True,
    ),
    _onto_gpu(
        name="jax.device-put-pinned",
        call="jax.device_put(pinned)",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ways.DevicePutPinned,
        image_batch=ways.ImageBatchPinned,
    ),
    _onto_gpu(
        name="jax.device-put-nostage",
        call="jax.device_put(x), should_stage_host_to_device_transfers:false",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="queued",
        copy=ways.DevicePutUnstaged,
        setting=NOSTAGE,
    ),
    _onto_gpu(
        name="jax.pinned-host-to-device",
        call='jax.device_put(x_in_pinned_host, SingleDeviceSharding(gpu, memory_kind="device"))',
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=ways.PinnedHostToDevice,
    ),
    _through_ring(
        name="jax.upload",
        call='pyxfer.upload(x, to="jax")',
        direction="h2d",
        copy=ways.ThroughRing,
        image_batch=ways.ImageBatchThroughRing,
    ),
)

_D2H = (
    _off_gpu(
        name="jax.asarray",
        call="np.asarray(x)",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="done",
        copy=home.Asarray,
        usual=True,
    ),
    _off_gpu(
        name="jax.to-pinned-host",
        call='jax.device_put(x, SingleDeviceSharding(gpu, memory_kind="pinned_host"))',
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        copy=home.ToPinnedHost,
    ),
    _through_ring(
        name="jax.download",
        call="pyxfer.download(x)",
        direction="d2h",
        copy=home.ThroughRing,
    ),
    _through_ring(
        name="jax.download-into",
        call="pyxfer.download(x, out=array)",
        direction="d2h",
        copy=partial(home.ThroughRing, into=True),
    ),
)

_INGEST = (
    ingest_route(
        name="jax.ingest",
        call="with jax.default_device(cpu): jnp.asarray(x)",
        memory="pageable",
        host_copies=2,
        copy=home.IngestAsarray,
        usual=True,
    ),
    ingest_route(
        name="jax.ingest-device-put",
        call="jax.device_put(aligned, cpu)",
        memory="pageable",
        host_copies=0,
        copy=home.IngestDevicePut,
    ),
)

FRAMEWORK = Framework(
    name="jax",
    title="JAX",
    owner="jax",
    distributions=("jax",),
    start=_start,
    routes=(*_H2D, *_D2H, *_INGEST),
    environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"},
    gpu_distributions=_PLUGINS,
)
