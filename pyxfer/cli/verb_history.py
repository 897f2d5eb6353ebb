"""`pyxfer history`: what a store has of a cell over time."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pyxfer.errors import UsageError

from . import options as opt
from .verb_baseline import Host, Url, write_json

FORMATS = ("table", "json", "csv")

Cell = Annotated[
    str | None,
    typer.Option("--cell", metavar="CELL", help="Such as h2d:pinned:256MiB; else pinned memory at the largest size."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Not before: 30d, 12h, 2w ago, or a date (UTC).")
]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help=f"Of {', '.join(FORMATS)}.")]


def history(
    host: Host = None,
    cell: Cell = None,
    since: Since = None,
    form: Format = "table",
    json: opt.Json = False,
    store: Url = None,
) -> None:
    """What was measured over time, each against the median of its own machine.

    Without --host: all hosts of the store, one line each where they are many.
    """
    from pyxfer.baselines.store import open_store
    from pyxfer.baselines.store.exporting import to_csv
    from pyxfer.report.history_page import print_history
    from pyxfer.report.terminal import Page

    if form not in FORMATS:
        raise UsageError(f"--format {form!r:.40} is none of {', '.join(FORMATS)}")
    with open_store(store, create=False) as opened:
        found = opened.history(cell, host=host, since=since)
    if json or form == "json":
        write_json(found)
    elif form == "csv":
        sys.stdout.write(to_csv(found))
    else:
        print_history(found, Page(sys.stdout))
