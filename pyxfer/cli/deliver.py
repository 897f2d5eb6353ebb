"""The end of every verb that measures: the run saved, shown, exported, and its exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .failures import end_as

if TYPE_CHECKING:
    from pyxfer.model import Run

    from .exports import Exports


def deliver(run: Run, exports: Exports) -> None:
    """Save first, so that nothing that happens to the terminal can lose the run."""
    from pyxfer.report.run_page import print_run
    from pyxfer.report.terminal import Page

    exports.save(run)
    print_run(run, Page(sys.stderr if exports.takes_stdout else sys.stdout))
    exports.finish(run)
    end_as(run)
