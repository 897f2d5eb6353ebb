"""The steps that are found in an unchanged script: which calls count, and which kind has precedence."""

from __future__ import annotations

import inspect
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from watch.copying import session, window_of

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


def found_in(watched: Session, named: NamedFunction | None = None) -> FoundSteps:
    """The steps of this session, found from now on."""
    made = FoundSteps(lambda: watched.steps)
    find_steps(made, named)
    return made


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
    with session() as watched:
        found_in(watched)
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
    with session() as watched:
        found_in(watched)
        callbacks = importing(KERAS).CallbackList()
        callbacks.on_train_batch_begin(0)
        callbacks.on_train_batch_begin(0)
        callbacks.on_train_batch_end(0)
        callbacks.on_train_batch_end(0)
    assert len(window_of(watched).steps) == 1


@pytest.mark.parametrize("name", [TENSORFLOW, JAX])
def test_calls_of_a_compiled_function_are_steps_from_the_second_on(
    engine: Engine, importing: Import, name: str
) -> None:
    def train(number: int, *, function: int) -> int:
        return number + function

    with session() as watched:
        found_in(watched)
        module = importing(name)
        function = module.Function(train) if name == TENSORFLOW else module.jit(train)
        assert [function(number, function=1) for number in range(4)] == [1, 2, 3, 4]
    window = window_of(watched)
    assert (window.finder, window.functions, len(window.steps)) == ("compiled", ("train",), 3)
    assert window.steps[0].from_ns < window.steps[0].begin_ns
    assert not window.remarks


def test_a_compiled_function_that_is_called_once_is_not_a_step(engine: Engine, importing: Import) -> None:
    with session() as watched:
        found_in(watched)
        for each in range(3):
            importing(TENSORFLOW).Function(lambda each=each: each)()
    assert (window_of(watched).finder, window_of(watched).steps) == (None, ())


def test_functions_that_jax_itself_has_compiled_are_not_counted(engine: Engine, importing: Import) -> None:
    with session() as watched:
        found_in(watched)
        jax = importing(JAX)
        function = vars(importing("own", "def dot(): return 3"))["dot"]
        function.__module__ = "jax.experimental.sparse"
        product = jax.jit(function)
        assert [product() for _ in range(3)] == [3, 3, 3]
    assert window_of(watched).steps == ()


def test_calls_inside_a_step_are_part_of_it(engine: Engine, importing: Import) -> None:
    with session() as watched:
        found_in(watched)
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
    own = importing("own", "def generate(x): return x")
    with session() as watched:
        found_in(watched, NamedFunction("own:generate"))
        function = importing(TENSORFLOW).Function(lambda: None)
        callbacks = importing(KERAS).CallbackList()
        for _ in range(4):
            function()
            callbacks.on_train_batch_begin(0)
            callbacks.on_train_batch_end(0)
            importing(OPTIMIZER).step()
        assert [own.generate(number) for number in range(2)] == [0, 1]
    window = window_of(watched)
    assert (window.finder, window.functions, len(window.steps)) == ("named", ("own:generate",), 2)


def test_a_named_call_that_raises_is_a_failed_step(engine: Engine, importing: Import) -> None:
    own = importing("own", "def f(x): return 1 / x")
    with session() as watched:
        found_in(watched, NamedFunction("own:f"))
        with pytest.raises(ZeroDivisionError):
            own.f(0)
        own.f(1)
    assert [step.failed for step in window_of(watched).steps] == ["ZeroDivisionError: division by zero", None]


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

        def in_another_thread() -> None:
            thread = threading.Thread(target=run, args=(found, "named"))
            thread.start()
            thread.join()

        run(found, "named", function=in_another_thread)
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
async def both(): yield
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
def test_functions_and_methods_can_be_named(
    engine: Engine, importing: Import, path: str, expression: str, result: object
) -> None:
    with session() as watched:
        found_in(watched, NamedFunction(f"own:{path}"))
        own = importing("own", OWN)
        assert eval(expression, {"own": own}) == result
    assert window_of(watched).functions == (f"own:{path}",)


def test_a_named_function_keeps_its_signature_its_attributes_and_its_pickle(engine: Engine, importing: Import) -> None:
    with session() as watched:
        plain = importing("own", OWN)
        signature, attributes = inspect.signature(plain.Model.generate), dict(vars(plain.Model.generate))
        pickled = pickle.dumps((plain.function, plain.Model.generate, plain.model))
        for path in ("function", "Model.generate"):
            found_in(watched, NamedFunction(f"own:{path}"))
    changed = plain.Model.generate
    assert changed.__wrapped__ is not changed
    assert (inspect.signature(changed), changed.__name__, changed.__doc__) == (signature, "generate", "Its text.")
    assert attributes.items() <= vars(changed).items()
    assert pickle.dumps((plain.function, changed, plain.model)) == pickled
    assert pickle.loads(pickled)[0] is plain.function


def test_a_jitted_function_keeps_its_type_its_attributes_and_its_pickle(engine: Engine, importing: Import) -> None:
    with session() as watched:
        jax = importing(JAX)
        plain = jax.jit(inspect.cleandoc, static=3)
        found_in(watched)
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
    with session() as watched:
        found_in(watched)
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
        ("own:Model.value", "own:Model.value is not a function, but of type int"),
        ("own:model.generate", "own:model is not a class: name the method of its class"),
        ("own:coroutine", "own:coroutine is a coroutine or generator function"),
        ("own:generator", "own:generator is a coroutine or generator function"),
        ("own:both", "own:both is a coroutine or generator function"),
        ("own:function", "own:function was never called"),
        ("other:function", "the script did not import 'other'"),
        ("__main__:function", "the script did not define 'function'"),
    ],
)
def test_a_function_that_gives_no_steps_has_a_reason(
    engine: Engine, importing: Import, text: str, problem: str
) -> None:
    named = NamedFunction(text)
    with session() as watched:
        found_in(watched, named)
        importing("own", OWN)
    assert named.problem.startswith(problem)
    assert window_of(watched).steps == ()


def test_a_function_that_was_called_has_no_problem(importing: Import) -> None:
    named = NamedFunction("own:function")
    find_steps(FoundSteps(lambda: NO_STEP), named)
    importing("own", OWN).function(1)
    assert named.problem == ""


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
    find_steps(FoundSteps(lambda: NO_STEP), None)
    for name in SOURCES:
        module = ModuleType(name)
        sys.modules[name] = module
        find_steps(FoundSteps(lambda: NO_STEP), None)
        assert not [each for each in vars(module) if not each.startswith("__")]


def test_modules_keep_their_own_loaders(importing: Import) -> None:
    find_steps(FoundSteps(lambda: NO_STEP), None)
    for name in SOURCES:
        module = importing(name)
        assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"


def test_the_finder_ignores_other_modules_and_is_removed_after_the_last_import(importing: Import) -> None:
    before = list(sys.meta_path)
    stop = find_steps(FoundSteps(lambda: NO_STEP), None)
    (waiting,) = [each for each in sys.meta_path if each not in before]
    assert waiting.find_spec("json", None) is None
    for name in SOURCES:
        importing(name)
    assert sys.meta_path == before
    stop()
    find_steps(FoundSteps(lambda: NO_STEP), NamedFunction("own:f"))()
    assert sys.meta_path == before
