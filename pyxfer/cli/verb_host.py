"""Bare `pyxfer`: this host in ten seconds."""

from __future__ import annotations

import sys

from .failures import end_as, say

# The largest shows the ceiling within a part in five hundred, the smallest what a single call costs.
_SIZES = (4 * 1024, 1024**2, 64 * 1024**2)
_BUDGET_S = 5.0


def show_host() -> None:
    """Measure a few sizes and print the card."""
    from pyxfer import native, raw
    from pyxfer.report.host_card import print_host_card
    from pyxfer.report.terminal import Page

    from .progress import ProgressReport

    choice = native.choose(0)
    if choice.reason:
        say(choice.reason)
    with ProgressReport() as report:
        run = raw.ceiling(0, sizes=_SIZES, budget_s=_BUDGET_S, trace=False, on_progress=report)
    print_host_card(run, Page(sys.stdout))
    end_as(run)
