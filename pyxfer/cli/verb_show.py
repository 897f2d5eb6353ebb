"""`pyxfer show`: a saved run, watch, examination or session of pytest, as it was printed when it was made."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .verb_baseline import lines_of


def show(
    file: Annotated[str, typer.Argument(metavar="RUN.json", help="A file that --export-json wrote.")],
    sort: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="One row a measurement, by size, gbps, route, direction, memory or mode."),
    ] = None,
) -> None:
    """Print a saved run, watch, examination or session of pytest as it was printed when it was made."""
    from pyxfer import baseline_documents, documents, finding_documents, json_text, watch_documents, xfer_documents
    from pyxfer.errors import UsageError
    from pyxfer.files import read_whole
    from pyxfer.report.baseline_page import print_baseline
    from pyxfer.report.doctor_page import print_examination
    from pyxfer.report.run_page import print_run
    from pyxfer.report.session_page import print_session
    from pyxfer.report.terminal import Page
    from pyxfer.report.watch_page import print_watch

    data, source, page = read_whole(file), repr(file), Page(sys.stdout)
    kind = json_text.kind_of(data)
    shown = ("watch", "examination", "pytest", "baseline")
    if kind not in shown:
        print_run(documents.decode(data, source), page, sort)
    elif sort is not None:
        raise UsageError(f"--sort is for the measurements of a run, and this is {json_text.KINDS[kind]}: leave it out.")
    elif kind == "examination":
        print_examination(finding_documents.decode(data, source), page)
    elif kind == "baseline":
        baseline = baseline_documents.decode(data, source)
        print_baseline(baseline, lines_of(baseline), page)
    elif kind == "pytest":
        print_session(xfer_documents.decode(data, source), page)
    else:
        print_watch(watch_documents.decode(data, source), page)
