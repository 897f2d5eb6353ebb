from __future__ import annotations

import os

import pytest

from pyxfer.cli import interrupts


def test_the_first_ctrl_c_interrupts_and_the_next_ones_do_not() -> None:
    handler = interrupts.OnInterrupt()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    handler(2, None)
    handler(2, None)


def test_after_a_while_another_ctrl_c_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    handler = interrupts.OnInterrupt()
    with pytest.raises(KeyboardInterrupt):
        handler(2, None)
    monkeypatch.setattr(interrupts, "PATIENCE_S", -1.0)
    handler(2, None)
    assert codes == [130]
