"""TensorFlow's routes between host and device, and from NumPy."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.machines import Fact, unknown
from pyxfer._frameworks import base, orders
from pyxfer._frameworks.context import RouteContext
from pyxfer.errors import INSTALL, MeasurementError, RefusedError

CPU = "/device:CPU:0"
# Only the measured GPU is visible, so it is the first.
GPU = "/device:GPU:0"
# The alignment that CPU kernels assume: EIGEN_MAX_ALIGN_BYTES of TensorFlow's wheels. They abort on other memory.
ALIGNMENT = 64
KDL_CUDA = 2


class _DLTensor(ctypes.Structure):
    """The first fields of the struct in a capsule named `dltensor`, from dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


# A separate prototype, because setting argtypes on ctypes.pythonapi would affect the whole process.
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def import_tensorflow() -> Any:
    with base.importing("TensorFlow", "tensorflow"):
        import tensorflow
    return tensorflow


def eager_tensor_type(tf: Any) -> Any:
    """The class whose constructor aliases an aligned array, and whose `_copy_to_device` does not cache the copy."""
    try:
        from tensorflow.python.framework.ops import EagerTensor
    except ImportError as error:
        raise _moved(tf, "tensorflow.python.framework.ops.EagerTensor is not there") from error
    if not hasattr(EagerTensor, "_copy_to_device"):
        raise _moved(tf, "EagerTensor._copy_to_device is not there")
    return EagerTensor


def _moved(tf: Any, why: str) -> RefusedError:
    return RefusedError(f"not available in TensorFlow {tf.__version__}: {why}")


def where_is(tensor: Any) -> base.Where:
    # `device` would be the device of the operation, not that of the memory.
    return "gpu" if ":GPU:" in tensor.backing_device else "cpu"


@contextlib.contextmanager
def device_memory(tf: Any, tensor: Any) -> Iterator[int]:
    """The address of a tensor on the GPU. A capsule keeps the memory alive inside the block."""
    capsule = tf.experimental.dlpack.to_dlpack(tensor)
    described = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if described.device_type != KDL_CUDA:
        raise MeasurementError(
            f"a tensor that TensorFlow places on {tensor.backing_device} is not in the GPU's memory "
            f"(DLPack device type {described.device_type})"
        )
    yield described.data + described.byte_offset


def view_tensor(tensor: Any) -> NDArray[Any]:
    """The memory of a tensor on the CPU, without a copy."""
    return np.asarray(memoryview(tensor))


class TensorTransfer(base.ArrayTransfer):
    needs_gpu = True

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self.tf = import_tensorflow()
        if self.needs_gpu and GPU not in {device.name for device in self.tf.config.list_logical_devices()}:
            raise RefusedError("TensorFlow has no GPU in this process")

    def place_of(self, array: Any) -> base.Where:
        return where_is(array)


class OntoGpu(base.HostUpload, TensorTransfer):
    """From host memory to the GPU; the result is read past TensorFlow."""

    def arrived(self) -> NDArray[Any]:
        dtype = np.dtype(self.result.dtype.as_numpy_dtype)
        with device_memory(self.tf, self.result) as address:
            return self.context.fetch(address, self.result.shape.num_elements() * dtype.itemsize).view(dtype)


class Aliasing(base.FromHost, TensorTransfer):
    """From host memory by the private tensor constructor, which aliases an aligned array."""

    kind = "aligned"

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._tensor = eager_tensor_type(self.tf)


class Constant(OntoGpu):
    """`tf.constant` under a device scope: NumPy copies, TensorFlow copies to aligned memory, and the driver stages."""

    def upload(self) -> Any:
        with self.tf.device(GPU):
            return self.tf.constant(self.source)


class CastEager(OntoGpu):
    """`tf.cast` of an array, which the GPU converts after the copy."""

    def upload(self) -> Any:
        with self.tf.device(GPU):
            return self.tf.cast(self.source, self.tf.float32)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        return data.astype(np.float32)


class Function(OntoGpu):
    """An array as argument of a tf.function on the GPU."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        tf = self.tf

        def onto_gpu(x: Any) -> Any:
            with tf.device(GPU):
                return tf.identity(x)

        self._function = tf.function(onto_gpu)

    def upload(self) -> Any:
        return self._function(self.source)


class FunctionJit(OntoGpu):
    """The same under XLA. It inverts the bits, because XLA would remove an identity."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._function = self.tf.function(self.tf.bitwise.invert, jit_compile=True)

    def upload(self) -> Any:
        with self.tf.device(GPU):
            return self._function(self.source)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        inverted: NDArray[Any] = np.invert(data)
        return inverted


class RawOp(Aliasing, OntoGpu):
    """The private tensor constructor, which aliases an aligned array, and the copy below the operations."""

    def upload(self) -> Any:
        return self._tensor(self.source, CPU, None)._copy_to_device(GPU)


class CpuOp(Aliasing, OntoGpu):
    """The result of an operation on the CPU, in pageable memory that TensorFlow allocated."""

    _made: Any = None

    def refresh(self) -> None:
        operand = self._tensor(self.context.source(self.kind), CPU, None)
        with self.tf.device(CPU):
            self._made = self.tf.bitwise.bitwise_or(operand, operand)

    def upload(self) -> Any:
        return self._made._copy_to_device(GPU)

    def release(self) -> None:
        super().release()
        self._made = None


class Dlpack(OntoGpu):
    """A tensor in the array's memory, new in every trial because a tensor caches its copy on the GPU."""

    kind: base.SourceKind = "aligned"

    def __init__(self, context: RouteContext, shape: tuple[int, ...] = (-1,)) -> None:
        super().__init__(context, shape)
        eager_tensor_type(self.tf)
        self._import = self.tf.experimental.dlpack.from_dlpack

    def upload(self) -> Any:
        return self._import(self.source.__dlpack__())._copy_to_device(GPU)


class DlpackPinned(Dlpack):
    """The same from page-locked memory."""

    kind = "pinned"


class UploadThroughRing(base.RingUpload, OntoGpu):
    """`pyxfer.upload`, after which TensorFlow gets memory that already holds the bytes, through DLPack."""

    framework = "tensorflow"


class DataPrefetch(OntoGpu):
    """A tf.data pipeline that ends on the GPU, from the creation of its iterator to its last element.

    Every element is a batch of the transfer's size, made of the rows of one source. The iterator is created within the
    trial, so that nothing is prefetched before it; its cost is divided by the number of elements.
    """

    kind = "aligned"
    copies = 8
    rows = 8

    def __init__(self, context: RouteContext) -> None:
        # TensorFlow would copy each unaligned row once more.
        if context.nbytes % (self.rows * ALIGNMENT):
            raise RefusedError(
                f"a batch has {self.rows} rows, each a multiple of {ALIGNMENT} bytes; {context.nbytes} bytes "
                f"are not a multiple of {self.rows} x {ALIGNMENT} = {self.rows * ALIGNMENT}"
            )
        super().__init__(context)
        self._sources = [context.source(self.kind) for _ in range(self.copies)]
        rows = functools.reduce(lambda first, second: first.concatenate(second), map(self._rows, self._sources))
        onto_gpu = self.tf.data.experimental.prefetch_to_device(GPU)
        self.dataset = rows.batch(self.rows, drop_remainder=True).apply(onto_gpu)

    def _rows(self, source: NDArray[np.uint8]) -> Any:
        capsule = source.reshape(self.rows, -1).__dlpack__()
        return self.tf.data.Dataset.from_tensor_slices(self.tf.experimental.dlpack.from_dlpack(capsule))

    def write(self, data: NDArray[Any]) -> None:
        for source in self._sources:
            source[:] = data

    def refresh(self) -> None:
        """Nothing: the sources are fixed, because building a pipeline takes longer than running it."""

    def run(self) -> None:
        for element in self.dataset:
            self.result = element


class Prefetch(OntoGpu):
    """The same number of batches by `pyxfer.prefetch`, from the creation of its iterator to its last element.

    No work uses the batches here, so nothing hides the time of sending them.
    """

    copies = DataPrefetch.copies

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        self._uploader = context.uploader()
        self.batches: Iterable[NDArray[np.uint8]] = []

    def refresh(self) -> None:
        self.batches = [self.context.source(self.kind) for _ in range(self.copies)]

    def run(self) -> None:
        for element in self._uploader.prefetch(self.batches, "tensorflow"):
            self.result = element


class Argument(OntoGpu):
    """The array itself, which a function sends."""

    def upload(self) -> Any:
        return self.source


class Images(base.ImageBatch, TensorTransfer):
    """A batch of images, sent as an `OntoGpu` does, and a tf.function on the GPU."""

    jit_compile: bool | None = None

    def __init__(self, context: RouteContext, sending: type[OntoGpu] = Argument) -> None:
        super().__init__(context, sending)
        tf = self.tf

        def row(x: Any) -> Any:
            with tf.device(GPU):
                return tf.cast(x, tf.float32)[0, 0]

        self._function = tf.function(row, jit_compile=self.jit_compile)

    def run(self) -> None:
        self.row = self.first_row()
        self.result = self.row.numpy()

    def first_row(self) -> Any:
        """Row [0, 0] as float32, still a tensor."""
        return self._function(self.sending.upload())


class ImagesJit(Images):
    """The function under XLA, which fuses the cast and the row into one kernel."""

    jit_compile = True

    def first_row(self) -> Any:
        with self.tf.device(GPU):
            return super().first_row()


class ImagesConstant(Images):
    """`tf.constant` under a device scope, then single operations."""

    def first_row(self) -> Any:
        with self.tf.device(GPU):
            return self.tf.cast(self.tf.constant(self.sending.upload()), self.tf.float32)[0, 0]


class Converted(orders.Converting, OntoGpu):
    """Images, converted by NumPy on the host and by a tf.function on the device, whose argument they are."""

    def __init__(self, context: RouteContext, conversion: orders.Conversion) -> None:
        super().__init__(context, conversion)
        tf = self.tf

        def convert(x: Any) -> Any:
            permutes, casts = conversion.does("device")
            with tf.device(GPU):
                x = tf.transpose(x, orders.NCHW_AXES) if permutes else tf.identity(x)
                return tf.cast(x, conversion.dtype) if casts else x

        self._function = tf.function(convert)

    def send(self, images: NDArray[Any]) -> Any:
        """The array itself, which the function sends."""
        return images

    def on_device(self, images: Any) -> Any:
        return self._function(images)


class ConvertedUpload(orders.ConvertingUpload, UploadThroughRing):
    """`pyxfer.upload` of images."""


class OffGpu(base.IntoNumpy, TensorTransfer):
    """From a tensor on the GPU, with a new handle to it in every trial.

    A handle caches its host copy, and would return that copy in the next trial.
    """

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        with self.tf.device(GPU):
            self._kept = self.tf.constant(np.zeros(context.nbytes, np.uint8))
        self.array: Any = None

    def write(self, data: NDArray[Any]) -> None:
        with device_memory(self.tf, self._kept) as address:
            self.context.store(address, data)

    def refresh(self) -> None:
        with self.tf.device(GPU):
            self.array = self.tf.identity(self._kept)

    def release(self) -> None:
        super().release()
        self.array = None


class Numpy(OffGpu):
    """`Tensor.numpy`, which copies the downloaded bytes once more."""

    def run(self) -> None:
        self.result = self.array.numpy()


class ArrayView(OffGpu):
    """`np.asarray`, which returns a read-only view of the downloaded bytes."""

    def run(self) -> None:
        self.result = np.asarray(self.array)


class DownloadThroughRing(base.RingDownload, OffGpu):
    """`pyxfer.download`, into a new NumPy array or into existing ones."""


class Ingest(base.FromHost, TensorTransfer):
    """`tf.constant` on the CPU: NumPy copies, then TensorFlow copies to aligned memory."""

    needs_gpu = False

    def run(self) -> None:
        with self.tf.device(CPU):
            self.result = self.tf.constant(self.source)

    def arrived(self) -> NDArray[Any]:
        return view_tensor(self.result)


class IngestRawOp(Aliasing, Ingest):
    """The private tensor constructor, which aliases an aligned array."""

    def run(self) -> None:
        self.result = self._tensor(self.source, CPU, None)


class IngestDlpack(Ingest):
    """A tensor in the array's memory, through DLPack."""

    kind = "aligned"

    def run(self) -> None:
        self.result = self.tf.experimental.dlpack.from_dlpack(self.source.__dlpack__())


# Variables that affect memory: TensorFlow's pools, and the malloc of its CPU tensors and of NumPy.
VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "NUMPY_MADVISE_HUGEPAGE", "TF_CPP_MIN_LOG_LEVEL"),
    *("TF_FORCE_GPU_ALLOW_GROWTH", "TF_FORCE_UNIFIED_MEMORY", "TF_GPU_ALLOCATOR", "TF_GPU_HOST_MEM_LIMIT_IN_MB"),
    *("TF_XLA_FLAGS", "XLA_FLAGS"),
)

ROUTES = (
    base.onto_gpu(
        "tf.constant",
        "with tf.device('/GPU:0'): tf.constant(x)",
        Constant,
        ImagesConstant,
        host_copies=2,
        usual=True,
        usual_for_images=False,
    ),
    base.onto_gpu("tf.function", "tf.function(f)(x)", Function, Images, host_copies=2, usual_for_images=True),
    base.onto_gpu("tf.function-jit", "tf.function(f, jit_compile=True)(x)", FunctionJit, ImagesJit, host_copies=2),
    base.onto_gpu("tf.cast-eager", "with tf.device('/GPU:0'): tf.cast(x, tf.float32)", CastEager, host_copies=2),
    base.onto_gpu("tf.rawop", "EagerTensor(x, 'CPU:0', None)._copy_to_device('GPU:0')", RawOp),
    base.onto_gpu("tf.cpu-op", "tf.bitwise.bitwise_or(t, t)._copy_to_device('GPU:0')", CpuOp),
    base.onto_gpu(
        "tf.dlpack-pageable", "from_dlpack(x.__dlpack__())._copy_to_device('GPU:0')", *base.both(Images, Dlpack)
    ),
    base.from_pinned(
        "tf.dlpack-pinned",
        "from_dlpack(pinned.__dlpack__())._copy_to_device('GPU:0')",
        *base.both(Images, DlpackPinned),
        returns="done",
    ),
    base.onto_gpu(
        "tf.data-prefetch",
        "Dataset.from_tensor_slices(x).batch(8).apply(prefetch_to_device('/GPU:0'))",
        DataPrefetch,
        host_copies=1,
    ),
    base.ring_upload("tf.upload", 'pyxfer.upload(x, to="tensorflow")', *base.both(Images, UploadThroughRing)),
    base.ring_upload("tf.prefetch", 'pyxfer.prefetch(batches, to="tensorflow")', Prefetch),
    base.off_gpu("tf.numpy", "t.numpy()", Numpy, host_copies=1, usual=True),
    base.off_gpu("tf.array-view", "np.asarray(t)", ArrayView),
    base.ring_download("tf.download", "pyxfer.download(t)", DownloadThroughRing),
    base.ring_download("tf.download-into", "pyxfer.download(t, out=array)", partial(DownloadThroughRing, into=True)),
    base.ingest_route("tf.ingest", "with tf.device('/CPU:0'): tf.constant(x)", Ingest, host_copies=2, usual=True),
    base.ingest_route("tf.ingest-rawop", "EagerTensor(x, 'CPU:0', None)", IngestRawOp),
    base.ingest_route("tf.ingest-dlpack", "tf.experimental.dlpack.from_dlpack(x.__dlpack__())", IngestDlpack),
)


ORDERS = orders.make_orders(
    "tf",
    "tensorflow",
    orders.Code(
        send="{}",
        permute="tf.function(lambda x: tf.transpose(x, (0, 3, 1, 2)))({})",
        cast="tf.function(lambda x: tf.cast(x, tf.{dtype}))({})",
        both="tf.function(lambda x: tf.cast(tf.transpose(x, (0, 3, 1, 2)), tf.{dtype}))({})",
        alone="tf.function(tf.identity)({})",
    ),
    Converted,
    ConvertedUpload,
    dma="pageable",
    host_copies=2,
    returns="done",
    upload_returns="done",
)


def start(device: int | None, _setting: str) -> base.Started:
    """Import TensorFlow and let it see only this GPU, or none."""
    tf = import_tensorflow()
    # Otherwise every size logs a warning about tracing the function again.
    tf.get_logger().setLevel("ERROR")
    tf.config.set_soft_device_placement(False)
    try:
        cuda = _choose_gpu(tf, device)
    except RuntimeError as error:
        raise RefusedError(f"TensorFlow was used in this process before its GPU could be chosen: {error}") from error
    # The variable overrides the call in `_choose_gpu`.
    whole = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "false"
    memory = {"GPU memory": "taken whole at the start" if whole else "grows with use", "soft placement": "off"}
    set_here = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return base.Started(tf.__version__, cuda, {**memory, **set_here})


def _choose_gpu(tf: Any, device: int | None) -> Fact[str]:
    """CUDA and TensorFlow number GPUs alike; the only visible one becomes TensorFlow's first."""
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
    return Fact(str(tf.sysconfig.get_build_info().get("cuda_version", "of an unknown version")))


def _why_no_gpu(tf: Any, device: int | None, gpus: int) -> str:
    if device is None:
        return "no GPU was requested"
    if not tf.test.is_built_with_cuda():
        return f"TensorFlow {tf.__version__} was built without CUDA: {INSTALL['tensorflow']}"
    if gpus:
        return f"TensorFlow sees {gpus} GPU{'s' if gpus > 1 else ''}, but not number {device}"
    return (
        f"TensorFlow sees no GPU: the driver or a CUDA library is missing. {INSTALL['tensorflow']} installs "
        "the libraries; TF_CPP_MIN_LOG_LEVEL=0 logs which one is missing"
    )


FRAMEWORK = base.Framework(
    name="tensorflow",
    title="TensorFlow",
    owner="tf",
    distributions=("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu"),
    start=start,
    routes=(*ROUTES, *ORDERS),
    environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
)
