"""Uploading for a long time: a short one on the host runtime, and what is called wrong of a long one."""

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


def test_what_is_right_and_does_not_grow_is_not_wrong() -> None:
    assert upload_soak.judge(soak(soaked(), soaked("large"))) == []


def test_a_wrong_byte_is_wrong() -> None:
    assert upload_soak.judge(soak(soaked(wrong=1))) == ["WRONG: 1 small arrays came back with other bytes"]


@pytest.mark.parametrize("what", HELD)
def test_memory_that_grows_by_more_than_an_array_is_wrong(what: str) -> None:
    assert upload_soak.judge(soak(soaked(grown=what, by=LARGE[1]))) == []
    (wrong,) = upload_soak.judge(soak(soaked(grown=what, by=LARGE[1] + 1)))
    assert wrong.startswith(f"WRONG: small: {what} memory has grown by 100.7 MB")


@pytest.mark.slow
def test_a_short_one_compares_what_it_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
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


def test_the_page_of_the_guide_has_a_line_a_kind() -> None:
    text = upload_soak.markdown(soak(soaked(), soaked("large", wrong=1)))
    assert text.startswith("To own; ")
    assert "| small | 1,000 | 1 MiB | 1.00 ms | 0 of 10 | 0 B | 0 B | 0 B |" in text
    assert "| large | 1,000 | 1 MiB | 1.00 ms | 1 of 10 |" in text
