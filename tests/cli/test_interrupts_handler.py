from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pyxfer._cli import failures


def test_only_the_first_ctrl_c_raises() -> None:
    handler = failures.InterruptHandler()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    handler(2, None)
    handler(2, None)


def test_a_late_second_ctrl_c_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    handler = failures.InterruptHandler()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    monkeypatch.setattr(failures, "PATIENCE_S", -1.0)
    handler(2, None)
    assert codes == [130]


IN_A_DESTRUCTOR = """
import signal, time
from pyxfer._cli.failures import install_interrupt_handler

class Pressed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Broken:
    def __del__(self):
        1 / 0

install_interrupt_handler()
try:
    for kind in {kinds}:
        kind()
    time.sleep(5)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


def ended(kinds: str) -> tuple[str, str]:
    script = IN_A_DESTRUCTOR.format(kinds=kinds)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return result.stdout, result.stderr


@pytest.mark.parametrize("times", [1, 3])
def test_a_dropped_ctrl_c_is_sent_again(times: int) -> None:
    assert ended(f"[Pressed] * {times}") == ("interrupted\n", "")


def test_other_unraisable_exceptions_are_printed() -> None:
    said, warned = ended("[Broken, Pressed]")
    assert (said, warned.startswith("Exception ignored in"), "CtrlC" in warned) == ("interrupted\n", True, False)
    assert warned.count("ZeroDivisionError") == 1
