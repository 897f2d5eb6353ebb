"""TensorFlow's ways with a batch of images: onto the GPU, cast there, one row of it read back."""

# ruff: noqa: D102 - routes.base.Transfer says what they do

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.routes import tensorflow_tensors as tensors
from pyxfer.routes.base import Where
from pyxfer.routes.shared_transfers import ImageRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.routes.place import Place, SourceKind


class Images(ImageRow):
    """What every route of the workload shares: new images for every trial, and the row before it was read back."""

    kind: SourceKind = "pageable"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.tf = tensors.import_tensorflow()
        tensors.require_gpu(self.tf)
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
        return tensors.where_is(self.row)


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
        with self.tf.device(tensors.GPU):
            return self._function(self.images)


class ImagesConstant(Images):
    """The constructor under a device scope, and one operation after the other."""

    def first_row(self) -> Any:
        with self.tf.device(tensors.GPU):
            return self.tf.cast(self.tf.constant(self.images), self.tf.float32)[0, 0]


class ImagesDlpack(Images):
    """A tensor that lies in the images' memory, copied to the GPU, and the function there."""

    def __init__(self, place: Place, kind: SourceKind) -> None:
        self.kind = kind
        super().__init__(place)
        tensors.eager_tensor_type(self.tf)
        self._import = self.tf.experimental.dlpack.from_dlpack
        self._function = row_function(self.tf)

    def refresh(self) -> None:
        self.images = tensors.check_alias(self.place.images(self.kind))

    def first_row(self) -> Any:
        return self._function(self._import(self.images.__dlpack__())._copy_to_device(tensors.GPU))


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
        with tf.device(tensors.GPU):
            return tf.cast(x, tf.float32)[0, 0]

    return tf.function(row, jit_compile=jit_compile)
