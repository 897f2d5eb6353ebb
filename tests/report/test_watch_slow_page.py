"""Slow steps on the page of a watch."""

from __future__ import annotations

from pages import line_with, printed
from watch.windows import Flat, Script, analysed, make_window, steps_at
from watch_samples import make_stalled, make_unseen

from pyxfer._document.watches import Watched
from pyxfer._report.watch import print_watch


def page_of(watched: Watched) -> str:
    return printed(lambda page: print_watch(watched, page))


def one_in_ten(extra: float, computed: bool) -> Watched:
    """Ten steps of a millisecond, of which the sixth takes longer, on the device or in the host."""
    script, spans, time = Script(), [], 0.0
    for turn in range(10):
        end = time + 1_000 + (extra if turn == 5 else 0)
        script.kernel(time + 100, end if computed else time + 900)
        spans.append((time, time + 50, end))
        time = end
    return analysed(make_window(script, time, steps_at(*spans)), Flat(50.0))


def test_a_single_slow_step_is_in_the_singular() -> None:
    assert line_with(page_of(one_in_ten(4_000, computed=True)), "is slow: ") == (
        "-  1 of 10 steps is slow: 4.00 ms more than a usual one, 28.6 % of the time of all steps, most of it kernels "
        "and sets; the longest took 5.00 ms"
    )


def test_slow_steps_without_records_name_a_host_part() -> None:
    assert "most of it between steps;" in line_with(page_of(make_unseen(stalls={7: 30_000})), "is slow: ")


def test_a_saved_watch_prints_the_same_page(tmp_path: object) -> None:
    make_stalled().save(f"{tmp_path}/watch.json")
    assert page_of(Watched.load(f"{tmp_path}/watch.json")) == page_of(make_stalled())
