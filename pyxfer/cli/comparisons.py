"""A comparison, printed or written as it was asked for; what `compare` and `baseline check` share."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer.model_baselines import Comparison

SLOWER = 1
STDOUT = "-"
TABLE = "table"

Tolerance = Annotated[
    str, typer.Option("--tolerance", metavar="SHARE", help="How much of its bandwidth a cell may lose, such as 3%.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where the format goes; - is standard output, as without it."),
]


class Outlet:
    """Where a comparison goes: refused before measuring, if it cannot."""

    def __init__(self, form: str, output: str | None, forms: tuple[str, ...]) -> None:
        from pyxfer.files import check_writable

        if form not in forms:
            raise UsageError(f"--format {form!r} is none of {', '.join(forms)}")
        self._form = form
        self._file = None if output in (None, STDOUT) else output
        if self._file is not None:
            check_writable(self._file)

    def deliver(self, comparison: Comparison) -> None:
        """Write the file, if there is one, before anything is printed."""
        from pyxfer.files import write_whole
        from pyxfer.report.comparison_page import print_comparison
        from pyxfer.report.terminal import Page

        if self._file is not None:
            write_whole(self._file, _encoded(comparison, self._form).encode(errors="backslashreplace"))
        if self._file is not None or self._form == TABLE:
            print_comparison(comparison, Page(sys.stdout))
        else:
            sys.stdout.write(_encoded(comparison, self._form))
        sys.stdout.flush()


def _encoded(comparison: Comparison, form: str) -> str:
    from pyxfer import comparison_documents
    from pyxfer.report.comparison_junit import to_junit
    from pyxfer.report.comparison_page import print_comparison
    from pyxfer.report.terminal import Page

    if form == "json":
        return comparison_documents.encode(comparison).decode()
    if form == "md":
        return comparison_documents.to_markdown(comparison)
    if form == "junit":
        return to_junit(comparison).decode()
    text = io.StringIO()
    print_comparison(comparison, Page(text))
    return text.getvalue()
