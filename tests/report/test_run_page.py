from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from pages import Terminal, full_run, line_with, printed, with_remark
from samples import FORMULA, MARKUP, MIB, make_link, make_run

from pyxfer._document import runs
from pyxfer._document.runs import Fact, Run, unknown
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run


def page_of(run: runs.Run, sort: str | None = None) -> str:
    return printed(lambda page: print_run(run, page, sort))


def on_terminal(run: runs.Run) -> list[str]:
    stream = Terminal()
    print_run(run, Page(stream))
    return stream.getvalue().splitlines()


@pytest.fixture
def terminal_of_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("terminal_of_80")
def test_on_a_terminal_of_80_columns_no_line_is_longer() -> None:
    unsteady = tuple(with_remark(m, "unstable", "it varies " * 12, "--budget 60s") for m in full_run().measurements)
    lines = on_terminal(msgspec.structs.replace(full_run(), measurements=unsteady))
    assert max(len(line) for line in lines) <= 80


@pytest.mark.usefixtures("terminal_of_80")
def test_on_a_terminal_of_80_columns_no_table_is_wrapped() -> None:
    rows = [line for line in on_terminal(full_run()) if re.match(r" *\d+ [KM]iB ", line)]
    assert len(rows) == 18
    assert len({len(row) for row in rows}) == 2


def test_a_saved_run_prints_the_same_page(tmp_path: object) -> None:
    run = make_run()
    path = f"{tmp_path}/run.json"
    run.save(path)
    assert page_of(Run.load(path)) == page_of(run)


def test_a_limiting_hop_is_named() -> None:
    link = make_link()
    narrow = runs.Hop("0000:00:01.0", Fact(runs.LinkState(4, 8)), Fact(runs.LinkState(4, 8)))
    text = page_of(full_run(link=make_link(hops=(*link.hops, narrow), narrowest_hop=Fact(narrow))))
    assert "link of 0000:00:01.0" in line_with(text, "raw ", "each way")


def test_unknown_peaks_have_the_reason() -> None:
    reason: Any = unknown("joined chip to chip")
    link = make_link(kind="c2c", raw_peak_gbps=reason, h2d_peak_gbps=reason, d2h_peak_gbps=reason)
    text = page_of(full_run(link=link))
    assert "none  joined chip to chip" in text


def test_curves_without_a_fit_share_a_line() -> None:
    nothing: Any = unknown("two sizes are too few")
    curve = runs.Curve("raw.pinned-async", "h2d", "h2d", "warm", nothing, nothing, nothing, nothing)
    other = msgspec.structs.replace(curve, direction="d2h", side="d2h")
    text = page_of(full_run(curves=(curve, other)))
    assert "no fit (raw.pinned-async h2d, raw.pinned-async d2h): two sizes are too few" in text


def test_a_curve_without_an_asymptote_has_its_reason() -> None:
    vague: Any = unknown("not precise enough")
    curve = msgspec.structs.replace(full_run().curves[0], asymptote_gbps=vague, half_bytes=vague)
    text = page_of(full_run(curves=(curve,)))
    assert "no B (raw.pinned-async h2d): not precise enough" in text
    assert "2.33 us" in text


def staged_run(ring: Fact[runs.Ring]) -> runs.Run:
    return full_run(memories=("pageable",), modes=("staged",), ring=ring)


def test_ring_has_its_settings_and_their_source() -> None:
    ring = runs.Ring(4, 64 << 10, 512, "streaming", "avx512", 20, 32 * MIB, "tuned", "tuned on 2025-11-21", 3.2e-3)
    lines = [
        line.split(maxsplit=1) for line in page_of(staged_run(Fact(ring))).partition("\nRing\n")[2].splitlines()[:5]
    ]
    assert lines == [
        ["threads", "4"],
        ["slots", "512 of 64 KiB"],
        ["memory", "32 MiB page-locked, made in 3.20 ms"],
        ["fill", "streaming (avx512)"],
        ["settings", "tuned on 2025-11-21"],
    ]


def test_a_missing_ring_has_the_reason() -> None:
    text = page_of(staged_run(unknown("page-locked memory ran out")))
    assert "\nRing\nnone  page-locked memory ran out\n" in text


def test_without_staged_copies_there_is_no_ring() -> None:
    assert "Ring" not in page_of(full_run())


def test_page_locking_that_never_pays_has_the_reason() -> None:
    cost = make_run().locking[0]
    never = msgspec.structs.replace(cost, pays_after_transfers=unknown("pageable copies are as fast"))
    assert "; never pays here: pageable copies are as fast" in line_with(page_of(full_run(locking=(never,))), "s/GiB")
    unmeasured = msgspec.structs.replace(cost, pays_after_transfers=unknown("h2d was not measured from both memories"))
    assert "; unknown when it pays: h2d was not" in line_with(page_of(full_run(locking=(unmeasured,))), "s/GiB")


def test_wrong_contents_are_reported() -> None:
    run = full_run()
    wrong = msgspec.structs.replace(run.measurements[0], verified=Fact(False))
    text = page_of(msgspec.structs.replace(run, measurements=(wrong, *run.measurements[1:])))
    assert "WRONG in 1" in line_with(text, "contents", "89 of 90")
    assert "the bytes that arrived are not the bytes that were sent" in text


def test_invalid_trials_are_counted_by_reason() -> None:
    run = full_run(("h2d",), ("pinned",))
    first = run.measurements[0]
    late = tuple(msgspec.structs.replace(trial, invalid="the gate timed out") for trial in first.trials[:2])
    part = msgspec.structs.replace(first, trials=(*late, *first.trials[2:]))
    text = page_of(msgspec.structs.replace(run, measurements=(part, *run.measurements[1:])))
    assert "2 of 72 trials: the gate timed out" in text


def test_a_trial_of_a_copy_both_ways_is_counted_once() -> None:
    run = full_run(("both",), ("pinned",))
    sides = [row for row in run.measurements if row.nbytes == run.measurements[0].nbytes]
    rest = [row for row in run.measurements if row not in sides]
    late = [
        msgspec.structs.replace(
            row, trials=(msgspec.structs.replace(row.trials[0], invalid="the other began later"), *row.trials[1:])
        )
        for row in sides
    ]
    assert {row.side for row in late} == {"h2d", "d2h", "sum"}
    text = page_of(msgspec.structs.replace(run, measurements=(*late, *rest)))
    assert "1 of 72 trials: the other began later" in text


def test_failure_is_reported_before_the_rates() -> None:
    text = page_of(full_run(ended="failed", failure="The GPU fell off the bus."))
    assert text.index("Failed: The GPU fell off the bus.") < text.index("GB/s")


def test_a_run_without_measurements_can_be_printed() -> None:
    text = page_of(make_run(measurements=(), curves=(), locking=(), remarks=()))
    assert "no measurements" in text


def test_text_of_a_file_is_harmless() -> None:
    bell = "\x1b[31m\x07GPU\x1b]0;t\x07 [bold]x[/bold]"
    run = make_run(device=msgspec.structs.replace(make_run().device, name=bell), failure=bell, ended="failed")
    text = page_of(run, sort="size")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "GPU [bold]x[/bold]" in text
    assert MARKUP in text
    assert FORMULA in text
