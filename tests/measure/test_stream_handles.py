from __future__ import annotations

from contextlib import closing

import pytest

from pyxfer._measure.bracket import stream_handle
from pyxfer.errors import UsageError
from pyxfer.native import Engine

ADDRESS = 0x7F0012345678


class CudaCore:
    """The interface of `cuda.core.Stream`."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, ADDRESS


class Torch:
    """The interface of `torch.cuda.Stream`."""

    cuda_stream = ADDRESS


class CuPy:
    """The interface of `cupy.cuda.Stream`."""

    ptr = ADDRESS


class Both:
    """The protocol has precedence over attributes."""

    cuda_stream = 1

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, ADDRESS


class Flag:
    """An attribute with a known name that is not a handle."""

    ptr = True


@pytest.mark.parametrize("stream", [ADDRESS, CudaCore(), Torch(), CuPy(), Both()])
def test_the_handle_of_every_known_stream_is_found(stream: object) -> None:
    assert stream_handle(stream) == ADDRESS


def test_the_engines_stream_is_known(engine: Engine) -> None:
    with closing(engine.Stream()) as stream:
        assert stream_handle(stream) == stream.handle != 0


def test_zero_is_the_legacy_default_stream() -> None:
    assert stream_handle(0) == 0


@pytest.mark.parametrize("stream", ["0", 1.5, None, True, object(), Flag(), []])
def test_an_object_that_is_not_a_stream_is_refused(stream: object) -> None:
    with pytest.raises(UsageError, match=rf"{type(stream).__name__} is not a stream: give an integer handle"):
        stream_handle(stream)


@pytest.mark.parametrize("handle", [-1, 1 << 64])
def test_a_number_that_cannot_be_an_address_is_refused(handle: int) -> None:
    with pytest.raises(UsageError, match=f"{handle} is not a stream handle"):
        stream_handle(handle)
