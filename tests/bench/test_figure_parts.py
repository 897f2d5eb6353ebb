"""Captions, code blocks, and documents of the wrong kind."""

from __future__ import annotations

from pathlib import Path

import figure_parts
import peers
import pytest
import timers
from samples import make_run

from pyxfer._document.runs import Run
from pyxfer._report.layout import Page
from pyxfer.errors import DocumentError


def test_a_caption_names_the_machine_and_the_unit() -> None:
    text = figure_parts.caption(make_run())
    assert text.startswith("NVIDIA H200, INTEL(R) XEON(R) PLATINUM 8568Y+, driver 570.124.06, pyxfer 0.1.0, 2025-11-21")
    assert "GB = 1e9 bytes." in text


def test_a_page_is_a_code_block_of_eighty_columns() -> None:
    def show(run: Run, page: Page) -> None:
        page.line(f"{run.kind} {'word ' * 20}")

    lines = figure_parts.page_of(make_run(), show).splitlines()
    assert (lines[0], lines[-1]) == ("```", "```")
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


def test_a_document_of_another_script_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text("{}")
    with pytest.raises(DocumentError, match=r"peers\.json.*peers\.py"):
        figure_parts.load_own(tmp_path / "peers.json", peers.Peers, "peers.py")
    with pytest.raises(DocumentError, match=r"peers\.json.*timers\.py"):
        figure_parts.load_own(tmp_path / "peers.json", timers.Timers, "timers.py")
