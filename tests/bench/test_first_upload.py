"""The first upload of a process: the limits, and a run on the host runtime."""

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


def test_processes_within_the_limits_pass() -> None:
    assert first_upload.judge(firsts()) == []


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (firsts(tuned=msgspec.structs.replace(FINE, upload_s=2.1)), ("tuned", "2.10 s", "2.00 s")),
        (firsts(cached=msgspec.structs.replace(FINE, upload_s=0.31)), ("cached", "310 ms", "300 ms")),
        (firsts(cached=msgspec.structs.replace(FINE, idle_share=0.01)), ("idle",)),
        (firsts(tuned=msgspec.structs.replace(FINE, pinned_bytes=BUDGET_BYTES + 1)), ("page-locked",)),
    ],
)
def test_one_process_beyond_a_limit_fails(result: Firsts, words: tuple[str, ...]) -> None:
    (wrong,) = first_upload.judge(result)
    assert all(word in wrong for word in words)


@pytest.mark.slow
def test_new_processes_measure_their_first_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path = tmp_path / "first.json"
    monkeypatch.setattr(
        "sys.argv", ["first_upload.py", "--device", "host", "--processes", "1", "--export-json", str(path)]
    )
    assert first_upload.main() in (0, 1)  # durations depend on other load on this machine
    result = msgspec.json.decode(path.read_bytes(), type=Firsts)
    assert len(result.tuned) == len(result.cached) == 1
    assert 0 < result.cached[0].pinned_bytes <= BUDGET_BYTES
    assert "first upload" in capsys.readouterr().out
