"""Access to the memory of TensorFlow's tensors."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyxfer._frameworks.base import Where, importing
from pyxfer.errors import MeasurementError, RefusedError

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
    with importing("TensorFlow", "tensorflow"):
        import tensorflow
    return tensorflow


def require_gpu(tf: Any) -> None:
    if GPU not in {device.name for device in tf.config.list_logical_devices()}:
        raise RefusedError("TensorFlow has no GPU in this process")


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


def where_is(tensor: Any) -> Where:
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
