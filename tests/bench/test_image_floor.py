"""The work of a framework: the table, the check of its result, and the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import image_floor
import msgspec
import numpy as np
import pytest
from image_floor import BATCHES, Floors, Row
from samples import make_run

import pyxfer
from pyxfer._upload.targets import Target


def make_floors() -> Floors:
    run = make_run()
    rows = [Row("tensorflow", batch, (5e-4, 6e-4, 9e-4), (4e-4, 5e-4, 5e-4)) for batch in BATCHES]
    return Floors(run.device, run.environment, tuple(rows))


def test_the_bound_is_the_sum_of_both_medians() -> None:
    _, rows = image_floor.table(make_floors())
    assert rows[0] == ["TensorFlow", "128 images", "3", "600 us", "500 us", "1.10 ms"]
    assert "| TensorFlow | 512 images | 3 | 600 us | 500 us | 1.10 ms |" in image_floor.markdown(make_floors())


class Uploads:
    """An uploader that returns the array itself."""

    def upload(self, x: Any, to: str | Target) -> Any:
        del to
        return x


def rows_of(work: Any, engine: Any) -> Row:
    return image_floor.floor(engine, 0, Uploads(), "torch", work, 2, 3)  # type: ignore[arg-type]


def test_each_trial_times_the_work_and_a_copy(engine: Any) -> None:
    row = rows_of(lambda images: images[0, 0].astype(np.float32), engine)
    assert (row.batch, len(row.work_s), len(row.pinned_s)) == (2, 3, 3)
    assert row.least_s > 0


def test_a_wrong_result_is_refused(engine: Any) -> None:
    with pytest.raises(pyxfer.PyxferError, match="torch"):
        rows_of(lambda images: images[1, 0].astype(np.float32), engine)


def test_the_script_writes_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "floor.json"
    monkeypatch.setattr("sys.argv", ["image_floor.py", "torch", "--device", "host", "--export-json", str(path)])
    monkeypatch.setitem(image_floor.WORKS, "torch", lambda device: lambda images: images)
    monkeypatch.setattr(image_floor, "floor", lambda *given: Row(given[3], given[5], (1e-3,), (1e-3,)))
    assert image_floor.main() == 0
    assert [row.batch for row in msgspec.json.decode(path.read_bytes(), type=Floors).rows] == list(BATCHES)
    assert "its own work" in capsys.readouterr().out
