"""The steps of an unchanged script that trains with a real framework."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from frameworks.installed.available import SLOW, needs
from watch.programs import environment

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
# Two epochs of six batches, the input of unknown length, validation after each epoch. Compiled functions run before.
KERAS = """
import keras, numpy as np, sys
keras.utils.set_random_seed(1)
warmed = None
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    warmed = tf.function(lambda x: x + 1)
else:
    import jax
    warmed = jax.jit(lambda x: x + 1)
for number in range(9):
    warmed(np.float32(number))
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
x, y = np.ones((12, 4), "float32"), np.ones((12, 2), "float32")
def batches():
    for _ in range(6):
        yield x[:2], y[:2]
class Counted(keras.callbacks.Callback):
    count = 0
    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
counted = Counted()
model.fit(batches(), epochs=1, verbose=0, callbacks=[counted])
model.fit(x, y, batch_size=2, epochs=1, validation_data=(x, y), verbose=0, callbacks=[counted])
model.evaluate(x, y, batch_size=2, verbose=0)
print(counted.count)
"""
COMPILED = """
import tensorflow as tf
@tf.function
def inner(x):
    return x * 2.0
@tf.function
def train(x):
    return inner(x) + 1.0
prepared = tf.function(lambda: tf.ones(3))()
for number in range(6):
    out = train(prepared)
print(out.numpy().tolist(), train.experimental_get_tracing_count(), train.python_function.__name__)
"""
JITTED = """
import functools, jax, jax.numpy as jnp
from jax import jit
@functools.partial(jit, static_argnames="more")
def train(x, more=1):
    return inner(x) + more
@jax.jit
def inner(x):
    return x * 2
class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def apply(self, x):
        return x
x = jnp.ones(3)
Model().apply(x)
for number in range(6):
    jax.block_until_ready(train(x))
"""
# What a program can do with a function that jax.jit has made. Each line is printed with its result or its error.
USES_OF_JITTED = """
Model().apply(x), Model.apply(Model(), x), type(Model().apply).__name__
train.__name__, train.__doc__, train.__module__, train.__qualname__, train.__wrapped__.__name__
train.__class__, isinstance(train, jax.stages.Wrapped), callable(train), inspect.isfunction(train)
repr(train).split(" at ")[0], sorted(dir(train)), sorted(vars(train)), inspect.signature(train)
train == train, train == jit(inner), {train: 1}[train], weakref.ref(train)() is train
inspect.getsource(train), inspect.unwrap(train).__name__, functools.wraps(train)(print).__name__
copy.copy(train), copy.deepcopy(train)
pickle.dumps(train)
train.lower(x).as_text(), train.trace(x).jaxpr, train.eval_shape(x), train._cache_size()
jax.grad(lambda x: train(x).sum())(x), jax.vmap(train)(x), jit(train)(x), jax.make_jaxpr(train)(x)
jax.lax.scan(jit(lambda c, v: (c + v, c)), 0.0, x), jax.lax.cond(True, train, inner, x)
jax.checkpoint(train)(x), jax.custom_jvp(train)(x), jax.tree_util.Partial(train, more=2)(x)
jax.export.export(train)(x).fun_name
jit(lambda f, x: f(x), static_argnums=0)(train, x), jit(static_argnums=1)(lambda x, n: x * n)(x, 3)
train(1, 2, 3)
jit(3)
inspect.signature(jit), jit.__name__, jit.__doc__ == jax.jit.__doc__
"""
TIMEOUT_S = 300.0


def watched(folder: Path, text: str, *options: str, **variables: str) -> tuple[str, Watched]:
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "pyxfer", "watch", "--device", "host", "--ceilings", "none"]
    result = subprocess.run(
        [*command, *options, "--export-json", "w.json", "train.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=folder,
        env={**environment(), "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **variables},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, Watched.load(folder / "w.json")


@needs("torch")
def test_optimizer_steps_are_skipped_and_counted(tmp_path: Path) -> None:
    _, result = watched(tmp_path, TRAINING, "--skip", "3", "--steps", "5")
    assert (result.steps.skipped, result.steps.watched, result.ended) == (3, 5, "complete")
    assert result.steps.finder == "optimizer"


@needs("torch")
def test_a_window_that_closes_inside_pytorchs_step_does_not_break_it(tmp_path: Path) -> None:
    _, result = watched(tmp_path, TRAINING, "--steps", "1")
    assert (result.steps.watched, result.ended) == (1, "complete")


@SLOW
@needs("tensorflow")
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_batches_of_keras_fit_are_the_steps(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("keras", reason="not installed: Keras")
    text = KERAS if backend != "torch" else KERAS.replace("import jax\n", "").replace("jax.jit(lambda x: x + 1)", "abs")
    printed, result = watched(tmp_path, text, KERAS_BACKEND=backend)
    assert printed == "12\n"
    assert (result.steps.finder, result.steps.watched, result.steps.failed) == ("keras", 12, 0)
    assert result.steps.between_s is not None


@SLOW
@needs("tensorflow")
def test_steps_of_keras_fit_are_skipped_after_other_calls(tmp_path: Path) -> None:
    pytest.importorskip("keras", reason="not installed: Keras")
    printed, result = watched(tmp_path, KERAS, "--skip", "4", "--steps", "5", KERAS_BACKEND="tensorflow")
    assert printed == "12\n"
    assert (result.steps.finder, result.steps.skipped, result.steps.watched) == ("keras", 4, 5)


@SLOW
@needs("tensorflow")
def test_calls_of_a_tf_function_are_the_steps(tmp_path: Path) -> None:
    printed, result = watched(tmp_path, COMPILED)
    assert printed == "[3.0, 3.0, 3.0] 1 train\n"
    assert (result.steps.finder, result.steps.functions, result.steps.watched) == ("compiled", ("train",), 5)


@SLOW
@needs("jax")
def test_calls_of_a_jitted_function_are_the_steps(tmp_path: Path) -> None:
    _, result = watched(tmp_path, JITTED)
    assert (result.steps.finder, result.steps.functions, result.steps.watched) == ("compiled", ("train",), 5)


@SLOW
@needs("jax")
def test_a_jitted_function_works_as_without_a_watch(tmp_path: Path) -> None:
    text = f"""{JITTED}
import copy, inspect, pickle, weakref, jax.export
for line in {USES_OF_JITTED!r}.strip().splitlines():
    try:
        print(line, eval(line))
    except Exception as error:
        print(line, type(error), error)
"""
    printed, _ = watched(tmp_path, text)
    alone = subprocess.run(
        [sys.executable, "train.py"],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
        cwd=tmp_path,
        env={**environment(), "JAX_PLATFORMS": "cpu"},
    )
    address = re.compile("0x[0-9a-f]+")
    assert address.sub("0x", printed) == address.sub("0x", alone.stdout)
    assert len(printed.splitlines()) > len(USES_OF_JITTED.splitlines())


@SLOW
@needs("torch")
def test_a_named_method_of_a_framework_is_the_step_instead_of_the_optimizers(tmp_path: Path) -> None:
    _, result = watched(tmp_path, TRAINING, "--step", "torch.nn:Linear.forward")
    assert (result.steps.finder, result.steps.functions) == ("named", ("torch.nn:Linear.forward",))
    assert result.steps.watched == 12
