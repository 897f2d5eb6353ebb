"""`pyxfer show`: a saved run, as it was printed when it was measured."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def show(
    file: Annotated[str, typer.Argument(metavar="RUN.json", help="A file that --export-json wrote.")],
    sort: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="One row a measurement, by size, gbps, route, direction, memory or mode."),
    ] = None,
) -> None:
    """Print a saved run as it was printed when it was measured."""
    from pyxfer import documents
    from pyxfer.report.run_page import print_run
    from pyxfer.report.terminal import Page

    print_run(documents.load(file), Page(sys.stdout), sort)
