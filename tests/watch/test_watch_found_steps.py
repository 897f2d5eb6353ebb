"""The steps that are found in an unchanged script: by stand-ins for the frameworks, and by real ones."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from frameworks.installed.conftest import SLOW, needs
from watch.copying import call, in_threads, session, window_of

from pyxfer._document.watches import Watched
from pyxfer._watch.session import Session
from pyxfer._watch.step_finding import JAX, KERAS, OPTIMIZER, TENSORFLOW, FoundSteps, NamedFunction, find_steps
from pyxfer._watch.step_tracking import NO_STEP, SkippedSteps
from pyxfer.errors import UsageError
from pyxfer.native import Engine

KERAS_SOURCE = """
class CallbackList:
    def on_train_batch_begin(self, batch, logs=None):
        return batch
    def on_train_batch_end(self, batch, logs=None):
        return logs
"""
TORCH_SOURCE = """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
def step():
    for hook in hooks:
        hook(step, (), {})
"""
TENSORFLOW_SOURCE = """
class Function:
    def __init__(self, function):
        self._function = function
        self._name = function.__name__
    def __call__(self, *args, **kwds):
        return self._function(*args, **kwds)
"""
JAX_SOURCE = """
import functools
class Jitted:
    def __init__(self, fun, static):
        functools.update_wrapper(self, fun)
        self.static = static
    def __call__(self, *args, **kwargs):
        return self.__wrapped__(*args, **kwargs)
    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)
    def lower(self, *args):
        return "lowered"
    def __eq__(self, other):
        return self is other
    def __hash__(self):
        return 1
    def __reduce__(self):
        return Jitted, (len, self.static)
def jit(fun=None, *, static=None):
    if fun is None:
        return lambda each: jit(each, static=static)
    return Jitted(fun, static)
"""
SOURCES = {KERAS: KERAS_SOURCE, OPTIMIZER: TORCH_SOURCE, TENSORFLOW: TENSORFLOW_SOURCE, JAX: JAX_SOURCE}
Import = Callable[..., Any]


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Imports a module of a folder of its own, in which stand-ins for the frameworks are."""
    before = dict(sys.modules)
    tops = {name.partition(".")[0] for name in SOURCES}
    for name in [each for each in sys.modules if each.partition(".")[0] in tops]:
        monkeypatch.delitem(sys.modules, name)
    for name, source in SOURCES.items():
        path = tmp_path.joinpath(*name.split("."))
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / "__init__.py").touch()  # else a package that is installed would be found first
        path.with_suffix(".py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    def imported(name: str, source: str | None = None) -> Any:
        if source is not None:
            (tmp_path / f"{name}.py").write_text(source)
        __import__(name)
        return sys.modules[name]

    yield imported
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


@contextmanager
def finding(named: NamedFunction | None = None) -> Iterator[Session]:
    """A session whose steps are found."""
    with session() as watched:
        find_steps(FoundSteps(lambda: watched.steps), named)
        yield watched


@pytest.fixture(autouse=True)
def finders() -> Iterator[None]:
    """Finders that wait for imports are removed after each test."""
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before


def run(found: FoundSteps, kind: Any, name: str = "f", times: int = 1, function: Any = int) -> None:
    for _ in range(times):
        found.call(kind, name, function, (), {})


def test_batches_of_keras_are_steps_with_their_input_between_them(engine: Engine, importing: Import) -> None:
    with finding() as watched:
        callbacks = importing(KERAS).CallbackList()
        for batch in range(3):
            assert callbacks.on_train_batch_begin(batch) == batch
            assert callbacks.on_train_batch_end(batch, logs={"loss": 1}) == {"loss": 1}
    window = window_of(watched)
    assert (window.finder, window.functions, len(window.steps)) == ("keras", ("fit",), 3)
    first, second, third = window.steps
    assert first.from_ns == first.begin_ns
    assert (second.from_ns, third.from_ns) == (first.end_ns, second.end_ns)
    assert second.begin_ns > second.from_ns


def test_a_batch_without_an_end_is_not_a_step(engine: Engine, importing: Import) -> None:
    with finding() as watched:
        callbacks = importing(KERAS).CallbackList()
        callbacks.on_train_batch_begin(0)
        callbacks.on_train_batch_begin(0)
        callbacks.on_train_batch_end(0)
        callbacks.on_train_batch_end(0)
    assert len(window_of(watched).steps) == 1


@pytest.mark.parametrize("name", [TENSORFLOW, JAX])
def test_calls_of_a_compiled_function_are_steps_but_the_first(engine: Engine, importing: Import, name: str) -> None:
    def train(number: int, *, function: int) -> int:
        return number + function

    with finding() as watched:
        module = importing(name)
        function = module.Function(train) if name == TENSORFLOW else module.jit(train)
        assert [function(number, function=1) for number in range(4)] == [1, 2, 3, 4]
    window = window_of(watched)
    assert (window.finder, window.functions, len(window.steps)) == ("compiled", ("train",), 3)
    assert window.steps[0].from_ns < window.steps[0].begin_ns
    assert not window.remarks


def test_a_compiled_function_that_is_called_once_is_not_a_step(engine: Engine, importing: Import) -> None:
    with finding() as watched:
        for each in range(3):
            importing(TENSORFLOW).Function(lambda each=each: each)()
    assert (window_of(watched).finder, window_of(watched).steps) == (None, ())


def test_functions_that_jax_itself_has_compiled_are_not_counted(engine: Engine, importing: Import) -> None:
    with finding() as watched:
        jax = importing(JAX)
        function = vars(importing("own", "def dot(): return 3"))["dot"]
        function.__module__ = "jax.experimental.sparse"
        product = jax.jit(function)
        assert [product() for _ in range(3)] == [3, 3, 3]
    assert window_of(watched).steps == ()


def test_calls_inside_a_step_are_part_of_it(engine: Engine, importing: Import) -> None:
    with finding() as watched:
        jit = importing(JAX).jit
        inner = jit(lambda: None)
        outer = jit(lambda: [inner() for _ in range(5)])
        for _ in range(4):
            outer()
    assert len(window_of(watched).steps) == 3


def test_several_compiled_functions_are_counted_separately_with_a_remark(engine: Engine) -> None:
    with session() as watched:
        found = FoundSteps(lambda: watched.steps)
        for name in ("a", "b", "a"):
            run(found, "compiled", name)
    window = window_of(watched)
    assert (window.functions, len(window.steps)) == (("a", "b"), 3)
    assert [remark.code for remark in window.remarks] == ["functions"]


def stepped(found: FoundSteps, kind: str) -> None:
    """One step of this kind, with a call of a compiled function and an optimizer's step in it as far as it has them."""
    if kind == "keras":
        found.batch_began()
    run(found, "compiled", "train")
    if kind != "compiled":
        found.optimizer_stepped(1)
    if kind == "keras":
        found.batch_ended()


@pytest.mark.parametrize(("higher", "count"), [("optimizer", 3), ("keras", 4)])
def test_steps_of_a_lower_kind_are_dropped_when_a_higher_one_is_found(engine: Engine, higher: str, count: int) -> None:
    with session() as watched:
        found = FoundSteps(lambda: watched.steps)
        run(found, "compiled", "warm-up", 5)
        for _ in range(4):
            stepped(found, higher)
        run(found, "compiled", "evaluate", 5)
        if higher == "keras":
            found.optimizer_stepped(1)
    window = window_of(watched)
    assert (window.finder, len(window.steps)) == (higher, count)
    assert "warm-up" not in window.functions
    assert [remark.code for remark in window.remarks] == ["restarted"]


@pytest.mark.parametrize("higher", ["optimizer", "keras"])
def test_steps_to_skip_are_those_of_the_higher_kind(engine: Engine, higher: str) -> None:
    with session(skip=3, steps=2) as watched:
        found = FoundSteps(lambda: watched.steps)
        run(found, "compiled", "warm-up")
        for _ in range(3):
            assert isinstance(watched.steps, SkippedSteps)
            stepped(found, higher)
        for _ in range(2):
            assert watched.is_active
            stepped(found, higher)
    window = window_of(watched)
    assert (window.finder, window.skipped, len(window.steps), window.remarks) == (higher, 3, 2, ())


def test_a_window_that_a_lower_kind_has_opened_skips_the_steps_of_the_higher_one(engine: Engine) -> None:
    with session(skip=3, steps=2) as watched:
        found = FoundSteps(lambda: watched.steps)
        run(found, "compiled", "warm-up", 4)
        begins = []
        for _ in range(5):
            begins.append(time.perf_counter_ns())
            stepped(found, "keras")
    window = window_of(watched)
    assert (window.ended, window.skipped, len(window.steps)) == ("complete", 3, 2)
    assert begins[3] < window.steps[0].begin_ns < begins[4]


def test_a_named_function_is_the_only_step(engine: Engine, importing: Import) -> None:
    own = importing("own", "def generate(x): return 1 / x")
    with finding(NamedFunction("own:generate")) as watched:
        function = importing(TENSORFLOW).Function(lambda: None)
        callbacks = importing(KERAS).CallbackList()
        for _ in range(4):
            function()
            callbacks.on_train_batch_begin(0)
            callbacks.on_train_batch_end(0)
            importing(OPTIMIZER).step()
        with pytest.raises(ZeroDivisionError):
            own.generate(0)
        assert own.generate(1) == 1
    window = window_of(watched)
    assert (window.finder, window.functions) == ("named", ("own:generate",))
    assert [step.failed for step in window.steps] == ["ZeroDivisionError: division by zero", None]


def test_a_call_that_began_before_the_window_is_not_a_step(engine: Engine) -> None:
    with session() as watched:
        watched.stop()
        found = FoundSteps(lambda: watched.steps)
        run(found, "named", "f", function=watched.start)
        run(found, "named")
    (step,) = window_of(watched).steps
    assert step.from_ns < step.begin_ns


def test_steps_of_several_threads_do_not_nest(engine: Engine) -> None:
    with session() as watched:
        found = FoundSteps(lambda: watched.steps)

        run(found, "named", function=lambda: in_threads(lambda: run(found, "named")))
    assert len({step.thread for step in window_of(watched).steps}) == 2


OWN = """
import functools
class Base:
    def inherited(self, x):
        return x
class Model(Base):
    def generate(self, x, *, y=1):
        "Its text."
        return self.__class__.__name__, x, y
    generate.note = "kept"
    @staticmethod
    def fixed(x, y=2):
        return x, y
    @classmethod
    def made(cls, x):
        return cls.__name__, x
    class Inner:
        def step(self, x):
            return x
    value = 3
def function(x, *rest, y=4, **more):
    return x, rest, y, more
early = function
partial = functools.partial(function, 5)
number = 6
async def coroutine(): pass
def generator(): yield
model = Model()
"""


@pytest.mark.parametrize(
    ("path", "expression", "result"),
    [
        ("function", "own.function(1, 2, z=3)", (1, (2,), 4, {"z": 3})),
        ("Model.generate", "own.Model().generate(1)", ("Model", 1, 1)),
        ("Model.generate", "own.model.generate(1, y=2)", ("Model", 1, 2)),
        ("Model.inherited", "own.model.inherited(1)", 1),
        ("Model.fixed", "own.Model.fixed(1)", (1, 2)),
        ("Model.made", "own.model.made(1)", ("Model", 1)),
        ("Model.Inner.step", "own.Model.Inner().step(1)", 1),
        ("partial", "own.partial(7)", (5, (7,), 4, {})),
    ],
)
def test_a_function_can_be_named(engine: Engine, importing: Import, path: str, expression: str, result: object) -> None:
    named = NamedFunction(f"own:{path}")
    with finding(named) as watched:
        own = importing("own", OWN)
        assert eval(expression, {"own": own}) == result
    assert window_of(watched).functions == (f"own:{path}",)
    assert named.problem == ""


def test_a_named_function_keeps_its_signature_its_attributes_and_its_pickle(engine: Engine, importing: Import) -> None:
    with session() as watched:
        plain = importing("own", OWN)
        signature, attributes = inspect.signature(plain.Model.generate), dict(vars(plain.Model.generate))
        pickled = pickle.dumps((plain.function, plain.Model.generate, plain.model))
        for path in ("function", "Model.generate"):
            find_steps(FoundSteps(lambda: watched.steps), NamedFunction(f"own:{path}"))
    changed = plain.Model.generate
    assert changed.__wrapped__ is not changed
    assert (inspect.signature(changed), changed.__name__, changed.__doc__) == (signature, "generate", "Its text.")
    assert attributes.items() <= vars(changed).items()
    assert pickle.dumps((plain.function, changed, plain.model)) == pickled
    assert pickle.loads(pickled)[0] is plain.function


def test_a_jitted_function_keeps_its_type_its_attributes_and_its_pickle(engine: Engine, importing: Import) -> None:
    jax = importing(JAX)
    plain = jax.jit(inspect.cleandoc, static=3)
    with finding():
        jitted, decorated = jax.jit(inspect.cleandoc, static=3), jax.jit(static=3)(inspect.cleandoc)
    for each in (jitted, decorated):
        assert isinstance(each, type(plain))
        assert (each.lower(), each.static, each.__name__) == ("lowered", 3, "cleandoc")
        assert (each.__doc__, each.__module__) == (plain.__doc__, plain.__module__)
        assert inspect.signature(each) == inspect.signature(plain)
        assert pickle.dumps(each) == pickle.dumps(plain)
        assert repr(each).split(" at ")[0] == repr(plain).split(" at ")[0]
    jitted.note = 1
    assert vars(jitted)["note"] == jitted.note == 1
    assert {jitted: 2}[jitted] == 2
    assert "lower" in dir(jitted)
    assert inspect.signature(jax.jit) == inspect.signature(jax.jit.__wrapped__)


def test_a_jitted_method_is_bound_to_its_instance(engine: Engine, importing: Import) -> None:
    with finding() as watched:
        jit = importing(JAX).jit

        class Model:
            def plain(self, x: int) -> tuple[object, int]:
                return self, x

            step = jit(plain)

        model = Model()
        assert [model.step(1), model.step(x=2)] == [(model, 1), (model, 2)]
    assert window_of(watched).functions == ("plain",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("own:none", "the module 'own' has no 'none'"),
        ("own:Model.none", "own:Model has no 'none'"),
        ("own:Model", "own:Model is a class: name one of its methods, such as own:Model.__call__"),
        ("own:number", "own:number is not a function, but of type int"),
        ("own:model.generate", "own:model is not a class: name the method of its class"),
        ("own:coroutine", "own:coroutine is a coroutine or generator function"),
        ("own:generator", "own:generator is a coroutine or generator function"),
        ("own:function", "own:function was never called in this process"),
        ("other:function", "the script did not import 'other'"),
        ("__main__:function", "the script did not define 'function'"),
    ],
)
def test_a_function_without_steps_has_a_reason(engine: Engine, importing: Import, text: str, problem: str) -> None:
    named = NamedFunction(text)
    with finding(named) as watched:
        importing("own", OWN)
    assert named.problem.startswith(problem)
    assert window_of(watched).steps == ()


@pytest.mark.parametrize(
    "text", ["", "step", ":step", "own:", "own:a.", "own:a:b", "own/it.py:step", "own.py:step", "own:step()"]
)
def test_a_text_that_names_no_function_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--step"):
        NamedFunction(text)


def test_a_module_that_does_not_exist_is_a_usage_error(importing: Import) -> None:
    importing("own", OWN)
    NamedFunction("own:function").check()
    NamedFunction("email.no:function").check()
    with pytest.raises(UsageError, match="there is no module 'nosuch'"):
        NamedFunction("nosuch.part:function").check()


def test_a_framework_that_differs_inside_is_imported_without_steps(engine: Engine, importing: Import) -> None:
    for name in SOURCES:
        module = ModuleType(name)
        sys.modules[name] = module
        find_steps(FoundSteps(lambda: NO_STEP), None)
        assert not [each for each in vars(module) if not each.startswith("__")]


def test_the_finder_ignores_other_modules_and_is_removed_after_the_last_import(importing: Import) -> None:
    before = list(sys.meta_path)
    stop = find_steps(FoundSteps(lambda: NO_STEP), None)
    (waiting,) = [each for each in sys.meta_path if each not in before]
    assert waiting.find_spec("json", None) is None
    for name in SOURCES:
        module = importing(name)
        assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert sys.meta_path == before
    stop()
    find_steps(FoundSteps(lambda: NO_STEP), NamedFunction("own:f"))()
    assert sys.meta_path == before


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
KERAS_SCRIPT = """
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


def run_script(folder: Path, *arguments: str, **variables: str) -> str:
    """What it prints."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    result = call(folder, sys.executable, *arguments, "train.py", **quiet, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout


def watched(folder: Path, text: str, *options: str, **variables: str) -> tuple[str, Watched]:
    (folder / "train.py").write_text(text)
    command = ["-m", "pyxfer", "watch", "--device", "host", "--ceilings", "none", "--export-json", "w.json"]
    return run_script(folder, *command, *options, **variables), Watched.load(folder / "w.json")


# One step: the window closes inside PyTorch's own step.
@needs("torch")
@pytest.mark.parametrize(("skip", "steps"), [(3, 5), (0, 1)])
def test_optimizer_steps_are_skipped_and_counted(tmp_path: Path, skip: int, steps: int) -> None:
    _, result = watched(tmp_path, TRAINING, f"--skip={skip}", f"--steps={steps}")
    assert (result.steps.skipped, result.steps.watched, result.ended) == (skip, steps, "complete")
    assert result.steps.finder == "optimizer"


@SLOW
@needs("tensorflow")
@pytest.mark.parametrize(
    ("backend", "skip", "options"),
    [("tensorflow", 0, ()), ("jax", 0, ()), ("torch", 0, ()), ("tensorflow", 4, ("--skip=4", "--steps=8"))],
)
def test_batches_of_keras_fit_are_the_steps(tmp_path: Path, backend: str, skip: int, options: tuple[str, ...]) -> None:
    pytest.importorskip("keras", reason="not installed: Keras")
    text = KERAS_SCRIPT
    if backend == "torch":
        text = text.replace("import jax\n", "").replace("jax.jit(lambda x: x + 1)", "abs")
    printed, result = watched(tmp_path, text, *options, KERAS_BACKEND=backend)
    assert printed == "12\n"
    assert (result.steps.finder, result.steps.skipped, result.steps.failed) == ("keras", skip, 0)
    assert result.steps.watched == 12 - skip
    assert result.steps.between_s is not None


@SLOW
@pytest.mark.parametrize(
    ("text", "output"),
    [
        pytest.param(COMPILED, "[3.0, 3.0, 3.0] 1 train\n", marks=needs("tensorflow")),
        pytest.param(JITTED, "", marks=needs("jax")),
    ],
)
def test_calls_of_a_compiled_function_of_a_framework_are_the_steps(tmp_path: Path, text: str, output: str) -> None:
    printed, result = watched(tmp_path, text)
    assert printed == output
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
    address = re.compile("0x[0-9a-f]+")
    assert address.sub("0x", printed) == address.sub("0x", run_script(tmp_path))
    assert len(printed.splitlines()) > len(USES_OF_JITTED.splitlines())


@SLOW
@needs("torch")
def test_a_named_method_of_a_framework_is_the_step_instead_of_the_optimizers(tmp_path: Path) -> None:
    _, result = watched(tmp_path, TRAINING, "--step", "torch.nn:Linear.forward")
    assert (result.steps.finder, result.steps.functions) == ("named", ("torch.nn:Linear.forward",))
    assert result.steps.watched == 12
