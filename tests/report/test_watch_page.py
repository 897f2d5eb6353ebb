"""A watch as a person reads it."""

from __future__ import annotations

import pytest
from pages import Terminal, line_with, printed
from samples import make_device
from watch.windows import MACHINE, Flat, Script, analysed, make_window, mark
from watch_samples import make_watched

from pyxfer._document.watches import Watched
from pyxfer._report.layout import Page
from pyxfer._report.watch import print_watch
from pyxfer._trace.records import CopyWay
from pyxfer._watch.analysis import Machine, analyse


def page_of(watched: Watched) -> str:
    return printed(lambda page: print_watch(watched, page))


@pytest.fixture
def on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def on_terminal(watched: Watched) -> list[str]:
    stream = Terminal()
    print_watch(watched, Page(stream))
    return stream.getvalue().splitlines()


@pytest.mark.usefixtures("on_80_columns")
def test_on_a_terminal_of_80_columns_no_line_is_longer() -> None:
    lines = on_terminal(make_watched(decode="a range with a long name " * 4, line="f" * 90))
    assert max(len(line) for line in lines) <= 80


def test_a_saved_watch_prints_the_same_page(tmp_path: object) -> None:
    watched = make_watched()
    watched.save(f"{tmp_path}/watch.json")
    assert page_of(Watched.load(f"{tmp_path}/watch.json")) == page_of(watched)


def test_without_a_predicted_gain_the_page_says_so() -> None:
    script = Script()
    script.kernel(0, 1000)
    watched = analysed(make_window(script, 1000))
    assert not watched.advice
    assert line_with(page_of(watched), "no gain")


def test_an_empty_window_can_be_printed() -> None:
    assert "there is nothing to be bound by" in page_of(analysed(make_window(Script(), 0)))


def test_a_failed_program_is_reported_before_the_figures() -> None:
    text = page_of(make_watched(ended="failed"))
    assert text.index("The program failed in this window") < text.index("The step is bound")


def test_without_a_gpu_the_page_names_host_memory() -> None:
    device = make_device(runtime="host", name="host memory")
    machine = Machine("host", "no GPU answers", device, MACHINE.link, MACHINE.environment)
    text = page_of(analyse(make_window(Script(), 100), Flat(50.0), machine))
    assert text.splitlines()[0] == "device  host memory, not a PCIe link"
    assert "\nlink " not in text


def test_ranges_are_sorted_by_time() -> None:
    script = Script()
    script.kernel(0, 50)
    text = page_of(analysed(make_window(script, 100, ranges=(mark("decode", 0, 10), mark("train", 0, 60)))))
    assert text.index("train ") < text.index("decode ")
    assert line_with(text, "decode ").split() == ["decode", "1", "10.0", "10.0", "%", "100.0", "%"]


def test_names_of_the_program_are_harmless() -> None:
    bell = "\x1b[31m\x07x\x1b]0;t\x07 [bold]y[/bold]"
    script = Script()
    script.call(bell, 0, 1)
    script.copy(CopyWay.H2D, 10, 20, call=(bell + "Synchronize", 5, 9))
    text = page_of(analysed(make_window(script, 100, ranges=(mark(bell, 0, 50),), threads={4001: bell})))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]y[/bold]" in text


def test_remarks_are_last() -> None:
    text = page_of(make_watched(dropped={"copies": 3}))
    assert "records are missing: 3 copies" in text[text.index("Remarks") :]
