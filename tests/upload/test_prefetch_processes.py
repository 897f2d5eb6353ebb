"""Programs that fork, end, or cannot start threads while they prefetch."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

HEAD = """
import os, sys, threading, time
from pyxfer.errors import ForkedError
from pyxfer._upload.prefetch import Prefetch
class Started:
    def __init__(self, batch):
        self.batch = batch
    def result(self):
        return self.batch
"""


def run_program(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)], capture_output=True, text=True, check=False, timeout=45
    )


def test_a_forked_child_cannot_use_a_prefetch_of_its_parent() -> None:
    result = run_program(
        """
        batches = Prefetch(range(5), Started)
        assert next(batches) == 0
        child = os.fork()
        if child == 0:
            try:
                next(batches)
            except ForkedError as error:
                print(error)
            batches.close()
            print(list(Prefetch(range(3), Started)), flush=True)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(list(batches))
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "This prefetch belongs to the parent process, and its thread does not exist in a forked child: make a new one "
        "here.",
        "[0, 1, 2]",
        "[1, 2, 3, 4]",
    ]


ENDINGS = {
    "at its end": "",
    "by an exit": "sys.exit(0)",
    "in a loop": "for _ in Prefetch(range(9), Started): sys.exit(0)",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_ends_cleanly_with_batches_under_way(ending: str) -> None:
    result = run_program(f"batches = Prefetch(range(9), Started)\nnext(batches)\n{ending}\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_program_ends_although_its_source_blocks() -> None:
    result = run_program(
        """
        import pyxfer._upload.prefetch
        pyxfer._upload.prefetch.AT_EXIT_S = 0.1
        def source():
            yield 0
            time.sleep(120)
        batches = Prefetch(source(), Started)
        print(next(batches))
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


@pytest.mark.unsanitized(reason="a sanitizer ends the process if a thread cannot be started")
def test_an_error_in_starting_the_thread_leaves_nothing() -> None:
    result = run_program(
        """
        from pyxfer._upload.prefetch import _running
        threading.stack_size(1 << 47)
        try:
            Prefetch(range(3), Started)
        except RuntimeError as error:
            print(error, len(_running))
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "can't start new thread 0\n", "")
