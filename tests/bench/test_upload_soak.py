"""Uploads for a long time: the checks, and a short run on the host runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import upload_soak
from samples import make_run
from upload_soak import HELD, LARGE, Soak, Soaked


def soaked(kind: str = "small", *, wrong: int = 0, grown: str = "", by: int = 0) -> Soaked:
    early = dict.fromkeys(HELD, 1 << 30)
    late = {what: held + (by if what == grown else 0) for what, held in early.items()}
    return Soaked(kind, 1000, 1 << 20, 10, wrong, 1.0, early, late)


def soak(*kinds: Soaked) -> Soak:
    run = make_run()
    return Soak("own", run.device, run.environment, kinds)


def test_correct_uploads_without_growth_pass() -> None:
    assert upload_soak.judge(soak(soaked(), soaked("large"))) == []


def test_wrong_contents_fail() -> None:
    (wrong,) = upload_soak.judge(soak(soaked(wrong=1), soaked("large")))
    assert "1 small" in wrong


@pytest.mark.parametrize("what", HELD)
def test_growth_by_more_than_an_array_fails(what: str) -> None:
    assert upload_soak.judge(soak(soaked(grown=what, by=LARGE[1]))) == []
    (wrong,) = upload_soak.judge(soak(soaked(grown=what, by=LARGE[1] + 1)))
    assert all(word in wrong for word in ("small", what, "100.7 MB"))


@pytest.mark.slow
def test_a_short_run_compares_its_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path = tmp_path / "soak.json"
    monkeypatch.setattr(upload_soak, "LARGE", (1 << 20, 64 << 20))
    arguments = ["--device", "host", "--small", "300", "--large", "10", "--export-json", str(path)]
    monkeypatch.setattr("sys.argv", ["upload_soak.py", *arguments])
    assert upload_soak.main() == 0
    small, large = msgspec.json.decode(path.read_bytes(), type=Soak).soaked
    assert (small.uploads, small.compared, small.wrong) == (300, 3, 0)
    assert (large.uploads, large.compared, large.wrong) == (10, 1, 0)
    assert 0 < large.late_bytes["page-locked"] <= 256 << 20
    assert "0 of 3" in capsys.readouterr().out


def test_the_table_has_a_row_for_each_kind_of_array() -> None:
    text = upload_soak.markdown(soak(soaked(), soaked("large", wrong=1)))
    assert text.startswith("To own; ")
    assert "| small | 1,000 | 1 MiB | 1.00 ms | 0 of 10 | 0 B | 0 B | 0 B |" in text
    assert "| large | 1,000 | 1 MiB | 1.00 ms | 1 of 10 |" in text
