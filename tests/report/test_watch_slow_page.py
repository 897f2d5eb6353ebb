"""Slow steps on the page of a watch."""

from __future__ import annotations

from pages import line_with, printed
from watch.windows import Flat, Script, analysed, make_window, steps_at
from watch_samples import make_stalled, make_unseen, make_watched

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


def test_parts_are_the_mean_of_usual_steps() -> None:
    text = page_of(make_stalled())
    assert line_with(text, "Where the mean usual step's 13.0 ms went").endswith("(usual steps: 18)")
    assert line_with(text, "host between steps: 4.00 ms").endswith("of a usual step")


def test_slow_steps_have_a_line() -> None:
    lines = page_of(make_stalled()).splitlines()
    place = lines.index("-  steps: 20, median 13.0 ms, shortest 13.0 ms, longest 43.0 ms")
    assert lines[place + 1] == (
        "-  2 of 20 steps are slow: 42.0 ms more than as many usual ones, 13.9 % of the time of all steps, most of it "
        "input being made; the longest took 43.0 ms"
    )


def test_a_single_slow_step_is_in_the_singular() -> None:
    assert line_with(page_of(one_in_ten(4_000, computed=True)), "is slow: ") == (
        "-  1 of 10 steps is slow: 4.00 ms more than a usual one, 28.6 % of the time of all steps, most of it kernels "
        "and sets; the longest took 5.00 ms"
    )


def test_slow_steps_without_records_name_a_host_part() -> None:
    assert "most of it between steps;" in line_with(page_of(make_unseen(stalls={7: 30_000})), "is slow: ")


def test_predictions_are_for_a_usual_step() -> None:
    text = page_of(make_stalled())
    assert "Predicted: 5.38 ms a usual step instead of 13.0 ms, 58.6 % less" in text
    assert line_with(text, "771 MB (20 x)").endswith("2.83 ms a usual step")


def test_slow_steps_have_a_remark_with_advice() -> None:
    text = page_of(make_stalled())
    remark = line_with(text[text.index("Remarks") :], "2 of 20 steps are slow")
    assert "usual ones. Find what only some steps do" in remark


def test_without_slow_steps_there_is_no_line() -> None:
    text = page_of(make_watched())
    assert "slow" not in text
    assert "usual" not in text


def test_on_80_columns_no_line_is_longer() -> None:
    assert max(len(line) for line in make_stalled().report(80).splitlines()) <= 80


def test_a_saved_watch_prints_the_same_page(tmp_path: object) -> None:
    make_stalled().save(f"{tmp_path}/watch.json")
    assert page_of(Watched.load(f"{tmp_path}/watch.json")) == page_of(make_stalled())
