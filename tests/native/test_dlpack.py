"""DLPack: the owner of exported memory is released exactly once, when the consumer releases the memory."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from pyxfer.native import Engine, load

HOST, FLOAT = 1, 2
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_USED = b"used_dltensor"  # a constant, because the capsule keeps only a pointer to its name
# Offset of the deleter in the two structures.
DELETER_AT = {False: 56, True: 16}

each_version = pytest.mark.parametrize("versioned", [False, True], ids=["legacy", "versioned"])


class Owner:
    """An object with weak references."""


class Handing:
    """A producer with one capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


@pytest.fixture
def native() -> Engine:
    return load("host")


def capsule_of(native: Engine, owner: object, *, versioned: bool, values: Any = VALUES) -> object:
    bits = 8 * values.itemsize
    return native.to_dlpack(values.ctypes.data, HOST, 0, FLOAT, bits, values.shape, versioned, owner)


def consumed(capsule: object, versioned: bool) -> int:
    """Consume the capsule; return the address that its deleter takes."""
    address = _pointer(capsule, NAMES[versioned])
    assert _rename(capsule, _USED) == 0
    assert isinstance(address, int)
    return address


def deleter_of(address: int, versioned: bool) -> Any:
    """The deleter as a C function, which ctypes calls without the GIL."""
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return kind(ctypes.c_void_p.from_address(address + DELETER_AT[versioned]).value or 0)


@each_version
def test_an_unused_capsule_releases_its_owner(native: Engine, versioned: bool) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    capsule = capsule_of(native, owner, versioned=versioned)
    del owner
    gc.collect()
    assert gone() is not None
    del capsule
    assert gone() is None


def test_numpy_keeps_the_owner_until_its_last_view(native: Engine) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    array = np.from_dlpack(Handing(capsule_of(native, owner, versioned=True)))
    del owner
    assert array.ctypes.data == VALUES.ctypes.data
    assert (array.shape, array.strides, array.dtype) == (VALUES.shape, VALUES.strides, VALUES.dtype)
    view = array[1:, ::2]
    del array
    gc.collect()
    assert gone() is not None
    del view
    assert gone() is None


@each_version
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_arrays_of_any_shape_are_exported(native: Engine, shape: tuple[int, ...], versioned: bool) -> None:
    values = np.ones(shape, np.float64)
    array = np.from_dlpack(Handing(capsule_of(native, values, versioned=versioned, values=values)))
    assert (array.shape, array.dtype.name, bool((array == 1).all())) == (shape, "float64", True)


@each_version
def test_the_owner_is_released_once(native: Engine, versioned: bool) -> None:
    owner = Owner()
    held = sys.getrefcount(owner)
    capsule = capsule_of(native, owner, versioned=versioned)
    address = consumed(capsule, versioned)
    del capsule
    assert sys.getrefcount(owner) == held + 1
    deleter_of(address, versioned)(address)
    assert sys.getrefcount(owner) == held


@each_version
@pytest.mark.threads
def test_a_consumer_may_release_in_a_thread_without_the_gil(native: Engine, versioned: bool) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    address = consumed(capsule_of(native, owner, versioned=versioned), versioned)
    del owner
    thread = threading.Thread(target=deleter_of(address, versioned), args=(address,))
    thread.start()
    thread.join()
    assert gone() is None


def test_releasing_the_owner_keeps_the_current_exception(native: Engine) -> None:
    class Loud:
        def __del__(self) -> None:
            try:
                raise KeyError("of the owner")
            except KeyError:
                pass

    def fail() -> None:
        kept = capsule_of(native, Loud(), versioned=True)
        assert kept is not None
        raise OSError("of the caller")

    with pytest.raises(OSError, match="of the caller") as caught:
        fail()
    caught.value.__traceback__ = None


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((3, -1), "an array has no negative dimension"),
        ((1,) * 65, "an array has at most 64 dimensions"),
        ((1 << 40, 1 << 40), "an array of that shape is more than can be addressed"),
    ],
)
def test_an_impossible_shape_is_refused(native: Engine, shape: tuple[int, ...], sentence: str) -> None:
    owner = Owner()
    held = sys.getrefcount(owner)
    with pytest.raises(ValueError, match=sentence):
        native.to_dlpack(4096, HOST, 0, FLOAT, 32, shape, True, owner)
    assert sys.getrefcount(owner) == held


ENDINGS = {
    "never taken": "kept = capsule",
    "taken": "kept = np.from_dlpack(Handing(capsule))",
    "in a circle": "kept = [np.from_dlpack(Handing(capsule))]; kept.append(kept); del capsule",
    "in a module": "sys.modules['kept'] = np.from_dlpack(Handing(capsule))",
    "in a thread": "threading.Thread(target=hold, args=(np.from_dlpack(Handing(capsule)),), daemon=True).start()",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_may_end_while_a_consumer_has_its_memory(ending: str) -> None:
    program = f"""
import sys, threading
import numpy as np
from pyxfer.native import load
engine = load("host")
class Handing:
    def __init__(self, capsule): self.capsule = capsule
    def __dlpack_device__(self): return 1, 0
    def __dlpack__(self, **_): return self.capsule
def hold(array):
    threading.Event().wait()
memory = engine.DeviceBuffer(64)
capsule = engine.to_dlpack(memory.address, 1, 0, 1, 8, [64], True, memory)
del memory
{ending}
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
