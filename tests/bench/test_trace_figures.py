"""The tables made from activity records, and documents that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import shared
import trace_figures as figures
from explain_samples import make_breakdown, make_dma, make_explain_run, make_explained
from framework_samples import make_frameworks_run
from pages import line_with
from samples import (
    KIB,
    MIB,
    SCRIPT,
    make_device,
    make_environment,
    make_measurement,
    make_parameters,
    make_run,
    retimed,
)
from training_samples import make_trained, make_training
from watched_training import Training

from pyxfer._document.runs import Fact, Measurement, Remark, Run, unknown
from pyxfer.errors import DocumentError, UsageError

MACHINE = "NVIDIA H200, INTEL(R) XEON(R) PLATINUM 8568Y+, driver 570.124.06, pyxfer 0.1.0"
CAPTION = f"{MACHINE}, 2025-11-21. "


def table(text: str) -> list[list[str]]:
    """The cells of a Markdown table, its header first."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in (lines[0], *lines[2:])]


def column(text: str, name: str) -> list[str]:
    """The cells of one column."""
    header, *body = table(text)
    return [line[header.index(name)] for line in body]


def saved(tmp_path: Path, run: Run) -> Path:
    path = tmp_path / "run.json"
    run.save(path)
    return path


def call_of(tmp_path: Path, row: Measurement | None = None) -> figures.Call:
    return figures.explained(saved(tmp_path, make_explain_run(row)))


# --- the page of a route ---------------------------------------------------------------------------------------------


def test_the_page_of_a_route_has_every_section(tmp_path: Path) -> None:
    text = figures.explain_page(call_of(tmp_path))
    for heading in ("device  NVIDIA H200", "Where the time goes", "Clocks", "Faster routes", "Workers", "Checks"):
        assert f"\n{heading}" in text


def test_the_excerpt_omits_the_clocks_and_the_sections_after_the_faster_routes(tmp_path: Path) -> None:
    remarked = make_explained(remarks=(Remark("wide", "the median is known within 3 %", None),))
    text = figures.explain_excerpt(call_of(tmp_path, remarked))
    assert text.startswith(f"{CAPTION}GB = 1e9 bytes.\n\n```\ntf.function, to the GPU, 96 MiB: ")
    for heading in ("Where the time goes", "crossed", "Faster routes, measured in the same run"):
        assert f"\n{heading}" in text
    for heading in ("Clocks", "Notes", "Workers"):
        assert f"\n{heading}" not in text


def test_the_excerpt_is_a_code_block_of_limited_size(tmp_path: Path) -> None:
    block = figures.explain_excerpt(call_of(tmp_path)).partition("\n\n")[2].splitlines()
    assert (block[0], block[-1]) == ("```", "```")
    assert max(map(len, block)) <= 80
    assert len(block) - 2 <= 32


# --- comparison of calls ---------------------------------------------------------------------------------------------


def test_a_call_has_its_median_and_the_parts_of_its_traced_trial(tmp_path: Path) -> None:
    row = make_explained(40e-3, breakdown=Fact(make_breakdown((("preparing", 0.03), ("copying", 0.01)))))
    text = figures.explained_calls([call_of(tmp_path, row)])
    assert row.of_ceiling is not None
    assert table(text)[1][:4] == ["tf.function", "h2d", "96 MiB", "40.0 ms (40.0 ms to 40.0 ms)"]
    assert column(text, "the copy, at the ceiling's speed") == ["25.0 %"]
    assert column(text, "preparing") == ["75.0 %"]


def test_only_parts_of_some_call_have_a_column(tmp_path: Path) -> None:
    prepared = make_explained(breakdown=Fact(make_breakdown((("preparing", 0.03),))))
    waited = make_explained(breakdown=Fact(make_breakdown((("preparing", 0.02), ("waiting", 0.02)))))
    text = figures.explained_calls([call_of(tmp_path, row) for row in (prepared, waited)])
    assert column(text, "waiting to begin") == ["0 %", "50.0 %"]
    assert "gaps" not in table(text)[0]


def test_a_call_has_the_bytes_memory_and_rate_of_its_records(tmp_path: Path) -> None:
    row = make_explained(dma=Fact(make_dma(10e-3, nbytes=96 * MIB, source="pageable")))
    text = figures.explained_calls([call_of(tmp_path, row)])
    assert [column(text, name) for name in ("crossed", "memory", "GB/s")] == [["96 MiB"], ["pageable"], ["10.07"]]


def test_copies_without_a_duration_have_no_rate(tmp_path: Path) -> None:
    assert column(figures.explained_calls([call_of(tmp_path, make_explained(dma=Fact(make_dma(None))))]), "GB/s") == [
        "-"
    ]


@pytest.mark.parametrize(("traced_s", "apart"), [(42e-3, "5.0 %"), (39e-3, "-2.5 %")])
def test_a_call_has_the_deviation_of_its_traced_trial_from_the_median(
    tmp_path: Path, traced_s: float, apart: str
) -> None:
    row = make_explained(40e-3, breakdown=Fact(make_breakdown((("preparing", traced_s),))))
    text = figures.explained_calls([call_of(tmp_path, row)])
    assert column(text, "traced trial against the median") == [apart]


def test_the_caption_has_the_dates_of_all_calls(tmp_path: Path) -> None:
    call = call_of(tmp_path)
    later = msgspec.structs.replace(call.run, environment=make_environment(taken_at="2025-12-01T00:00:00+00:00"))
    text = figures.explained_calls([call, call, figures.Call(later, call.row, 1.0, call.breakdown, call.dma)])
    assert text.startswith(f"{MACHINE}, 2025-11-21; {MACHINE}, 2025-12-01. GB = 1e9 bytes. ")


def test_names_from_a_document_are_escaped(tmp_path: Path) -> None:
    row = make_explained(route=f"{SCRIPT}|x")
    text = figures.explained_calls([call_of(tmp_path, row)])
    assert "\\<script\\>alert(1)\\</script\\>\\|x" in text
    assert SCRIPT not in text


# --- records and events ----------------------------------------------------------------------------------------------


def copied(way: Any, events_s: float, records_s: float | None, nbytes: int = 16 * MIB, **overrides: Any) -> Measurement:
    row = make_measurement(nbytes, way)
    nothing: Any = unknown("not judged")
    row = msgspec.structs.replace(retimed(row, [events_s] * 8), rate=nothing, peak_share=nothing)
    dma = unknown("not traced") if records_s is None else Fact(make_dma(records_s, nbytes=nbytes))
    return msgspec.structs.replace(row, **{"dma": dma, **overrides})


def dma_text(tmp_path: Path, *rows: Measurement) -> str:
    run = make_run(measurements=rows, parameters=make_parameters(fresh=True))
    return figures.dma_table(figures.raw_copies(saved(tmp_path, run)))


_PLAIN = {"route": "raw.pageable-memcpy", "memory": "pageable", "mode": "memcpy", "bracket": "drained"}


def test_a_size_is_a_row_with_both_directions_and_their_bounds(tmp_path: Path) -> None:
    text = dma_text(tmp_path, copied("h2d", 100e-6, 99e-6), copied("d2h", 200e-6, 201.5e-6))
    assert table(text)[1:] == [["16 MiB", "100.00", "99.00", "1.00", "2.50", "200.00", "201.50", "1.50", "3.00"]]
    assert text.startswith(f"{CAPTION}Times of one copy.\n")


def test_sizes_ascend_and_a_direction_without_a_traced_copy_has_dashes(tmp_path: Path) -> None:
    small = copied("h2d", 3e-6, 2.9e-6, 4 * KIB)
    text = dma_text(tmp_path, copied("h2d", 100e-6, 99e-6), small, copied("d2h", 2e-6, None, 4 * KIB))
    assert column(text, "size") == ["4 KiB", "16 MiB"]
    assert table(text)[1][5:] == ["-"] * 4


def test_rows_that_agree_are_counted(tmp_path: Path) -> None:
    text = dma_text(tmp_path, copied("h2d", 100e-6, 99e-6), copied("d2h", 100e-6, 90e-6))
    assert "1 of 2 " in text.splitlines()[-1]


@pytest.mark.parametrize("other", [{"direction": "both"}, _PLAIN, {**_PLAIN, "variant": "fresh"}])
def test_other_raw_copies_are_not_in_the_table(tmp_path: Path, other: dict[str, Any]) -> None:
    text = dma_text(tmp_path, copied("h2d", 100e-6, 99e-6), copied("d2h", 100e-6, 99e-6, **other))
    assert "1 of 1 " in text.splitlines()[-1]


# --- watched training ------------------------------------------------------------------------------------------------


def test_a_loop_is_a_row_with_its_step_and_bound() -> None:
    text = figures.watched_gains([make_training("torch"), make_training("tensorflow")])
    assert column(text, "framework") == ["PyTorch", "PyTorch", "TensorFlow", "TensorFlow"]
    assert column(text, "loop") == ["usual", "ahead"] * 2
    assert column(text, "step")[0] == "20.0 ms"
    assert column(text, "bound by") == ["input", "device"] * 2


def test_the_degree_of_a_bound_is_shown() -> None:
    usual = make_trained("usual", 20e-3, bound_by="link", degree="moderately")
    training = make_training()
    text = figures.watched_gains([msgspec.structs.replace(training, loops=(usual, training.loops[1]))])
    assert column(text, "bound by")[0] == "link, moderately"


def test_predicted_and_real_gain_are_in_the_row_of_the_first_loop() -> None:
    training = make_training(apart=0.1)
    text = figures.watched_table([training])
    assert training.predicted_gain_s is not None
    assert column(text, "predicted gain") == [f"{1e3 * training.predicted_gain_s:.2f} ms", "-"]
    assert column(text, "real gain") == [f"{1e3 * training.real_gain_s:.2f} ms", "-"]
    assert column(text, "apart") == ["10.0 %", "-"]


def test_a_watch_without_a_prediction_has_none() -> None:
    training = make_training()
    usual = training.loops[0]
    silent = msgspec.structs.replace(usual, watched=msgspec.structs.replace(usual.watched, advice=()))
    text = figures.watched_table([msgspec.structs.replace(training, loops=(silent, training.loops[1]))])
    assert (column(text, "predicted gain")[0], column(text, "apart")[0]) == ("none", "-")


def test_steps_in_and_after_the_window_have_their_cost() -> None:
    header, usual, _ = table(figures.watched_table([make_training()]))
    assert header[2:7] == ["unwatched", "watched", "cost", "after the window", "cost"]
    assert usual[2:7] == ["20.0 ms", "20.2 ms", "+1.0 % (+1.0 to +1.0)", "20.0 ms", "+0.0 % (+0.0 to +0.0)"]


@pytest.mark.parametrize("make", [figures.watched_gains, figures.watched_table])
def test_the_caption_of_training_has_machine_and_shape_escaped(make: Any) -> None:
    training = make_training(SCRIPT, device=make_device(name="H200 | x"))
    text = make([training, training])
    assert text.startswith(CAPTION.replace("NVIDIA H200", "H200 \\| x") + "Training: batch 128, side 224.\n")
    assert SCRIPT not in text


def test_the_page_of_the_usual_loop_is_a_code_block_of_eighty_columns() -> None:
    text = figures.watch_page(make_training())
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("```", "```")
    assert max(map(len, lines)) <= 80
    assert line_with(text, "Next steps")
    assert line_with(text, "The step is bound by")


# --- refused documents -----------------------------------------------------------------------------------------------


def test_a_run_without_an_explained_route_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.json.*pyxfer explain"):
        figures.explained(saved(tmp_path, make_frameworks_run()))


def test_an_explained_route_that_was_not_traced_is_refused_with_the_reason(tmp_path: Path) -> None:
    row = make_explained(breakdown=unknown("trace: unavailable: there is no libcupti"))
    with pytest.raises(UsageError, match=r"run\.json.*tf\.function.*no libcupti"):
        call_of(tmp_path, row)


@pytest.mark.parametrize(("kind", "records_s"), [("ceiling", None), ("measure", 99e-6)])
def test_a_run_of_another_kind_or_without_traced_copies_is_refused(tmp_path: Path, kind: Any, records_s: Any) -> None:
    run = make_run(kind=kind, measurements=(copied("h2d", 100e-6, records_s),))
    with pytest.raises(UsageError, match=r"run\.json.*raw\.pinned-async.*pyxfer ceiling"):
        figures.raw_copies(saved(tmp_path, run))


def without_blocks(training: Training, **phases: Any) -> Training:
    usual, ahead = training.loops
    return msgspec.structs.replace(training, loops=(msgspec.structs.replace(usual, **phases), ahead))


@pytest.mark.parametrize(
    "training",
    [
        make_training(loops=()),
        without_blocks(make_training(), steps_s={}),
        without_blocks(make_training(), steps_s={"unwatched": [[1.0]], "watched": [[1.0]], "after": []}),
        without_blocks(make_training(), steps_s={"unwatched": [[]], "watched": [[1.0]], "after": [[1.0]]}),
    ],
    ids=["no loop", "no phase", "a block fewer", "an empty block"],
)
def test_incomplete_training_is_refused(tmp_path: Path, training: Training) -> None:
    path = tmp_path / "watched_torch.json"
    shared.write_document(path, training)
    with pytest.raises(UsageError, match=r"watched_torch\.json.*watched_training\.py"):
        figures.training(path)


def test_a_run_is_refused_as_watched_training(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"run\.json.*watched_training\.py"):
        figures.training(saved(tmp_path, make_run()))


@pytest.mark.parametrize("read", [figures.explained, figures.raw_copies, figures.training])
def test_a_missing_document_is_named(tmp_path: Path, read: Any) -> None:
    with pytest.raises(DocumentError, match=r"lost\.json"):
        read(tmp_path / "lost.json")


def test_the_documents_of_all_calls_and_frameworks_are_read(tmp_path: Path) -> None:
    for name in figures.CALLS:
        make_explain_run().save(tmp_path / f"explain_{name}.json.gz")
    for framework in figures.FRAMEWORKS:
        shared.write_document(tmp_path / f"watched_{framework}.json.gz", make_training(framework))
    assert len(figures.calls(tmp_path)) == 4
    assert [training.framework for training in figures.trainings(tmp_path)] == ["torch", "tensorflow"]
