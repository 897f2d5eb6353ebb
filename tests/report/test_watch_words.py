"""The page of a watch with unusual figures and names."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from pages import line_with, printed
from rich.cells import cell_len
from samples import make_device
from watch.windows import MACHINE, MIB, Flat, Script, analysed, make_window, mark, steps_at
from watch_samples import make_watched

from pyxfer._document.runs import Fact, Remark, unknown
from pyxfer._document.watches import CeilingSource, StepFinder, Watched
from pyxfer._report.watch import print_watch
from pyxfer._trace.records import CopyWay
from pyxfer._watch.analysis import Machine, analyse
from pyxfer.errors import UsageError


def page_of(watched: Watched) -> str:
    return printed(lambda page: print_watch(watched, page))


def calling(name: str, count: int) -> str:
    """The page of one step with `count` calls of that name."""
    script = Script()
    for place in range(count):
        script.call(name, place, place + 0.5)
    return page_of(analysed(make_window(script, 2 * count, steps_at((0, 0, 2 * count)))))


def on_host(script: Script, *remarks: Remark) -> Watched:
    machine = Machine("host", "", make_device(runtime="host"), MACHINE.link, MACHINE.environment)
    return analyse(make_window(script, 100, remarks=remarks), Flat(50.0), machine)


def test_a_report_is_never_narrower_than_its_tables() -> None:
    assert make_watched().report(3) == make_watched().report(80)


@pytest.mark.parametrize("columns", [0, -5, 80.0, "80", True])
def test_invalid_columns_are_refused(columns: int) -> None:
    with pytest.raises(UsageError, match="is not a whole number from 1"):
        make_watched().report(columns)


def test_many_calls_a_step_are_a_plain_number() -> None:
    assert "(1220 a step)" in calling("cudaStreamSynchronize", 1220)


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


def test_steps_that_the_program_marks_have_no_line() -> None:
    page = page_of(analysed(make_window(Script(), 100, steps_at((0, 1, 100)))))
    assert not [line for line in page.splitlines() if line.startswith("steps")]


def test_a_free_call_releases_memory() -> None:
    assert "cudaFree releases memory (1 a step)" in calling("cudaFree", 1)


def test_an_allocating_call_allocates_memory() -> None:
    assert "cudaMalloc allocates memory (1 a step)" in calling("cudaMalloc", 1)


def test_memory_sets_count_as_kernels() -> None:
    script = Script()
    script.set(0, 50)
    assert line_with(page_of(analysed(make_window(script, 100))), "kernels and sets").split()[3] == "50.0"


def test_wide_names_are_cut_by_their_width() -> None:
    text = make_watched(decode="画像を読み込む" * 20).report(80)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "画像を読み込む" in text


def test_pageable_copies_without_a_gain_promise_none() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 100, nbytes=4 * MIB, pageable=True)
    line = line_with(page_of(analysed(make_window(script, 100, steps_at((0, 0, 100))), Flat(5.0))), "(1 x)")
    assert "less" not in line
    assert "a step" not in line


def test_a_measured_ceiling_is_named() -> None:
    source = CeilingSource("measured", "NVIDIA H200", "node-7", "2025-11-21T08:30:00+00:00")
    text = page_of(msgspec.structs.replace(make_watched(), ceiling_source=Fact(source)))
    assert "Ceiling: raw copies from pinned memory, measured here after the window." in text


def test_a_saved_ceiling_has_its_machine_and_date() -> None:
    source = CeilingSource("saved", "NVIDIA L4", "node-9", "2025-01-01T00:00:00+00:00")
    text = page_of(msgspec.structs.replace(make_watched(), ceiling_source=Fact(source)))
    assert "in a saved run of NVIDIA L4 on node-9, 2025-01-01T00:00:00+00:00." in text


def test_a_window_that_never_opened_has_one_reason() -> None:
    why = "the window never opened: 0 steps were taken, and 5 were to be skipped"
    window = make_window(None, 0, remarks=(Remark("never-opened", why),))
    watched = analysed(replace(window, capture=unknown(why)))
    assert page_of(watched).count("never opened") == 1
    assert watched.to_markdown().count("never opened") == 1
    assert [remark.code for remark in watched.remarks] == ["never-opened"]


def test_without_a_gpu_and_records_there_is_no_verdict() -> None:
    watched = on_host(Script())
    assert (watched.verdict.bound_by, watched.parts.idle_s) == ("unknown", None)
    assert "device idle" not in page_of(watched)


def test_a_missing_gpu_is_reported_once() -> None:
    text = page_of(on_host(Script(), Remark("no-gpu", "No usable GPU: no driver. What other libraries do is not seen")))
    assert text.count("No usable GPU") == 1
    assert "was not recorded" not in text


def test_records_of_the_host_runtime_have_copies_but_no_verdict() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 90, pageable=True)
    watched = on_host(script)
    assert watched.activity.value is not None
    assert [row.way for row in watched.activity.value.copies] == ["h2d"]
    assert (watched.verdict.bound_by, watched.verdict.evidence, watched.advice) == ("unknown", (), ())
    assert "Next steps" not in page_of(watched)


def test_ranges_are_shown_without_a_gpu() -> None:
    machine = Machine("host", "", make_device(runtime="host"), MACHINE.link, MACHINE.environment)
    watched = analyse(make_window(Script(), 100, ranges=(mark("decode", 0, 10),)), Flat(50.0), machine)
    assert line_with(page_of(watched), "decode").split() == ["decode", "1", "10.0", "10.0", "%"]
