"""The page of a comparison: verdict, differences, cells, causes."""

from __future__ import annotations

from typing import Any

import msgspec
from baseline_samples import Slower, as_usual, make_processes, make_sample, slow_pinned
from pages import line_with, printed
from samples import MARKUP, make_environment, make_run

from pyxfer._baseline.check import check, make_baseline
from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document.baselines import Comparison
from pyxfer._report.comparison import print_comparison
from pyxfer._report.layout import Page

CONTROL = "a\x1b[31mred\nline\x00"


def compared(slower: Slower = as_usual, names: tuple[str, str] = ("old.json", "new.json"), **run: Any) -> Comparison:
    a, b = names
    return compare_samples(make_sample(a), make_sample(b, seed=2, slower=slower, run=make_run(**run)))


def page(comparison: Comparison, columns: int | None = None) -> str:
    if columns is None:
        return printed(lambda made: print_comparison(comparison, made))
    return printed(lambda made: print_comparison(comparison, Page(made._stream, columns)))


def checked(slower: Slower) -> Comparison:
    runs = iter(make_processes(3, 7, slower=slower))
    baseline = make_baseline("default", {}, make_processes(), "2025-11-21T08:30:00+00:00")
    return check(baseline, lambda: next(runs), retries=2).comparison


def test_a_confirmed_loss_names_the_number_of_processes() -> None:
    text = page(checked(slow_pinned(1.3)))
    assert "3 processes confirm 6 of them." in text.splitlines()[0]
    assert "SLOW, confirmed" in line_with(text, "h2d:pinned:16MiB  ")


def test_undecided_cells_are_listed_with_their_reason() -> None:
    noisy = compare_samples(make_sample("A", between=0.03), make_sample("B", seed=2, between=0.03))
    text = page(noisy)
    assert (noisy.verdict, text.partition(":")[0]) == ("AMBIGUOUS", "AMBIGUOUS")
    assert noisy.cells[0].why in text
    assert "and 8 more" in text


def test_uncompared_cells_are_listed_with_the_reason() -> None:
    fewer = Sample("new", make_processes(3, 2, memories=("pinned",)))
    text = page(compare_samples(make_sample("old"), fewer))
    assert "Not compared" in text
    assert "and 2 more: new did not measure it" in text


def test_a_page_fits_eighty_columns() -> None:
    text = page(compared(slow_pinned(2.0), names=("x" * 60 + ".json", "y" * 60 + ".json")), columns=80)
    assert max(map(len, text.splitlines())) <= 80


def test_names_are_harmless() -> None:
    a, b = make_sample(CONTROL), make_sample(MARKUP, seed=2)
    hostile = make_environment(host=CONTROL, kernel=MARKUP)
    b = Sample(b.name, tuple(msgspec.structs.replace(run, environment=hostile) for run in b.runs))
    text = page(compare_samples(a, b))
    assert "\x1b" not in text
    assert "\x00" not in text
    assert MARKUP in text
