"""The page of a watch: unusual figures and names, and slow steps."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from pages import line_with, printed
from rich.cells import cell_len
from watch.windows import HOST, MIB, Script, analysed, flat, make_window, mark, steps_at
from watch_samples import make_unseen, make_watched

from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.watches import CeilingSource, LineUse, StepFinder, Watched
from pyxfer._report.watch import print_watch
from pyxfer._trace.records import CopyKind


def page_of(watched: Watched) -> str:
    return printed(lambda page: print_watch(watched, page), details=True)


def test_ranges_are_sorted_by_time_and_without_a_predicted_gain_the_page_says_so() -> None:
    script = Script()
    script.kernel(0, 50)
    text = page_of(analysed(make_window(script, 100, ranges=(mark("decode", 0, 10), mark("train", 0, 60)))))
    assert text.index("train ") < text.index("decode ")
    assert line_with(text, "decode ").split()[:6] == ["decode", "1", "10.0", "us", "10.0", "%"]
    assert line_with(text, "no gain")
    script = Script()
    script.set(0, 50)
    assert line_with(page_of(analysed(make_window(script, 100))), "kernels and sets").split()[3] == "50.0"


def test_many_calls_a_step_are_a_plain_number() -> None:
    script = Script()
    for place in range(1220):
        script.call("cudaStreamSynchronize", place, place + 0.5)
    assert "(1220 a step)" in page_of(analysed(make_window(script, 2440, steps_at((0, 0, 2440)))))


def on_host(script: Script, *remarks: Remark) -> Watched:
    return analysed(make_window(script, 100, remarks=remarks), target=HOST)


@pytest.mark.parametrize(
    ("finder", "functions", "words"),
    [
        ("named", ("engine:Model.generate",), "calls of engine:Model.generate (--step)"),
        ("keras", ("fit",), "batches of Keras fit"),
        ("optimizer", (), "steps of PyTorch's optimizers"),
        ("compiled", ("a", "b", "c", "d"), "calls of a, b, c and 1 more (tf.function or jax.jit)"),
        ("compiled", ("<lambda>\x1b[0m",), "calls of <lambda> (tf.function or jax.jit)"),
    ],
)
def test_the_page_says_what_the_steps_are(finder: StepFinder, functions: tuple[str, ...], words: str) -> None:
    window = make_window(Script(), 100, steps_at((0, 1, 100)))
    page = page_of(analysed(replace(window, finder=finder, functions=functions)))
    assert line_with(page, "steps   ") == f"steps   {words}"


@pytest.mark.parametrize("name", ["画像を読み込む" * 20, "a range with a long name " * 4])
def test_long_and_wide_names_are_cut_by_their_width(name: str) -> None:
    text = make_watched(decode=name, line="f" * 90).text(80, details=True)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert name[:7] in text


def test_pageable_copies_without_a_gain_promise_none() -> None:
    script = Script()
    script.copy(CopyKind.H2D, 0, 100, nbytes=4 * MIB, pageable=True)
    line = line_with(page_of(analysed(make_window(script, 100, steps_at((0, 0, 100))), flat(5.0))), "(1 x)")
    assert "less" not in line
    assert "a step" not in line


def test_a_saved_ceiling_has_its_machine_and_slow_steps_without_records_a_host_part() -> None:
    source = CeilingSource("saved", "NVIDIA L4", "node-9", "2025-01-01T00:00:00+00:00")
    text = page_of(msgspec.structs.replace(make_watched(), ceiling_source=Fact(source)))
    assert "in a saved run of NVIDIA L4 on node-9, 2025-01-01T00:00:00+00:00." in text
    assert "most of it between steps;" in line_with(page_of(make_unseen(stalls={7: 30_000})), "is slow: ")


def test_a_window_that_never_opened_has_one_reason() -> None:
    why = "the window never opened: 0 steps were taken, and 5 were to be skipped"
    window = make_window(None, 0, remarks=(Remark("never-opened", why),))
    watched = analysed(replace(window, capture=unknown(why)))
    assert page_of(watched).count("never opened") == 1
    assert watched.to_markdown().count("never opened") == 1
    assert [remark.code for remark in watched.remarks] == ["never-opened"]


def test_without_a_gpu_and_records_there_is_one_reason_and_no_verdict() -> None:
    watched = on_host(Script(), Remark("no-gpu", "No usable GPU: no driver. What other libraries do is not seen"))
    assert (watched.verdict.bound_by, watched.parts.idle_s) == ("unknown", None)
    text = page_of(watched)
    assert text.count("No usable GPU") == 1
    assert "device idle" not in text
    assert "was not recorded" not in text


def test_records_of_the_host_runtime_have_copies_but_no_verdict() -> None:
    script = Script()
    script.copy(CopyKind.H2D, 0, 90, pageable=True)
    watched = on_host(script)
    assert watched.activity.value is not None
    assert [row.direction for row in watched.activity.value.copies] == ["h2d"]
    assert (watched.verdict.bound_by, watched.verdict.evidence, watched.advice) == ("unknown", (), ())
    assert "Next steps" not in page_of(watched)
    sampled = msgspec.structs.replace(watched, lines=(LineUse("MainThread", "train.py:3 in step", 9, 1.0),))
    assert "train.py:3 in step" in page_of(sampled)


def test_a_single_slow_step_is_in_the_singular() -> None:
    script, spans, time = Script(), [], 0.0
    for turn in range(10):
        end = time + (5_000 if turn == 5 else 1_000)
        script.kernel(time + 100, end)
        spans.append((time, time + 50, end))
        time = end
    assert line_with(page_of(analysed(make_window(script, time, steps_at(*spans)), flat(50.0))), "is slow: ") == (
        "-  1 of 10 steps is slow: 4.00 ms more than a usual one, 28.6 % of the time of all steps, most of it kernels "
        "and sets; the longest took 5.00 ms"
    )
