from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from pages import Terminal, full_run, host_run, line_with, printed, with_remark
from samples import FORMULA, MARKUP, MIB, make_link, make_run

from pyxfer._document import codec, runs
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


def test_a_saved_run_prints_as_it_was_printed(tmp_path: object) -> None:
    run = make_run()
    path = f"{tmp_path}/run.json"
    run.save(path)
    assert page_of(Run.load(path)) == page_of(run)


def test_the_page_says_once_what_a_gb_is() -> None:
    assert page_of(full_run()).count("1 GB = 1e9 bytes") == 1


def test_the_heading_says_what_was_measured_and_with_what() -> None:
    text = page_of(full_run())
    assert line_with(text, "device ") == "device  NVIDIA H200, GPU 0, 0000:19:00.0"
    assert line_with(text, "link ", "payload") == "link    PCIe 5.0 x16, 256 B payload"
    assert "driver 570.124.06" in line_with(text, "with ")


def test_the_peaks_say_what_they_are_computed_from() -> None:
    text = page_of(full_run())
    assert (
        line_with(text, "raw ", "each way")
        == "raw       63.02 GB/s each way: PCIe 5.0 x16 under load, less the line code"
    )
    assert line_with(text, "protocol ", "headers") == (
        "protocol  h2d 58.45 GB/s, d2h 57.61 GB/s: less the packet headers at 256 B payload"
    )


def test_a_peak_that_a_hop_above_sets_names_that_hop() -> None:
    link = make_link()
    narrow = runs.Hop("0000:00:01.0", Fact(runs.LinkState(4, 8)), Fact(runs.LinkState(4, 8)))
    text = page_of(full_run(link=make_link(hops=(*link.hops, narrow), narrowest_hop=Fact(narrow))))
    assert "narrowed by the link of 0000:00:01.0" in line_with(text, "raw ", "each way")


def test_a_link_without_peaks_says_why() -> None:
    reason: Any = unknown("joined chip to chip")
    link = make_link(kind="c2c", raw_peak_gbps=reason, h2d_peak_gbps=reason, d2h_peak_gbps=reason)
    text = page_of(full_run(link=link))
    assert "none  joined chip to chip" in text


def test_the_fits_give_fixed_cost_asymptote_and_half_size() -> None:
    assert line_with(page_of(full_run()), "2.33 us").split("  ")[0] == "raw.pinned-async"
    assert re.search(r"2\.33 us +55\.60 GB/s +130 KB +3\.1 %", page_of(full_run()))


def test_curves_without_a_fit_share_one_line_with_the_reason() -> None:
    nothing: Any = unknown("two sizes are too few")
    curve = runs.Curve("raw.pinned-async", "h2d", "h2d", "warm", nothing, nothing, nothing, nothing)
    other = msgspec.structs.replace(curve, direction="d2h", side="d2h")
    text = page_of(full_run(curves=(curve, other)))
    assert "no fit of raw.pinned-async h2d, raw.pinned-async d2h: two sizes are too few" in text


def staged_run(ring: Fact[runs.Ring]) -> runs.Run:
    return full_run(memories=("pageable",), modes=("staged",), ring=ring)


def test_a_ring_says_what_it_is_made_of_and_where_its_settings_are_from() -> None:
    ring = runs.Ring(4, 64 << 10, 512, "streaming", "avx512", 20, 32 * MIB, "tuned", "tuned on 2025-11-21", 3.2e-3)
    text = page_of(staged_run(Fact(ring)))
    assert line_with(text, "made of").endswith(
        "4 threads, 512 slots of 64 KiB, 32 MiB page-locked; streaming stores (avx512)"
    )
    assert line_with(text, "settings").endswith("tuned on 2025-11-21; made in 3.20 ms")


def test_a_ring_that_was_not_to_be_had_says_why() -> None:
    text = page_of(staged_run(unknown("page-locked memory ran out")))
    assert "\nRing\nnone  page-locked memory ran out\n" in text


def test_where_nothing_was_staged_the_page_has_no_ring() -> None:
    assert "Ring" not in page_of(full_run())


def test_page_locking_says_what_it_costs_and_when_it_pays() -> None:
    assert line_with(page_of(full_run()), "s/GiB") == (
        "pinned  0.205 s/GiB at 16 MiB; pays after 4 h2d transfers of that size"
    )


def test_page_locking_that_pays_at_once_says_so_in_the_singular() -> None:
    once = msgspec.structs.replace(make_run().locking[0], pays_after_transfers=Fact(1))
    assert line_with(page_of(full_run(locking=(once,))), "s/GiB").endswith("pays after 1 h2d transfer of that size")


def test_page_locking_that_never_pays_says_why() -> None:
    cost = make_run().locking[0]
    never = msgspec.structs.replace(cost, pays_after_transfers=unknown("pageable copies are as fast"))
    assert "pays after: pageable copies are as fast" in line_with(page_of(full_run(locking=(never,))), "s/GiB")


def test_contents_that_arrived_whole_are_counted() -> None:
    assert "the contents arrived whole in 90 of 90 measurements" in page_of(full_run())


def test_contents_that_did_not_arrive_whole_are_shouted() -> None:
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


def test_an_interrupted_run_says_so_before_its_figures() -> None:
    text = page_of(full_run(ended="interrupted"))
    assert text.index("Interrupted") < text.index("GB/s")


def test_a_failed_run_says_why_before_its_figures() -> None:
    text = page_of(full_run(ended="failed", failure="The GPU fell off the bus."))
    assert text.index("Failed: The GPU fell off the bus.") < text.index("GB/s")


def test_a_run_without_a_measurement_is_still_a_page() -> None:
    text = page_of(make_run(measurements=(), curves=(), locking=(), remarks=()))
    assert "nothing was measured" in text


def test_without_a_gpu_the_page_is_openly_labelled_and_has_no_peak() -> None:
    text = page_of(host_run(full_run()))
    assert line_with(text, "device ") == "device  host memory, not a PCIe link"
    assert "raw " not in text
    assert "of peak" not in text


def test_what_a_file_holds_cannot_colour_or_run_anything() -> None:
    bell = "\x1b[31m\x07GPU\x1b]0;t\x07 [bold]x[/bold]"
    run = make_run(device=msgspec.structs.replace(make_run().device, name=bell), failure=bell, ended="failed")
    text = page_of(run, sort="size")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "GPU [bold]x[/bold]" in text
    assert MARKUP in text
    assert FORMULA in text


def test_no_line_ends_in_spaces_that_only_a_table_needs() -> None:
    assert not any(line.endswith(" ") for line in page_of(full_run()).splitlines())


@pytest.mark.parametrize("figure", [0.0, -1.0, 5e-324, 1e30])
def test_a_file_full_of_absurd_figures_is_still_a_page(figure: float) -> None:
    def absurd(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: absurd(item) for name, item in value.items()}
        if isinstance(value, list):
            return [absurd(item) for item in value]
        return figure if isinstance(value, float) else value

    document = absurd(msgspec.json.decode(codec.encode(make_run())))
    assert "Checks" in page_of(codec.decode(Run, msgspec.json.encode(document)))
