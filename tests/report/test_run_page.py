"""Pages of a run, an examination, a tuning and a machine: tables, the sections below them, notes, and the routes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from doctor.cases import h200, health
from hypothesis import given
from hypothesis import strategies as st
from pages import full_run, host_run, line_with, missing, printed, widened, with_remark
from ring_samples import make_state, make_tuned
from samples import KIB, MARKUP, MIB, by_caller, make_device, make_link, make_measurement, make_run, retimed

from pyxfer._doctor.examine import examine, nearest_known
from pyxfer._document import machines, runs
from pyxfer._document.examinations import Examination, Health
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._document.runs import Run
from pyxfer._document.tunings import RingSetup, RingState, TuningTrial
from pyxfer._report.doctor import print_examination, summary
from pyxfer._report.host import print_framework_routes, print_machine
from pyxfer._report.layout import Page
from pyxfer._report.notes import gather, label, sizes_text
from pyxfer._report.overview import UNCERTAIN, answer, certain_digits, next_steps, seconds_for
from pyxfer._report.rates import fits, rate_table
from pyxfer._report.run import print_run
from pyxfer._report.tune import print_tuning


def page_of(run: runs.Run) -> str:
    """The whole page."""
    return printed(lambda page: print_run(run, page), details=True)


LOST: Any = unknown("it is lost")
NARROW_HOP = machines.Hop("0000:00:01.0", Fact(machines.LinkState(4, 8)), Fact(machines.LinkState(4, 8)))
COST = make_run().locking[0]
NEVER = msgspec.structs.replace(COST, pays_after_transfers=unknown("pageable copies are as fast"))
UNPAID = msgspec.structs.replace(COST, pays_after_transfers=unknown("h2d was not measured from both memories"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"link": make_link(hops=(*make_link().hops, NARROW_HOP), narrowest_hop=Fact(NARROW_HOP))},
            "limited by the link of 0000:00:01.0 above it",
        ),
        (
            {"link": make_link(kind="c2c", raw_peak_gbps=LOST, h2d_peak_gbps=LOST, d2h_peak_gbps=LOST)},
            "\nPeaks\nnone  it is lost\n",
        ),
        ({"memories": ("pageable",), "modes": ("staged",), "ring": LOST}, "\nRing\nnone  it is lost\n"),
        ({"locking": (NEVER,)}, "; never pays here: pageable copies are as fast"),
        ({"locking": (UNPAID,)}, "; unknown when it pays: h2d was not measured"),
    ],
    ids=["hop", "peaks", "ring", "never pays", "not known"],
)
def test_what_is_missing_or_limited_has_its_reason(fields: dict[str, Any], words: str) -> None:
    assert words in page_of(full_run(**fields))


def test_ring_has_its_settings_and_their_source() -> None:
    ring = machines.Ring(4, 64 << 10, 512, "streaming", "avx512", 20, 32 * MIB, "tuned", "tuned on 2025-11-21", 3.2e-3)
    text = page_of(full_run(memories=("pageable",), modes=("staged",), ring=Fact(ring)))
    assert [line.split(maxsplit=1)[1] for line in text.partition("\nRing\n")[2].splitlines()[:3]] == [
        "4 threads, 512 slots of 64 KiB, streaming: 32 MiB page-locked",
        *("in 3.20 ms, copies by avx512", "tuned on 2025-11-21"),
    ]


def test_a_curve_without_a_fit_has_its_reason() -> None:
    curve = full_run().curves[0]
    unfitted = runs.Curve("raw.pinned-async", "h2d", "h2d", "warm", LOST, LOST, LOST, LOST)
    partly = msgspec.structs.replace(curve, asymptote_gbps=unknown("too few sizes"), half_bytes=LOST)
    run = full_run(curves=(unfitted, partly))
    (grid,) = fits(run)
    assert [row["missing because"] for row in grid.rows] == ["it is lost", "too few sizes; it is lost"]
    assert "Fits, t = t0 + n/B" in page_of(run)
    assert "Fits, t = t0 + n/B" not in page_of(full_run(curves=(unfitted,)))


def test_wrong_contents_are_reported() -> None:
    run = full_run()
    wrong = msgspec.structs.replace(run.measurements[0], verified=Fact(False))
    text = page_of(msgspec.structs.replace(run, measurements=(wrong, *run.measurements[1:])))
    assert "WRONG in 1" in line_with(text, "contents", "89 of 90")
    assert "the bytes that arrived are not the bytes that were sent" in text


def late(row: runs.Measurement, count: int, reason: str) -> runs.Measurement:
    invalid = tuple(msgspec.structs.replace(trial, invalid=reason) for trial in row.trials[:count])
    return msgspec.structs.replace(row, trials=(*invalid, *row.trials[count:]))


def test_invalid_trials_are_counted_by_reason_and_those_of_a_copy_both_ways_once() -> None:
    run = full_run(("h2d",), ("pinned",))
    first, *rest = run.measurements
    part = late(first, 2, "the gate timed out")
    text = page_of(msgspec.structs.replace(run, measurements=(part, *rest)))
    assert "2 of 72 trials: the gate timed out" in text
    run = full_run(("both",), ("pinned",))
    rows = [
        late(row, 1, "the other began later") if row.nbytes == run.measurements[0].nbytes else row
        for row in run.measurements
    ]
    assert {row.side for row in rows if row.trials[0].invalid} == {"h2d", "d2h", "sum"}
    text = page_of(msgspec.structs.replace(run, measurements=tuple(rows)))
    assert "1 of 72 trials: the other began later" in text


def table_of(run: runs.Run) -> list[str]:
    return printed(lambda page: page.show(rate_table(run, gather(run)[0], 80))).splitlines()


def test_every_measurement_is_a_row_with_its_mark_and_a_missing_value_a_dash() -> None:
    memories = ("pageable", "pinned", "registered", "write-combined")
    run = full_run(memories=memories, modes=("memcpy", "async", "batch"))
    marked = tuple(with_remark(m, "unstable", "it varies") for m in run.measurements)
    lines = table_of(msgspec.structs.replace(run, measurements=marked))
    assert len(lines) == 1 + len(run.measurements)
    assert max(map(len, lines)) <= 80
    run = full_run(("h2d",), ("pageable", "pinned"), sizes=(256 * MIB,))
    best = next(m for m in run.measurements if m.memory == "pinned")
    assert f"{(best.of_peak or 0.0) * 100:.1f} %" in line_with("\n".join(table_of(run)), best.route)
    broken = changed(run, lambda m: missing(m, "no") if m.memory == "pinned" else m)
    assert "- a" in line_with("\n".join(table_of(broken)), best.route)


def test_fresh_copies_are_named() -> None:
    run = full_run(("h2d",), ("pinned",), sizes=(MIB,))
    both = (*run.measurements, msgspec.structs.replace(run.measurements[0], variant="fresh"))
    assert ["(fresh)" in line for line in table_of(msgspec.structs.replace(run, measurements=both))[1:]] == [
        *(False, True)
    ]


def test_a_callable_is_a_row_with_its_name() -> None:
    run = full_run(("h2d",), ("pinned",), sizes=(MIB,), kind="measure")
    named = msgspec.structs.replace(run.measurements[0], route="torch.to")
    assert table_of(msgspec.structs.replace(run, measurements=(named,)))[1].startswith("torch.to")


def test_a_list_of_rows_names_the_clock_of_the_other_figure() -> None:
    batch = by_caller(make_measurement(4 * KIB, route="raw.pinned-batch", mode="batch"), 4.0)
    queue = by_caller(make_measurement(4 * KIB))
    heading, *lines = table_of(make_run(kind="measure", measurements=(queue, batch)))
    assert heading.split()[3:6] == ["GB/s", "caller", "device"]
    figures = {
        line.split()[0]: [float(cell) for cell in line.split() if "." in cell[1:] and cell[0] != "r"] for line in lines
    }
    assert figures["raw.pinned-async"][:2] == pytest.approx([queue.gbps, queue.caller_gbps], rel=0.01)
    assert figures["raw.pinned-batch"][:2] == pytest.approx([batch.caller_gbps, batch.gbps], rel=0.02)


def overview(run: runs.Run) -> str:
    return printed(lambda page: print_run(run, page))


def changed(run: runs.Run, change: Callable[[runs.Measurement], runs.Measurement]) -> runs.Run:
    return msgspec.structs.replace(run, measurements=tuple(map(change, run.measurements)))


def is_pinned(m: runs.Measurement, direction: str, nbytes: int) -> bool:
    return (m.memory, m.direction, m.nbytes) == ("pinned", direction, nbytes)


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (55.37, 0.004, "55.4"),  # three digits at most
        (55.37, 0.17, "55.4"),
        (55.37, 0.21, "55"),
        (55.37, 1.9, "55"),
        (55.37, 2.1, "~55"),
        (155.37, 21.0, "~160"),
        (6.89, 1.3, "7"),
        (6.89, 2.1, "~7"),
        (0.4604, 0.0001, "0.460"),
        (0.4604, 0.15, "0.5"),
        (102.75, 0.01, "103"),
        (1234.0, 1.0, "1230"),
        (9.996, 0.001, "10.0"),
        (55.37, None, "~55"),
        (0.46, 0.3, "~0.5"),
        (0.46, None, "~0.5"),
        (55.37, 0.0, "55.4"),
    ],
)
def test_digits_are_those_that_are_certain(value: float, half_width: float | None, text: str) -> None:
    assert certain_digits(value, half_width) == text


@given(st.floats(1e-3, 1e4), st.floats(1e-6, 1.0))
def test_the_last_digit_is_certain_to_within_two(value: float, share: float) -> None:
    half_width = value * share
    text = certain_digits(value, half_width)
    digits = text.removeprefix(UNCERTAIN)
    unit = 10.0 ** -len(digits.partition(".")[2])
    assert abs(float(digits) - value) <= max(unit, value / 10) / 2 * 1.01
    if text == digits:
        assert half_width <= 2 * unit * (1 + 1e-6)
        assert abs(float(digits) - value) <= max(unit, value / 100) / 2 * 1.01
    assert len(digits.strip("0.").replace(".", "")) <= 3


def test_the_link_is_judged_and_rates_are_named() -> None:
    run = full_run()
    fine = answer(run)
    assert fine.status == "fine"
    assert "NVIDIA H200, PCIe 5.0 x16" in fine.text
    assert "55.0 GB/s to the GPU and 54.4 GB/s to the host, 94 % of what" in fine.text
    assert "14.9 GB/s to the GPU and 14.7 GB/s to the host" in fine.text
    halved = changed(run, lambda m: retimed(m, [2.1 * trial.elapsed_s for trial in m.trials], 1.1e-6))
    assert answer(halved).status == "wrong"
    assert "ceiling h2d" in answer(halved).text.lower()
    assert "pyxfer doctor" in overview(halved)
    assert "the link is fine" not in overview(halved)
    wrong = changed(run, lambda m: msgspec.structs.replace(m, verified=Fact(m is not run.measurements[0])))
    assert answer(wrong).status == "wrong"
    assert "wrong in 1 of 90" in answer(wrong).text
    of_host = answer(host_run(run))
    assert of_host.status == "unknown"
    assert "GB/s h2d" in of_host.text
    assert "the GPU and" not in of_host.text


def test_without_a_peak_the_link_is_not_judged() -> None:
    nothing: Any = unknown("the hypervisor hides it")
    link = make_link(raw_peak_gbps=nothing, h2d_peak_gbps=nothing, d2h_peak_gbps=nothing, max_payload_bytes=nothing)
    run = full_run(device=make_device(name="a GPU that no reference has"), link=link)
    bare = changed(run, lambda m: msgspec.structs.replace(m, peak_share=nothing))
    found = answer(bare)
    assert found.status == "unknown"
    assert "not known: the hypervisor hides it" in found.text
    assert "of what the link can carry" not in found.text


def test_only_what_is_wrong_has_a_letter() -> None:
    run = full_run(sizes=(4 * KIB, MIB, 64 * MIB))
    wide = changed(run, lambda m: widened(m, 0.3) if is_pinned(m, "h2d", MIB) else m)
    assert "\na  " not in overview(wide)
    assert "~49" in line_with(overview(wide), "  1 MiB")
    broken = changed(wide, lambda m: missing(m, "out of memory") if is_pinned(m, "h2d", 64 * MIB) else m)
    text = overview(broken)
    assert line_with(text, "out of memory").startswith("a  h2d pinned at 64 MiB")
    assert "- a" in line_with(text, " 64 MiB ")
    drifting = changed(run, lambda m: with_remark(m, "drift", "it drifted") if is_pinned(m, "h2d", MIB) else m)
    assert line_with(overview(drifting), "it drifted").startswith("a  h2d pinned")


def test_there_are_at_most_three_notes() -> None:
    codes = iter(["bimodal", "few-trials", "inflated", "above-ceiling", "outside"])
    run = full_run(sizes=(4 * KIB, MIB, 64 * MIB))
    rows = [
        with_remark(m, code, f"{code} it is") if m.side == "h2d" == m.direction and (code := next(codes, None)) else m
        for m in run.measurements
    ]
    text = overview(msgspec.structs.replace(run, measurements=tuple(rows)))
    notes = [line for line in text.splitlines() if line.endswith(" it is") or "more kinds" in line]
    assert len(notes) == 3
    assert notes[-1] == "c, d, e  3 more kinds of doubt: see --details"


def test_the_time_for_a_finer_target_grows_with_the_square_of_the_width() -> None:
    run = full_run(sizes=(MIB,))
    summaries = [m.summary for m in run.measurements if m.summary is not None]
    width = max(summary.relative_half_width or 0.0 for summary in summaries)
    base = run.duration_s
    four = seconds_for(run, width / 2) - base
    sixteen = seconds_for(run, width / 4) - base
    assert seconds_for(run, width * 1.01) == base
    assert sixteen == pytest.approx(5 * four)  # 16 - 1 beside 4 - 1


def test_a_remark_of_the_run_is_a_sentence_and_without_any_result_the_page_has_the_reasons() -> None:
    text = overview(full_run(remarks=(machines.Remark("throttled", "the clocks were held down"),)))
    assert "The clocks were held down." in text.splitlines()
    reason = "the run was interrupted before its first trial"
    text = overview(changed(full_run(), lambda m: missing(m, reason)))
    assert reason in text
    assert "h2d pinned" not in text.partition("Nothing was measured")[0]


def test_the_next_steps_suit_the_run() -> None:
    assert [name.split()[1] for name, _ in next_steps(full_run(), "fine")] == ["frameworks", "ceiling"]
    assert [name.split()[1] for name, _ in next_steps(host_run(full_run()), "unknown")] == ["list", "ceiling"]
    pinned = full_run(("h2d",), ("pinned",))
    assert [name.split()[1] for name, _ in next_steps(pinned, "wrong")] == ["doctor", "ceiling"]


def info_page(run: runs.Run) -> str:
    rings = [make_state()]
    return printed(lambda page: print_machine([run.device], [run.link], [run.placement], rings, run.environment, page))


def test_every_field_of_the_environment_is_on_the_page() -> None:
    environment = make_run().environment
    facts: dict[str, Any] = {
        name: unknown(f"reason of {name}")
        for name in environment.__struct_fields__
        if isinstance(getattr(environment, name), machines.Fact)
    }
    text = info_page(make_run(environment=msgspec.structs.replace(environment, **facts)))
    assert [name for name in facts if f"reason of {name}" not in text] == []


def test_names_and_calls_are_plain_text() -> None:
    assert MARKUP in info_page(make_run(device=make_device(name=MARKUP)))
    name, call = "mine.[red]x[/red]", "\x1b[2Jf(x)"
    hostile = RouteStatus(name, "torch", ("h2d",), "pageable", "framework", 0, "done", call, False, True, "")
    status = FrameworkStatus("mine", "\x1b[31mMine", "1\x07", "", (hostile,))
    text = printed(lambda page: print_framework_routes([status], page))
    assert not {"\x1b", "\x07"} & set(text)
    assert "mine.[red]x[/red]" in text


def examined(run: Run, seen: Health | None = None) -> Examination:
    nearest = nearest_known(run)
    return Examination(run, Fact(seen or health()), nearest, examine(run, seen or health(), nearest.value))


def page(examination: Examination, columns: int | None = 80) -> str:
    out = io.StringIO()
    print_examination(examination, Page(out, columns=columns))
    return out.getvalue()


def test_host_memory_has_no_link_and_a_suspicious_finding_is_not_called_wrong() -> None:
    device = msgspec.structs.replace(h200().device, runtime="host")
    examination = examined(h200(device=device, runtime="host", runtime_reason="No usable GPU: none is visible."))
    text = page(examination)
    assert "no link was examined" in text
    assert "device  host memory, not a PCIe link" in text
    suspicious = examined(h200(environment={"persistence": Fact(False)}))
    assert summary(suspicious).startswith("NVIDIA H200, PCIe 5.0 x16, 256 B payload: nothing is certainly wrong, but")


def tuning_page(state: RingState) -> str:
    return printed(lambda page: print_tuning(state, page))


def test_untried_rings_are_grouped_by_reason() -> None:
    many = tuple(
        TuningTrial(RingSetup(threads, 64 << 10, 512, "streaming", 20), "not tried", reason="the limit is over")
        for threads in (10, 12)
    )
    tuned = make_tuned()
    text = tuning_page(make_state(tuning=Fact(msgspec.structs.replace(tuned, trials=(*tuned.trials, *many)))))
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


SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)


def small_run(**overrides: Any) -> runs.Run:
    return full_run(("h2d",), ("pinned", "pageable"), sizes=SIZES, **overrides)


def with_rows(run: runs.Run, *changes: tuple[int, runs.Measurement]) -> runs.Run:
    measurements = list(run.measurements)
    for index, measurement in changes:
        measurements[index] = measurement
    return msgspec.structs.replace(run, measurements=tuple(measurements))


def test_equal_remarks_are_one_note_with_their_fix() -> None:
    run = small_run()
    alike = [with_remark(m, "unstable", "it varies", "--budget 60s") for m in run.measurements]
    marks, notes = gather(msgspec.structs.replace(run, measurements=tuple(alike)))
    assert marks == ("a",) * 8
    assert [note.text for note in notes] == ["all at 4 KiB to 256 KiB: it varies; try --budget 60s"]


def imprecise(count: int, *others: tuple[int, float]) -> runs.Run:
    """24 values of which the first ones miss the target by a little, and others by this much."""
    run = full_run(("h2d", "d2h", "both"), ("pinned",), sizes=SIZES)
    run = msgspec.structs.replace(run, measurements=(*run.measurements, *run.measurements[:4]))
    changes = [(index, widened(run.measurements[index], 0.01)) for index in range(count)]
    changes += [(index, widened(run.measurements[index], half_width)) for index, half_width in others]
    return with_rows(run, *changes)


def test_what_most_values_share_is_said_once_without_letters_and_what_half_share_has_letters() -> None:
    run = imprecise(13)
    assert len(run.measurements) == 24
    marks, notes = gather(run)
    assert set(marks) == {""}
    assert [(note.mark, note.text) for note in notes] == [("-", "most values (13 of 24): precision 1 %, target 0.5 %")]
    assert gather(imprecise(24))[1][0].text.startswith("all values (24 of 24): ")
    marks, notes = gather(imprecise(12))
    assert marks == ("a",) * 12 + ("",) * 12
    assert [note.mark for note in notes] == ["a"]


def test_a_far_less_precise_value_among_imprecise_ones_has_a_letter() -> None:
    marks, notes = gather(imprecise(20, (21, 0.2)))
    assert [index for index, mark in enumerate(marks) if mark] == [21]
    assert [note.mark for note in notes] == ["-", "a"]
    assert notes[1].text.endswith(": precision 20.0 %, target 0.5 %")


@pytest.mark.parametrize(
    ("code", "texts", "end"),
    [
        ("unstable", ("known to 1 %", "known to 7 %"), ": precision 1 % to 7 %, target 0.5 %"),
        ("drift", ("it drifted a little", "it drifted far"), "; at worst: it drifted far"),
    ],
)
def test_different_remarks_of_one_code_are_a_range_or_the_worst(code: str, texts: tuple[str, str], end: str) -> None:
    run = small_run()
    mild = widened(with_remark(run.measurements[0], code, texts[0]), 0.01)
    worse = widened(with_remark(run.measurements[2], code, texts[1]), 0.07)
    _, notes = gather(with_rows(run, (0, mild), (2, worse)))
    assert notes[0].text == f"h2d pinned at 4 KiB, 64 KiB{end}"


def test_a_label_names_the_mode_staged_and_each_mode_of_several() -> None:
    (row,) = full_run(("h2d",), ("pageable",), ("staged",), sizes=(16 * MIB,)).measurements
    assert label(row, make_run(measurements=(row,))) == "h2d pageable staged"
    run = full_run(("h2d",), ("pinned",), ("async", "streams:2"), sizes=SIZES)
    assert label(run.measurements[5], run) == "h2d pinned streams:2"


def test_missing_and_wrong_values_always_have_a_letter_and_outliers_none() -> None:
    run = imprecise(0)
    gone = tuple(missing(m, "no driver") for m in run.measurements)
    assert set(gather(msgspec.structs.replace(run, measurements=gone))[0]) == {"a"}
    run = small_run()
    wrong = with_remark(run.measurements[0], "unstable", "it varies")
    marks, notes = gather(with_rows(run, (0, msgspec.structs.replace(wrong, verified=machines.Fact(False)))))
    assert marks[0] == "ab"
    assert "the bytes that arrived are not the bytes that were sent" in notes[1].text
    marked = tuple(with_remark(m, "outliers", "some trials are outliers") for m in run.measurements)
    marks, notes = gather(msgspec.structs.replace(run, measurements=marked))
    assert (set(marks), notes) == ({""}, ())


def test_missing_and_imprecise_values_are_marked_without_a_remark() -> None:
    run = small_run()
    wide, gone = widened(run.measurements[0], 0.031), missing(run.measurements[5], "out of memory")
    marks, notes = gather(with_rows(run, (0, wide), (5, gone)))
    assert (marks[0], marks[5]) == ("a", "b")
    assert [note.text for note in notes] == [
        "h2d pinned at 4 KiB: precision 3.1 %, target 0.5 %",
        "h2d pageable at 16 KiB: out of memory",
    ]


@pytest.mark.parametrize(("code", "named"), [("late", False), ("shared", True)])
def test_a_row_names_no_budget_if_the_remark_on_the_run_names_one(code: str, named: bool) -> None:
    run = small_run()
    few = machines.Remark("few-trials", "1 trial is too few", "give a budget of 42s")
    row = msgspec.structs.replace(run.measurements[0], remarks=(few,))
    run = msgspec.structs.replace(
        with_rows(run, (0, row)), remarks=(machines.Remark(code, "the budget was too short"),)
    )
    assert ("42s" in gather(run)[1][0].text.lower()) is named


def traced(run: runs.Run, reason: str) -> runs.Run:
    """A traced run whose first row has no records, for this reason."""
    row = msgspec.structs.replace(run.measurements[0], dma=machines.unknown(reason), breakdown=machines.unknown(reason))
    tracing = machines.Fact(runs.Tracing("libcupti.so.12", 28))
    return msgspec.structs.replace(with_rows(run, (0, row)), tracing=tracing)


def test_records_are_missed_only_where_others_were_kept() -> None:
    lost = traced(small_run(), "15 of the device's records were lost")
    marks, notes = gather(lost)
    assert marks == ("a", *[""] * 7)
    assert notes[0].text == "h2d pinned at 4 KiB: 15 of the device's records were lost"
    for reason in (runs.UNTRACED, runs.OF_SIDES, runs.NOT_TRACED, runs.NOT_ASKED):
        assert gather(traced(small_run(), reason))[1] == ()
    assert gather(msgspec.structs.replace(lost, tracing=machines.unknown("trace: unavailable: no library")))[1] == ()


def test_more_than_26_notes_have_distinct_marks() -> None:
    sizes = tuple(range(KIB, 41 * KIB, KIB))
    run = full_run(("h2d",), ("pinned",), sizes=sizes)
    different = tuple(missing(m, f"reason {i}") for i, m in enumerate(run.measurements))
    marks, _ = gather(msgspec.structs.replace(run, measurements=different))
    assert marks[25:28] == ("z", "aa", "ab")
    assert len(set(marks)) == len(sizes)


def test_consecutive_sizes_are_a_range_few_with_a_gap_a_list_and_many_are_counted() -> None:
    known = tuple(4**step * MIB for step in range(8))
    assert sizes_text(SIZES, SIZES) == "4 KiB to 256 KiB"
    assert sizes_text(known[::2], known) == "1 MiB, 16 MiB, 256 MiB, 4 GiB"
    assert sizes_text(known[:2] + known[3:], known) == "7 sizes from 1 MiB to 16 GiB"
