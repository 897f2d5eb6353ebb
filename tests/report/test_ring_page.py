from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from pages import line_with, printed
from ring_samples import make_state, make_tuned
from samples import MARKUP

from pyxfer._document.machines import Fact
from pyxfer._document.tunings import RingSetup, RingState, TuningTrial
from pyxfer._report.layout import Page
from pyxfer._report.tune import print_tuning, ring_lines, setup_text


def lines_of(**overrides: Any) -> dict[str, str]:
    return dict(ring_lines(make_state(**overrides)))


def page_of(state: RingState) -> str:
    return printed(lambda page: print_tuning(state, page))


def test_settings_have_their_memory() -> None:
    assert lines_of()["settings"] == "15 threads, 512 slots of 64 KiB, demoting: 32 MiB page-locked"
    assert setup_text(RingSetup(1, 1 << 20, 2, "plain", 20)).startswith("1 thread, 2 slots of 1 MiB, plain: 2 MiB")


def test_settings_have_their_source() -> None:
    assert lines_of()["from"] == "cached on 2026-11-21 from 2 trials in 910 ms"
    assert lines_of()["file"] == "/home/user/.cache/pyxfer/ring.json"
    assert lines_of(path=Fact(reason="PYXFER_CACHE is off, so nothing is kept"))["file"].startswith(
        "PYXFER_CACHE is off"
    )


def test_the_smallest_paying_size_or_the_reason_is_printed() -> None:
    assert lines_of()["pays from"] == "256 KiB"
    never = make_tuned(pays_from_bytes=Fact(reason="at 96 MiB a plain copy is still faster"))
    assert lines_of(tuning=Fact(never))["pays from"] == "never: at 96 MiB a plain copy is still faster"


def test_remarks_are_printed() -> None:
    assert lines_of(remarks=("the tuning is not kept",))["remark"] == "The tuning is not kept"


def test_untried_rings_are_grouped_by_reason() -> None:
    many = tuple(
        TuningTrial(RingSetup(threads, 64 << 10, 512, "streaming", 20), "not tried", reason="the limit is over")
        for threads in (10, 12)
    )
    tuned = make_tuned()
    text = page_of(make_state(tuning=Fact(msgspec.structs.replace(tuned, trials=(*tuned.trials, *many)))))
    assert line_with(text, "-  the limit is over (2)").endswith(": 10x512x64 KiB streaming, 12x512x64 KiB streaming")
    assert line_with(text, "(1): ").endswith(": 15x512x64 KiB plain")


@pytest.mark.parametrize("verdict", ["faster", "not faster", "given up", "cut short"])
def test_the_widest_table_fits_a_narrow_terminal(verdict: Any) -> None:
    widest = RingSetup(31, 128 << 10, 1024, "streaming", 20)
    tuned = make_tuned()
    trials = (*tuned.trials, msgspec.structs.replace(tuned.trials[1], ring=widest, verdict=verdict, against_best=1.281))
    stream = io.StringIO()
    print_tuning(make_state(tuning=Fact(msgspec.structs.replace(tuned, trials=trials))), Page(stream, columns=80))
    assert "1.28 " in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_text_of_the_file_is_harmless() -> None:
    state = make_state(reason=f"cached {MARKUP}\x1b[31m", remarks=("\x1b]0;title\x07",), path=Fact("/x\n\x1b[2J"))
    text = page_of(state)
    assert MARKUP in text
    assert "\x1b" not in text
