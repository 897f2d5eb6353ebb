"""The parts of never_slower_parts.py: which calls they time, what the floors leave, and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import never_slower_calls as calls
import never_slower_parts as parts
import pytest
import readme_figures
import shared
from never_slower_parts import CallParts, Column, Part
from samples import make_device, make_environment


def column(title: str, **floors: float) -> Column:
    """A call of 10 us, a part of 1 us that is no floor, and floors."""
    found = [Part(calls.OWN, False, [10e-6] * 3), Part("looking", False, [1e-6] * 3)]
    return Column("upload", title, [*found, *(Part(name, True, [value] * 3) for name, value in floors.items())])


def document(*columns: Column) -> CallParts:
    return CallParts({"torch": "2.11"}, make_device(), make_environment(), list(columns))


def test_the_last_line_has_what_the_floors_leave_of_the_call() -> None:
    ((header, rows),) = parts.tables(document(column("4 KiB", copy=3e-6, take=2e-6), column("1 MiB", copy=12e-6)))
    assert header == ["upload", "4 KiB", "1 MiB"]
    assert rows[-1] == ["left of the call", "5.00 us", "0 s"]


def test_a_floor_has_a_star_and_a_part_that_a_call_lacks_a_dash() -> None:
    ((_, rows),) = parts.tables(document(column("4 KiB", copy=3e-6, take=2e-6), column("1 MiB", copy=12e-6)))
    assert rows[1] == ["looking", "1.00 us", "1.00 us"]
    assert rows[-2] == ["take *", "2.00 us", "-"]


def test_the_page_has_a_table_for_each_kind_of_call_and_the_versions() -> None:
    other = Column("download", "4 KiB", [Part(calls.OWN, False, [2e-6])])
    text = parts.markdown(document(column("4 KiB"), other))
    assert text.startswith("torch 2.11: ")
    assert text.count("| --- |") == 2


def test_the_table_is_made_of_the_document(tmp_path: Path) -> None:
    shared.write_document(tmp_path / "call_parts.json.gz", document(column("4 KiB", copy=3e-6)))
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
