"""Comparison of activity records with events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dma_agreement
import msgspec
import pytest
from explain_samples import make_dma
from framework_samples import make_raw_rows
from samples import MIB, make_run

from pyxfer._document.runs import Fact, Measurement
from pyxfer._measure import stats


def traced_rows(apart_s: float) -> tuple[Measurement, ...]:
    """Raw copies whose records are shorter than their events by `apart_s`."""
    rows = []
    for row in make_raw_rows("torch", "h2d", 4 * MIB):
        seconds = (row.elapsed_s or 0.0) - apart_s
        rows.append(msgspec.structs.replace(row, dma=Fact(make_dma(seconds, nbytes=row.nbytes))))
    return tuple(rows)


def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[Measurement, ...]) -> int:
    path = tmp_path / "run.json"
    make_run(measurements=rows).save(path)
    monkeypatch.setattr(sys, "argv", ["dma_agreement.py", str(path)])
    return dma_agreement.main()


@pytest.mark.parametrize(("apart_s", "status"), [(1e-6, 0), (2e-5, 1), (-1e-3, 1)])
def test_the_status_is_1_if_times_differ_by_more_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, apart_s: float, status: int
) -> None:
    assert judge(tmp_path, monkeypatch, traced_rows(apart_s)) == status
    assert ("WRONG" in capsys.readouterr().out) is bool(status)


@pytest.mark.parametrize(
    ("elapsed_us", "bound_us"), [(1.6, 0.168), (6.2, 0.651), (20.0, 2.1), (100.0, 2.5), (4842.0, 26.21)]
)
def test_the_bound_of_a_short_copy_is_a_part_of_its_time(elapsed_us: float, bound_us: float) -> None:
    row = make_raw_rows("torch", "h2d", 4 * MIB)[0]
    timed = msgspec.structs.replace(row, summary=stats.summarise([elapsed_us * 1e-6] * 9))
    assert dma_agreement.bound_s(timed) == pytest.approx(bound_us * 1e-6)


def test_the_status_is_1_if_no_row_was_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(tmp_path, monkeypatch, tuple(make_raw_rows("torch", "h2d", 4 * MIB))) == 1
