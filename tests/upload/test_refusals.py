"""What each function of uploads refuses: the argument, and a word of the reason."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from upload.memories import Capsuled, OnAGpu, needs_dlpack_1
from upload.tunings import START

from pyxfer._upload.arrays import destination_of, dtype_to_send, source_of
from pyxfer._upload.pinning import empty_pinned, pin
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

F4 = np.dtype(np.float32)
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
as_strided = np.lib.stride_tricks.as_strided


# --- sources and destinations ----------------------------------------------------------------------------------------


DTYPES: dict[str, tuple[Any, str]] = {
    "objects": ("O", "objects"),
    "text": ("U5", "text"),
    "bytes": ("S5", "text"),
    "dates": ("M8[s]", "x.view(np.int64)"),
    "durations": ("m8[ms]", "durations"),
    "fields": ([("a", "i4"), ("b", "f8")], "x['a']"),
    "raw": ("V3", "x.view(np.uint8)"),
    "swapped": (">f4", 'x.dtype.newbyteorder("=")'),
    "swapped dates": (">M8[s]", "dates"),
    "long": ("longdouble", "np.float64"),
    "long complex": ("clongdouble", "np.complex128"),
}


@pytest.mark.parametrize(("dtype", "word"), DTYPES.values(), ids=DTYPES)
def test_dtypes(dtype: Any, word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(word)):
        dtype_to_send(np.dtype(dtype))


def test_float8_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(UsageError, match="float8_e4m3fn"):
        dtype_to_send(np.dtype(ml_dtypes.float8_e4m3fn))


def released_view() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


def closed_map() -> mmap.mmap:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    return mapped


SOURCES: dict[str, tuple[Callable[[], Any], str]] = {
    "list": (lambda: [1, 2], "np.asarray(x)"),
    "tuple": (lambda: (1, 2), "tuple"),
    "int": (lambda: 3, "int"),
    "None": (lambda: None, "NoneType"),
    "text": (lambda: "abc", "str"),
    "objects": (lambda: np.array([{}, ()], object), "object"),
    "numpy's text": (lambda: np.array(["a"]), "<U1"),
    "a text of numpy": (lambda: np.str_("a"), "<U1"),
    "characters": (lambda: np.array(["a"]).data, "<U1"),
    "addresses": (ctypes.c_void_p * 2, "PEP 3118"),
    "big-endian buffer": (ctypes.c_int.__ctype_be__ * 2, ">i4"),
    "masked": (lambda: np.ma.MaskedArray([1, 2, 3], mask=np.array([False, True, False])), "mask"),
    "released view": (released_view, "memoryview"),
    "closed map": (closed_map, "mmap"),
    "on a GPU": (OnAGpu, "OnAGpu"),
}


@pytest.mark.parametrize(("make", "word"), SOURCES.values(), ids=SOURCES)
def test_sources(make: Callable[[], Any], word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(word)):
        source_of(make())


class OneCapsule:
    """Returns a given capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


class Used(Capsuled):
    """Its capsule is used already."""

    def __dlpack__(self, **arguments: Any) -> Any:
        capsule = super().__dlpack__(**arguments)
        np.from_dlpack(OneCapsule(capsule))
        return capsule


class OfTexts(Capsuled):
    """Like a tensor of strings of TensorFlow, which is not exported."""

    class dtype:  # noqa: N801 - as in TensorFlow
        name = "string"


CAPSULES: dict[str, tuple[Callable[[], Any], str]] = {
    "version": (lambda: Capsuled(np.zeros(1), major=2), "DLPack 2"),
    "used": (lambda: Used(np.zeros(1)), "unused"),
    "no capsule": (lambda: OneCapsule("tensor"), "unused"),
    "texts": (lambda: OfTexts(np.zeros(1)), "string"),
}


@needs_dlpack_1
@pytest.mark.parametrize(("make", "word"), CAPSULES.values(), ids=CAPSULES)
def test_capsules_of_dlpack(make: Callable[[], Any], word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(word)):
        source_of(make())


DESTINATIONS = {
    "shape": (np.zeros((3, 2), F4), "(3, 2)"),
    "dtype": (np.zeros((2, 3)), "float64"),
    "read-only": (np.broadcast_to(F4.type(0), (2, 3)), "read-only"),
    "repeated": (as_strided(np.zeros(3, F4), (2, 3), (0, 4)), "overlap"),
    "overlapping": (as_strided(np.zeros(4, F4), (2, 3), (4, 4)), "overlap"),
    "unaligned": (as_strided(np.zeros(9, F4), (2, 3), (16, 2)), "overlap"),
    "no array": ([1, 2], "list"),
}


@pytest.mark.parametrize(("out", "word"), DESTINATIONS.values(), ids=DESTINATIONS)
def test_destinations(out: Any, word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(word)):
        destination_of(out, (2, 3), F4)


def test_destinations_of_bfloat16() -> None:
    with pytest.raises(UsageError, match="bfloat16"):
        destination_of(np.zeros(3, np.float16), (3,), "bfloat16")


# --- page-locked memory ----------------------------------------------------------------------------------------------


SHAPES: dict[str, tuple[Any, Any, str]] = {
    "negative": ((-1, 3), None, "negative"),
    "fraction": ((1.5,), None, "shape"),
    "text": ("3", None, "shape"),
    "too large": ((2**40, 2**40), None, "address space"),
    "dtype": (3, "bread", "bread"),
    "objects": (3, object, "object"),
    "big-endian": (3, ">i4", ">i4"),
    "bfloat16": (3, "bfloat16", "ml_dtypes.bfloat16"),
}


@pytest.mark.parametrize(("shape", "dtype", "word"), SHAPES.values(), ids=SHAPES)
def test_empty_pinned(engine: Engine, shape: Any, dtype: Any, word: str) -> None:
    if dtype == "bfloat16" and "ml_dtypes" in sys.modules:
        pytest.skip("with ml_dtypes NumPy has it")
    with pytest.raises(UsageError, match=re.escape(word)):
        empty_pinned(engine, shape, dtype)
    assert "cudaHostAlloc" not in testing.calls()


@pytest.mark.parametrize(
    ("x", "word"), [([1, 2], "NumPy"), (np.array([object()]), "object"), (np.zeros(3, ">i4"), ">i4")]
)
def test_pin(engine: Engine, x: Any, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        pin(engine, x)
    assert "cudaHostRegister" not in testing.calls()


# --- uploaders -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"max_pinned": "4KiB"}, "32 KiB"),
        ({"max_pinned": 0}, "max_pinned"),
        ({"max_pinned": "much"}, "max_pinned"),
        ({"max_pinned": None}, "max_pinned"),
        ({"max_pinned": 1e6}, "max_pinned"),
        ({"max_pinned": True}, "max_pinned"),
        ({"max_pinned": b"1"}, "max_pinned"),
        ({"pool": -1}, "pool"),
        ({"pool": 1.5}, "pool"),
        ({"pool": "much"}, "pool"),
        ({"threads": 0}, "threads"),
        ({"threads": "a"}, "threads"),
        ({"threads": [1]}, "threads"),
        ({"chunk_bytes": 5000}, "5000"),
        ({"slots": 1}, "slots"),
    ],
)
def test_uploaders(engine: Engine, arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        Uploader("host", **arguments)
    assert engine.testing.calls() == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", ["4", 4.0, True, None, float("nan")])
def test_settings_of_a_ring(threads: Any) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        replace(START, threads=threads)


UPLOADS: dict[str, tuple[Any, str]] = {
    "an array in a structure": ({"a": VALUES, "b": [np.array([object()])]}, 'x["b"][0]: '),
    **{f"no array: {x!r}": (x, "x: ") for x in ([1.0, 2.0], 5, "x.npy", None, [], {"a": ["b", (3, None)]})},
}


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize(("x", "place"), UPLOADS.values(), ids=UPLOADS)
def test_upload(up: Uploader, own: Target, x: Any, place: str, block: bool) -> None:
    with pytest.raises(UsageError) as caught:
        up.upload(x, own, block)
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize("name", ["numpy", "", 3])
def test_frameworks(up: Uploader, name: Any) -> None:
    for use in (lambda: up.upload(VALUES, name), lambda: up.prefetch([], name)):
        with pytest.raises(UsageError, match="'torch', 'tensorflow', 'jax', 'cupy'"):
            use()


@pytest.mark.parametrize("batches", ["abc", b"abc", {"x": VALUES}, 3], ids=["text", "bytes", "dict", "number"])
def test_prefetch(up: Uploader, own: Target, batches: Any) -> None:
    with pytest.raises((UsageError, TypeError)):
        up.prefetch(batches, own)


@pytest.mark.parametrize("depth", [0, -1, 1.5, "2", None])
def test_depths(up: Uploader, own: Target, depth: Any) -> None:
    with pytest.raises(UsageError, match="depth"):
        up.prefetch([], own, depth)


@pytest.mark.parametrize("timeout", ["a", b"1", float("nan"), True, [1]], ids=repr)
def test_timeouts(up: Uploader, own: Target, timeout: Any) -> None:
    sent = up.upload(VALUES, own, block=False)
    with pytest.raises(UsageError, match=r"^timeout "):
        sent.result(timeout)
    sent.result(None)


@pytest.mark.parametrize(("y", "word"), [(3.0, "float"), (np.zeros((4, 4))[:, ::2], "C order")], ids=["number", "gaps"])
def test_download(up: Uploader, y: Any, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        up.download(y)
