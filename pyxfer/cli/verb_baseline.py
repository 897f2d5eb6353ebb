"""`pyxfer baseline`: what a store keeps of hosts; saving and checking lie in `verb_baseline_check`."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as opt
from .failures import say

if TYPE_CHECKING:
    from pyxfer.baselines.store import Store
    from pyxfer.model_baselines import Baseline
    from pyxfer.report.baseline_page import CellLine

DEFAULT_NAME = "default"

Url = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="A file or a database; else PYXFER_STORE, else this user's own file."),
]
Host = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only of this host.")]
Which = Annotated[str, typer.Argument(metavar="NAME", help="A name, or an id that the list shows.")]
Named = Annotated[str, typer.Argument(metavar="[NAME]", help="A name, or an id that the list shows.")]

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Keep what this host reaches, and find out when it no longer does.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list")
def list_all(host: Host = None, json: opt.Json = False, store: Url = None) -> None:
    """What the store keeps, a line for each name and machine."""
    from pyxfer.report.baseline_page import print_baselines
    from pyxfer.report.terminal import Page

    with _open(store) as opened:
        kept, damaged = opened.baselines(host), opened.damaged_baselines(host)
        if json:
            write_json({"baselines": kept, "damaged": damaged})
        elif kept:
            print_baselines(kept, opened.shown, Page(sys.stdout))
        elif not damaged:
            of_host = "" if host is None else f" of the host {host!r}"
            say(f"the store {opened.shown} has no baseline{of_host} yet; pyxfer baseline save makes one")
        sys.stdout.flush()  # the sentences below are about what is missing above
        for each in damaged:
            say(each.why)


@app.command()
def show(name: Named = DEFAULT_NAME, host: Host = None, json: opt.Json = False, store: Url = None) -> None:
    """One baseline: its machine, its processes, its cells.

    Of several hosts that have the name this one is meant; or say --host, or the id.
    """
    from pyxfer.baselines.store.choosing import choose
    from pyxfer.report.baseline_page import print_baseline
    from pyxfer.report.terminal import Page

    with _open(store) as opened:
        kept = choose(opened, name, host)
        baseline = opened.baseline_of_id(kept.id)
    if json:
        write_json({"id": kept.id, "baseline": baseline})
    else:
        print_baseline(baseline, lines_of(baseline), Page(sys.stdout), kept)


@app.command()
def remove(name: Which, host: Host = None, store: Url = None) -> None:
    """Remove a name from a machine.

    The earlier baselines of that name are removed with it; a damaged one goes by its id, and alone. Their runs stay in
    the history.
    """
    from pyxfer.baselines.store.choosing import choose, machine

    with _open(store) as opened:
        if opened.is_damaged(name):
            opened.remove_baseline_of_id(name)
            say(f"removed the damaged baseline {name}; its runs stay in the history")
            return
        kept = choose(opened, name, host)
        count = opened.remove_baseline(kept.name, kept.identity)
    earlier = f", and {count - 1} earlier" if count > 1 else ""
    say(f"removed the baseline {kept.name!r} of {machine(kept)}{earlier}; its runs stay in the history")


@app.command()
def export(
    name: Which,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")],
    host: Host = None,
    store: Url = None,
) -> None:
    """Write a baseline with its runs to a file.

    Another store can import it, and pyxfer compare and pyxfer show read it.
    """
    from pyxfer import baseline_documents
    from pyxfer.baselines.store.choosing import choose
    from pyxfer.files import check_writable

    if file != "-":
        check_writable(file)
    with _open(store) as opened:
        kept = choose(opened, name, host)
        baseline = opened.baseline_of_id(kept.id)
    if file == "-":
        sys.stdout.write(baseline_documents.encode(baseline).decode())
    else:
        baseline_documents.save(baseline, file)
        say(f"wrote {kept.id}, {len(baseline.runs)} runs, to {file!r}")


@app.command("import")
def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that pyxfer baseline export wrote.")],
    store: Url = None,
) -> None:
    """Take a baseline from a file into the store.

    One that is there already is not taken twice.
    """
    from pyxfer import baseline_documents
    from pyxfer.baselines.store import open_store
    from pyxfer.baselines.store.importing import check_import

    baseline = baseline_documents.load(file)
    check_import(baseline, repr(file))
    with open_store(store) as opened:
        there = opened.same_baseline(baseline)
        if there is not None:
            say(f"the store {opened.shown} has this baseline already, as {there}; nothing was added")
            return
        added = opened.add_baseline(baseline)
        say(f"added {baseline.name!r} of {baseline.fingerprint.host} as {added}, {len(baseline.runs)} runs")


def write_json(value: object) -> None:
    """For a program; what no encoding has is escaped."""
    from pyxfer.json_text import to_json

    sys.stdout.write(to_json(value).decode() + "\n")


def lines_of(baseline: Baseline) -> list[CellLine]:
    """Each cell with its bandwidth in every process."""
    from pyxfer.baselines.cells import cell_text
    from pyxfer.baselines.spread import collect
    from pyxfer.report.baseline_page import CellLine

    lines = []
    for cell, series in collect(baseline.runs).items():
        if series.gbps is not None:
            usual_s = math.exp(series.mean_log)
            each = tuple(series.gbps * usual_s / median_s for median_s in series.spread.medians_s)
            lines.append(CellLine(cell_text(cell), each))
    return lines


def _open(url: str | None) -> Store:
    from pyxfer.baselines.store import open_store

    return open_store(url, create=False)
