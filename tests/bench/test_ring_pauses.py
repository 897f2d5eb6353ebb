"""The effect of a pause on an upload: a short run on the host runtime, and the table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import ring_pauses
from ring_pauses import LONG_SPIN_US, PAUSES_S, SIZES, Pauses, Row
from samples import MIB, make_run


def make_pauses() -> Pauses:
    run = make_run()
    rows = [
        Row(4 * MIB, spin_us, pause_s, (2e-4, 2e-4, 9e-4), (1e-4, 1e-4, 1e-4))
        for spin_us in (20, LONG_SPIN_US)
        for pause_s in PAUSES_S
    ]
    return Pauses(run.device, run.environment, tuple(rows))


def test_a_share_is_relative_to_the_copy_of_the_same_round() -> None:
    row = Row(MIB, 20, 0.0, (1e-3, 2e-3, 4e-3), (1e-3, 1e-3, 1e-3))
    assert (row.upload_s, row.of_pinned) == (2e-3, 0.5)


def test_each_size_and_spin_time_is_a_row_with_every_pause() -> None:
    header, rows = ring_pauses.table(make_pauses())
    assert header == [
        "size",
        "threads spin for",
        "uploads",
        "at once",
        "after 200 us",
        "after 1.00 ms",
        "after 5.00 ms",
    ]
    assert rows == [["4 MiB", spun, "3", *["200 us, 50.0 %"] * 4] for spun in ("20.0 us", "20.0 ms")]
    assert "| 4 MiB | 20.0 ms | 3 | 200 us, 50.0 % |" in ring_pauses.markdown(make_pauses())


@pytest.mark.slow
def test_every_size_and_pause_is_measured_with_both_spin_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pauses.json"
    monkeypatch.setattr(
        "sys.argv", ["ring_pauses.py", "--device", "host", "--uploads", "2", "--export-json", str(path)]
    )
    assert ring_pauses.main() == 0
    found = msgspec.json.decode(path.read_bytes(), type=Pauses)
    assert len({(row.nbytes, row.spin_us, row.pause_s) for row in found.rows}) == len(SIZES) * 2 * len(PAUSES_S)
    assert all(len(row.uploads_s) == len(row.pinned_s) == 2 for row in found.rows)
    assert "after 5.00 ms" in capsys.readouterr().out
