"""The rows of never_slower.py, the parts of never_slower_parts.py, and the checks of threads_soak.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import never_slower
import never_slower_calls as calls
import never_slower_loops
import never_slower_parts as parts
import pytest
import readme_figures
import shared
import threads_soak
from never_slower import NeverSlower, Row
from never_slower_parts import CallParts, Column, Part
from never_slower_peers import Case, Peer, Prepared
from samples import make_device, make_environment

from pyxfer.errors import UsageError

ROUNDS = 9


def row(pyxfer: list[float], **others: float) -> Row:
    """Rounds of pyxfer, and of other ways which always take the same time."""
    seconds = {"pyxfer": pyxfer, **{name: [value] * len(pyxfer) for name, value in others.items()}}
    return Row("upload", 4096, seconds, {"alone": [0.5e-3] * len(pyxfer)})


def test_the_ratio_is_to_the_fastest_other_way() -> None:
    found = row([2e-3] * ROUNDS, slow=9e-3, fast=4e-3)
    assert found.other() == "fast"
    assert found.ratio().median_s == 0.5


def test_a_reference_is_no_other_way() -> None:
    assert row([2e-3] * ROUNDS, plain=4e-3).other() == "plain"


@pytest.mark.parametrize(
    ("pyxfer", "mark"),
    [
        ([2e-3] * ROUNDS, "slower"),
        ([0.5e-3] * ROUNDS, ""),
        ([0.5e-3, 2e-3] * ROUNDS, "equal"),
        ([2e-3], ""),
    ],
    ids=["all rounds are slower", "all are faster", "some of each", "no interval"],
)
def test_a_row_is_marked_by_the_interval_of_its_ratio(pyxfer: list[float], mark: str) -> None:
    assert row(pyxfer, plain=1e-3).mark() == mark


def document(*rows: Row) -> NeverSlower:
    return NeverSlower("torch", "2.11", make_device(), make_environment(), list(rows))


def test_the_table_has_the_other_way_the_mark_and_the_references() -> None:
    other = document(row([1e-3] * ROUNDS, plain=2e-3))
    lines = never_slower.markdown([document(row([2e-3] * ROUNDS, plain=1e-3)), other]).splitlines()
    assert lines[0].startswith("torch 2.11: ")
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert cells == [
        "upload",
        "2.00 ms, 2.00 (2.00 to 2.00), plain; alone 500 us; slower",
        "1.00 ms, 0.50 (0.50 to 0.50), plain; alone 500 us",
    ]


def test_the_figures_have_a_column_of_each_framework(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        readme_figures.never_slower_documents(tmp_path)
    for name in ("cupy", "torch"):
        shared.write_document(tmp_path / f"never_slower_{name}.json.gz", document(row([2e-3] * ROUNDS, plain=1e-3)))
    documents = readme_figures.never_slower_documents(tmp_path)
    assert never_slower.markdown(documents).count("2.00 ms") == 2


def test_the_summary_counts_the_rows_and_names_the_slower_ones() -> None:
    slower, equal = row([2e-3] * ROUNDS, plain=1e-3), row([1e-3] * ROUNDS, plain=1e-3)
    rows = document(row([1e-3] * ROUNDS, plain=4e-3), slower, equal)
    cells = [cell.strip() for cell in never_slower.summary([rows]).splitlines()[-1].strip("|").split("|")]
    assert cells[0] == "torch 2.11"
    assert cells[2:] == ["1", "1", "1", "1.00", "upload 2.00"]


def test_every_way_is_measured_in_each_round_and_the_row_is_closed() -> None:
    calls: list[str] = []
    prepared = Prepared(
        {"pyxfer": lambda: calls.append("pyxfer"), "plain": lambda: calls.append("plain")},
        {"alone": lambda: calls.append("alone")},
        lambda name: calls.append(f"settle {name}"),
        lambda: calls.append("close"),
    )
    found = never_slower.measure(Case("row", 1, lambda: prepared, round_s=0.0), Peer(), 3)
    assert {name: len(seconds) for name, seconds in found.seconds.items()} == {"pyxfer": 3, "plain": 3}
    assert len(found.references["alone"]) == 3
    assert calls[-1] == "close"
    before = [calls[at - 1] for at, call in enumerate(calls) if call in ("pyxfer", "plain", "alone")]
    assert before == [f"settle {call}" for call in calls if call in ("pyxfer", "plain", "alone")]


def test_a_row_that_raises_is_closed() -> None:
    closed = []

    def fail() -> None:
        raise KeyError

    prepared = Prepared({"pyxfer": fail}, close=lambda: closed.append(True))
    with pytest.raises(KeyError):
        never_slower.measure(Case("row", 1, lambda: prepared), Peer(), 3)
    assert closed


def test_names_of_rows_are_known_before_a_framework_is_used() -> None:
    peer = Peer()
    peer.name = "tensorflow"
    names = [case.name for case in never_slower.every_row(peer, "host")]
    assert len(names) == len(set(names))
    assert any("from_generator" in name for name in names)


def test_a_loop_takes_what_was_ready_before_it_is_timed() -> None:
    class Steps(Peer):
        def on_device(self, x: object) -> object:
            return x

    worked: list[object] = []
    source = iter(range(100))
    prepared = never_slower_loops.prepared(Steps(), "batch", worked.append, {"pyxfer": source}, {}, 7)
    prepared.settle("pyxfer")
    assert worked == [7, 8, 9, 10]
    prepared.ways["pyxfer"]()
    prepared.references["step on the device"]()
    assert worked[4:] == [11, "batch"]


@pytest.mark.parametrize(
    ("late", "wrong", "problems"),
    [
        ({}, 0, 0),
        ({"process": 12 << 20}, 0, 0),
        ({"process": 30 << 20, "page-locked": 1, "blocks": 100}, 0, 3),
        ({}, 2, 1),
    ],
)
def test_a_soak_is_judged_by_its_bytes_and_by_growth_after_a_tenth(
    late: dict[str, int], wrong: int, problems: int
) -> None:
    before = dict.fromkeys(threads_soak.MAX_GROWN, 0)
    early = dict.fromkeys(threads_soak.MAX_GROWN, 10 << 20)
    readings = (before, early, {name: value + late.get(name, 0) for name, value in early.items()})
    calls = {"arrays": 10}
    found = threads_soak.ThreadsSoak("own", 4, make_device(), make_environment(), calls, 1, wrong, 1.0, readings)
    assert len(threads_soak.judge(found)) == problems


def test_a_short_soak_ends_without_a_wrong_byte(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    monkeypatch.setattr(sys, "argv", ["x", "--device", "host", "--calls", "400", "--export-json", str(path)])
    threads_soak.main()
    found = msgspec.json.decode(path.read_bytes(), type=threads_soak.ThreadsSoak)
    assert found.wrong == 0
    assert sum(found.calls.values()) >= 400


def column(title: str, **floors: float) -> Column:
    """A call of 10 us, a part of 1 us that is no floor, and floors."""
    found = [Part(calls.OWN, False, [10e-6] * 3), Part("looking", False, [1e-6] * 3)]
    return Column("upload", title, [*found, *(Part(name, True, [value] * 3) for name, value in floors.items())])


def of_parts(*columns: Column) -> CallParts:
    return CallParts({"torch": "2.11"}, make_device(), make_environment(), list(columns))


def test_a_table_has_stars_of_floors_dashes_of_parts_that_a_call_lacks_and_what_the_floors_leave() -> None:
    ((header, rows),) = parts.tables(of_parts(column("4 KiB", copy=3e-6, take=2e-6), column("1 MiB", copy=12e-6)))
    assert header == ["upload", "4 KiB", "1 MiB"]
    assert rows[1] == ["looking", "1.00 us", "1.00 us"]
    assert rows[-2:] == [["take *", "2.00 us", "-"], ["left of the call", "5.00 us", "0 s"]]


def test_the_page_has_a_table_for_each_kind_of_call_and_the_versions() -> None:
    other = Column("download", "4 KiB", [Part(calls.OWN, False, [2e-6])])
    text = parts.markdown(of_parts(column("4 KiB"), other))
    assert text.startswith("torch 2.11: ")
    assert text.count("| --- |") == 2


def test_the_table_is_made_of_the_document(tmp_path: Path) -> None:
    shared.write_document(tmp_path / "call_parts.json.gz", of_parts(column("4 KiB", copy=3e-6)))
    assert "| copy * | 3.00 us |" in readme_figures.call_parts(tmp_path).replace("\\*", "*")


def test_parts_take_turns_and_a_part_after_a_pause_is_repeated_as_often_as_the_pauses_fit() -> None:
    asked: list[tuple[str, int]] = []

    def timed(name: str, seconds: float, round_s: float) -> calls.Timed:
        def call(count: int) -> float:
            asked.append((name, count))
            return seconds

        return calls.Timed(name, call, round_s=round_s)

    found = parts.measured(
        [timed("short", 1e-9, calls.ROUND_S), timed("paused", 1.0, calls.PAUSED_ROUND_S)],
        2,
    )
    assert [part.seconds for part in found] == [[1e-9] * 2, [1.0] * 2]
    assert asked[-4:] == [("short", 1000), ("paused", 20), ("paused", 20), ("short", 1000)]


@pytest.mark.parametrize(("time_it", "most"), [(calls.kept, 5), (calls.dropped, 5)], ids=["kept", "dropped"])
def test_each_object_is_made_once_and_dropped(time_it: Callable[..., Callable[[int], float]], most: int) -> None:
    alive: list[int] = []
    seen: list[int] = []

    class Counted:
        def __init__(self) -> None:
            alive.append(1)
            seen.append(len(alive))

        def __del__(self) -> None:
            alive.pop()

    assert time_it(Counted)(most) > 0
    assert seen == list(range(1, most + 1))
    assert not alive


def test_a_call_after_a_pause_is_timed_with_the_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr("time.sleep", lambda seconds: done.append(f"sleep {seconds}"))
    calls.paused(lambda: done.append("call"), lambda: done.append("wait"))(2)
    assert done == ["sleep 0.005", "call", "wait"] * 2
