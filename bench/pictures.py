"""Draws the pictures that the documentation shows from the documents in bench/results/, for readme_figures.py.

A picture ends in the digest of its specification. So that it is up to date can be seen without drawing it, which needs
the extra `report`, and for a page Chromium, and may place letters differently on another machine.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from figure_parts import complete_links, complete_run

from pyxfer._document.files import write_whole
from pyxfer._report.kinds import chart_of, charts_of
from pyxfer._report.webpage import _style, report_bytes

PICTURES = {
    "docs/pictures/sizes.svg": ("ceiling.json.gz", "sizes"),
    "docs/pictures/waterfall.svg": ("explain_torch_to.json.gz", "waterfall"),
    "docs/pictures/latency.svg": ("links.json.gz", "latency"),
}


PAGE, PAGE_OF, PAGE_SIZE = "docs/pictures/report.png", "explain_torch_to.json.gz", "900,985"
Draw = Callable[[], bytes]


def refresh(root: Path, shown: str, *, check: bool) -> list[Path]:
    """Draw the pictures that are out of date, unless `check` is set; `shown` is the text of all pages."""
    stale = []
    for name, specification, draw in _pictures(root, shown):
        path, digest = root / name, f"<!-- {hashlib.sha256(specification).hexdigest()} -->\n".encode()
        if not path.exists() or not path.read_bytes().endswith(digest):
            stale.append(path)
            if not check:
                path.parent.mkdir(exist_ok=True)
                write_whole(path, draw() + b"\n" + digest)
    return stale


def _pictures(root: Path, shown: str) -> Iterator[tuple[str, bytes, Draw]]:
    """The pictures that a page shows."""
    results = root / "bench" / "results"
    for name, (document, chart) in PICTURES.items():
        if name.removeprefix("docs/") in shown:
            run = (complete_links if document.startswith("links") else complete_run)(results / document)
            yield name, msgspec.json.encode(chart_of(run, chart)), partial(report_bytes, [run], ".svg", chart)
    if PAGE.removeprefix("docs/") in shown:
        run = complete_run(results / PAGE_OF)
        specification = msgspec.json.encode([_style(), *(chart_of(run, chart) for chart in charts_of(run))])
        yield PAGE, specification, lambda: _photographed(report_bytes([run], ".html", None))


def _photographed(page: bytes) -> bytes:
    """The upper part of a report."""
    with tempfile.TemporaryDirectory() as folder:
        html, picture = Path(folder) / "report.html", Path(folder) / "report.png"
        html.write_bytes(page)
        options = [
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--force-device-scale-factor=0.9",
            f"--window-size={PAGE_SIZE}",
        ]
        program = shutil.which("chromium") or "chromium"
        subprocess.run([program, *options, f"--screenshot={picture}", html.as_uri()], check=True, capture_output=True)
        return picture.read_bytes()
