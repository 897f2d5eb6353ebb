"""A loop fed by pyxfer.prefetch compared with one without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import prefetched_training
import pytest
from prefetched_training import Prefetched, stored_batches
from samples import make_run
from training_loops import Shape


def result(longer: float) -> Prefetched:
    run = make_run()
    resident = [[0.010 + 0.001 * block] * 5 for block in range(7)]
    prefetched = [[(1 + longer) * seconds for seconds in block] for block in resident]
    return Prefetched("torch", run.device, run.environment, {}, 1 << 20, resident, prefetched)


def test_the_cost_compares_neighbouring_blocks() -> None:
    assert result(0.02).cost().median_s == pytest.approx(1.02)
    assert result(0.02).cost().mad_s == pytest.approx(0)


def test_the_table_has_the_cost_of_a_step() -> None:
    page = prefetched_training.page(result(0.02))
    assert "batches of 1 MiB" in page
    assert "+2.0 % (+2.0 to +2.0)" in page


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_batches_have_the_layout_of_the_framework(framework: str) -> None:
    batches = stored_batches(framework, Shape(batch=4, side=8, width=2, workers=0))
    images, labels = batches[0]
    assert images.shape == ((4, 3, 8, 8) if framework == "torch" else (4, 8, 8, 3))
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
    assert len({images.tobytes() for images, _ in batches}) == len(batches)


def test_a_loop_of_pytorch_runs_on_the_host_runtime(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("torch")
    arguments = ["torch", "--device", "host", "--blocks", "2", "--batch", "2", "--side", "16", "--width", "2"]
    monkeypatch.setattr("sys.argv", ["prefetched_training.py", *arguments])
    monkeypatch.setattr(prefetched_training, "WARM_UP", 1)
    monkeypatch.setattr(prefetched_training, "BLOCK_STEPS", 2)
    assert prefetched_training.main() in (0, 1)  # the speed on this machine does not matter
    assert "pyxfer.prefetch" in capsys.readouterr().out


def test_the_status_is_1_if_a_step_takes_too_long(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pairs = iter([(compared.resident_s, compared.prefetched_s) for compared in (result(0.029), result(0.031))])
    monkeypatch.setattr("sys.argv", ["prefetched_training.py", "--device", "host"])
    monkeypatch.setattr(prefetched_training, "train", lambda *_: next(pairs))
    assert prefetched_training.main() == 0
    assert prefetched_training.main() == 1
    assert "WRONG: +3.1 %" in capsys.readouterr().out
