"""The steps of an unchanged script are those of PyTorch's optimizers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from frameworks.installed.available import needs
from watch.programs import TIMEOUT_S, environment

from pyxfer._document.watches import Watched

TRAINING = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(12):
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
import sys
print(type(sys.modules["torch.optim.optimizer"].__spec__.loader).__name__)
"""


def watched(folder: Path, *options: str) -> tuple[str, Watched]:
    (folder / "train.py").write_text(TRAINING)
    command = [sys.executable, "-m", "pyxfer", "watch", "--device", "host", *options, "--export-json", "w.json"]
    result = subprocess.run(
        [*command, "train.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=folder,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, Watched.load(folder / "w.json")


@needs("torch")
def test_optimizer_steps_are_skipped_and_counted(tmp_path: Path) -> None:
    _, result = watched(tmp_path, "--skip", "3", "--steps", "5")
    assert (result.steps.skipped, result.steps.watched, result.ended) == (3, 5, "complete")
    assert result.steps.finder == "optimizer"


@needs("torch")
def test_the_first_optimizer_step_only_marks_the_beginning_of_the_second(tmp_path: Path) -> None:
    _, result = watched(tmp_path)
    assert result.steps.watched == 11


@needs("torch")
def test_the_optimizer_module_keeps_its_own_loader(tmp_path: Path) -> None:
    printed, _ = watched(tmp_path, "--skip", "1", "--steps", "1")
    assert printed == "SourceFileLoader\n"


@needs("torch")
def test_a_window_that_closes_inside_pytorchs_step_does_not_break_it(tmp_path: Path) -> None:
    _, result = watched(tmp_path, "--steps", "1")
    assert (result.steps.watched, result.ended) == (1, "complete")
