"""The programs of docs/uploading.md, over host memory and with small models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from route_checks import import_or_skip

GUIDE = Path(__file__).parents[3] / "docs" / "uploading.md"
if not GUIDE.exists():
    pytest.skip("the guide is not beside the tests", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("over_host_memory")]
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
FEATURES, CLASSES, BATCHES = 12, 3, 6


def run(*marks: str) -> dict[str, Any]:
    """What the programs with these words define, one after the other."""
    space: dict[str, Any] = {}
    for mark in marks:
        (program,) = (each for each in PROGRAMS if mark in each)
        exec(program.replace("GPU:0", "CPU:0").replace("(512, 256, 256, 3)", "(5, 6, 7, 3)"), space)
    return space


def batches() -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(0)
    return [(rng.random((4, FEATURES), np.float32), rng.integers(0, CLASSES, 4)) for _ in range(BATCHES)]


def test_the_programs_with_and_without_an_uploader() -> None:
    import_or_skip("torch")
    space = run("back = pyxfer.download(y)")
    assert np.array_equal(space["back"], space["x"])
    space = run("as up:")
    assert np.array_equal(space["batch"].numpy(), space["x"])


def test_the_loop_of_torch() -> None:
    torch: Any = import_or_skip("torch")
    model = torch.nn.Linear(FEATURES, CLASSES)
    before = model.weight.detach().clone()
    train = run("import torch")["train"]
    train(model, torch.optim.SGD(model.parameters(), 0.1), batches())
    assert not torch.equal(model.weight, before)
    tensors = [torch.from_numpy(np.concatenate(each)) for each in zip(*batches(), strict=True)]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch_size=5)
    train(model, torch.optim.SGD(model.parameters(), 0.1), loader)


def test_the_loop_of_tensorflow() -> None:
    tf: Any = import_or_skip("tensorflow")
    model = tf.keras.Sequential([tf.keras.layers.Dense(CLASSES)])
    model.build((None, FEATURES))
    before = model.get_weights()[0].copy()
    optimizer = tf.keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    images, labels = (np.concatenate(each) for each in zip(*batches(), strict=True))
    run("a tf.data.Dataset")["train"](model, optimizer, tf.data.Dataset.from_tensor_slices((images, labels)).batch(4))
    assert not np.array_equal(model.get_weights()[0], before)


def test_the_loop_of_jax() -> None:
    jax: Any = import_or_skip("jax")
    state = run("import jax")["train"](
        jax.jit(lambda total, batch: total + batch.sum()), 0.0, (np.full(4, n, np.float32) for n in range(5))
    )
    assert float(state) == 40.0


def test_a_page_locked_array_that_tensorflow_takes() -> None:
    import_or_skip("tensorflow")
    space = run("empty_pinned")
    space["a"][...] = 7
    assert int(space["t"][4, 5, 6, 2]) == 7
