from __future__ import annotations

from contextlib import closing

import pytest

from pyxfer._measure.bracket import stream_handle
from pyxfer.errors import UsageError
from pyxfer.native import Engine

ADDRESS = 0x7F0012345678


class CudaCore:
    """What `cuda.core.Stream` shows."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, ADDRESS


class Torch:
    """What `torch.cuda.Stream` shows."""

    cuda_stream = ADDRESS


class CuPy:
    """What `cupy.cuda.Stream` shows."""

    ptr = ADDRESS


class Both:
    """A stream that follows the protocol has its word before any attribute."""

    cuda_stream = 1

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, ADDRESS


class Flag:
    """An attribute of that name which is no handle."""

    ptr = True


@pytest.mark.parametrize("stream", [ADDRESS, CudaCore(), Torch(), CuPy(), Both()])
def test_whoevers_stream_it_is_its_handle_is_found(stream: object) -> None:
    assert stream_handle(stream) == ADDRESS


def test_the_engines_own_stream_is_one_too(engine: Engine) -> None:
    with closing(engine.Stream()) as stream:
        assert stream_handle(stream) == stream.handle != 0


def test_the_legacy_default_stream_is_a_stream_like_any_other() -> None:
    assert stream_handle(0) == 0


@pytest.mark.parametrize("stream", ["0", 1.5, None, True, object(), Flag(), []])
def test_what_is_no_stream_is_refused_with_what_would_be_one(stream: object) -> None:
    with pytest.raises(UsageError, match=rf"{type(stream).__name__} is no stream: give an integer handle"):
        stream_handle(stream)


@pytest.mark.parametrize("handle", [-1, 1 << 64])
def test_a_number_that_is_no_address_is_refused(handle: int) -> None:
    with pytest.raises(UsageError, match=f"{handle} is no stream handle"):
        stream_handle(handle)
