from __future__ import annotations

import msgspec
import pytest
from pages import full_run, host_run, missing, printed, with_remark
from samples import KIB, MIB, by_caller, make_measurement, make_run

from pyxfer._document import runs
from pyxfer._report.notes import gather
from pyxfer._report.rates import clock_line, rate_tables
from pyxfer.errors import UsageError


def tables(run: runs.Run, width: int = 80, sort: str | None = None) -> list[str]:
    found = rate_tables(run, gather(run)[0], width, sort)
    return [printed(lambda page, table=table: page.show(table)) for table in found]  # type: ignore[misc]


def test_the_usual_run_is_two_tables_within_80_columns() -> None:
    one_way, both = tables(full_run())
    assert [line.split() for line in one_way.splitlines()[:2]] == [
        ["h2d", "h2d", "best", "d2h", "d2h", "best"],
        ["size", "pinned", "pageable", "of", "peak", "pinned", "pageable", "of", "peak"],
    ]
    assert both.splitlines()[0].split()[:6] == ["both", "h2d", "both", "h2d", "both", "d2h"]
    assert all(len(line) <= 80 for table in (one_way, both) for line in table.splitlines())


def test_the_usual_run_fits_with_a_mark_on_every_value() -> None:
    run = full_run()
    marked = tuple(with_remark(m, "unstable", "it varies") for m in run.measurements)
    found = tables(msgspec.structs.replace(run, measurements=marked))
    assert len(found) == 2
    assert all(len(line) <= 80 for table in found for line in table.splitlines())


def test_sizes_are_rows_and_columns_are_aligned() -> None:
    lines = tables(full_run())[0].splitlines()
    assert [line[:7].strip() for line in lines[2:]] == [
        *("4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"),
    ]
    points = [[index for index, character in enumerate(line) if character == "."] for line in lines[2:]]
    assert all(row == points[0] for row in points)


def test_the_share_of_the_peak_is_the_best() -> None:
    run = full_run(("h2d",), ("pageable", "pinned"), sizes=(256 * MIB,))
    best = max(m.of_peak or 0.0 for m in run.measurements)
    assert tables(run)[0].splitlines()[-1].endswith(f"{best * 100:.1f} %")


def test_without_a_gpu_there_is_no_share_of_a_peak() -> None:
    assert not any("%" in table or "peak" in table for table in tables(host_run(full_run())))


def test_a_missing_value_is_a_marked_dash() -> None:
    run = full_run(("h2d",), ("pinned",), sizes=(MIB, 4 * MIB))
    broken = msgspec.structs.replace(run, measurements=(missing(run.measurements[0], "no"), run.measurements[1]))
    assert "- a" in tables(broken)[0]


def test_modes_are_separate_columns() -> None:
    headings = tables(full_run(("h2d",), ("pinned",), ("async", "streams:2"), sizes=(MIB,)))[0].splitlines()[:3]
    assert [line.split() for line in headings] == [
        ["h2d", "h2d"],
        ["pinned", "pinned", "best"],
        ["size", "async", "streams:2", "of", "peak"],
    ]


def test_fresh_is_a_separate_column() -> None:
    run = full_run(("h2d",), ("pinned",), sizes=(MIB,))
    fresh = msgspec.structs.replace(run.measurements[0], variant="fresh")
    both = msgspec.structs.replace(run, measurements=(*run.measurements, fresh))
    assert "fresh" in tables(both)[0].splitlines()[2]


def test_a_wide_table_becomes_one_row_per_measurement() -> None:
    run = full_run(memories=("pageable", "pinned", "registered", "write-combined"), modes=("memcpy", "async", "batch"))
    (table,) = tables(run)
    lines = table.splitlines()
    assert len(lines) == 1 + len(run.measurements)
    assert "raw.write-combined-memcpy" in table
    assert all(len(line) <= 80 for line in lines)


def test_a_wider_terminal_takes_more_columns() -> None:
    run = full_run(memories=("pageable", "pinned", "registered", "write-combined"), modes=("async", "batch"))
    assert tables(run)[0].startswith("route")
    assert tables(run, width=400)[0].split()[0] == "h2d"


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("size", "4 KiB"),
        ("route", "raw.pageable-async"),
        ("direction", "both d2h"),
        ("memory", "raw.pageable-async"),
        ("mode", "raw.pinned-async"),
    ],
)
def test_sorted_rows_begin_with_the_first_of_their_order(sort: str, first: str) -> None:
    (table,) = tables(full_run(), sort=sort)
    assert first in table.splitlines()[1]


def test_rows_sorted_by_rate_fall() -> None:
    run = full_run()
    (table,) = tables(run, sort="gbps")
    rates = [float(line.split("iB")[1].split()[0]) for line in table.splitlines()[1:]]
    assert rates == sorted(rates, reverse=True)


def test_an_unknown_order_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"cannot sort by 'colour': choose one of size, gbps, route"):
        tables(full_run(), sort="colour")


def test_a_callable_is_a_row_with_its_name() -> None:
    run = full_run(("h2d",), ("pinned",), sizes=(MIB,), kind="measure")
    named = msgspec.structs.replace(run.measurements[0], route="torch.to")
    (table,) = tables(msgspec.structs.replace(run, measurements=(named,)))
    assert table.splitlines()[1].startswith("torch.to")


def test_labels_are_shown_unchanged() -> None:
    (table,) = tables(make_run(), sort="route")
    assert "=cmd|' /C calc'!A0" in table


def test_nothing_measured_makes_no_table() -> None:
    assert tables(make_run(measurements=())) == []


def timed_by_callers(run: runs.Run, times: float = 2.0) -> runs.Run:
    rows = [by_caller(m, times) if m.memory == "pinned" and m.nbytes <= MIB else m for m in run.measurements]
    return msgspec.structs.replace(run, measurements=tuple(rows))


def test_what_callers_get_of_small_copies_has_columns_of_its_own() -> None:
    run = timed_by_callers(full_run())
    *usual, callers = tables(run)
    assert usual == tables(full_run())
    heading = [line.split() for line in callers.splitlines()[:3]]
    assert heading == [
        ["h2d", "d2h", "both", "sum"],
        ["pinned", "pinned", "pinned"],
        ["size", "caller", "caller", "caller"],
    ]
    lines = {line[:7].strip(): line[7:].split() for line in callers.splitlines()[3:]}
    assert list(lines) == ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"]
    row = next(m for m in run.measurements if (m.memory, m.side, m.nbytes) == ("pinned", "h2d", MIB))
    assert row.caller_gbps == pytest.approx((row.gbps or 0.0) / 2)
    assert float(lines["1 MiB"][0]) == pytest.approx(row.caller_gbps, abs=0.005)
    assert all(len(line) <= 80 for line in callers.splitlines())


def test_a_mode_of_many_calls_has_what_a_caller_gets_in_the_table() -> None:
    rows = [
        by_caller(make_measurement(nbytes, route="raw.pinned-batch", mode="batch"), 4.0)
        for nbytes in (4 * KIB, 16 * MIB)
    ]
    run = make_run(measurements=tuple(rows))
    shown, devices = (table.splitlines() for table in tables(run))
    assert "device" in devices[2].split()
    for row, line, other in zip(rows, shown[2:], devices[3:], strict=True):
        assert float(line.split()[2]) == pytest.approx(row.caller_gbps, abs=0.005)
        assert float(other.split()[2]) == pytest.approx(row.gbps, abs=0.005)


def test_a_list_of_rows_names_the_clock_of_the_other_figure() -> None:
    batch = by_caller(make_measurement(4 * KIB, route="raw.pinned-batch", mode="batch"), 4.0)
    queue = by_caller(make_measurement(4 * KIB))
    (table,) = tables(make_run(measurements=(queue, batch)), sort="route")
    heading, *lines = table.splitlines()
    assert heading.split()[3:6] == ["GB/s", "caller", "device"]
    figures = {
        line.split()[0]: [float(cell) for cell in line.split() if "." in cell[1:] and cell[0] != "r"] for line in lines
    }
    assert figures["raw.pinned-async"][:2] == pytest.approx([queue.gbps, queue.caller_gbps], rel=0.01)
    assert figures["raw.pinned-batch"][:2] == pytest.approx([batch.caller_gbps, batch.gbps], rel=0.02)


def test_a_page_says_whose_clock_its_figures_have() -> None:
    assert clock_line(full_run()) == ""
    assert "caller:" in clock_line(timed_by_callers(full_run()))
