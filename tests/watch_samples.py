"""A watch of a training loop that makes its input, sends it from pageable memory, and waits for its loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watch.windows import MAIN, MIB, US, Script, analysed, flat, make_window, mark, seen, steps_at

from pyxfer._document.machines import Fact
from pyxfer._document.watches import Watched
from pyxfer._trace.records import CopyKind
from pyxfer._watch.window import Window

TURNS = 20
IMAGES = 38_535_168
LINE = "train.py:31 in step"


def training_window(
    decode: str = "decode", line: str = LINE, stalls: Mapping[int, float] | None = None, **given: Any
) -> Window:
    """Twenty steps of 13 ms: 4 ms to make the input, 3.6 to send it, 5 to compute. Every step fetches its loss.

    `stalls`: by the index of a step, the microseconds that its input takes longer.
    """
    script, time = Script(), 0.0
    spans, ranges, samples = [], [], []
    for turn in range(TURNS):
        since, begin = time, time + 4_000 + (stalls or {}).get(turn, 0)
        ranges.append(mark(decode, since, since + 3_500))
        send = ("cudaMemcpyAsync", begin + 10, begin + 3_630)
        script.copy(CopyKind.H2D, begin + 20, begin + 3_620, nbytes=IMAGES, pageable=True, call=send)
        for kernel in range(10):
            script.kernel(begin + 3_650 + 500 * kernel, begin + 4_130 + 500 * kernel, name="conv")
        fetch = ("cudaMemcpyAsync", begin + 4_000, begin + 8_700)
        script.copy(CopyKind.D2H, begin + 8_680, begin + 8_683, nbytes=4, pageable=True, call=fetch)
        samples.append(seen(begin + 6_000, line))
        time = begin + 9_000
        spans.append((since, begin, time))
    script.allocation(5, 2 * MIB)
    known = {"skipped": 10, "used_before": Fact(3 << 30), "used_after": Fact(3 << 30), "threads": {MAIN: "MainThread"}}
    return make_window(
        script, time, steps_at(*spans), **{"ranges": tuple(ranges), "seen": tuple(samples), **known, **given}
    )


def make_watched(**given: Any) -> Watched:
    """The watch of that loop, with a ceiling of 50 GB/s."""
    return analysed(training_window(**given), flat(50.0))


def make_stalled() -> Watched:
    """The same loop with two late inputs."""
    return make_watched(stalls={7: 30_000, 15: 12_000})


def make_unseen(**given: Any) -> Watched:
    """The same loop without records."""
    window = training_window(**given)
    return analysed(make_window(None, (window.end_ns - window.begin_ns) / US, window.steps))
