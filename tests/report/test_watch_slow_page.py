"""What a person reads of steps that lie far beyond the others."""

from __future__ import annotations

from pages import line_with, printed
from watch.windows import Flat, Script, analysed, make_window, steps_at
from watch_samples import make_stalled, make_unseen, make_watched

from pyxfer._document.watches import Watched
from pyxfer._report.watch import print_watch, watch_text


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


def test_the_parts_say_whose_mean_they_are() -> None:
    text = page_of(make_stalled())
    assert "Where 13.0 ms went, the mean of the 18 usual steps" in text
    assert "the host is between steps for 4.00 ms of each usual one" in text


def test_slow_steps_have_a_line_beside_the_statistics_of_all() -> None:
    lines = page_of(make_stalled()).splitlines()
    place = lines.index("-  the median of 20 is 13.0 ms, the shortest 13.0 ms, the longest 43.0 ms")
    assert lines[place + 1] == (
        "-  2 of 20 steps are slow: 42.0 ms more than as many usual ones, 13.9 % of the time of all steps, most of it "
        "input being made; the longest took 43.0 ms"
    )


def test_one_slow_step_is_one() -> None:
    assert line_with(page_of(one_in_ten(4_000, computed=True)), "is slow: ") == (
        "-  1 of 10 steps is slow: 4.00 ms more than a usual one, 28.6 % of the time of all steps, most of it kernels "
        "and sets; the longest took 5.00 ms"
    )


def test_slow_steps_without_records_are_between_or_inside_steps() -> None:
    assert "most of it between steps;" in line_with(page_of(make_unseen(stalls={7: 30_000})), "is slow: ")


def test_predictions_are_of_a_usual_step() -> None:
    text = page_of(make_stalled())
    assert "Predicted: 5.38 ms a usual step instead of 13.0 ms, 58.6 % less" in text
    assert line_with(text, "771 MB in 20 copies").endswith("2.83 ms a usual step")


def test_what_slow_steps_cost_is_a_remark_with_what_to_look_at() -> None:
    text = page_of(make_stalled())
    remark = line_with(text[text.index("Remarks") :], "2 of 20 steps are slow")
    assert "usual ones. Find what only some steps do" in remark


def test_where_no_step_is_slow_nothing_is_said_of_it() -> None:
    text = page_of(make_watched())
    assert "slow" not in text
    assert "usual" not in text


def test_on_80_columns_no_line_is_longer() -> None:
    assert max(len(line) for line in watch_text(make_stalled(), 80).splitlines()) <= 80


def test_it_prints_from_its_file_as_it_was_printed(tmp_path: object) -> None:
    make_stalled().save(f"{tmp_path}/watch.json")
    assert page_of(Watched.load(f"{tmp_path}/watch.json")) == page_of(make_stalled())
