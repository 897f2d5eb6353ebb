"""How bytes get into TensorFlow's tensors and out of them again, as far as its public interface does not show."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer._frameworks.base import RefusedError, Where, importing
from pyxfer._frameworks.place import ImageRow
from pyxfer.errors import MeasurementError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.place import Place, SourceKind


class Images(ImageRow):
    """What every route of the workload shares: new images for every trial, and the row before it was read back."""

    kind: SourceKind = "pageable"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.tf = import_tensorflow()
        require_gpu(self.tf)
        self.images: NDArray[np.uint8] = place.images(self.kind)

    def refresh(self) -> None:
        self.images = self.place.images(self.kind)

    def run(self) -> None:
        self.row = self.first_row()
        self.result = self.row.numpy()

    def first_row(self) -> Any:
        """Row [0, 0] as float32, still a tensor."""
        raise NotImplementedError

    def where(self) -> Where:
        """Where the row lay before it was read back."""
        return where_is(self.row)


class ImagesFunction(Images):
    """The images as argument of a tf.function that works on the GPU."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._function = row_function(self.tf)

    def first_row(self) -> Any:
        return self._function(self.images)


class ImagesFunctionJit(Images):
    """The same under XLA, which makes one kernel of the cast and the row."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._function = row_function(self.tf, jit_compile=True)

    def first_row(self) -> Any:
        with self.tf.device(GPU):
            return self._function(self.images)


class ImagesConstant(Images):
    """The constructor under a device scope, and one operation after the other."""

    def first_row(self) -> Any:
        with self.tf.device(GPU):
            return self.tf.cast(self.tf.constant(self.images), self.tf.float32)[0, 0]


class ImagesDlpack(Images):
    """A tensor that lies in the images' memory, copied to the GPU, and the function there."""

    def __init__(self, place: Place, kind: SourceKind) -> None:
        self.kind = kind
        super().__init__(place)
        eager_tensor_type(self.tf)
        self._import = self.tf.experimental.dlpack.from_dlpack
        self._function = row_function(self.tf)

    def refresh(self) -> None:
        self.images = check_alias(self.place.images(self.kind))

    def first_row(self) -> Any:
        return self._function(self._import(self.images.__dlpack__())._copy_to_device(GPU))


class ImagesThroughRing(Images):
    """The images by `pyxfer.upload`, and the function there."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._uploader = place.uploader()
        self._function = row_function(self.tf)

    def first_row(self) -> Any:
        return self._function(self._uploader.upload(self.images, "tensorflow"))


def row_function(tf: Any, jit_compile: bool | None = None) -> Any:
    """The function that users measure: cast the batch, take one row."""

    def row(x: Any) -> Any:
        with tf.device(GPU):
            return tf.cast(x, tf.float32)[0, 0]

    return tf.function(row, jit_compile=jit_compile)


CPU = "/device:CPU:0"
# The worker makes one GPU visible, which is then the first.
GPU = "/device:GPU:0"
# What the kernels on the CPU assume of every buffer: EIGEN_MAX_ALIGN_BYTES of TensorFlow's wheels.
ALIGNMENT = 64
KDL_CUDA = 2


class _DLTensor(ctypes.Structure):
    """The beginning of what a capsule named `dltensor` points to, dlpack.h."""

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


# A prototype of our own: setting argtypes on ctypes.pythonapi would change the function for the whole process.
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def import_tensorflow() -> Any:
    """The framework.

    Raises:
        RefusedError: it is not installed, or what is installed cannot be imported.

    """
    with importing("TensorFlow", "tensorflow", "pip install tensorflow"):
        import tensorflow
    return tensorflow


def require_gpu(tf: Any) -> None:
    """Raise RefusedError where TensorFlow has no GPU to copy to."""
    if GPU not in {device.name for device in tf.config.list_logical_devices()}:
        raise RefusedError("TensorFlow has no GPU in this process")


def eager_tensor_type(tf: Any) -> Any:
    """The class whose constructor takes an aligned array as it is, and whose `_copy_to_device` copies without a mirror.

    Raises:
        RefusedError: this version has it no more.

    """
    try:
        from tensorflow.python.framework.ops import EagerTensor
    except ImportError as error:
        raise _moved(tf, "tensorflow.python.framework.ops.EagerTensor is not there") from error
    if not hasattr(EagerTensor, "_copy_to_device"):
        raise _moved(tf, "EagerTensor._copy_to_device is not there")
    return EagerTensor


def _moved(tf: Any, why: str) -> RefusedError:
    return RefusedError(f"not available in TensorFlow {tf.__version__}: {why}")


def check_alias(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, if a tensor can lie in its memory.

    TensorFlow does not look: it ends the process at the first operation on the CPU that meets an unaligned buffer.

    Raises:
        RefusedError: it cannot, and why.

    """
    wrong = ""
    if array.size == 0:
        wrong = "the array is empty"
    elif not array.flags.c_contiguous:
        wrong = "the array is not contiguous in C order; numpy.ascontiguousarray() copies it into one that is"
    elif not array.flags.writeable:
        wrong = "the array is read-only, and NumPy hands only writable ones over by the capsule that TensorFlow takes"
    elif array.ctypes.data % ALIGNMENT:
        wrong = (
            f"the array begins {array.ctypes.data % ALIGNMENT} bytes behind a multiple of {ALIGNMENT}, "
            f"and TensorFlow aborts on unaligned host memory"
        )
    if wrong:
        raise RefusedError(f"TensorFlow cannot use this memory in place: {wrong}")
    return array


def where_is(tensor: Any) -> Where:
    """Where its bytes are, in TensorFlow's own word; `device` would say where its operation ran."""
    return "gpu" if ":GPU:" in tensor.backing_device else "cpu"


@contextlib.contextmanager
def device_memory(tf: Any, tensor: Any) -> Iterator[int]:
    """The address of a tensor on the GPU; the capsule holds the memory while the block lasts and then frees itself.

    Raises:
        MeasurementError: the tensor is not in the GPU's memory.

    """
    capsule = tf.experimental.dlpack.to_dlpack(tensor)
    described = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if described.device_type != KDL_CUDA:
        raise MeasurementError(
            f"a tensor that TensorFlow places on {tensor.backing_device} is not in the GPU's memory "
            f"(DLPack device type {described.device_type})"
        )
    yield described.data + described.byte_offset


def fetch_tensor(tf: Any, place: Place, tensor: Any) -> NDArray[Any]:
    """The contents of a tensor on the GPU, flat, read past TensorFlow."""
    dtype = np.dtype(tensor.dtype.as_numpy_dtype)
    with device_memory(tf, tensor) as address:
        return place.fetch(address, tensor.shape.num_elements() * dtype.itemsize).view(dtype)


def view_tensor(tensor: Any) -> NDArray[Any]:
    """The memory of a tensor on the CPU, without a copy."""
    return np.asarray(memoryview(tensor))
