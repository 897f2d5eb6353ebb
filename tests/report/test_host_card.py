from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pages import Terminal, full_run, host_run, line_with, missing, printed, with_remark
from samples import KIB, MIB, make_link, make_run

from pyxfer._document import runs
from pyxfer._report.host import print_host_card, suggestions
from pyxfer._report.layout import Page

SIZES = (4 * KIB, MIB, 64 * MIB)


def card_run(**overrides: Any) -> runs.Run:
    return full_run(sizes=SIZES, **overrides)


def card(run: runs.Run) -> str:
    return printed(lambda page: print_host_card(run, page))


def commands(run: runs.Run) -> list[str]:
    return [command for command, _ in suggestions(run)]


def test_the_card_has_peaks_and_ceiling() -> None:
    lines = card(card_run()).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("GB/s"))
    assert lines[start].split()[-3:] == ["h2d", "d2h", "both"]
    assert [line.split("  ")[0] for line in lines[start + 1 : start + 5]] == [
        "raw peak",
        "protocol peak",
        "ceiling at 64 MiB",
        "",
    ]
    assert lines[start + 1].split()[2:] == ["63.02", "63.02", "126.03"]
    assert lines[start + 2].split()[2:] == ["58.45", "57.61", "116.06"]
    assert lines[start + 4].startswith("  of the protocol peak")


def test_pageable_has_its_share_of_the_ceiling() -> None:
    lines = card(card_run()).splitlines()
    index = next(index for index, line in enumerate(lines) if line.startswith("pageable at 64 MiB"))
    assert lines[index + 1].startswith("  of the ceiling")
    assert lines[index + 1].split()[3] == "27.0"


def test_every_line_of_the_card_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    print_host_card(card_run(remarks=(runs.Remark("long", "word " * 40),)), Page(stream))
    assert max(len(line) for line in stream.getvalue().splitlines()) <= 80


def test_a_missing_value_has_a_note() -> None:
    run = card_run()
    broken = tuple(
        missing(m, "out of memory") if (m.direction, m.nbytes) == ("h2d", 64 * MIB) else m for m in run.measurements
    )
    text = card(msgspec.structs.replace(run, measurements=broken))
    assert "- a" in line_with(text, "ceiling at 64 MiB")
    assert line_with(text, "out of memory").startswith("a  h2d")


def test_a_failed_run_is_still_a_card() -> None:
    text = card(make_run(measurements=(), ended="failed", failure="The GPU fell off the bus."))
    assert "Failed: The GPU fell off the bus." in text


def test_slow_pageable_memory_suggests_comparing_it() -> None:
    found = dict(suggestions(card_run()))
    assert (
        "pageable memory reaches 27.0 % of the ceiling" in found["pyxfer ceiling --memories pageable,pinned,registered"]
    )


def test_without_pageable_memory_there_is_no_such_suggestion() -> None:
    run = full_run(("h2d",), ("pinned",), sizes=SIZES)
    assert not any("--memories" in command for command in commands(run))


def test_unsteady_values_suggest_a_longer_budget() -> None:
    run = card_run()
    unsteady = with_remark(run.measurements[0], "unstable", "it varies", "--budget 60s")
    assert "pyxfer ceiling --budget 60s" in commands(
        msgspec.structs.replace(run, measurements=(unsteady, *run.measurements[1:]))
    )
    assert "pyxfer ceiling --budget 60s" not in commands(run)


def test_a_remark_on_the_link_suggests_looking_at_it() -> None:
    narrow = make_link(remarks=(runs.Remark("link-narrow", "The link runs at x8."),))
    assert "pyxfer info" in commands(card_run(link=narrow))
    assert "pyxfer info" not in commands(card_run())


def test_without_a_gpu_the_first_suggestion_is_list() -> None:
    assert commands(host_run(card_run()))[0] == "pyxfer list"


def test_a_card_without_any_result_has_the_reasons_and_no_dashes() -> None:
    run = card_run()
    nothing = [missing(row, "the run was interrupted before its first trial") for row in run.measurements]
    text = card(msgspec.structs.replace(run, measurements=tuple(nothing)))
    assert "interrupted before its first trial" in text
    assert "ceiling at 64 MiB" not in text
