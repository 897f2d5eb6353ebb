"""Draws the pictures that the documentation shows from the documents in bench/results/, for readme_figures.py.

A picture ends in the digest of its specification. So that it is up to date can be seen without drawing it, which needs
the extra `report` and may place letters differently on another machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from figure_parts import complete_links, complete_run

from pyxfer._document.files import write_whole
from pyxfer._document.links import Links
from pyxfer._document.runs import Run
from pyxfer._report.kinds import chart_of
from pyxfer._report.webpage import report_bytes

PICTURES = {
    "docs/pictures/sizes.svg": ("ceiling.json.gz", "sizes"),
    "docs/pictures/waterfall.svg": ("explain_torch_to.json.gz", "waterfall"),
    "docs/pictures/latency.svg": ("links.json.gz", "latency"),
}


def refresh(root: Path, shown: str, *, check: bool) -> list[Path]:
    """Draw the pictures that are out of date, unless `check` is set; `shown` is the text of all pages."""
    stale = []
    for path, run, chart in _pictures(root, shown):
        digest = f"<!-- {hashlib.sha256(msgspec.json.encode(chart_of(run, chart))).hexdigest()} -->\n".encode()
        if not path.exists() or not path.read_bytes().endswith(digest):
            stale.append(path)
            if not check:
                path.parent.mkdir(exist_ok=True)
                write_whole(path, report_bytes([run], ".svg", chart) + b"\n" + digest)
    return stale


def _pictures(root: Path, shown: str) -> Iterator[tuple[Path, Run | Links, str]]:
    """The pictures that a page shows."""
    for name, (document, chart) in PICTURES.items():
        if name.removeprefix("docs/") in shown:
            load = complete_links if document.startswith("links") else complete_run
            yield root / name, load(root / "bench" / "results" / document), chart
