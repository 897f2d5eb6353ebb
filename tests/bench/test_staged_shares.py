"""Shares of staged copies, and their limits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import staged_shares
from samples import MIB, make_measurement, make_run, retimed
from staged_shares import CEILING, DRIVERS, STAGED

from pyxfer._ceiling.rows import way_head
from pyxfer._ceiling.ways import way_of
from pyxfer._document.runs import Measurement


def row(route: str, seconds: float, *, nbytes: int = 24 * MIB, rounds: int = 20, **changes: Any) -> Measurement:
    """A measurement whose rounds all take `seconds`."""
    bare = msgspec.structs.replace(make_measurement(route=route), nbytes=nbytes, moved_bytes=nbytes, **changes)
    way = way_of(route, bare.direction, bare.variant)
    assert way is not None
    own = msgspec.structs.replace(bare, memory=way.memory, mode=way.mode, bracket=way_head(way).bracket)
    return retimed(own, [seconds] * rounds)


def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *rows: Measurement) -> int:
    path = tmp_path / "run.json"
    make_run(measurements=rows).save(path)
    monkeypatch.setattr(sys, "argv", ["staged_shares.py", str(path)])
    return staged_shares.main()


@pytest.mark.parametrize(("seconds", "status"), [(1 / 0.76, 0), (1 / 0.74, 1)])
def test_an_upload_below_its_least_share_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, seconds: float, status: int
) -> None:
    assert judge(tmp_path, monkeypatch, row(CEILING, 1e-3), row(STAGED, seconds * 1e-3)) == status
    assert capsys.readouterr().out.count("WRONG") == status


@pytest.mark.parametrize(("seconds", "status"), [(1 / 0.71, 0), (1 / 0.69, 1)])
def test_the_least_share_of_a_download_is_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, status: int
) -> None:
    way: Any = {"direction": "d2h", "side": "d2h"}
    assert judge(tmp_path, monkeypatch, row(CEILING, 1e-3, **way), row(STAGED, seconds * 1e-3, **way)) == status


@pytest.mark.parametrize(("seconds", "status"), [(1.02, 0), (1.05, 1)])
def test_a_staged_copy_slower_than_the_drivers_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, seconds: float, status: int
) -> None:
    rows = (row(DRIVERS, 1e-5, nbytes=4096), row(STAGED, seconds * 1e-5, nbytes=4096))
    assert judge(tmp_path, monkeypatch, *rows) == status
    assert capsys.readouterr().out.count("WRONG") == status


def test_other_sizes_have_no_least_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(tmp_path, monkeypatch, row(CEILING, 1e-4, nbytes=MIB), row(STAGED, 1e-2, nbytes=MIB)) == 0


def test_a_run_without_staged_copies_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(tmp_path, monkeypatch, row(CEILING, 1e-3)) == 1


def test_too_few_rounds_give_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    rows = (row(DRIVERS, 1e-5, nbytes=4096, rounds=19), row(STAGED, 2e-5, nbytes=4096, rounds=19))
    assert judge(tmp_path, monkeypatch, *rows) == 0
    assert "0.50" not in capsys.readouterr().out
