"""TensorFlow's ways between host and GPU, and from NumPy into a tensor on the CPU, each set up for one size."""

# ruff: noqa: D102 - routes.base.Transfer says what they do

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes import tensorflow_tensors as tensors
from pyxfer.routes.base import RefusedError, Transfer, Where
from pyxfer.routes.shared_transfers import RingDownload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place, SourceKind


class OntoGpu(Transfer):
    """What every route to the GPU shares: a source of its kind, and a result that is read past TensorFlow."""

    kind: SourceKind = "pageable"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.tf = tensors.import_tensorflow()
        tensors.require_gpu(self.tf)
        self.array: NDArray[np.uint8] = place.source(self.kind)

    def refresh(self) -> None:
        self.array = self.place.source(self.kind)

    def where(self) -> Where:
        return tensors.where_is(self.result)

    def arrived(self) -> NDArray[Any]:
        return tensors.fetch_tensor(self.tf, self.place, self.result)


class Constant(OntoGpu):
    """The constructor under a device scope: NumPy's copy, TensorFlow's aligned copy, then the driver's staging."""

    def run(self) -> None:
        with self.tf.device(tensors.GPU):
            self.result = self.tf.constant(self.array)


class CastEager(OntoGpu):
    """A cast of an array: the array crosses as it is and is converted on the GPU."""

    def run(self) -> None:
        with self.tf.device(tensors.GPU):
            self.result = self.tf.cast(self.array, self.tf.float32)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        return data.astype(np.float32)


class Function(OntoGpu):
    """An array as argument of a tf.function that works on the GPU."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        tf = self.tf

        def onto_gpu(x: Any) -> Any:
            with tf.device(tensors.GPU):
                return tf.identity(x)

        self._function = tf.function(onto_gpu)

    def run(self) -> None:
        self.result = self._function(self.array)


class FunctionJit(OntoGpu):
    """The same under XLA. The bits are inverted, because XLA has nothing to run for an identity."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._function = self.tf.function(self.tf.bitwise.invert, jit_compile=True)

    def run(self) -> None:
        with self.tf.device(tensors.GPU):
            self.result = self._function(self.array)

    def expected(self, data: NDArray[Any]) -> NDArray[Any]:
        inverted: NDArray[Any] = np.invert(data)
        return inverted


class RawOp(OntoGpu):
    """The tensor's own constructor, which takes an aligned array as it is, and the copy below the operations."""

    kind = "aligned"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._tensor = tensors.eager_tensor_type(self.tf)

    def refresh(self) -> None:
        self.array = tensors.check_alias(self.place.source(self.kind))

    def run(self) -> None:
        self.result = self._tensor(self.array, tensors.CPU, None)._copy_to_device(tensors.GPU)


class CpuOp(OntoGpu):
    """What an operation on the CPU left behind: TensorFlow knows this memory as pageable, and stages it itself."""

    kind = "aligned"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._tensor = tensors.eager_tensor_type(self.tf)
        self._made: Any = None

    def refresh(self) -> None:
        given = self._tensor(self.place.source(self.kind), tensors.CPU, None)
        with self.tf.device(tensors.CPU):
            self._made = self.tf.bitwise.bitwise_or(given, given)

    def run(self) -> None:
        self.result = self._made._copy_to_device(tensors.GPU)

    def release(self) -> None:
        super().release()
        self._made = None


class Dlpack(OntoGpu):
    """A tensor that lies in the array's memory, new in every trial because a tensor keeps a mirror of its copy."""

    def __init__(self, place: Place, kind: SourceKind) -> None:
        self.kind = kind
        super().__init__(place)
        tensors.eager_tensor_type(self.tf)
        self._import = self.tf.experimental.dlpack.from_dlpack

    def refresh(self) -> None:
        self.array = tensors.check_alias(self.place.source(self.kind))

    def run(self) -> None:
        self.result = self._import(self.array.__dlpack__())._copy_to_device(tensors.GPU)


class ThroughRing(OntoGpu):
    """`pyxfer.upload`: several threads copy it into page-locked slots, while the copy engine reads others.

    TensorFlow gets memory in which the bytes have arrived, by DLPack, so that it copies nothing.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._uploader = place.uploader()

    def run(self) -> None:
        self.result = self._uploader.upload(self.array, "tensorflow")


class DataPrefetch(OntoGpu):
    """An input pipeline that ends on the GPU, from making its iterator to its last element.

    Every element is a batch of rows out of another source, of the size of the transfer. The iterator is made within
    the time, so that nothing is prefetched before it; what making it costs is divided by the elements.
    """

    kind = "aligned"
    copies = 8
    rows = 8

    def __init__(self, place: Place) -> None:
        # Rows that begin unaligned would be copied once more, one by one.
        if place.nbytes % (self.rows * tensors.ALIGNMENT):
            raise RefusedError(
                f"a batch is {self.rows} rows of a multiple of {tensors.ALIGNMENT} bytes each; {place.nbytes} bytes do "
                f"not divide by {self.rows} x {tensors.ALIGNMENT} = {self.rows * tensors.ALIGNMENT}"
            )
        super().__init__(place)
        self._sources = [tensors.check_alias(place.source(self.kind)) for _ in range(self.copies)]
        rows = functools.reduce(lambda first, second: first.concatenate(second), map(self._rows, self._sources))
        onto_gpu = self.tf.data.experimental.prefetch_to_device(tensors.GPU)
        self.dataset = rows.batch(self.rows, drop_remainder=True).apply(onto_gpu)

    def _rows(self, source: NDArray[np.uint8]) -> Any:
        capsule = source.reshape(self.rows, -1).__dlpack__()
        return self.tf.data.Dataset.from_tensor_slices(self.tf.experimental.dlpack.from_dlpack(capsule))

    def write(self, data: NDArray[Any]) -> None:
        for source in self._sources:
            source[:] = data

    def refresh(self) -> None:
        """The sources are fixed: a pipeline takes longer to build than to run, and no iterator outlives its trial."""

    def run(self) -> None:
        for element in self.dataset:
            self.result = element


class Prefetch(OntoGpu):
    """As many batches by `pyxfer.prefetch`, from making its iterator to its last element.

    A thread of its own sends the next batches while one is in use. Nothing is in use here, so this is what it takes to
    send them, its start divided by the batches.
    """

    copies = DataPrefetch.copies

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._uploader = place.uploader()
        self.batches: Iterable[NDArray[np.uint8]] = []

    def refresh(self) -> None:
        self.batches = [self.place.source(self.kind) for _ in range(self.copies)]

    def run(self) -> None:
        for element in self._uploader.prefetch(self.batches, "tensorflow"):
            self.result = element


class OffGpu(Transfer):
    """What every route from the GPU shares: a tensor there, and a new handle to it for every trial.

    A handle keeps the host copy that was made through it, and would serve the next call from that.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.tf = tensors.import_tensorflow()
        tensors.require_gpu(self.tf)
        with self.tf.device(tensors.GPU):
            self._kept = self.tf.constant(np.zeros(place.nbytes, np.uint8))
        self.tensor: Any = None

    def write(self, data: NDArray[Any]) -> None:
        with tensors.device_memory(self.tf, self._kept) as address:
            self.place.store(address, data)

    def refresh(self) -> None:
        with self.tf.device(tensors.GPU):
            self.tensor = self.tf.identity(self._kept)

    def where(self) -> Where:
        return "cpu" if isinstance(self.result, np.ndarray) else tensors.where_is(self.result)

    def arrived(self) -> NDArray[Any]:
        return np.asarray(self.result)

    def release(self) -> None:
        super().release()
        self.tensor = None


class Numpy(OffGpu):
    """The method, which copies once more what has arrived."""

    def run(self) -> None:
        self.result = self.tensor.numpy()


class ArrayView(OffGpu):
    """A view of what has arrived, read-only."""

    def run(self) -> None:
        self.result = np.asarray(self.tensor)


class DownloadThroughRing(RingDownload, OffGpu):
    """`pyxfer.download`, into a new NumPy array or one that is there."""

    @property
    def on_device(self) -> Any:
        return self.tensor


class Ingest(Transfer):
    """The constructor on the CPU: NumPy's copy, then TensorFlow's into aligned memory."""

    kind: SourceKind = "pageable"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.tf = tensors.import_tensorflow()
        self.array: NDArray[np.uint8] = place.source(self.kind)

    def refresh(self) -> None:
        self.array = self.place.source(self.kind)

    def run(self) -> None:
        with self.tf.device(tensors.CPU):
            self.result = self.tf.constant(self.array)

    def where(self) -> Where:
        return tensors.where_is(self.result)

    def arrived(self) -> NDArray[Any]:
        return tensors.view_tensor(self.result)


class IngestRawOp(Ingest):
    """The tensor's own constructor, which takes an aligned array as it is."""

    kind = "aligned"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._tensor = tensors.eager_tensor_type(self.tf)

    def refresh(self) -> None:
        self.array = tensors.check_alias(self.place.source(self.kind))

    def run(self) -> None:
        self.result = self._tensor(self.array, tensors.CPU, None)


class IngestDlpack(Ingest):
    """A tensor that lies in the array's memory."""

    kind = "aligned"

    def refresh(self) -> None:
        self.array = tensors.check_alias(self.place.source(self.kind))

    def run(self) -> None:
        self.result = self.tf.experimental.dlpack.from_dlpack(self.array.__dlpack__())
