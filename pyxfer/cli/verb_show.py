"""`pyxfer show`: a saved run or watch, as it was printed when it was measured."""

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
    """Print a saved run, or a saved watch, as it was printed when it was measured."""
    from pyxfer import documents, json_text, watch_documents
    from pyxfer.errors import UsageError
    from pyxfer.files import read_whole
    from pyxfer.report.run_page import print_run
    from pyxfer.report.terminal import Page
    from pyxfer.report.watch_page import print_watch

    data, source, page = read_whole(file), repr(file), Page(sys.stdout)
    if json_text.kind_of(data) != "watch":
        print_run(documents.decode(data, source), page, sort)
    elif sort is not None:
        raise UsageError("--sort is for the measurements of a run, and this is a watch: leave it out.")
    else:
        print_watch(watch_documents.decode(data, source), page)
