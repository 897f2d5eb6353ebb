"""Programs that use the public functions and fork, end, or have no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

# Python 3.12 and later warn of a fork while other threads run, which is what these programs are about.
NO_FORK_WARNING = ("-W", "ignore:This process:DeprecationWarning")

HEAD = """
import os, sys, threading, warnings
import numpy as np
import pyxfer
from pyxfer._upload import api
from pyxfer._upload.targets import Target
x = np.ones(1 << 20, np.uint8)
place = {"device": "host"}
up = api._uploader("host")
own = Target(up.engine, up._pool)
"""


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


def test_each_public_function_raises_in_a_forked_child() -> None:
    code, output, errors = run_program(
        """
        y = pyxfer.upload(x, own, **place)
        kept = pyxfer.prefetch([x] * 3, own, **place)
        if os.fork() == 0:
            uses = (
                lambda: pyxfer.upload(x, own, **place),
                lambda: pyxfer.download(y),
                lambda: pyxfer.prefetch([x], own, **place),
                lambda: next(kept),
                lambda: pyxfer.empty_pinned(3, **place),
                lambda: pyxfer.pin(x, **place),
            )
            for use in uses:
                try:
                    use()
                except pyxfer.ForkedError as error:
                    print(error, flush=True)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        assert np.array_equal(pyxfer.download(y), x)
        assert len(list(kept)) == 3
        """
    )
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert len(lines) == 6
    assert all("spawn" in line or "forked child" in line for line in lines)


ENDINGS = {
    "used": "y = pyxfer.upload(x, own, **place)",
    "under way": "sent = [pyxfer.upload(x, own, block=False, **place) for _ in range(9)]",
    "in a loop": "for y in pyxfer.prefetch([x] * 9, own, **place): sys.exit(0)",
    "before a loop": "batches = pyxfer.prefetch((x for _ in range(10**9)), own, depth=3, **place); next(batches)",
    "in a circle": "kept = [pyxfer.prefetch([x] * 9, own, **place)]; kept.append(kept)",
    "page-locked": "a = pyxfer.empty_pinned(9, **place); b = pyxfer.pin(x, **place)",
    "with blocks kept": "y = [pyxfer.upload(x, own, **place) for _ in range(4)]; del y[1:]",
}


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(text, id=name, marks=() if name in ("under way", "in a loop") else pytest.mark.slow)
        for name, text in ENDINGS.items()
    ],
)
def test_a_program_ends_cleanly(ending: str) -> None:
    assert run_program(ending) == (0, "", "")


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
