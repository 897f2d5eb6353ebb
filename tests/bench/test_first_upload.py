"""What a process pays for its first upload: new processes on the host runtime, and what is called wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import first_upload
import msgspec
import pytest
from first_upload import BUDGET_BYTES, First, Firsts
from samples import make_run

FINE = First(cuda_s=0.5, upload_s=0.2, again_s=1e-3, idle_share=0.0, pinned_bytes=BUDGET_BYTES)


def firsts(tuned: First = FINE, cached: First = FINE) -> Firsts:
    run = make_run()
    return Firsts(run.device, run.environment, (FINE, tuned), (cached, FINE))


def test_what_is_fast_and_small_is_not_wrong() -> None:
    assert first_upload.judge(firsts()) == []


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (firsts(tuned=msgspec.structs.replace(FINE, upload_s=2.1)), "tuned: the first upload took 2.10 s, over 2.00 s"),
        (firsts(cached=msgspec.structs.replace(FINE, upload_s=0.31)), "cached: the first upload took 310 ms"),
        (firsts(cached=msgspec.structs.replace(FINE, idle_share=0.01)), "an idle process uses the processor"),
        (firsts(tuned=msgspec.structs.replace(FINE, pinned_bytes=BUDGET_BYTES + 1)), "more is page-locked"),
    ],
)
def test_the_worst_process_counts(result: Firsts, sentence: str) -> None:
    (wrong,) = first_upload.judge(result)
    assert sentence in wrong


@pytest.mark.slow
def test_each_process_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path = tmp_path / "first.json"
    monkeypatch.setattr(
        "sys.argv", ["first_upload.py", "--device", "host", "--processes", "1", "--export-json", str(path)]
    )
    assert first_upload.main() in (0, 1)  # how long it takes on a machine with other work says nothing
    result = msgspec.json.decode(path.read_bytes(), type=Firsts)
    assert len(result.tuned) == len(result.cached) == 1
    assert 0 < result.cached[0].pinned_bytes <= BUDGET_BYTES
    assert "first upload" in capsys.readouterr().out
