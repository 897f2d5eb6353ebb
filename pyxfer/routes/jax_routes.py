"""JAX's ways between host and device, and from NumPy."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from pyxfer.model import Fact, unknown
from pyxfer.routes import jax_transfers as ways
from pyxfer.routes.base import Framework, RefusedError, Route, Started, installed_version

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
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise RefusedError(f"JAX is installed and cannot be imported: {error}") from error
        raise RefusedError("JAX is not installed: pip install 'jax[cuda13]', or 'jax[cuda12]'") from error
    except (ImportError, OSError, RuntimeError) as error:  # jax and jaxlib that do not fit raise RuntimeError
        raise RefusedError(f"JAX is installed and cannot be imported: {error}") from error
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


_H2D = (
    Route(
        name="jax.device-put",
        call="jax.device_put(x)",
        direction="h2d",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="queued",
        bracket="drained",
        copy=ways.DevicePut,
        image_batch=ways.ImageBatch,
        usual=True,
    ),
    Route(
        name="jax.device-put-pinned",
        call="jax.device_put(pinned)",
        direction="h2d",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        bracket="drained",
        copy=ways.DevicePutPinned,
        image_batch=ways.ImageBatchPinned,
    ),
    Route(
        name="jax.device-put-nostage",
        call="jax.device_put(x), should_stage_host_to_device_transfers:false",
        direction="h2d",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        returns="queued",
        bracket="drained",
        copy=ways.DevicePutUnstaged,
        setting=NOSTAGE,
    ),
    Route(
        name="jax.pinned-host-to-device",
        call='jax.device_put(x_in_pinned_host, SingleDeviceSharding(gpu, memory_kind="device"))',
        direction="h2d",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        bracket="drained",
        copy=ways.PinnedHostToDevice,
    ),
)

_D2H = (
    Route(
        name="jax.asarray",
        call="np.asarray(x)",
        direction="d2h",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        returns="done",
        bracket="drained",
        copy=ways.Asarray,
        usual=True,
    ),
    Route(
        name="jax.to-pinned-host",
        call='jax.device_put(x, SingleDeviceSharding(gpu, memory_kind="pinned_host"))',
        direction="d2h",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        returns="queued",
        bracket="drained",
        copy=ways.ToPinnedHost,
    ),
)

_INGEST = (
    Route(
        name="jax.ingest",
        call="with jax.default_device(cpu): jnp.asarray(x)",
        direction="ingest",
        memory="pageable",
        host_copies=2,
        dma="none",
        returns="done",
        bracket="host",
        copy=ways.IngestAsarray,
        usual=True,
    ),
    Route(
        name="jax.ingest-device-put",
        call="jax.device_put(aligned, cpu)",
        direction="ingest",
        memory="pageable",
        host_copies=0,
        dma="none",
        returns="done",
        bracket="host",
        copy=ways.IngestDevicePut,
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
