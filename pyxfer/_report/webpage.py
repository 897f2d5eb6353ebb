"""A report as one HTML file that needs no network, and charts as SVG and PNG.

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
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from pyxfer._doctor.examine import without_trials
from pyxfer._document import codec, runs
from pyxfer._document.files import write_whole
from pyxfer._document.machines import Device
from pyxfer._python import python_command
from pyxfer._report import plots
from pyxfer._report.grid import Cell, Grid
from pyxfer._report.kinds import charts_of, page_text, report_of
from pyxfer._report.report import Advice, Caption
from pyxfer._report.tables import library
from pyxfer._report.text import Lines, clean, environment_lines, moment_text
from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import format_size

SUFFIXES = (".html", ".svg", ".png")
MAX_EMBEDDED = 400_000
"""Bytes of compressed JSON in a page; a larger document is embedded without its trials."""


_METHOD = (
    "Bandwidth is the bytes of a transfer over the median time of its trials; 1 GB is 1e9 bytes. Trials of everything "
    "that is compared take turns in the same rounds. Intervals are of the median, at 95 %, and assume no independence "
    "of trials. The ceiling is the best raw copy of the same direction and size. A value that is not known is left "
    "out, and its reason is in the notes."
)
_DARK = ("#6db3f2", "#ff9d5c", "#3fcfae", "#e58fd0", "#d9b84a", "#aab4c0", "#55d0ea", "#ff9d9d")
_DARK_BLUES = ("#1b2732", "#1d3346", "#1f415d", "#225075", "#265f8d")
_DARK_ORANGES = ("#2b241f", "#40301f", "#57391d", "#6e421a", "#854b17")
_DARK_INK = {plots.INK: "#e6eaef", plots.FAINT: "#a3adb8", plots.GRID: "#3a424c", plots.HALO: "#14181d"}
_SIGNS = {"good": "\u2713", "doubtful": "!", "bad": "\u2715", "none": "\u2022"}
# More plots than these are drawn once, and scroll on a telephone.
_MAX_TWICE = 3
# A table with more columns than these is printed across a page.
_MANY_COLUMNS = 16
# Texts of a column that are no longer than this are never broken into lines.
_LONGEST_WHOLE = 32


def report_bytes(documents: Sequence[object], suffix: str, chart: str | None = None) -> bytes:
    """The file of a report with a suffix of `SUFFIXES`: a page, or the charts of all documents as one picture."""
    if suffix == ".html":
        if chart is not None:
            raise UsageError("--chart is for pictures, a page has all: leave it out, or write to .svg or .png.")
        return page_html(documents).encode(errors="backslashreplace")
    found = [(name, make) for document in documents for name, make in charts_of(document).items()]
    chosen = [make for name, make in found if chart is None or name == chart]
    if not chosen:
        known = ", ".join(dict.fromkeys(name for name, _ in found))
        if chart is None or not known:
            raise UsageError("Nothing can be drawn: the documents have no figures.")
        raise UsageError(f"--chart {chart!r:.80} is not in the documents: choose one of {known}.")
    drawing = check_drawing()
    svg = svg_of(plots.themed(plots.stacked([make(plots.WIDE) for make in chosen]), plots.WIDE, "white"))
    if suffix == ".svg":
        return svg.encode()
    png: bytes = drawing.svg_to_png(svg, scale=2)
    return png


def suffix_of(path: str) -> str:
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
    return library("vl_convert", "Reports need vl-convert")


# --- pictures --------------------------------------------------------------------------------------------------------


def svg_of(spec: plots.Spec) -> str:
    svg, *_ = _draw([spec])
    return svg


def _draw(specs: Sequence[plots.Spec]) -> list[str]:
    """The charts as SVG. V8 ends a process that has too little memory for it, so under a limit another one draws."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return svgs(specs)
    ended = subprocess.run(  # noqa: S603 - this Python, and code of our own
        python_command(_BOOT),
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


_BOOT = "import json; from pyxfer._report.webpage import svgs; json.dump(svgs(json.load(sys.stdin)), sys.stdout)"


def svgs(specs: Sequence[plots.Spec]) -> list[str]:
    draw = check_drawing().vegalite_to_svg
    return [draw(spec, vl_version=plots.VEGA_LITE, allowed_base_urls=[]) for spec in specs]


# --- the page --------------------------------------------------------------------------------------------------------


def page_html(documents: Sequence[object]) -> str:
    articles = [_article(document, f"document-{number}") for number, document in enumerate(documents, start=1)]
    title = "pyxfer report"
    if len(documents) == 1:
        report = report_of(documents[0])
        title = f"{report.title(documents[0])}: {report.badge(documents[0])[1]}"
    script = _resource("webpage.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_style()}</style></head><body>
<main>{"".join(articles)}</main>
<footer><h2 id="method">Method</h2><p>{_METHOD}</p></footer>
<div id="tip" role="status" hidden></div>
<script>{script}</script></body></html>
"""


def _article(document: object, anchor: str) -> str:
    report = report_of(document)
    title, words, (badge, word) = report.title(document), report.headline(document), report.badge(document)
    environment = report.environment(document)
    about = [("Environment", environment_lines(environment))] if environment is not None else []
    grids = [grid for grid in report.grids(document) if grid.rows]
    sections = [(name, lines) for name, lines in (*report.sections(document), *about) if lines]
    makes, captions = charts_of(document), report.captions
    figures = [
        _section(captions[name].title, _figure(make, captions[name], words), f"{anchor}-chart-{name}")
        for name, make in makes.items()
    ]
    links = [(f"{anchor}-chart-{name}", captions[name].title) for name in makes]
    links += [(f"{anchor}-table-{number}", grid.name) for number, grid in enumerate(grids)]
    links += [(f"{anchor}-{_anchor(name)}", name) for name, _ in sections]
    contents = "".join(f'<li><a href="#{target}">{escape(name)}</a></li>' for target, name in links)
    text = f'<pre tabindex="0">{escape(page_text(document, 120))}</pre>'
    return "".join(
        [
            f'<article id="{anchor}"><div class="head"><h1>{escape(_heading(document, title))}</h1>',
            f'<p class="badge {badge}">{_SIGNS[badge]} {escape(word)}</p></div>',
            f'<p class="lead">{escape(words)}</p>',
            _advice(report.advice(document)),
            _lines(report.heading(document)),
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav>',
            *(figures or ["<p>No chart: no figure can be drawn.</p>"]),
            *(_table(grid, f"{anchor}-table-{number}") for number, grid in enumerate(grids)),
            *(_section(name, _lines(lines), f"{anchor}-{_anchor(name)}") for name, lines in sections),
            _download(document, title),
            f"<details><summary>The page of the command</summary>{text}</details>",
            "</article>",
        ]
    )


def _heading(document: object, title: str) -> str:
    """The device and the date if the document has them: they tell reports apart, and all have the same commands."""
    devices = [getattr(document, "device", None)]
    devices += [getattr(each, "device", each) for each in getattr(document, "devices", ())]
    devices += [each.device for each in getattr(document, "runs", ())]
    environment = report_of(document).environment(document)
    words = list(dict.fromkeys(clean(device.name) for device in devices if isinstance(device, Device)))
    words += [] if environment is None else [moment_text(environment.taken_at).partition(" ")[0]]
    return f"{', '.join(words)}: {title}" if words else title


def _advice(advice: Sequence[Advice]) -> str:
    codes = [f'<pre tabindex="0">{escape(code)}</pre>' if code else "" for _, code in advice]
    items = [f"<li>{escape(text)}{code}</li>" for (text, _), code in zip(advice, codes, strict=True)]
    return f'<section class="advice"><h2>What to do</h2><ol>{"".join(items)}</ol></section>' if items else ""


def _figure(make: plots.Make, caption: Caption, words: str) -> str:
    described = f'role="img" aria-label="{escape(f"{caption.title}. {words}")}"'
    wide = _inline(make, plots.WIDE)
    if len(wide) > _MAX_TWICE:
        drawn = f'<div class="scroll" tabindex="0" {described}>{"".join(wide)}</div>'
    else:
        narrow = "".join(_inline(make, plots.NARROW))
        drawn = f'<div class="wide" {described}>{"".join(wide)}</div><div class="narrow" {described}>{narrow}</div>'
    return f"<figure>{drawn}<figcaption>{escape(caption.text)}</figcaption></figure>"


def _inline(make: plots.Make, width: int) -> list[str]:
    """Each plot as a picture of its own, because a printer does not break one over two pages."""
    drawn = _draw([plots.themed(plot, width) for plot in plots.parts_of(make(width))])
    return [f'<div class="plot">{picture}</div>' for picture in drawn]


def _section(name: str, body: str, anchor: str) -> str:
    return f'<section id="{anchor}"><h2><a href="#{anchor}">{escape(name)}</a></h2>{body}</section>'


def _lines(lines: Lines) -> str:
    """Labelled lines as a list; a line without a label continues the one before."""
    if all(label in ("-", "") for label, _ in lines):
        return f"<ul>{''.join(f'<li>{escape(text)}</li>' for _, text in lines)}</ul>"
    return f"<dl>{''.join(f'<dt>{escape(label)}</dt><dd>{escape(text)}</dd>' for label, text in lines)}</dl>"


def _table(grid: Grid, anchor: str) -> str:
    headings, rows = grid.readable()
    forms = []
    for column in zip(*rows, strict=True):
        # Numbers are aligned right, and short texts are not broken into lines, which would make rows twice as high.
        whole = ' class="whole"' if all(len(cell.text) <= _LONGEST_WHOLE for cell in column) else ""
        is_number = all(cell.value is not None or not cell.text for cell in column)
        forms.append(' class="number"' if is_number else whole)
    heads = zip(map(escape, headings), forms, strict=True)
    head = "".join(f'<th scope="col"{form}><button type="button">{name}</button></th>' for name, form in heads)
    cells = ("".join(map(_cell, row, forms)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    many = " many" if len(headings) > _MANY_COLUMNS else ""
    area = f'class="scroll table{many}" tabindex="0" role="region" aria-label="{escape(grid.name)}"'
    notes = _lines(list(grid.notes)) if grid.notes else ""
    return _section(grid.name, f"<div {area}>{table}</div>{notes}", anchor)


def _cell(cell: Cell, form: str) -> str:
    value = f' data-value="{cell.value!r}"' if cell.value is not None else ""
    return f"<td{form}{value}>{escape(cell.text)}</td>"


def _download(document: object, name: str) -> str:
    data, note = gzip.compress(codec.to_sealed_json(document), mtime=0), ""
    if len(data) > MAX_EMBEDDED and isinstance(document, runs.Run):
        data, note = gzip.compress(codec.to_sealed_json(without_trials(document)), mtime=0), ", without its trials"
    if len(data) > MAX_EMBEDDED:
        return '<p class="small">The document is too large to be embedded here.</p>'
    encoded = base64.b64encode(data).decode()
    file = f"{_anchor(name)}.json.gz"
    link = f'<a download="{file}" href="data:application/gzip;base64,{encoded}">Download JSON</a>'
    return f'<p class="download">{link} (compressed{note})</p>'


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
