"""When memory and handles are released: by close, with the last reference, in forked children, and by DLPack."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native.scenarios import NBYTES

from pyxfer._machine.devices import devices
from pyxfer.native import Engine, load
from pyxfer.native._host import testing

_MEMORY = ctypes.create_string_buffer(NBYTES)
OWNERS: dict[str, tuple[str, Callable[[Engine], Any]]] = {
    "HostBuffer": ("cudaFreeHost", lambda engine: engine.HostBuffer(NBYTES, "pinned")),
    "DeviceBuffer": ("cudaFree", lambda engine: engine.DeviceBuffer(NBYTES)),
    "Registration": ("cudaHostUnregister", lambda engine: engine.Registration(ctypes.addressof(_MEMORY), NBYTES)),
    "Stream": ("cudaStreamDestroy", lambda engine: engine.Stream()),
    "Bracket": ("cuEventDestroy", lambda engine: engine.Bracket(0)),
    "Copier": ("cuEventDestroy", lambda engine: engine.Copier(0)),
}


@pytest.mark.threads
@pytest.mark.parametrize(("call", "make"), OWNERS.values(), ids=OWNERS)
def test_other_threads_run_during_a_release(engine: Engine, call: str, make: Callable[[Engine], Any]) -> None:
    testing.stall(call, 1, 30)
    held = [make(engine)]
    before = testing.allocated()
    dropping = threading.Thread(target=held.clear)
    dropping.start()
    while call not in testing.calls():
        time.sleep(0.001)
    assert testing.allocated() == before  # the stall, which only this thread ends, holds up nothing here
    testing.release_stalls()
    dropping.join()
    assert testing.allocated() == []


# --- forks ------------------------------------------------------------------------------------------------------------

# In a separate process, because a fork would copy the locks of the tests' threads.
FORKED = """
import os, sys
import pyxfer
from pyxfer.errors import ForkedError
from pyxfer.native import load
engine = load("host")
held = {held}
child = os.fork()
if child == 0:
    raised = []
    for use in {uses}:
        try:
            eval(use)
        except ForkedError as error:
            assert "CUDA does not survive a fork" in str(error), error
            assert 'multiprocessing.get_context("spawn")' in str(error), error
            raised.append(use)
    print(*raised, sep="\\n", flush=True)
    del held
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert engine.device_count() == 1
del held
assert engine.testing.allocated() == [], engine.testing.allocated()
sys.exit(code)
"""
USES = {
    "count": "engine.device_count()",
    "properties": "engine.device_properties(0)",
    "buffer": "engine.DeviceBuffer(4096)",
    "pinned": "engine.HostBuffer(4096, 'pinned')",
    "registration": "engine.Registration(1 << 20, 4096)",
    "stream": "engine.Stream()",
    "bracket": "engine.Bracket(0)",
    "copier": "engine.Copier(0)",
    "ring": "engine.Ring(0, 2, 4096, 2, 'plain', 0)",
    "kernels": "engine.Kernels(0)",
    "peers": "engine.enable_peer(0, 1)",
    "can access": "engine.can_access_peer(0, 1)",
    "attribute": "engine.device_attribute(0, 16)",
    "cycle": "engine.make_cycle(4096, 4096, 8, 1, 0)",
    "flow": "engine.Flow(device=0, engine='ce', destination=8, source=8, nbytes=8, destination_device=0)",
    "ceiling": "pyxfer.ceiling('host', size=[4096], budget=0.1)",
    "measure": "pyxfer.measure(print, device='host')",
    "devices": "pyxfer.link('host')",
}


def raising(uses: list[str], held: str = "engine.device_count()") -> list[str]:
    """Those that raise in a child that is forked while its parent holds this."""
    program = FORKED.format(uses=uses, held=held)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_a_child_forked_after_use_raises_forked_error() -> None:
    uses = list(USES.values())
    assert raising(uses) == uses


def test_a_forked_child_releases_nothing() -> None:
    held = (
        "engine.DeviceBuffer(4096)",
        "engine.HostBuffer(4096, 'registered')",
        "engine.Stream()",
        "engine.Copier(0, 2)",
        "engine.Ring(0, 2, 4096, 2, 'plain', 50)",
        "(lambda to, of, kernels: [engine.Flow(device=0, engine='ce', destination=to.address, source=of.address,"
        " nbytes=8, kernels=kernels, destination_device=0), to, of])"
        "(engine.DeviceBuffer(8), engine.HostBuffer(8, 'pinned'), engine.Kernels(0))",
    )
    assert raising([USES["count"]], f"[{', '.join(held)}]") == [USES["count"]]


def test_a_spawned_process_may_use_the_engine() -> None:
    assert load("host").device_count() == 1
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(os.getpid).get(60) != os.getpid()
        # A function of the package, because the new process cannot import the tests.
        assert len(pool.apply_async(devices).get(60)) >= 1


# --- DLPack: the owner of exported memory is released exactly once ----------------------------------------------------

HOST, FLOAT = 1, 2
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

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
