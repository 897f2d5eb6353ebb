"""Programs that use an uploader and fork, end, or have no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

# Python 3.12 and later warn of a fork while other threads run, which is what these programs are about.
NO_FORK_WARNING = ("-W", "ignore:This process:DeprecationWarning")

HEAD = """
import os, sys, threading
import numpy as np
from pyxfer.errors import ForkedError
from pyxfer.native._host import testing
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
up = Uploader("host", threads=2, chunk_bytes=4096, slots=2)
own = Target(up._engine)
x = np.ones(1 << 20, np.uint8)
"""


def run_program(body: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *NO_FORK_WARNING, "-c", HEAD + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **variables},
    )


def test_a_forked_child_cannot_use_an_uploader_of_its_parent() -> None:
    result = run_program(
        """
        y = up.upload(x, own)
        child = os.fork()
        if child == 0:
            for use in (lambda: up.upload(x, own), lambda: up.download(y)):
                try:
                    use()
                except ForkedError as error:
                    print(error, flush=True)
            up.close()
            del up, y
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert np.array_equal(up.download(y), x)
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == 2 * [
        "This Uploader belongs to the parent process, and its threads do not exist in a forked child: start processes "
        'by multiprocessing.get_context("spawn"), and make an Uploader in each.'
    ]


def test_a_forked_child_may_drop_an_upload_of_its_parent() -> None:
    result = run_program(
        """
        testing.stall("cudaMemcpyAsync", 1, 120.0)
        sent = up.upload([x, x], own, block=False)
        if os.fork() == 0:
            del sent
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        testing.release_stalls()
        assert np.array_equal(up.download(sent.result()[1]), x)
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


ENDINGS = {
    "unused": "",
    "open": "y = up.upload(x, own)",
    "under way": "sent = [up.upload(x, own, block=False) for _ in range(9)]",
    "dropped": "up.upload(x, own, block=False)",
    "taken": "y = np.from_dlpack(up.upload(x, own)); del up",
    "in a circle": "kept = [up, up.upload(x, own, block=False)]; kept.append(kept); del up",
    "never taken": "y = up.upload(x, own).__dlpack__()",
    "by an exit": "sent = up.upload(x, own, block=False); sys.exit(0)",
}


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(text, id=name, marks=() if name in ("under way", "by an exit") else pytest.mark.slow)
        for name, text in ENDINGS.items()
    ],
)
def test_a_program_ends_cleanly(ending: str) -> None:
    result = run_program(ending)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_program_ends_while_a_thread_uploads() -> None:
    result = run_program(
        """
        begun = threading.Event()
        def use():
            for _ in range(10**9):
                up.upload(x, own)
                begun.set()
        threading.excepthook = lambda _: None
        threading.Thread(target=use, daemon=True).start()
        begun.wait()
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_program_ends_although_its_device_does_not_answer() -> None:
    result = run_program(
        """
        from pyxfer._upload import uploader
        uploader.AT_EXIT_S = 0.1
        testing.stall("cudaMemcpyAsync", 1, 120.0)
        sent = up.upload(x, own, block=False)
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_program_ends_although_a_pool_waits_for_its_device() -> None:
    result = run_program(
        """
        testing.stall("cudaMemcpyAsync", 1, 120.0)
        pooled = Target(up._engine, up._pool)
        threading.excepthook = lambda _: None
        threading.Thread(target=lambda: up.upload(x, pooled), daemon=True).start()
        while not testing.calls().get("cudaMemcpyAsync"):
            pass
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param('pyxfer.empty_pinned(9999, device="host")', id="allocating"),
        pytest.param("up.upload(x, own, block=False).result()", id="waiting"),
        pytest.param("sent.done()", id="asking", marks=pytest.mark.slow),
    ],
)
def test_a_program_ends_while_threads_are_in_native_code(call: str) -> None:
    result = run_program(
        f"""
        import pyxfer, time
        begun = threading.Event()
        sent = up.upload(x, own, block=False)
        def use():
            while True:
                {call}
                begun.set()
        threading.excepthook = lambda _: None
        for _ in range(3):
            threading.Thread(target=use, daemon=True).start()
        begun.wait()
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_without_a_gpu_arrays_stay_in_host_memory_with_a_warning() -> None:
    result = run_program(
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Uploader() as there:
                print(there.upload(x, Target(there._engine)).__dlpack_device__())
        for warning in caught:
            print(warning.category.__name__, str(warning.message), warning.filename)
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    assert result.returncode == 0, result.stderr
    place, warning = result.stdout.splitlines()
    assert place == "(1, 0)"
    assert warning.startswith("FallbackWarning No usable GPU: ")
    assert warning.endswith('Arrays stay in host memory; device="host" requests that without this warning. <string>')


def test_require_gpu_raises_at_once_without_a_gpu() -> None:
    result = run_program(
        """
        from pyxfer.errors import CudaUnavailableError
        try:
            Uploader(require_gpu=True)
        except CudaUnavailableError:
            print("refused")
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    assert (result.returncode, result.stdout) == (0, "refused\n"), result.stderr
