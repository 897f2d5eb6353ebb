"""Programs that fork, end, or have no GPU while they upload or prefetch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

# Python 3.12 and later warn of a fork while other threads run, which is what these programs are about.
NO_FORK_WARNING = ("-W", "ignore:This process:DeprecationWarning")

HEAD = """
import os, sys, threading, time, warnings, weakref
import numpy as np
import pyxfer
from pyxfer._upload import api, pools, prefetch, uploader
from pyxfer._upload.native_calls import native_call
from pyxfer._upload.prefetch import Prefetch
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.targets import Target
from pyxfer.native._host import testing
class Started:
    def __init__(self, batch):
        self.batch = batch
    def __call__(self):
        return self.batch
place = {"device": "host"}
shared = api.shared_uploader("host")
up = pyxfer.Uploader("host", threads=2, chunk_bytes=4096, slots=2)
own = Target(DevicePool(up._engine, 0, 0))
pooled = Target(up._pool)
x = np.ones(1 << 20, np.uint8)
"""
ENDED_CLEANLY = (0, "", "")


def run_program(body: str, **variables: str) -> tuple[int, str, str]:
    result = subprocess.run(
        [sys.executable, *NO_FORK_WARNING, "-c", HEAD + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **variables},
    )
    return result.returncode, result.stdout, result.stderr


# --- forks -----------------------------------------------------------------------------------------------------------


def test_each_function_raises_in_a_forked_child_and_continues_in_the_parent() -> None:
    code, output, errors = run_program(
        """
        y = pyxfer.upload(x, own, **place)
        kept = pyxfer.prefetch([x] * 3, own, **place)
        z = up.upload(x, own)
        if os.fork() == 0:
            uses = (
                lambda: pyxfer.upload(x, own, **place),
                lambda: pyxfer.download(y),
                lambda: pyxfer.prefetch([x], own, **place),
                lambda: next(kept),
                lambda: pyxfer.empty_pinned(3, **place),
                lambda: pyxfer.pin(x, **place),
                lambda: up.upload(x, own),
                lambda: up.download(z),
            )
            for use in uses:
                try:
                    use()
                except pyxfer.ForkedError as error:
                    print(error, flush=True)
            up.close()
            del up, z
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        assert np.array_equal(pyxfer.download(y), x)
        assert np.array_equal(up.download(z), x)
        assert len(list(kept)) == 3
        """
    )
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert len(lines) == 8
    assert all("spawn" in line or "forked child" in line for line in lines)


def test_a_forked_child_may_read_drop_and_close_what_its_parent_has_made() -> None:
    ended = run_program(
        """
        testing.stall("cudaMemcpyAsync", 1, 120.0)
        sent = up.upload([x, x], own, block=False)
        y = pyxfer.pin(x, **place)
        batches = Prefetch(range(5), Started)
        assert next(batches) == 0
        if os.fork() == 0:
            assert y[7] == 1
            del sent, y
            assert "cudaHostUnregister" not in testing.calls()
            batches.close()
            assert list(Prefetch(range(3), Started)) == [0, 1, 2]
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        testing.release_stalls()
        assert np.array_equal(up.download(sent.result()[1]), x)
        assert list(batches) == [1, 2, 3, 4]
        """
    )
    assert ended == ENDED_CLEANLY


def test_ctrl_c_in_a_forked_child_leaves_the_memory_of_its_parent() -> None:
    ended = run_program(
        """
        up.upload(x, pooled)
        before = testing.allocated()
        if os.fork() == 0:
            try:
                with up:
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                pass
            assert testing.allocated() == before
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        """
    )
    assert ended == ENDED_CLEANLY


def test_a_forked_child_keeps_results_and_gives_idle_memory_back() -> None:
    """Another thread of the parent holds the lock of the pool during the fork."""
    ended = run_program(
        """
        y = up.upload(x, own)
        kept, _ = up.download(y), up.download(y)
        del _
        ((block, _),) = up._results._idle[x.nbytes]
        idle = weakref.ref(block)
        del block
        up._results._lock.acquire()
        if os.fork() == 0:
            assert idle() is None
            assert np.array_equal(kept, x)
            kept[...] = 7
            last = weakref.ref(kept.base.base._mapping)
            del kept
            assert last() is None
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        up._results._lock.release()
        assert idle() is not None
        assert np.array_equal(kept, x)
        assert np.array_equal(up.download(y), x)
        """
    )
    assert ended == ENDED_CLEANLY


# --- ends ------------------------------------------------------------------------------------------------------------


IN_THREADS = """
        begun = threading.Event()
        def use():
            while True:
                {}
                begun.set()
        threading.excepthook = lambda _: None
        for _ in range(3):
            threading.Thread(target=use, daemon=True).start()
        begun.wait()
"""
ENDINGS = {
    "under way": "sent = [pyxfer.upload(x, own, block=False, **place) for _ in range(9)]",
    "by an exit": "sent = pyxfer.upload(x, own, block=False, **place); sys.exit(0)",
    "dropped": "pyxfer.upload(x, own, block=False, **place)",
    "in a loop": "for y in pyxfer.prefetch([x] * 9, own, **place): sys.exit(0)",
    "before a loop": "batches = pyxfer.prefetch((x for _ in range(10**9)), own, depth=3, **place); next(batches)",
    "with blocks kept": "y = [up.upload(x, pooled) for _ in range(4)]; del y[1:]",
    "with results": "pools.IDLE_S = 1e4; kept = [up.download(up.upload(x, own)) for _ in range(3)]; del kept[0]",
    "uploading in threads": IN_THREADS.format("up.upload(x, own)"),
    "allocating in threads": IN_THREADS.format("pyxfer.empty_pinned(9999, **place)"),
    "waiting in threads": IN_THREADS.format("up.upload(x, own, block=False).result()"),
    "while its device does not answer": """
        uploader.AT_EXIT_S = 0.1
        testing.stall("cudaMemcpyAsync", 1, 120.0)
        sent = up.upload(x, own, block=False)
    """,
    "while a pool waits for its device": """
        testing.stall("cuMemcpyHtoDAsync", 1, 120.0)
        threading.excepthook = lambda _: None
        threading.Thread(target=lambda: up.upload(x, pooled), daemon=True).start()
        while not testing.calls().get("cuMemcpyHtoDAsync"):
            pass
    """,
    # The stall ends when Python's exit waits for native calls, at the latest when modules are cleared.
    "while a thread drops an array": """
        class ReleasedLast:
            def __del__(self, release=testing.release_stalls, sleep=time.sleep):
                release()
                sleep(0.3)
        def release_at_exit():
            while not native_call.exit_begun:
                time.sleep(0.001)
            testing.release_stalls()
        sys.released_last = ReleasedLast()
        held = [pyxfer.empty_pinned(16, **place)]
        testing.stall("cudaFreeHost", 1, 30)
        threading.Thread(target=release_at_exit, daemon=True).start()
        threading.Thread(target=held.clear, daemon=True).start()
        while "cudaFreeHost" not in testing.calls():
            time.sleep(0.001)
    """,
    "while the source of a prefetch blocks": """
        prefetch.AT_EXIT_S = 0.1
        def source():
            yield 0
            time.sleep(120)
        batches = Prefetch(source(), Started)
        next(batches)
    """,
}
SLOW = ("dropped", "before a loop", "with blocks kept", "waiting in threads")


@pytest.mark.parametrize(
    "ending",
    [pytest.param(text, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, text in ENDINGS.items()],
)
def test_a_program_ends_cleanly(ending: str) -> None:
    assert run_program(ending) == ENDED_CLEANLY


HOLDERS = {
    "a global": "kept = owners",
    "a circle": "kept = owners; kept.append(kept)",
    # Python drops its private names when those of all other modules are gone, and just before `stderr`.
    "the sys module": "sys._kept = owners",
    "a thread": "threading.Thread(target=lambda _: threading.Event().wait(), args=(owners,), daemon=True).start()",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_owners_that_are_never_closed_print_nothing_at_exit(holder: str) -> None:
    ended = run_program(
        f"""
        unused = pyxfer.Uploader("host", threads=2)
        uploads = [up.upload(x, own, block=False), up.upload(x, pooled, block=False)]
        arrays = [up.upload(x, pooled), pyxfer.empty_pinned(9, **place), pyxfer.pin(x, **place)]
        arrays += [arrays[0].__dlpack__(), np.from_dlpack(arrays[0])]
        arrays += [up.download(arrays[0]), up.download(arrays[0])[1:]]
        loops = [up.prefetch([x] * 9, own), Prefetch(range(9), Started), Prefetch(range(1), Started)]
        taken = [list(loops[-1]), next(loops[0])]
        owners = [unused, up, uploads, arrays, loops, taken]
        del unused, up, uploads, arrays, loops, taken
        {HOLDERS[holder]}
        del owners
        if os.fork() == 0:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        """
    )
    assert ended == ENDED_CLEANLY


@pytest.mark.unsanitized(reason="a sanitizer ends the process if a thread cannot be started")
def test_an_error_in_starting_the_thread_of_a_prefetch_leaves_nothing() -> None:
    ended = run_program(
        """
        threading.stack_size(1 << 47)
        try:
            Prefetch(range(3), Started)
        except RuntimeError:
            print(len(prefetch._running))
        """
    )
    assert ended == (0, "0\n", "")


# --- without a GPU ---------------------------------------------------------------------------------------------------


def test_without_a_gpu_there_is_one_warning_at_the_calling_line() -> None:
    program = """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = pyxfer.upload(x, own)
            for _ in pyxfer.prefetch([x], own): pass
            assert np.array_equal(pyxfer.download(y), x)
        for warning in caught:
            print(warning.category.__name__, warning.filename, warning.lineno)
        """
    line = (HEAD + textwrap.dedent(program)).splitlines().index("    y = pyxfer.upload(x, own)") + 1
    assert run_program(program, CUDA_VISIBLE_DEVICES="") == (0, f"FallbackWarning <string> {line}\n", "")
