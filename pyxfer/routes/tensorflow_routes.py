"""TensorFlow's table, and how TensorFlow is started."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from pyxfer.model import Fact, unknown
from pyxfer.routes import tensorflow_images as images
from pyxfer.routes import tensorflow_transfers as transfers
from pyxfer.routes.base import Framework, RefusedError, Route, Started, ingest_route, ring_route
from pyxfer.routes.tensorflow_tensors import import_tensorflow

# All host memory that TensorFlow allocates for its own tensors is page-locked under it.
COMPATIBLE = "force-gpu-compatible"
# What decides about memory: TensorFlow's pools, and the malloc behind its and NumPy's tensors on the CPU.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "NUMPY_MADVISE_HUGEPAGE",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_HOST_MEM_LIMIT_IN_MB",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)

_onto_gpu = partial(Route, direction="h2d", returns="done", bracket="drained")
_off_gpu = partial(Route, direction="d2h", memory="pageable", dma="pageable", returns="done", bracket="drained")
_through_ring = partial(ring_route, returns="done", bracket="drained")
_ingest = partial(ingest_route, memory="pageable")

ROUTES = (
    _onto_gpu(
        name="tf.constant",
        call="with tf.device('/GPU:0'): tf.constant(x)",
        memory="pageable",
        host_copies=2,
        dma="pageable",
        copy=transfers.Constant,
        image_batch=images.ImagesConstant,
        usual=True,
        usual_for_images=False,
    ),
    _onto_gpu(
        name="tf.function",
        call="tf.function(f)(x)",
        memory="pageable",
        host_copies=2,
        dma="pageable",
        copy=transfers.Function,
        image_batch=images.ImagesFunction,
        usual_for_images=True,
    ),
    _onto_gpu(
        name="tf.function-jit",
        call="tf.function(f, jit_compile=True)(x)",
        memory="pageable",
        host_copies=2,
        dma="pageable",
        copy=transfers.FunctionJit,
        image_batch=images.ImagesFunctionJit,
    ),
    _onto_gpu(
        name="tf.cast-eager",
        call="with tf.device('/GPU:0'): tf.cast(x, tf.float32)",
        memory="pageable",
        host_copies=2,
        dma="pageable",
        copy=transfers.CastEager,
    ),
    _onto_gpu(
        name="tf.rawop",
        call="EagerTensor(x, 'CPU:0', None)._copy_to_device('GPU:0')",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        copy=transfers.RawOp,
    ),
    _onto_gpu(
        name="tf.cpu-op",
        call="tf.bitwise.bitwise_or(t, t)._copy_to_device('GPU:0')",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        copy=transfers.CpuOp,
    ),
    _onto_gpu(
        name="tf.dlpack-pageable",
        call="from_dlpack(x.__dlpack__())._copy_to_device('GPU:0')",
        memory="pageable",
        host_copies=0,
        dma="pageable",
        copy=partial(transfers.Dlpack, kind="aligned"),
        image_batch=partial(images.ImagesDlpack, kind="aligned"),
    ),
    _onto_gpu(
        name="tf.dlpack-pinned",
        call="from_dlpack(pinned.__dlpack__())._copy_to_device('GPU:0')",
        memory="pinned",
        host_copies=0,
        dma="pinned",
        copy=partial(transfers.Dlpack, kind="pinned"),
        image_batch=partial(images.ImagesDlpack, kind="pinned"),
    ),
    _onto_gpu(
        name="tf.data-prefetch",
        call="Dataset.from_tensor_slices(x).batch(8).apply(prefetch_to_device('/GPU:0'))",
        memory="pageable",
        host_copies=1,
        dma="pageable",
        copy=transfers.DataPrefetch,
    ),
    _onto_gpu(
        name="tf.data-prefetch-compatible",
        call="GPUOptions(force_gpu_compatible=True); ds.apply(prefetch_to_device('/GPU:0'))",
        memory="pageable",
        host_copies=1,
        dma="pinned",
        copy=transfers.DataPrefetch,
        setting=COMPATIBLE,
    ),
    _through_ring(
        name="tf.upload",
        call='pyxfer.upload(x, to="tensorflow")',
        direction="h2d",
        copy=transfers.ThroughRing,
        image_batch=images.ImagesThroughRing,
    ),
    _through_ring(
        name="tf.prefetch",
        call='pyxfer.prefetch(batches, to="tensorflow")',
        direction="h2d",
        copy=transfers.Prefetch,
    ),
    _off_gpu(name="tf.numpy", call="t.numpy()", host_copies=1, copy=transfers.Numpy, usual=True),
    _off_gpu(name="tf.array-view", call="np.asarray(t)", host_copies=0, copy=transfers.ArrayView),
    _through_ring(
        name="tf.download",
        call="pyxfer.download(t)",
        direction="d2h",
        copy=transfers.DownloadThroughRing,
    ),
    _through_ring(
        name="tf.download-into",
        call="pyxfer.download(t, out=array)",
        direction="d2h",
        copy=partial(transfers.DownloadThroughRing, into=True),
    ),
    _ingest(
        name="tf.ingest",
        call="with tf.device('/CPU:0'): tf.constant(x)",
        host_copies=2,
        copy=transfers.Ingest,
        usual=True,
    ),
    _ingest(
        name="tf.ingest-rawop",
        call="EagerTensor(x, 'CPU:0', None)",
        host_copies=0,
        copy=transfers.IngestRawOp,
    ),
    _ingest(
        name="tf.ingest-dlpack",
        call="tf.experimental.dlpack.from_dlpack(x.__dlpack__())",
        host_copies=0,
        copy=transfers.IngestDlpack,
    ),
)


def start(device: int | None, setting: str) -> Started:
    """Import TensorFlow and let it see this GPU alone, or none."""
    if setting not in {"", COMPATIBLE}:
        raise RefusedError(f"TensorFlow has no setting {setting!r} here; known is {COMPATIBLE}")
    tf = import_tensorflow()
    if setting:
        _force_gpu_compatible(tf)
    # Else every size fills the log with advice against tracing a function anew.
    tf.get_logger().setLevel("ERROR")
    tf.config.set_soft_device_placement(False)
    try:
        cuda = _choose_gpu(tf, device)
    except RuntimeError as error:
        raise RefusedError(f"TensorFlow was at work in this process before its GPU could be chosen: {error}") from error
    return Started(tf.__version__, cuda, _settings(setting))


def _force_gpu_compatible(tf: Any) -> None:
    """Only the session's configuration has this option, and only before the first operation."""
    try:
        from tensorflow.python.eager import context

        eager = context.context()
        if eager._context_handle is not None:
            raise RefusedError(f"{COMPATIBLE} comes too late: TensorFlow was at work in this process before")
        options = tf.compat.v1.GPUOptions(force_gpu_compatible=True, allow_growth=True)
        eager._config = tf.compat.v1.ConfigProto(gpu_options=options)
        in_force = eager.config.gpu_options.force_gpu_compatible
    except (ImportError, AttributeError, ValueError) as error:
        raise RefusedError(f"{COMPATIBLE} is not available in TensorFlow {tf.__version__}: {error}") from error
    if not in_force:
        raise RefusedError(f"TensorFlow {tf.__version__} does not keep the option of {COMPATIBLE}")


def _settings(setting: str) -> dict[str, str]:
    """What is in force; the variable has the last word on the GPU's memory."""
    whole = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "false"
    return {
        "GPU memory": "taken whole at the start" if whole else "grows with use",
        "soft placement": "off",
        COMPATIBLE: "on" if setting else "off",
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _choose_gpu(tf: Any, device: int | None) -> Fact[str]:
    """CUDA and TensorFlow count the GPUs alike; the one that stays visible becomes TensorFlow's first."""
    gpus = tf.config.list_physical_devices("GPU")
    if device is None or device >= len(gpus):
        tf.config.set_visible_devices([], "GPU")
        return unknown(_why_no_gpu(tf, device, len(gpus)))
    tf.config.set_visible_devices(gpus[device], "GPU")
    tf.config.experimental.set_memory_growth(gpus[device], True)
    try:
        tf.config.list_logical_devices("GPU")
    except tf.errors.OpError as error:
        return unknown(f"TensorFlow could not start GPU {device}: {error}")
    return Fact(str(tf.sysconfig.get_build_info().get("cuda_version", "of a version it does not tell")))


def _why_no_gpu(tf: Any, device: int | None, gpus: int) -> str:
    if device is None:
        return "no GPU was asked for"
    if not tf.test.is_built_with_cuda():
        return f"TensorFlow {tf.__version__} was built without CUDA: pip install 'tensorflow[and-cuda]'"
    if gpus:
        return f"TensorFlow sees {gpus} GPU{'s' if gpus > 1 else ''}, so none of number {device}"
    return (
        "TensorFlow sees no GPU: either the driver is not there or a library of CUDA 12 that it loads by name; "
        "pip install 'tensorflow[and-cuda]' brings those, and TF_CPP_MIN_LOG_LEVEL=0 has it name what is missing"
    )


FRAMEWORK = Framework(
    name="tensorflow",
    title="TensorFlow",
    owner="tf",
    distributions=("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu"),
    start=start,
    routes=ROUTES,
    environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
)
