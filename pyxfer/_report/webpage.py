"""A report as one HTML file that needs no network, and charts as SVG, PNG and PDF.

Charts are drawn when the report is written, so that it has no program to draw them: a browser, a printer and a reader
without JavaScript show the same. What comes from outside is escaped, and a policy in the page lets nothing else run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

import msgspec

from pyxfer._document import codec, fleets, runs
from pyxfer._document.files import write_whole
from pyxfer._document.machines import Device
from pyxfer._report import plots
from pyxfer._report.grid import Cell, Grid
from pyxfer._report.kinds import charts_of, page_text, report_of
from pyxfer._report.report import Advice, Caption
from pyxfer._report.tables import library
from pyxfer._report.text import Lines, clean, environment_lines, moment_text
from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import format_size

SUFFIXES = (".html", ".svg", ".png", ".pdf")
MAX_EMBEDDED = 400_000
"""Bytes of compressed JSON in a page; a larger document is embedded without its trials."""
MAX_EMBEDDED_HOSTS = 2000
"""Compressing a larger fleet takes seconds, and the result would be too large."""

_METHOD = (
    "Bandwidth is the bytes of a transfer over the median time of its trials; 1 GB is 1e9 bytes. Trials of everything "
    "that is compared take turns in the same rounds. Intervals are of the median, at 95 %, and assume no independence "
    "of trials. The ceiling is the best raw copy of the same direction and size. A value that is not known is left "
    "out, and its reason is in the notes."
)
_DARK = ("#6db3f2", "#ff9d5c", "#3fcfae", "#e58fd0", "#d9b84a", "#aab4c0", "#55d0ea", "#ff9d9d")
_DARK_BLUES = ("#1b2732", "#1d3346", "#1f415d", "#225075", "#265f8d")
_DARK_ORANGES = ("#2b241f", "#40301f", "#57391d", "#6e421a", "#854b17")
_DARK_INK = {plots.INK: "#e6eaef", plots.FAINT: "#a3adb8", plots.GRID: "#3a424c"}
_COLUMNS = 120
_SIGNS = {"good": "\u2713", "doubtful": "!", "bad": "\u2715", "none": "\u2022"}
# More plots than these are drawn once, and scroll on a telephone.
_MAX_TWICE = 3


def report_bytes(documents: Sequence[object], suffix: str, chart: str | None = None) -> bytes:
    """The file of a report with a suffix of `SUFFIXES`: a page, or the charts of all documents as one picture."""
    if suffix == ".html":
        if chart is not None:
            raise UsageError("--chart is for pictures, a page has all: leave it out, or write to .svg, .png or .pdf.")
        return page_html(documents).encode(errors="backslashreplace")
    return _picture(documents, suffix, chart)


def suffix_of(path: str) -> str:
    """The suffix that decides about a report's form."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"Report {path!r:.200} has no known suffix: end its name in {', '.join(SUFFIXES)}.")
    return suffix


def write_report(path: str, document: object) -> None:
    check_report(path)
    write_whole(path, report_bytes([document], suffix_of(path)))


def check_report(path: str | None) -> None:
    """Refuse a report that cannot be made before anything is measured for it."""
    if path is not None:
        suffix_of(path)
        check_drawing()


def check_drawing() -> Any:
    """Import vl-convert."""
    return library("vl_convert", "Reports need vl-convert")


# --- pictures --------------------------------------------------------------------------------------------------------


def _picture(documents: Sequence[object], suffix: str, chart: str | None) -> bytes:
    found = [(name, make) for document in documents for name, make in charts_of(document).items()]
    chosen = [make for name, make in found if chart is None or name == chart]
    if not chosen:
        known = ", ".join(dict.fromkeys(name for name, _ in found))
        if chart is None or not known:
            raise UsageError("Nothing can be drawn: the documents have no figures.")
        raise UsageError(f"--chart {chart!r:.80} is not in the documents: choose one of {known}.")
    drawing = check_drawing()
    svg, *_ = _draw([plots.themed(plots.stacked([make(plots.WIDE) for make in chosen]), "white")])
    if suffix == ".svg":
        return svg.encode()
    if suffix == ".png":
        png: bytes = drawing.svg_to_png(svg, scale=2)
        return png
    pdf: bytes = drawing.svg_to_pdf(svg)  # it lists its fonts in another order each time
    return pdf


def _draw(specs: Sequence[plots.Spec]) -> list[str]:
    """The charts as SVG. V8 ends a process that has too little memory for it, so under a limit another one draws."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return svgs(specs)
    flags = ["-I"] if sys.flags.isolated else []
    ended = subprocess.run(  # noqa: S603 - this Python, and arguments of our own
        [sys.executable, *flags, "-c", _BOOT, "\n".join(sys.path)],
        input=json.dumps(specs).encode(),
        capture_output=True,
        check=False,
    )
    if ended.returncode:
        raise PyxferError(
            f"Charts cannot be drawn within the memory limit of {format_size(limit_bytes)}: draw them without a limit "
            "(ulimit -v unlimited)."
        )
    drawn: list[str] = json.loads(ended.stdout)
    return drawn


_BOOT = (
    "import sys; sys.path[:] = sys.argv[1].split('\\n'); import json; from pyxfer._report.webpage import svgs; "
    "json.dump(svgs(json.load(sys.stdin)), sys.stdout)"
)


def svgs(specs: Sequence[plots.Spec]) -> list[str]:
    draw = check_drawing().vegalite_to_svg
    return [draw(spec, vl_version=plots.VEGA_LITE, allowed_base_urls=[]) for spec in specs]


# --- the page --------------------------------------------------------------------------------------------------------


def page_html(documents: Sequence[object]) -> str:
    charts: list[plots.Spec] = []
    articles = [_article(document, f"document-{number}", charts) for number, document in enumerate(documents, start=1)]
    drawn = _draw(charts)
    main = _CHART.sub(lambda mark: drawn[int(mark[1])], "".join(articles))
    title = "pyxfer report"
    if len(documents) == 1:
        report = report_of(documents[0])
        title = f"{report.title(documents[0])}: {report.badge(documents[0])[1]}"
    script = _resource("webpage.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style></head><body>",
            f"<header><h1>pyxfer report</h1>{_machines(documents)}</header>",
            f"<main>{main}</main>",
            f'<footer><h2 id="method">Method</h2><p>{_METHOD}</p></footer>',
            '<div id="tip" role="status" hidden></div>',
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _machines(documents: Sequence[object]) -> str:
    """A note if the documents are of several machines, whose figures do not compare."""
    environments = [report_of(document).environment(document) for document in documents]
    found = {environment.host for environment in environments if environment is not None}
    if len(found) < 2:  # noqa: PLR2004 - two machines
        return ""
    names = ", ".join(sorted(clean(host) for host in found))
    return f"<p>These documents are of different machines: {escape(names)}.</p>"


# Where a chart will be; text from outside is escaped, so none of it is such a mark.
_CHART = re.compile(r"<!--chart (\d+)-->")


def _article(document: object, anchor: str, charts: list[plots.Spec]) -> str:
    """One document. Its charts are appended to `charts`, and have marks in their places."""
    report = report_of(document)
    title, words, (badge, word) = report.title(document), report.headline(document), report.badge(document)
    environment = report.environment(document)
    about = [("Environment", environment_lines(environment))] if environment is not None else []
    grids = [grid for grid in report.grids(document) if grid.rows]
    sections = [(name, lines) for name, lines in (*report.sections(document), *about) if lines]
    makes = charts_of(document)
    links = [(f"{anchor}-chart-{name}", report.captions[name].title) for name in makes]
    links += [(f"{anchor}-table-{number}", grid.name) for number, grid in enumerate(grids)]
    links += [(f"{anchor}-{_anchor(name)}", name) for name, _ in sections]
    text = f'<pre tabindex="0">{escape(page_text(document, _COLUMNS))}</pre>'
    return "".join(
        [
            f'<article id="{anchor}"><h2>{escape(_heading(document, title))}</h2>',
            f'<p class="badge {badge}">{_SIGNS[badge]} {escape(word)}</p>',
            f'<p class="lead">{escape(words)}</p>',
            _advice(report.advice(document)),
            _lines(report.heading(document)),
            _contents_list(links),
            *(
                _figure(f"{anchor}-chart-{name}", make, report.captions[name], words, charts)
                for name, make in makes.items()
            ),
            "" if makes else "<p>No chart: no figure can be drawn.</p>",
            *(_table(grid, f"{anchor}-table-{number}") for number, grid in enumerate(grids)),
            *(_section(name, _lines(lines), f"{anchor}-{_anchor(name)}") for name, lines in sections),
            _download(document, title),
            f"<details><summary>The page of the command</summary>{text}</details>",
            "</article>",
        ]
    )


def _heading(document: object, title: str) -> str:
    """The device and the date if the document has them: they tell reports apart, and all have the same commands."""
    device, environment = getattr(document, "device", None), report_of(document).environment(document)
    words = [clean(device.name)] if isinstance(device, Device) else []
    words += [] if environment is None else [moment_text(environment.taken_at).partition(" ")[0]]
    return f"{', '.join(words)}: {title}" if words else title


def _advice(advice: Sequence[Advice]) -> str:
    codes = [f'<pre tabindex="0">{escape(code)}</pre>' if code else "" for _, code in advice]
    items = [f"<li>{escape(text)}{code}</li>" for (text, _), code in zip(advice, codes, strict=True)]
    return f'<section class="advice"><h3>What to do</h3><ol>{"".join(items)}</ol></section>' if items else ""


def _contents_list(links: Sequence[tuple[str, str]]) -> str:
    items = [f'<li><a href="#{target}">{escape(name)}</a></li>' for target, name in links]
    return f'<nav aria-label="Contents"><ul>{"".join(items)}</ul></nav>'


def _figure(anchor: str, make: plots.Make, caption: Caption, words: str, charts: list[plots.Spec]) -> str:
    plot = make(plots.WIDE)
    described = f'role="img" aria-label="{escape(f"{caption.title}. {words}")}"'
    wide = _mark(plot, charts)
    if len(plot.get("vconcat", ())) > _MAX_TWICE:
        drawn = f'<div class="scroll" tabindex="0" {described}>{wide}</div>'
    else:
        narrow = _mark(make(plots.NARROW), charts)
        drawn = f'<div class="wide" {described}>{wide}</div><div class="narrow" {described}>{narrow}</div>'
    below = f"<figcaption>{escape(caption.text)}</figcaption>"
    return _section(caption.title, f"<figure>{drawn}{below}</figure>", anchor)


def _mark(plot: plots.Spec, charts: list[plots.Spec]) -> str:
    charts.append(plots.themed(plot))
    return f"<!--chart {len(charts) - 1}-->"


def _section(name: str, body: str, anchor: str) -> str:
    return f'<section id="{anchor}"><h3><a href="#{anchor}">{escape(name)}</a></h3>{body}</section>'


def _lines(lines: Lines) -> str:
    """Labelled lines as a list; a line without a label continues the one before."""
    if all(label in ("-", "") for label, _ in lines):
        return f"<ul>{''.join(f'<li>{escape(text)}</li>' for _, text in lines)}</ul>"
    return f"<dl>{''.join(f'<dt>{escape(label)}</dt><dd>{escape(text)}</dd>' for label, text in lines)}</dl>"


def _table(grid: Grid, anchor: str) -> str:
    headings, rows = grid.readable()
    numeric = [all(cell.value is not None or not cell.text for cell in column) for column in zip(*rows, strict=True)]
    head = "".join(
        f'<th scope="col"{_NUMBER if number else ""}><button type="button">{escape(heading)}</button></th>'
        for heading, number in zip(headings, numeric, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(_cell(cell, number) for cell, number in zip(row, numeric, strict=True))}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    scrolled = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(grid.name)}">{table}</div>'
    notes = [(mark, text) for mark, text in grid.notes]
    return _section(grid.name, f"{scrolled}{_lines(notes) if notes else ''}", anchor)


_NUMBER = ' class="number"'


def _cell(cell: Cell, number: bool) -> str:
    value = f' data-value="{cell.value!r}"' if cell.value is not None else ""
    return f"<td{_NUMBER if number else ''}{value}>{escape(cell.text)}</td>"


def _download(document: object, name: str) -> str:
    if isinstance(document, fleets.Fleet) and len(document.hosts) > MAX_EMBEDDED_HOSTS:
        return '<p class="small">The document is too large to be embedded here.</p>'
    data, note = _compressed(document), ""
    if len(data) > MAX_EMBEDDED and isinstance(document, runs.Run):
        rows = tuple(msgspec.structs.replace(row, trials=()) for row in document.measurements)
        data, note = _compressed(msgspec.structs.replace(document, measurements=rows)), ", without its trials"
    if len(data) > MAX_EMBEDDED:
        return '<p class="small">The document is too large to be embedded here.</p>'
    encoded = base64.b64encode(data).decode()
    file = f"{_anchor(name)}.json.gz"
    link = f'<a download="{file}" href="data:application/gzip;base64,{encoded}">Download JSON</a>'
    return f'<p class="download">{link} (compressed{note})</p>'


def _compressed(document: object) -> bytes:
    return gzip.compress(codec.to_sealed_json(document), mtime=0)


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "part"


def _style() -> str:
    lights, darks = (*plots.COLOURS, *plots.BLUES, *plots.ORANGES), (*_DARK, *_DARK_BLUES, *_DARK_ORANGES)
    colours = {**dict(zip(lights, darks, strict=True)), **_DARK_INK}
    rules = [
        f'  figure [{what}="{light}"] {{ {what}: {dark}; }}'
        for light, dark in colours.items()
        for what in ("fill", "stroke")
    ]
    return _resource("webpage.css").replace("  /* dark colours of charts */", "\n".join(rules))


def _resource(name: str) -> str:
    return resources.files("pyxfer._report").joinpath(name).read_text(encoding="utf-8")
