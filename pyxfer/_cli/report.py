"""The verb `pyxfer report`: saved documents as one page to look at, or as pictures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pyxfer._cli import completion
from pyxfer._cli import options as opt
from pyxfer._cli.completion import one_of
from pyxfer._cli.failures import say

Files = Annotated[list[str], opt.argument("FILE", "Files that pyxfer saved, also as .gz; their order is kept.")]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write a page (.html), or pictures (.svg, .png or .pdf).")
]
ChartName = Annotated[
    str | None, opt.option("--chart", "NAME", "Draw only this chart, such as sizes.", one_of(completion.charts))
]


def report(files: Files, output: Output = "report.html", chart: ChartName = None) -> None:
    """Write saved documents as one page with charts.

    Takes a run, links, a watch, examination, baseline, comparison or pytest session, or several of them. The page is a
    single file that needs no network: a sentence about each document, its charts, tables, environment and remarks, and
    the document itself.
    """
    from pyxfer._document import codec
    from pyxfer._document import files as document_files
    from pyxfer._report.webpage import check_drawing, report_bytes, suffix_of

    suffix = suffix_of(output)
    check_drawing()
    document_files.check_writable(output)
    documents: list[Any] = [codec.load_any(file, _structs()) for file in files]
    document_files.write_whole(output, report_bytes(documents, suffix, chart))
    say(f"wrote {output}")


def _structs() -> tuple[type[Any], ...]:
    from pyxfer._document import codec

    return tuple(kind.struct for kind in codec.KINDS)
