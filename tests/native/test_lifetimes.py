"""When memory and handles are released: by close, with the last reference, and in forked children."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from native.scenarios import MEMORIES, NBYTES

from pyxfer._machine.devices import devices
from pyxfer.native import Engine, load
from pyxfer.native._host import testing

_MEMORY = ctypes.create_string_buffer(NBYTES)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_buffer_can_be_written_to_its_end(engine: Engine, memory: str) -> None:
    with closing(engine.HostBuffer(NBYTES + 1, memory)) as buffer:
        assert buffer.nbytes == NBYTES + 1
        ctypes.memset(buffer.address, 7, NBYTES + 1)
        assert ctypes.string_at(buffer.address + NBYTES, 1) == b"\x07"


def test_a_second_close_does_nothing(engine: Engine) -> None:
    buffer = engine.HostBuffer(NBYTES, "pinned")
    buffer.close()
    buffer.close()
    assert testing.calls()["cudaFreeHost"] == 1


def test_a_buffer_is_released_with_its_last_reference(engine: Engine) -> None:
    buffer = engine.DeviceBuffer(NBYTES)
    assert testing.allocated() == [("device", buffer.address, NBYTES)]
    del buffer
    assert testing.allocated() == []


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
